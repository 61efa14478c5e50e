//! How fast each class arrives: counted as it comes, smoothed as time goes on (Cataclysm, section 3.5).
//!
//! The paper smooths over 15 s and is over its target for up to 20 s when a load jumps (section 6.3). Here half of an estimate
//! is from the last half second.

use plimsoll_core::sync::{AtomicU64, Ordering::Relaxed};
use plimsoll_core::{ClassId, Nanos};

/// How often the rates are renewed.
pub const PERIOD: Nanos = Nanos::from_millis(500);
/// What the last period weighs.
const WEIGHT: f64 = 0.5;

/// Arrival rates of all classes. Counting is one addition; one caller at a time calls [`Rates::tick`].
pub struct Rates {
    classes: Box<[Counted]>,
    counted_since: AtomicU64,
    begun: AtomicU64,
}

#[derive(Default)]
#[repr(align(64))]
struct Counted {
    arrived: AtomicU64,
    /// `f64`s: smoothed, and of the last period alone.
    per_s: AtomicU64,
    newest: AtomicU64,
}

impl Rates {
    /// For so many classes.
    pub fn new(classes: usize, now: Nanos) -> Rates {
        Rates {
            classes: (0..classes).map(|_| Counted::default()).collect(),
            counted_since: AtomicU64::new(now.0),
            begun: AtomicU64::new(0),
        }
    }

    /// A request of `class` arrives.
    #[inline]
    pub fn count(&self, class: ClassId) {
        self.classes[class.index()].arrived.fetch_add(1, Relaxed);
    }

    /// Requests of `class` a second, as of the last renewal.
    pub fn per_s(&self, class: ClassId) -> f64 {
        f64::from_bits(self.classes[class.index()].per_s.load(Relaxed))
    }

    /// The same, or what it was in the last period if that is more: what to be prepared for.
    pub fn at_most_per_s(&self, class: ClassId) -> f64 {
        self.per_s(class).max(f64::from_bits(self.classes[class.index()].newest.load(Relaxed)))
    }

    /// Renews the rates if it is time to. Returns whether they are new, and when it is time again.
    pub fn tick(&self, now: Nanos) -> (bool, Nanos) {
        let since = Nanos(self.counted_since.load(Relaxed));
        if now.since(since) < PERIOD {
            return (false, since + PERIOD);
        }
        self.counted_since.store(now.0, Relaxed);
        // The first period has nothing before it to be smoothed with. A late one weighs as the periods that it stands for.
        let periods = now.since(since).as_secs_f64() / PERIOD.as_secs_f64();
        let weight = if self.begun.swap(1, Relaxed) == 0 { 1.0 } else { 1.0 - (1.0 - WEIGHT).powf(periods) };
        for Counted { arrived, per_s, newest } in &self.classes {
            let found = arrived.swap(0, Relaxed) as f64 / now.since(since).as_secs_f64();
            let old = f64::from_bits(per_s.load(Relaxed));
            per_s.store((old + weight * (found - old)).to_bits(), Relaxed);
            newest.store(found.to_bits(), Relaxed);
        }
        (true, now + PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: ClassId = ClassId(0);

    fn feed(rates: &Rates, per_s: u64, from_ms: u64, to_ms: u64) {
        for ms in from_ms..to_ms {
            (0..per_s / 1_000).for_each(|_| rates.count(CLASS));
            rates.tick(Nanos::from_millis(ms + 1));
        }
    }

    #[test]
    fn a_jump_is_seen_within_two_seconds() {
        let rates = Rates::new(1, Nanos::ZERO);
        feed(&rates, 1_000, 0, 500);
        assert!((rates.per_s(CLASS) - 1_000.0).abs() < 1.0, "at once, at the beginning");
        feed(&rates, 10_000, 500, 2_500);
        assert!(rates.per_s(CLASS) > 9_000.0, "{}", rates.per_s(CLASS));
        feed(&rates, 20_000, 2_500, 3_000);
        assert!(
            (rates.at_most_per_s(CLASS) - 20_000.0).abs() < 1.0,
            "and at once by who wants to be prepared"
        );
        feed(&rates, 0, 3_000, 12_000);
        assert!(rates.per_s(CLASS) < 1.0, "{}", rates.per_s(CLASS));
    }

    #[test]
    fn a_late_tick_weighs_as_much_as_the_time_it_stands_for() {
        let rates = Rates::new(1, Nanos::ZERO);
        feed(&rates, 1_000, 0, 500);
        (0..100_000).for_each(|_| rates.count(CLASS));
        assert!(rates.tick(Nanos::from_millis(10_500)).0);
        assert!((rates.per_s(CLASS) - 10_000.0).abs() < 10.0, "{}", rates.per_s(CLASS));
    }
}
