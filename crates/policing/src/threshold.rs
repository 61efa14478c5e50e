//! The threshold policer (Cataclysm, section 3.3): a pair (class, fraction), computed now and then from what arrives and what it
//! takes, and a comparison a request. More important classes are let in, lesser ones are not, and of the one in between the
//! fraction.

use plimsoll_core::Rng;
use plimsoll_core::sync::{AtomicU64, Ordering::Relaxed};
use rand::Rng as _;

/// The fraction takes the lower 32 bits of the word as parts of 2^32, the rank the upper.
const FRACTION_BITS: u32 = 32;
const WHOLE: u64 = 1 << FRACTION_BITS;

/// What a class asks of the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Requests a second, without those that its promised rate lets in anyway: the paper's lambda.
    pub per_s: f64,
    /// Mean service time in seconds: the paper's s.
    pub service_s: f64,
}

impl Demand {
    /// Servers that it keeps busy.
    pub fn servers(&self) -> f64 {
        self.per_s * self.service_s
    }
}

/// Which classes are let in, and how much of the last of them.
pub struct Threshold {
    /// The rank of the class that is let in in part, and the fraction.
    word: AtomicU64,
}

impl Default for Threshold {
    /// Lets everything in.
    fn default() -> Self {
        Threshold { word: AtomicU64::new(u64::MAX) }
    }
}

impl Threshold {
    /// Sets the threshold so that `demands`, by rank, fill `servers` (Eq. 5 and 6). `servers` are those that the promised rates
    /// leave: total slots times the utilisation aimed at, less what the promises take.
    pub fn set(&self, demands: &[Demand], servers: f64) {
        let mut left = servers;
        for (rank, demand) in demands.iter().enumerate() {
            let wanted = demand.servers();
            if wanted > left {
                let fraction = ((left / wanted).max(0.0) * WHOLE as f64) as u64;
                self.word.store((rank as u64) << FRACTION_BITS | fraction.min(WHOLE - 1), Relaxed);
                return;
            }
            left -= wanted;
        }
        self.word.store(u64::MAX, Relaxed);
    }

    /// Whether a request of this rank is let in.
    #[inline]
    pub fn admits(&self, rank: usize, rng: &mut Rng) -> bool {
        let word = self.word.load(Relaxed);
        let (rank, at) = (rank as u64, word >> FRACTION_BITS);
        rank < at || (rank == at && rng.next_u64() >> FRACTION_BITS < word % WHOLE)
    }

    /// The share of the requests of this rank that is let in.
    pub fn share(&self, rank: usize) -> f64 {
        let word = self.word.load(Relaxed);
        match (rank as u64).cmp(&(word >> FRACTION_BITS)) {
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
        /// Eq. 5 and 6: what is let in fills the servers, unless all of it does not; and no class gets anything while a more
        /// important one goes short.
        #[test]
        fn fills_the_servers_from_the_top(
            demands in prop::collection::vec((0.0f64..500.0, 0.0f64..0.2), 1..9),
            servers in 0.0f64..60.0,
        ) {
            let demands: Vec<Demand> =
                demands.into_iter().map(|(per_s, service_s)| Demand { per_s, service_s }).collect();
            let threshold = Threshold::default();
            threshold.set(&demands, servers);
            let shares: Vec<f64> = (0..demands.len()).map(|rank| threshold.share(rank)).collect();
            let (wanted, used) = demands.iter().zip(&shares).fold((0.0, 0.0), |(wanted, used), (demand, share)| {
                (wanted + demand.servers(), used + demand.servers() * share)
            });
            prop_assert!((used - wanted.min(servers)).abs() < 1e-6, "{used} of {wanted} for {servers}");
            for (i, pair) in shares.windows(2).enumerate() {
                prop_assert!(pair[1] == 0.0 || pair[0] == 1.0, "{i}: {shares:?}");
            }
        }
    }

    #[test]
    fn a_class_is_let_in_as_often_as_its_share_says() {
        let threshold = Threshold::default();
        let demand = |per_s| Demand { per_s, service_s: 0.1 };
        threshold.set(&[demand(20.0), demand(100.0), demand(5.0)], 5.0);
        let mut rng = seeded(7, 0);
        let mut admitted = |rank| (0..100_000).filter(|_| threshold.admits(rank, &mut rng)).count();
        assert_eq!((admitted(0), admitted(2)), (100_000, 0));
        let part = admitted(1);
        assert!(part.abs_diff(30_000) < 700, "{part}");
    }

    #[test]
    fn until_something_is_known_everything_is_let_in() {
        assert!((0..64).all(|rank| Threshold::default().admits(rank, &mut seeded(1, 0))));
    }
}
