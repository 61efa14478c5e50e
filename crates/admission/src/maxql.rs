//! MaxQL: a request is let in while the queue is shorter than a limit (Bouncer, section 5.2.1).

use plimsoll_core::{Grant, Limit, Mechanism, Nanos, Quantity, Refusal, Rng, Verdict};

use crate::policy::{Policy, Scene};

/// A limit on the queue's length.
pub struct MaxQl {
    limit: u32,
}

impl MaxQl {
    /// Admits while fewer than `limit` requests wait.
    pub fn new(limit: u32) -> MaxQl {
        MaxQl { limit }
    }
}

impl Policy for MaxQl {
    fn judge(&self, scene: &Scene<'_>, _now: Nanos, _rng: &mut Rng) -> Verdict {
        if scene.waiting.length < self.limit {
            return Verdict::Admit(Grant::Estimate);
        }
        Verdict::Refuse(Refusal {
            mechanism: Mechanism::MaxQl,
            limit: Limit::QueueLength,
            estimate: Quantity::Count(u64::from(scene.waiting.length) + 1),
            objective: Quantity::Count(u64::from(self.limit)),
            retry_after: scene.estimator.expected_wait(&scene.waiting),
        })
    }
}
