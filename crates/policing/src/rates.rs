//! How fast each kind of request arrives, and how much work it brings: counted as it comes, smoothed as time goes on (Cataclysm, section 3.5).
//!
//! The paper smooths over 15 s and is over its target for up to 20 s when a load jumps (section 6.3). Here half of an estimate
//! is from the last half second.

use plimsoll_core::Nanos;
use plimsoll_core::sync::{AtomicU64, Ordering::Relaxed};

/// How often the rates are renewed.
pub const PERIOD: Nanos = Nanos::from_millis(500);
/// What the last period weighs.
const WEIGHT: f64 = 0.5;

/// So that no sum of them overflows.
const LONGEST: Nanos = Nanos::from_secs(3_600);

/// What arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Requests a second.
    pub per_s: f64,
    /// Servers that they keep busy: seconds of work a second.
    pub servers: f64,
}

impl Flow {
    /// What one of its requests takes on average, in seconds; zero where there are none.
    pub fn size_s(self) -> f64 {
        if self.per_s > 0.0 { self.servers / self.per_s } else { 0.0 }
    }

    fn map2(self, other: Flow, f: impl Fn(f64, f64) -> f64) -> Flow {
        Flow { per_s: f(self.per_s, other.per_s), servers: f(self.servers, other.servers) }
    }
}

impl std::iter::Sum for Flow {
    fn sum<I: Iterator<Item = Flow>>(flows: I) -> Flow {
        flows.fold(Flow::default(), |sum, flow| sum.map2(flow, |a, b| a + b))
    }
}

/// Arrival rates of all kinds that are told apart. Counting is two additions; one caller at a time calls [`Rates::tick`].
pub struct Rates {
    counted: Box<[Counted]>,
    flows: Box<[Flows]>,
    counted_since: AtomicU64,
    begun: AtomicU64,
}

/// Since the last renewal. Apart from what only a renewal touches, so that many kinds stay in the caches.
#[derive(Default)]
#[repr(align(16))]
struct Counted {
    arrived: AtomicU64,
    work_ns: AtomicU64,
}

#[derive(Default)]
struct Flows {
    smoothed: Stored,
    /// Of the last period alone.
    newest: Stored,
}

/// A [`Flow`], as bits.
#[derive(Default)]
struct Stored([AtomicU64; 2]);

impl Stored {
    fn get(&self) -> Flow {
        let [per_s, servers] = self.0.each_ref().map(|bits| f64::from_bits(bits.load(Relaxed)));
        Flow { per_s, servers }
    }

    fn set(&self, Flow { per_s, servers }: Flow) {
        self.0[0].store(per_s.to_bits(), Relaxed);
        self.0[1].store(servers.to_bits(), Relaxed);
    }
}

impl Rates {
    /// For so many kinds.
    pub fn new(kinds: usize, now: Nanos) -> Rates {
        Rates {
            counted: (0..kinds).map(|_| Counted::default()).collect(),
            flows: (0..kinds).map(|_| Flows::default()).collect(),
            counted_since: AtomicU64::new(now.0),
            begun: AtomicU64::new(0),
        }
    }

    /// A request of this kind arrives that is expected to take `size`.
    #[inline]
    pub fn count(&self, kind: usize, size: Nanos) {
        let Counted { arrived, work_ns } = &self.counted[kind];
        arrived.fetch_add(1, Relaxed);
        work_ns.fetch_add(size.0.min(LONGEST.0), Relaxed);
    }

    /// What arrives of this kind, as of the last renewal.
    pub fn smoothed(&self, kind: usize) -> Flow {
        self.flows[kind].smoothed.get()
    }

    /// What arrived of this kind in the last period alone.
    pub fn newest(&self, kind: usize) -> Flow {
        self.flows[kind].newest.get()
    }

    /// Renews the rates if it is time to. Returns whether they are new, and when it is time again.
    pub fn tick(&self, now: Nanos) -> (bool, Nanos) {
        let since = Nanos(self.counted_since.load(Relaxed));
        if now.since(since) < PERIOD {
            return (false, since + PERIOD);
        }
        self.counted_since.store(now.0, Relaxed);
        let length_s = now.since(since).as_secs_f64();
        // The first period has nothing before it to be smoothed with. A late one weighs as the periods that it stands for.
        let periods = length_s / PERIOD.as_secs_f64();
        let weight = if self.begun.swap(1, Relaxed) == 0 { 1.0 } else { 1.0 - (1.0 - WEIGHT).powf(periods) };
        for (Counted { arrived, work_ns }, Flows { smoothed, newest }) in self.counted.iter().zip(&self.flows)
        {
            let work_s = Nanos(work_ns.swap(0, Relaxed)).as_secs_f64();
            let found =
                Flow { per_s: arrived.swap(0, Relaxed) as f64 / length_s, servers: work_s / length_s };
            smoothed.set(smoothed.get().map2(found, |old, found| old + weight * (found - old)));
            newest.set(found);
        }
        (true, now + PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Nanos = Nanos::from_millis(2);

    fn feed(rates: &Rates, per_s: u64, from_ms: u64, to_ms: u64) {
        for ms in from_ms..to_ms {
            (0..per_s / 1_000).for_each(|_| rates.count(0, SIZE));
            rates.tick(Nanos::from_millis(ms + 1));
        }
    }

    #[test]
    fn a_jump_is_seen_within_two_seconds() {
        let rates = Rates::new(1, Nanos::ZERO);
        feed(&rates, 1_000, 0, 500);
        assert!((rates.smoothed(0).per_s - 1_000.0).abs() < 1.0, "at once, at the beginning");
        assert!(
            (rates.smoothed(0).servers - 2.0).abs() < 0.01
                && (rates.smoothed(0).size_s() - 2e-3).abs() < 1e-9
        );
        feed(&rates, 10_000, 500, 2_500);
        assert!(rates.smoothed(0).per_s > 9_000.0, "{}", rates.smoothed(0).per_s);
        feed(&rates, 20_000, 2_500, 3_000);
        assert!((rates.newest(0).per_s - 20_000.0).abs() < 1.0, "and at once by who wants to be prepared");
        feed(&rates, 0, 3_000, 12_000);
        assert!(rates.smoothed(0).per_s < 1.0, "{}", rates.smoothed(0).per_s);
    }

    #[test]
    fn a_late_tick_weighs_as_much_as_the_time_it_stands_for() {
        let rates = Rates::new(1, Nanos::ZERO);
        feed(&rates, 1_000, 0, 500);
        (0..100_000).for_each(|_| rates.count(0, SIZE));
        assert!(rates.tick(Nanos::from_millis(10_500)).0);
        assert!((rates.smoothed(0).per_s - 10_000.0).abs() < 10.0, "{}", rates.smoothed(0).per_s);
    }
}
