//! AcceptFraction: of the arrivals, the share that fits the capacity is let in (Bouncer, section 5.2.3).
//!
//! Every second `f = min(1, max_util * P / (rate * mean processing time))`; then each request is let in with
//! probability `f`, whatever its class. The paper's version also refuses what would time out in the queue; here
//! the gate does that for every policy, for requests that carry a deadline.

use plimsoll_core::estimator::Estimator;
use plimsoll_core::rng::chance;
use plimsoll_core::sync::{AtomicU64, Ordering::Relaxed};
use plimsoll_core::{ClassId, Grant, Limit, Mechanism, Nanos, Quantity, Refusal, Rng, Verdict};

use crate::gate::Outcome;
use crate::policy::{Policy, Scene};
use crate::service_times::{Rate, ServiceTimes};

/// A limit on the utilisation.
pub struct AcceptFraction {
    max_util: f64,
    arrivals: Rate,
    times: ServiceTimes,
    /// An `f64` in 0..1.
    fraction: AtomicU64,
}

impl AcceptFraction {
    /// `max_util` in 0..1 is the share of the slots that may be busy on average.
    pub fn new(max_util: f64, now: Nanos) -> AcceptFraction {
        AcceptFraction {
            max_util,
            arrivals: Rate::new(now),
            times: ServiceTimes::new(now),
            fraction: AtomicU64::new(1.0f64.to_bits()),
        }
    }
}

impl Policy for AcceptFraction {
    fn judge(&self, _scene: &Scene<'_>, _now: Nanos, rng: &mut Rng) -> Verdict {
        let fraction = f64::from_bits(self.fraction.load(Relaxed));
        if fraction >= 1.0 || chance(rng, fraction) {
            return Verdict::Admit(Grant::Estimate);
        }
        Verdict::Refuse(Refusal {
            mechanism: Mechanism::AcceptFraction,
            limit: Limit::Fraction,
            estimate: Quantity::Share(self.max_util / fraction),
            objective: Quantity::Share(self.max_util),
            retry_after: Nanos::from_secs(1),
        })
    }

    fn settled(&self, _class: ClassId, _admitted: bool) {
        self.arrivals.record();
    }

    fn completed(&self, _class: ClassId, _waited: Nanos, served: Nanos, outcome: Outcome) {
        if outcome == Outcome::Measured {
            self.times.record(served);
        }
    }

    fn tick(&self, estimator: &Estimator, _interval_ended: bool, now: Nanos) -> Nanos {
        let next = self.arrivals.advance(now).min(self.times.advance(now));
        let demand = self.arrivals.per_s(now) * self.times.mean().as_secs_f64();
        // No demand gives infinity, which is a fraction of one.
        let fraction = (self.max_util * f64::from(estimator.slots()) / demand).min(1.0);
        self.fraction.store(fraction.to_bits(), Relaxed);
        next
    }
}
