//! Helping the underserved: what Bouncer refuses is let in the more often, the further its class's acceptance
//! ratio is below the average (Bouncer, section 4.2, Algorithm 3).
//!
//! With `x` the mean acceptance ratio of all classes less this class's, the probability is `alpha * x / (1 + |x|)`:
//! never above one half, so a starving class is helped and not crowned.

use plimsoll_core::estimator::Estimator;
use plimsoll_core::rng::chance;
use plimsoll_core::sync::{AtomicU64, Ordering::Relaxed};
use plimsoll_core::{ClassId, Grant, Nanos, Rng, Verdict};

use crate::bouncer::Bouncer;
use crate::budget::Budget;
use crate::policy::{Policy, Scene};
use crate::ratios::AcceptanceRatios;

/// Bouncer with help for the classes it refuses most.
pub struct Underserved {
    bouncer: Bouncer,
    alpha: f64,
    ratios: AcceptanceRatios,
    budget: Budget,
    /// The mean acceptance ratio, an `f64`, as of the last tick: it takes a pass over all classes.
    mean_ratio: AtomicU64,
}

impl Underserved {
    /// `alpha` in 0..1 scales the help.
    pub fn new(alpha: f64, classes: usize, now: Nanos) -> Underserved {
        Underserved {
            bouncer: Bouncer::new(classes),
            alpha,
            ratios: AcceptanceRatios::new(classes, now),
            budget: Budget::new(now),
            mean_ratio: AtomicU64::new(1.0f64.to_bits()),
        }
    }
}

impl Policy for Underserved {
    fn judge(&self, scene: &Scene<'_>, now: Nanos, rng: &mut Rng) -> Verdict {
        let verdict = self.bouncer.judge(scene, now, rng);
        if verdict.is_admit() || !scene.may_override() {
            return verdict;
        }
        let mean = f64::from_bits(self.mean_ratio.load(Relaxed));
        let x = mean - self.ratios.of(scene.class).unwrap_or(1.0);
        let helped = x > 0.0 && chance(rng, self.alpha * x / (1.0 + x));
        if helped && self.budget.spend(scene.estimator, scene.class) {
            Verdict::Admit(Grant::Underserved)
        } else {
            verdict
        }
    }

    fn settled(&self, class: ClassId, admitted: bool) {
        self.ratios.count(class, admitted);
    }

    fn tick(&self, estimator: &Estimator, interval_ended: bool, now: Nanos) -> Nanos {
        self.budget.fill(estimator, now);
        let next = self.ratios.advance(now);
        self.mean_ratio.store(self.ratios.mean().to_bits(), Relaxed);
        self.bouncer.tick(estimator, interval_ended, now).min(next)
    }
}
