//! Fewer requests at once while the servers say that they are late and nobody in particular is to blame (ATROPOS, section 3.3: the
//! "other overload control mechanisms in place"). Who says so is an agent beside the servers: `PUT /pools/NAME/overload`.
//!
//! What is said holds for a moment and has to be said again, so that an agent that stops takes nothing away for long. Meanwhile the
//! share of the slots that is in use falls by a tenth at each step; afterwards it grows back in equal steps. The queue is held to what is
//! left, and the policy refuses by objective what would wait too long in it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use plimsoll_core::Nanos;

/// All slots, in the unit of the share.
const ALL: u32 = 1_000;
/// Never fewer than this: servers that get nothing to do never show that they are well.
const LEAST: u32 = 100;
/// One step of growth, and the time between steps.
const GROWTH: u32 = 50;
const STEP: Nanos = Nanos::from_millis(400);
/// Nothing that is said holds for longer.
pub const LONGEST: Nanos = Nanos::from_secs(60);

/// What share of a pool's slots is in use.
#[derive(Debug)]
pub struct Ease {
    share: AtomicU32,
    /// Until when the servers are said to be late.
    until: AtomicU64,
    stepped: AtomicU64,
}

impl Default for Ease {
    fn default() -> Self {
        Ease { share: AtomicU32::new(ALL), until: AtomicU64::new(0), stepped: AtomicU64::new(0) }
    }
}

impl Ease {
    /// The servers are late from now on for so long, at most [`LONGEST`]; for no time, they no longer are.
    pub fn tell(&self, late_for: Nanos, now: Nanos) {
        self.until.store((now + late_for.min(LONGEST)).0, Relaxed);
    }

    /// Whether they are.
    pub fn is_told(&self, now: Nanos) -> bool {
        now.0 < self.until.load(Relaxed)
    }

    /// Called from one thread now and then: takes a step if it is time for one.
    pub fn tick(&self, now: Nanos) {
        if now.since(Nanos(self.stepped.load(Relaxed))) < STEP {
            return;
        }
        self.stepped.store(now.0, Relaxed);
        let share = self.share.load(Relaxed);
        let next = if self.is_told(now) { share - share / 10 } else { share + GROWTH };
        self.share.store(next.clamp(LEAST, ALL), Relaxed);
    }

    /// Slots in use of so many, at least one where there is any.
    pub fn of(&self, slots: u32) -> u32 {
        (u64::from(slots) * u64::from(self.share.load(Relaxed))).div_ceil(u64::from(ALL)) as u32
    }

    /// The share of the slots that is in use, in 0..=1.
    pub fn share(&self) -> f64 {
        f64::from(self.share.load(Relaxed)) / f64::from(ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn what_is_said_takes_slots_away_and_what_is_no_longer_said_gives_them_back() {
        let ease = Ease::default();
        assert_eq!((ease.of(50), ease.of(0)), (50, 0));
        (1..=5).for_each(|i| ease.tick(at(400 * i)));
        assert_eq!(ease.of(50), 50);
        ease.tell(at(1_000), at(2_000));
        ease.tick(at(2_400));
        assert_eq!((ease.of(50), ease.of(1)), (45, 1));
        ease.tick(at(2_500));
        assert_eq!(ease.of(50), 45, "too soon for another step");
        ease.tick(at(2_800));
        assert_eq!(ease.of(50), 41);
        ease.tick(at(3_200));
        assert!(!ease.is_told(at(3_200)) && ease.of(50) > 41, "it was not said again");
        (9..=20).for_each(|i| ease.tick(at(400 * i)));
        assert_eq!(ease.share(), 1.0);
    }

    #[test]
    fn something_is_always_left() {
        let ease = Ease::default();
        ease.tell(Nanos::MAX, at(0));
        (1..=1_000).for_each(|i| ease.tick(at(59 * i)));
        assert_eq!((ease.of(50), ease.of(3), ease.share()), (5, 1, 0.1));
        assert!(!ease.is_told(at(60_000)), "and nothing that is said holds for ever");
    }
}
