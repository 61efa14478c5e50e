//! The threshold policer (Cataclysm, section 3.3): a pair (class, fraction), computed now and then from what arrives and what it
//! takes, and a comparison a request. More important classes are let in, lesser ones are not, and of the one in between the
//! fraction.
//!
//! The paper's knows no sizes. This one stands between any two *kinds*, which are numbered in the order in which they are let in: for
//! the police a class's small requests before its big ones.

use plimsoll_core::Rng;
use plimsoll_core::sync::{AtomicU64, Ordering::Relaxed};
use rand::Rng as _;

/// The fraction takes the lower 32 bits of the word as parts of 2^32, the kind the upper.
const FRACTION_BITS: u32 = 32;
const WHOLE: u64 = 1 << FRACTION_BITS;

/// Which kinds are let in, and how much of the last of them.
pub struct Threshold {
    /// The kind that is let in in part, and the fraction.
    word: AtomicU64,
}

impl Default for Threshold {
    /// Lets everything in.
    fn default() -> Self {
        Threshold { word: AtomicU64::new(u64::MAX) }
    }
}

impl Threshold {
    /// Sets the threshold so that what arrives fills `servers` (Eq. 5 and 6). `wanted` are, by kind, the servers that would be kept
    /// busy by its requests, without those that a promised rate lets in anyway; `servers` are those that the promised rates leave:
    /// total slots times the utilisation aimed at, less what the promises take.
    pub fn set(&self, wanted: impl IntoIterator<Item = f64>, servers: f64) {
        let mut left = servers;
        for (kind, wanted) in wanted.into_iter().enumerate() {
            if wanted > left {
                let fraction = ((left / wanted).max(0.0) * WHOLE as f64) as u64;
                self.word.store((kind as u64) << FRACTION_BITS | fraction.min(WHOLE - 1), Relaxed);
                return;
            }
            left -= wanted;
        }
        self.word.store(u64::MAX, Relaxed);
    }

    /// Whether a request of this kind is let in.
    #[inline]
    pub fn admits(&self, kind: usize, rng: &mut Rng) -> bool {
        let word = self.word.load(Relaxed);
        let (kind, at) = (kind as u64, word >> FRACTION_BITS);
        kind < at || (kind == at && rng.next_u64() >> FRACTION_BITS < word % WHOLE)
    }

    /// The first kind that is not let in whole.
    #[inline]
    pub fn first_cut(&self) -> usize {
        (self.word.load(Relaxed) >> FRACTION_BITS) as usize
    }

    /// The share of the requests of this kind that is let in.
    pub fn share(&self, kind: usize) -> f64 {
        let word = self.word.load(Relaxed);
        match (kind as u64).cmp(&(word >> FRACTION_BITS)) {
            std::cmp::Ordering::Less => 1.0,
            std::cmp::Ordering::Equal => (word % WHOLE) as f64 / WHOLE as f64,
            std::cmp::Ordering::Greater => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::rng::seeded;
    use proptest::prelude::*;

    proptest! {
        /// Eq. 5 and 6: what is let in fills the servers, unless all of it does not; and no kind gets anything while one before it
        /// goes short.
        #[test]
        fn fills_the_servers_from_the_top(
            wanted in prop::collection::vec(0.0f64..100.0, 1..9),
            servers in 0.0f64..60.0,
        ) {
            let threshold = Threshold::default();
            threshold.set(wanted.iter().copied(), servers);
            let shares: Vec<f64> = (0..wanted.len()).map(|kind| threshold.share(kind)).collect();
            let used: f64 = wanted.iter().zip(&shares).map(|(wanted, share)| wanted * share).sum();
            let all: f64 = wanted.iter().sum();
            prop_assert!((used - all.min(servers)).abs() < 1e-6, "{used} of {all} for {servers}");
            for (i, pair) in shares.windows(2).enumerate() {
                prop_assert!(pair[1] == 0.0 || pair[0] == 1.0, "{i}: {shares:?}");
            }
            let whole = shares.iter().take_while(|&&share| share == 1.0).count();
            prop_assert_eq!(threshold.first_cut().min(wanted.len()), whole);
        }
    }

    #[test]
    fn a_kind_is_let_in_as_often_as_its_share_says() {
        let threshold = Threshold::default();
        threshold.set([2.0, 10.0, 0.5], 5.0);
        let mut rng = seeded(7, 0);
        let mut admitted = |kind| (0..100_000).filter(|_| threshold.admits(kind, &mut rng)).count();
        assert_eq!((admitted(0), admitted(2)), (100_000, 0));
        let part = admitted(1);
        assert!(part.abs_diff(30_000) < 700, "{part}");
    }

    #[test]
    fn until_something_is_known_everything_is_let_in() {
        assert!((0..4_096).all(|kind| Threshold::default().admits(kind, &mut seeded(1, 0))));
    }
}
