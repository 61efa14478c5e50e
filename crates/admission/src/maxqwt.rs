//! MaxQWT: a request is let in if its expected wait is within a limit (Bouncer, section 5.2.2, Eq. 5). The
//! estimate does not tell classes apart; the limit may (section 5.5).

use plimsoll_core::estimator::Estimator;
use plimsoll_core::{ClassId, Grant, Limit, Mechanism, Nanos, Quantity, Refusal, Rng, Verdict};

use crate::gate::Outcome;
use crate::policy::{Policy, Scene};
use crate::service_times::ServiceTimes;

/// A limit on the expected queue wait, one a class.
pub struct MaxQwt {
    limits: Box<[Nanos]>,
    times: ServiceTimes,
}

impl MaxQwt {
    /// `limits` holds the longest expected wait of each class.
    pub fn new(limits: Vec<Nanos>, now: Nanos) -> MaxQwt {
        MaxQwt { limits: limits.into(), times: ServiceTimes::new(now) }
    }
}

impl Policy for MaxQwt {
    fn judge(&self, scene: &Scene<'_>, _now: Nanos, _rng: &mut Rng) -> Verdict {
        let wait = self.times.expected_wait(scene.waiting.length, scene.estimator.slots());
        let limit = self.limits[scene.class.index()];
        if wait <= limit {
            return Verdict::Admit(Grant::Estimate);
        }
        Verdict::Refuse(Refusal {
            mechanism: Mechanism::MaxQwt,
            limit: Limit::QueueWait,
            estimate: Quantity::Time(wait),
            objective: Quantity::Time(limit),
            retry_after: wait - limit,
        })
    }

    fn completed(&self, _class: ClassId, _waited: Nanos, served: Nanos, outcome: Outcome) {
        if outcome == Outcome::Measured {
            self.times.record(served);
        }
    }

    fn tick(&self, _estimator: &Estimator, _interval_ended: bool, now: Nanos) -> Nanos {
        self.times.advance(now)
    }
}
