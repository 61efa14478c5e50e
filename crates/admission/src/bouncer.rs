//! Bouncer: a request is let in if every percentile of its class is expected to meet its objective
//! (Bouncer, section 3, Algorithm 1), with the estimates of [`Estimator`].
//!
//! What the paper leaves as a plan (its Appendix A) is settled so: until 100 requests have completed, and ten for every
//! slot, at most as many wait as are served at once. And a class whose own estimate would keep it out of an empty
//! queue, so that it could never be measured again, gets a few probes an interval.

use plimsoll_core::estimator::Estimator;
use plimsoll_core::sync::{AtomicU32, Ordering::Relaxed};
use plimsoll_core::{ClassId, Grant, Limit, Mechanism, Nanos, Quantity, Refusal, Rng, Verdict};

use crate::policy::{Policy, Scene};

/// A class with fewer completions than this in an interval may be probed in the next.
const ENOUGH_COMPLETIONS: u32 = 20;
/// Probes a class gets in such an interval.
const PROBES: u32 = 5;
/// A class that is kept out by the queue alone is probed only once it has been silent for this many intervals.
/// Under overload a probe misses its objective, so it is not for free; a minute-old estimate is worth one.
const SILENT_INTERVALS: u32 = 60;

/// Percentile admission.
pub struct Bouncer {
    classes: Box<[Probing]>,
}

#[derive(Default)]
struct Probing {
    /// Probes left in this interval.
    left: AtomicU32,
    /// Intervals since the last completion.
    silent: AtomicU32,
}

impl Bouncer {
    /// For this many classes.
    pub fn new(classes: usize) -> Bouncer {
        Bouncer { classes: (0..classes).map(|_| Probing::default()).collect() }
    }

    /// Whether a request that the estimate refuses should go ahead as a measurement.
    fn takes_probe(&self, scene: &Scene<'_>) -> bool {
        let probing = &self.classes[scene.class.index()];
        let locked_out = scene.waiting.allowed_ns < 0 || probing.silent.load(Relaxed) >= SILENT_INTERVALS;
        locked_out
            && scene.may_override()
            && probing.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    #[cold]
    fn refuse_or_probe(&self, scene: &Scene<'_>) -> Verdict {
        let Scene { class, waiting, estimator, .. } = *scene;
        if estimator.is_cold() && waiting.length >= estimator.slots() {
            return Verdict::Refuse(Refusal {
                mechanism: Mechanism::Bouncer,
                limit: Limit::ColdStart,
                estimate: Quantity::Count(u64::from(waiting.length) + 1),
                objective: Quantity::Count(u64::from(estimator.slots())),
                retry_after: Nanos::from_secs(1),
            });
        }
        if self.takes_probe(scene) {
            return Verdict::Admit(Grant::Probe);
        }
        // The objective that is missed by most explains the refusal.
        let wait = estimator.expected_wait(&waiting);
        let excess = |&(_, point, limit): &(_, Nanos, Nanos)| (wait + point).since(limit);
        let worst = estimator.targets(class).max_by_key(excess);
        let (limit, estimate, objective) = match worst {
            Some((statistic, point, limit)) => (statistic.into(), wait + point, limit),
            // The estimates were renewed in this very moment; the refusal stands, for the wait that it saw.
            None => (Limit::QueueWait, wait, Nanos::ZERO),
        };
        Verdict::Refuse(Refusal {
            mechanism: Mechanism::Bouncer,
            limit,
            estimate: Quantity::Time(estimate),
            objective: Quantity::Time(objective),
            retry_after: estimate.since(objective),
        })
    }
}

impl Policy for Bouncer {
    #[inline]
    fn judge(&self, scene: &Scene<'_>, _now: Nanos, _rng: &mut Rng) -> Verdict {
        let room = !scene.estimator.is_cold() || scene.waiting.length < scene.estimator.slots();
        if scene.waiting.is_within() && room {
            Verdict::Admit(Grant::Estimate)
        } else {
            self.refuse_or_probe(scene)
        }
    }

    fn tick(&self, estimator: &Estimator, interval_ended: bool, _now: Nanos) -> Nanos {
        if interval_ended {
            for (i, probing) in self.classes.iter().enumerate() {
                let completed = estimator.completed_last_interval(ClassId(i as u16));
                let silent = if completed > 0 { 0 } else { probing.silent.load(Relaxed).saturating_add(1) };
                // A minute without news earns one round of probes, then the next minute begins.
                let silent = if silent > SILENT_INTERVALS { 1 } else { silent };
                probing.silent.store(silent, Relaxed);
                probing.left.store(if completed < ENOUGH_COMPLETIONS { PROBES } else { 0 }, Relaxed);
            }
        }
        Nanos::MAX
    }
}
