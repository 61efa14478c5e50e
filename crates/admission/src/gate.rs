//! The gate: the stage of the paper's framework (Bouncer, Fig. 1) that every host puts requests through. It holds
//! the shared estimates, one policy, and what no policy may lack: `max_queue`, deadlines, fair shares.
//!
//! The live sentry and the simulator drive this very object. All methods take `&self` and may be called from
//! many threads; [`Gate::offer`], [`Gate::start`], [`Gate::finish`] and [`Gate::abandon`] neither lock, allocate
//! nor make a system call; what must be exclusive is tried and otherwise left out. The exception is a cold start: at each
//! doubling of the completions [`Gate::finish`] learns what they say at once instead of leaving it to [`Gate::tick`], and
//! that allocates. It happens about ten times in a gate's life.

use plimsoll_core::backlog::{MAX_QUEUE, Waiting};
use plimsoll_core::estimator::{ClassEstimate, Estimator, Wait};
use plimsoll_core::{ClassId, Grant, Limit, Mechanism, Nanos, Quantity, Refusal, Rng, Slo, Verdict};

use crate::adaptive::AdaptiveSlots;
use crate::fair_share::FairShare;
use crate::policy::{Policy, Scene};

/// What a request tells about itself.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Its class.
    pub class: ClassId,
    /// When its answer stops being worth anything, on the clock of `now`.
    pub deadline: Option<Nanos>,
    /// A hash of what identifies its client, for classes with a fair share.
    pub client: Option<u64>,
    /// It is within the rate that its class was promised: only `max_queue` and its deadline can refuse it.
    pub promised: bool,
}

impl Ask {
    /// A request with neither deadline nor client.
    pub fn of(class: ClassId) -> Ask {
        Ask { class, deadline: None, client: None, promised: false }
    }
}

/// What the way a request ended says about its class and about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was served and its time is typical.
    Measured,
    /// A stream, a client that left, or anything else that says nothing about either.
    Unmeasured,
    /// The server timed out, broke off or could not be reached. Its time must not enter the estimates, but is a sign of
    /// overload to limits that back off from one.
    Failed,
}

/// How many requests are served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// This many.
    Fixed(u32),
    /// To be found, beginning with `initial`.
    Adaptive {
        /// Where to begin.
        initial: u32,
        /// Never more than this.
        max: u32,
    },
}

/// What a gate is made of.
pub struct GateSpec {
    /// The objectives of each class; the last is `default`.
    pub slos: Vec<Slo>,
    /// How important each class is, from 0, the most important ([`plimsoll_core::ranks`]); empty where all are alike.
    pub ranks: Vec<u16>,
    /// Which classes share fairly among clients; empty for none.
    pub fair_share: Vec<bool>,
    /// Requests served at once.
    pub slots: Slots,
    /// Most requests that may wait.
    pub max_queue: u32,
    /// The time at which it begins.
    pub start: Nanos,
}

/// Admission control of one pool.
pub struct Gate {
    estimator: Estimator,
    policy: Box<dyn Policy>,
    max_queue: u32,
    fair_share: Option<FairShare>,
    adaptive: Option<AdaptiveSlots>,
}

impl Gate {
    /// A gate with this policy; [`crate::build`] makes one from the config.
    pub fn new(spec: GateSpec, policy: Box<dyn Policy>) -> Gate {
        let GateSpec { slos, ranks, fair_share, slots, max_queue, start } = spec;
        let adaptive = match slots {
            Slots::Fixed(_) => None,
            Slots::Adaptive { initial, max } => Some(AdaptiveSlots::new(initial, max, slos.len(), start)),
        };
        let (Slots::Fixed(slots) | Slots::Adaptive { initial: slots, .. }) = slots;
        Gate {
            estimator: Estimator::new(slos, slots, start).ranked(ranks),
            policy,
            max_queue: max_queue.min(MAX_QUEUE),
            fair_share: fair_share.contains(&true).then(|| FairShare::new(&fair_share, start)),
            adaptive,
        }
    }

