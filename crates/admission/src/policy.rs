//! What an admission policy is. One trait, one file a policy.
//!
//! A policy judges requests at the three points of the paper's framework (Bouncer, Fig. 1): on arrival, when a
//! request leaves the queue for a slot, and when it has been served. The [`crate::Gate`] calls it, and also keeps what
//! every policy needs: the queue's length and expected work, `max_queue`, deadlines.

use plimsoll_core::backlog::Waiting;
use plimsoll_core::estimator::Estimator;
use plimsoll_core::{ClassId, Grant, Nanos, Rng, Verdict};

use crate::gate::Outcome;

/// What a policy sees of the queue when a request of one class arrives.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// Who asks.
    pub class: ClassId,
    /// What waits now, and what this class may find waiting.
    pub waiting: Waiting,
    /// The shared estimates.
    pub estimator: &'a Estimator,
    /// Most requests that may wait.
    pub max_queue: u32,
}

impl Scene<'_> {
    /// Whether a request may be let in against the estimate at all. Not once the queue is half full: an allowance
    /// above 1/overload would otherwise let it grow without end. And not while nothing is known.
    pub fn may_override(&self) -> bool {
        self.waiting.length < self.max_queue / 2
            && !(self.estimator.is_cold() && self.waiting.length >= self.estimator.slots())
    }
}

/// An admission policy. Methods on the request path neither lock, allocate nor make a system call; what is
/// expensive is prepared by [`Policy::tick`].
pub trait Policy: Send + Sync {
    /// May this request enter the queue?
    fn judge(&self, scene: &Scene<'_>, now: Nanos, rng: &mut Rng) -> Verdict;

    /// The final answer for a request of `class`, which `max_queue` or a deadline may have refused. What fair share
    /// refused is not settled: it never came this far.
    fn settled(&self, _class: ClassId, _admitted: bool) {}

    /// A request of `class` leaves the queue after `waited` to be served, unless this refuses it.
    fn dequeued(&self, _class: ClassId, _waited: Nanos, _now: Nanos) -> Verdict {
        Verdict::Admit(Grant::Estimate)
    }

    /// An admitted request left the queue unserved.
    fn abandoned(&self, _class: ClassId) {}

    /// A request of `class` that was started has ended.
    fn completed(&self, _class: ClassId, _waited: Nanos, _served: Nanos, _outcome: Outcome) {}

    /// Prepares what decisions read. `interval_ended` says that the estimates have just been renewed. Returns when it
    /// wants to be called next.
    fn tick(&self, _estimator: &Estimator, _interval_ended: bool, _now: Nanos) -> Nanos {
        Nanos::MAX
    }
}
