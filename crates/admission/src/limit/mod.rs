//! Concurrency limits that find themselves: how many requests may be in the system at once, judged by how
//! response times move. What most people take today (Netflix concurrency-limits and its ports), so the peers to beat.
//!
//! One small trait serves two ends: [`Limited`] makes any of them an admission policy, and
//! [`crate::adaptive::AdaptiveSlots`] uses one to find a server's `workers`.

mod aimd;
mod gradient2;
mod vegas;

pub use aimd::Aimd;
pub use gradient2::Gradient2;
pub use vegas::Vegas;

use plimsoll_core::sync::{AtomicU32, Ordering::Relaxed};
use plimsoll_core::{ClassId, Grant, Limit as HitLimit, Mechanism, Nanos, Quantity, Refusal, Rng, Verdict};

use crate::policy::{Policy, Scene};

/// One measurement that a limit learns from.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// How long the request took.
    pub took: Nanos,
    /// Requests in the system when it ended, itself included.
    pub in_flight: u32,
    /// Whether it failed, timed out or was dropped.
    pub dropped: bool,
}

/// How a limit moves.
pub trait Limit: Send {
    /// Learns from one measurement; returns the new limit, at least 1.
    fn update(&mut self, sample: Sample) -> f64;

    /// What refusals are counted under.
    fn mechanism(&self) -> Mechanism;
}

/// A limit as an admission policy: requests waiting or in service stay below it.
pub struct Limited {
    mechanism: Mechanism,
    allowed: AtomicU32,
    in_flight: AtomicU32,
    // Only tried: under contention a measurement is skipped, and there is another one in a moment.
    #[allow(clippy::disallowed_types)]
    limit: std::sync::Mutex<Box<dyn Limit>>,
}

impl Limited {
    /// Starts at `initial`.
    #[allow(clippy::disallowed_types)]
    pub fn new(limit: Box<dyn Limit>, initial: u32) -> Limited {
        Limited {
            mechanism: limit.mechanism(),
            allowed: AtomicU32::new(initial),
            in_flight: AtomicU32::new(0),
            limit: std::sync::Mutex::new(limit),
        }
    }
}

impl Policy for Limited {
    fn judge(&self, scene: &Scene<'_>, _now: Nanos, _rng: &mut Rng) -> Verdict {
        let (in_flight, allowed) = (self.in_flight.load(Relaxed), self.allowed.load(Relaxed));
        if in_flight < allowed {
            return Verdict::Admit(Grant::Estimate);
        }
        Verdict::Refuse(Refusal {
            mechanism: self.mechanism,
            limit: HitLimit::Concurrency,
            estimate: Quantity::Count(u64::from(in_flight) + 1),
            objective: Quantity::Count(u64::from(allowed)),
            retry_after: scene.estimator.expected_wait(&scene.waiting),
        })
    }

    fn settled(&self, _class: ClassId, admitted: bool) {
        if admitted {
            self.in_flight.fetch_add(1, Relaxed);
        }
    }

    fn abandoned(&self, _class: ClassId) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    fn completed(&self, _class: ClassId, waited: Nanos, served: Nanos, measured: bool) {
        let in_flight = self.in_flight.fetch_sub(1, Relaxed);
        if !measured {
            return;
        }
        if let Ok(mut limit) = self.limit.try_lock() {
            let new = limit.update(Sample { took: waited + served, in_flight, dropped: false });
            self.allowed.store(new as u32, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers in 10 ms up to 16 at a time and in proportion to what it holds above that.
    fn settle(mut limit: impl Limit, steps: usize) -> f64 {
        let mut at = 20.0;
        for _ in 0..steps {
            let in_flight = at as u32;
            let took = Nanos::from_secs_f64(0.010 * (f64::from(in_flight) / 16.0).max(1.0));
            at = limit.update(Sample { took, in_flight, dropped: took > Nanos::from_millis(20) });
        }
        at
    }

    #[test]
    fn limits_settle_near_the_knee() {
        for (name, at) in [
            ("vegas", settle(Vegas::new(20.0, 1_000.0), 20_000)),
            ("gradient2", settle(Gradient2::policy(20.0, 1_000.0), 20_000)),
            ("aimd", settle(Aimd::new(20.0, 1_000.0, Nanos::from_millis(20)), 20_000)),
        ] {
            assert!((14.0..64.0).contains(&at), "{name} settled at {at}");
        }
    }

    #[test]
    fn an_idle_system_does_not_raise_its_limit() {
        let sample = Sample { took: Nanos::from_millis(10), in_flight: 1, dropped: false };
        let limits: [Box<dyn Limit>; 3] = [
            Box::new(Vegas::new(20.0, 1_000.0)),
            Box::new(Gradient2::policy(20.0, 1_000.0)),
            Box::new(Aimd::new(20.0, 1_000.0, Nanos::from_secs(1))),
        ];
        for mut limit in limits {
            let at = (0..1_000).map(|_| limit.update(sample)).last().unwrap();
            assert!(at <= 21.0, "{} rose to {at}", limit.mechanism());
        }
    }
}