    /// May this request enter the queue? If so it counts as waiting from now on, and [`Gate::start`] or [`Gate::abandon`]
    /// must follow.
    #[inline]
    pub fn offer(&self, ask: &Ask, now: Nanos, rng: &mut Rng) -> Verdict {
        let verdict = self.judge(ask, now, rng);
        match &verdict {
            Verdict::Admit(_) => {
                self.estimator.enqueue(ask.class);
                self.policy.settled(ask.class, true);
            }
            // What is more than a client's share is no demand that the policy would have to care for.
            Verdict::Refuse(refusal) if refusal.mechanism == Mechanism::FairShare => {}
            Verdict::Refuse(_) => self.policy.settled(ask.class, false),
        }
        if let (Some(fair), Some(client)) = (&self.fair_share, ask.client) {
            fair.settled(ask.class, client, &verdict);
        }
        verdict
    }

    #[inline]
    fn judge(&self, ask: &Ask, now: Nanos, rng: &mut Rng) -> Verdict {
        // Built before the checks: built after them it is a copy, and a wide load of what was just stored in parts
        // stalls for longer than the decision takes.
        let scene = Scene {
            class: ask.class,
            waiting: self.estimator.waiting(ask.class),
            estimator: &self.estimator,
            max_queue: self.max_queue,
        };
        if let (Some(fair), Some(client), false) = (&self.fair_share, ask.client, ask.promised)
            && let Some(refusal) = fair.refuses(ask.class, client, now)
        {
            return Verdict::Refuse(refusal);
        }
        if scene.waiting.length >= self.max_queue {
            return Verdict::Refuse(self.queue_is_full(&scene.waiting));
        }
        if let Some(deadline) = ask.deadline
            && let Some(refusal) = self.misses(deadline, ask.class, &scene.waiting, now)
        {
            return Verdict::Refuse(refusal);
        }
        if ask.promised {
            return Verdict::Admit(Grant::Promise);
        }
        self.policy.judge(&scene, now, rng)
    }

    #[cold]
    fn queue_is_full(&self, waiting: &Waiting) -> Refusal {
        Refusal {
            mechanism: Mechanism::MaxQueue,
            limit: Limit::QueueLength,
            estimate: Quantity::Count(u64::from(waiting.length) + 1),
            objective: Quantity::Count(u64::from(self.max_queue)),
            retry_after: self.estimator.expected_wait(waiting),
        }
    }

    /// A deadline that will probably have passed when the answer is there: the expected wait and the class's
    /// median are all the time there is, or more.
    fn misses(&self, deadline: Nanos, class: ClassId, waiting: &Waiting, now: Nanos) -> Option<Refusal> {
        let (left, wait) = (deadline - now, self.estimator.expected_wait(waiting));
        let estimate = wait + self.estimator.median(class);
        (estimate > left || left == Nanos::ZERO).then_some(Refusal {
            mechanism: Mechanism::Deadline,
            limit: Limit::Deadline,
            estimate: Quantity::Time(estimate),
            objective: Quantity::Time(left),
            retry_after: wait,
        })
    }

    /// Lets a request in without asking anybody, for the modes that do not act.
    pub fn admit_unjudged(&self, class: ClassId) {
        self.estimator.enqueue(class);
        self.policy.settled(class, true);
    }

    /// A request leaves the queue after `waited`, to be served. Where this refuses, it must not be served and nothing
    /// more is to be called for it; else [`Gate::finish`] must follow.
    #[inline]
    pub fn start(&self, class: ClassId, waited: Nanos, now: Nanos) -> Verdict {
        self.estimator.dequeue(class);
        let verdict = self.policy.dequeued(class, waited, now);
        match verdict {
            Verdict::Refuse(_) => self.policy.abandoned(class),
            Verdict::Admit(_) => {
                if let Some(adaptive) = &self.adaptive {
                    adaptive.started();
                }
            }
        }
        verdict
    }

    /// A request ended after it had to `wait` in the queue and was `served` for so long. What it was expected to wait is
    /// what [`Gate::expected_wait`] said before it was offered; a host that has not asked gives the actual wait alone.
    #[inline]
    pub fn finish(&self, class: ClassId, wait: impl Into<Wait>, served: Nanos, outcome: Outcome) {
        let (wait, measured) = (wait.into(), outcome == Outcome::Measured);
        if measured {
            self.estimator.completed(class, wait, served);
        }
        self.policy.completed(class, wait.actual, served, outcome);
        if let Some(adaptive) = &self.adaptive {
            adaptive.finished(class, served, measured);
        }
    }

