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

use crate::gate::Outcome;
use crate::policy::{Policy, Scene};

/// One measurement that a limit learns from.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// How long the request took.
    pub took: Nanos,
    /// Requests in the system when it ended, itself included.
    pub in_flight: u32,
    /// Whether the server failed it: timed out, broke off or could not be reached.
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

    fn completed(&self, _class: ClassId, waited: Nanos, served: Nanos, outcome: Outcome) {
        let in_flight = self.in_flight.fetch_sub(1, Relaxed);
        let dropped = match outcome {
            Outcome::Measured => false,
            Outcome::Failed => true,
            Outcome::Unmeasured => return,
        };
        if let Ok(mut limit) = self.limit.try_lock() {
            let new = limit.update(Sample { took: waited + served, in_flight, dropped });
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
            ("aimd", settle(Aimd::new(20.0, 1_000.0, Nanos::from_millis(20)), 20_000)),
        ] {
            assert!((14.0..64.0).contains(&at), "{name} settled at {at}");
        }
    }

    fn limits() -> [Box<dyn Limit>; 3] {
        [
            Box::new(Vegas::new(20.0, 1_000.0)),
            Box::new(Gradient2::policy(20.0, 1_000.0)),
            Box::new(Aimd::new(20.0, 1_000.0, Nanos::from_secs(1))),
        ]
    }

    fn sample(ms: u64, in_flight: u32) -> Sample {
        Sample { took: Nanos::from_millis(ms), in_flight, dropped: false }
    }

    /// A limit that is not used is neither confirmed nor refuted, however long requests take.
    #[test]
    fn an_idle_system_does_not_move_its_limit() {
        for mut limit in limits() {
            for i in 0..1_000 {
                let at = limit.update(sample(if i % 10 == 0 { 10 } else { 900 }, 1));
                assert_eq!(at, 20.0, "{} after {i}", limit.mechanism());
            }
        }
    }

    #[test]
    fn what_the_server_dropped_lowers_aimd_and_vegas_and_its_time_is_no_shortest() {
        let [mut vegas, _, mut aimd] = limits();
        for limit in [&mut vegas, &mut aimd] {
            let name = limit.mechanism();
            let steady = limit.update(sample(10, 5));
            // As idle as may be, and sooner than anything was ever answered: refused connections.
            let drop = Sample { took: Nanos::from_micros(50), in_flight: 1, dropped: true };
            let after = limit.update(drop);
            assert!(after < steady, "{name}: {after}");
            let least = (0..1_000).map(|_| limit.update(drop)).last().unwrap();
            assert_eq!(least, 1.0, "{name}");
            // Were 50 us taken for a time without a queue, 10 ms would be one, and the limit would stay down.
            let up = (0..20).map(|_| limit.update(sample(10, 1_000))).last().unwrap();
            assert!(up > 10.0, "{name} recovers: {up}");
        }
    }

    /// It has no knee of its own: where times go up slowly enough, its long average goes with them.
    #[test]
    fn gradient2_falls_when_times_jump_and_gets_used_to_them() {
        let [_, mut limit, _] = limits();
        let mut after = |ms, samples| (0..samples).map(|_| limit.update(sample(ms, 1_000))).last().unwrap();
        let steady = after(10, 100);
        let jumped = after(40, 20);
        assert!(jumped < steady / 3.0, "{jumped} from {steady}");
        assert!(after(40, 2_000) > steady, "a server that is slower for good is not throttled for ever");
    }

    /// Its original learns from the time alone: what timed out took long, and that is what counts.
    #[test]
    fn gradient2_goes_by_the_time_of_what_was_dropped() {
        let [_, mut gradient2, _] = limits();
        let steady = (0..100).map(|_| gradient2.update(sample(10, 1_000))).last().unwrap();
        let dropped = |ms| Sample { dropped: true, ..sample(ms, 1_000) };
        assert!(gradient2.update(dropped(10)) >= steady);
        assert!(gradient2.update(dropped(5_000)) < steady);
    }
}
