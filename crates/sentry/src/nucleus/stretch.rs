//! By how much requests take longer than they would on a server that has nothing else to do: the paper multiplies what a request needs
//! by the requests that its server works on (Cataclysm, Eq. 3); here the factor is measured. It is 1 where servers tell nothing, for then
//! what requests need is what they took.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll_core::Nanos;

/// What is known weighs so much a second later: half of it is from the last two seconds.
const DECAY: f64 = 0.7;
/// A server that is quicker than it ought to be is one whose reports are wrong, and so is one that is that much slower.
const LEAST: f64 = 0.1;
const MOST: f64 = 1_000.0;

/// The factor of one pool. Lock-free; [`Stretch::tick`] is for one caller at a time.
#[derive(Debug)]
pub struct Stretch {
    /// Since the last tick, in microseconds: what requests took, and what they should have.
    took_us: AtomicU64,
    needed_us: AtomicU64,
    /// `f64`s: the same before that, faded, and the factor.
    faded: [AtomicU64; 2],
    factor: AtomicU64,
}

impl Default for Stretch {
    fn default() -> Stretch {
        Stretch {
            took_us: AtomicU64::new(0),
            needed_us: AtomicU64::new(0),
            faded: [0.0f64; 2].map(|sum| AtomicU64::new(sum.to_bits())),
            factor: AtomicU64::new(1f64.to_bits()),
        }
    }
}

impl Stretch {
    /// A request that was expected to need so much took so long.
    pub fn note(&self, needed: Nanos, took: Nanos) {
        self.needed_us.fetch_add(needed.0 / 1_000, Relaxed);
        self.took_us.fetch_add(took.0 / 1_000, Relaxed);
    }

    /// What a request that needs `inherent` is expected to take.
    #[inline]
    pub fn of(&self, inherent: Nanos) -> Nanos {
        Nanos((inherent.0 as f64 * f64::from_bits(self.factor.load(Relaxed))) as u64)
    }

    /// Renews the factor, once a second.
    pub fn tick(&self) {
        let [took, needed] = [(&self.took_us, 0), (&self.needed_us, 1)].map(|(newest, i)| {
            let sum = f64::from_bits(self.faded[i].load(Relaxed)) * DECAY + newest.swap(0, Relaxed) as f64;
            self.faded[i].store(sum.to_bits(), Relaxed);
            sum
        });
        if needed > 0.0 {
            self.factor.store((took / needed).clamp(LEAST, MOST).to_bits(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    #[test]
    fn the_factor_follows_what_requests_take() {
        let stretch = Stretch::default();
        stretch.tick();
        assert_eq!(stretch.of(MS(7)), MS(7), "nothing is known");
        let of_ten_ms = |times: u64| {
            for _ in 0..20 {
                (0..100).for_each(|_| stretch.note(MS(5), MS(5 * times)));
                stretch.tick();
            }
            stretch.of(MS(10)).as_millis_f64().round()
        };
        assert_eq!((of_ten_ms(4), of_ten_ms(1), of_ten_ms(12)), (40.0, 10.0, 120.0));
        stretch.note(Nanos::ZERO, MS(60_000));
        stretch.tick();
        assert!(stretch.of(MS(1)) <= MS(1_000));
    }
}