    /// A request left the queue unserved: its client went away or its deadline passed.
    pub fn abandon(&self, class: ClassId) {
        self.estimator.dequeue(class);
        self.policy.abandoned(class);
    }

    /// Why a request whose deadline passed in the queue is dropped.
    pub fn expired(&self, waited: Nanos, allowed: Nanos) -> Refusal {
        Refusal {
            mechanism: Mechanism::Deadline,
            limit: Limit::Deadline,
            estimate: Quantity::Time(waited),
            objective: Quantity::Time(allowed),
            retry_after: waited,
        }
    }

    /// Prepares what decisions read; returns when it wants to be called next. A host calls it from one place, at the time
    /// asked for or later: being late delays estimates and never stops requests.
    pub fn tick(&self, now: Nanos) -> Nanos {
        let (interval_ended, mut next) = self.estimator.tick(now);
        next = next.min(self.policy.tick(&self.estimator, interval_ended, now));
        if let Some(fair) = &self.fair_share {
            next = next.min(fair.tick(now));
        }
        if let Some(adaptive) = &self.adaptive {
            next = next.min(adaptive.tick(now));
            self.estimator.set_slots(adaptive.slots());
        }
        next
    }

    /// Changes how many requests are served at once. Without effect on a gate that finds it itself.
    pub fn set_slots(&self, slots: u32) {
        if self.adaptive.is_none() {
            self.estimator.set_slots(slots);
        }
    }

    /// A gate that finds its slots itself goes on from `to / from` of what it has found, up to `max`: there are so many more
    /// servers than before, or so much less of them is this gate's. Both at least one. To be called by whoever calls
    /// [`Gate::tick`]; false where somebody else does right now, and then nothing has changed.
    pub fn scale_slots(&self, from: u32, to: u32, max: u32) -> bool {
        let Some(adaptive) = &self.adaptive else { return true };
        let scaled = adaptive.scale(from, to, max);
        self.estimator.set_slots(adaptive.slots());
        scaled
    }

    /// Somebody beside the servers found how many requests are best served at once, at least one; a gate that would find it itself takes that
    /// until it is told nothing. To be called by whoever calls [`Gate::tick`]; false where somebody else does right now, and then
    /// nothing has changed. Without effect on a gate that has a fixed number.
    pub fn tell_slots(&self, slots: Option<u32>) -> bool {
        let Some(adaptive) = &self.adaptive else { return true };
        let told = adaptive.tell(slots);
        self.estimator.set_slots(adaptive.slots());
        told
    }

    /// Requests served at once, as estimated with.
    pub fn slots(&self) -> u32 {
        self.estimator.slots()
    }

    /// How many slots a host should open, where the gate is to find that; as of the last tick.
    pub fn recommended_slots(&self) -> Option<u32> {
        self.adaptive.as_ref().map(AdaptiveSlots::slots)
    }

    /// Requests waiting.
    pub fn queued(&self) -> u32 {
        self.estimator.waiting(ClassId(0)).length
    }

    /// How long a request that came now would be expected to wait.
    #[inline]
    pub fn expected_wait(&self) -> Nanos {
        self.estimator.expected_wait(&self.estimator.waiting(ClassId(0)))
    }

    /// The mean processing time of a class, zero where nothing is known.
    #[inline]
    pub fn mean(&self, class: ClassId) -> Nanos {
        self.estimator.mean(class)
    }

    /// What is known about every class, in order.
    pub fn report(&self) -> Vec<ClassEstimate> {
        self.estimator.report()
    }
}

/// Admits everything that `max_queue` and deadlines let through: the policy `none`.
pub struct Open;

impl Policy for Open {
    fn judge(&self, _scene: &Scene<'_>, _now: Nanos, _rng: &mut Rng) -> Verdict {
        Verdict::Admit(Grant::Estimate)
    }
}
