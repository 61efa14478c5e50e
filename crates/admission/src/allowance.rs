//! Acceptance allowance: every class keeps a small share of its requests (Bouncer, section 4.1, Algorithm 2).
//!
//! A class of which less than the share `A` was accepted in the last second is let in. Otherwise Bouncer
//! decides, and what it refuses is let in with probability `A`. The paper asks Bouncer second; asking it first
//! gives the same answers and tells apart who was let in against the estimate.

use plimsoll_core::estimator::Estimator;
use plimsoll_core::rng::chance;
use plimsoll_core::{ClassId, Grant, Nanos, Rng, Verdict};

use crate::bouncer::Bouncer;
use crate::budget::Budget;
use crate::policy::{Policy, Scene};
use crate::ratios::AcceptanceRatios;

/// Bouncer with an acceptance allowance.
pub struct Allowance {
    bouncer: Bouncer,
    share: f64,
    ratios: AcceptanceRatios,
    budget: Budget,
}

impl Allowance {
    /// `share` is the paper's A, in 0..1; 0.01 to 0.1 is sensible.
    pub fn new(share: f64, classes: usize, now: Nanos) -> Allowance {
        Allowance {
            bouncer: Bouncer::new(classes),
            share,
            ratios: AcceptanceRatios::new(classes, now),
            budget: Budget::new(now),
        }
    }
}

impl Policy for Allowance {
    fn judge(&self, scene: &Scene<'_>, now: Nanos, rng: &mut Rng) -> Verdict {
        let verdict = self.bouncer.judge(scene, now, rng);
        if verdict.is_admit() || !scene.may_override() {
            return verdict;
        }
        let starving = self.ratios.of(scene.class).is_none_or(|ratio| ratio < self.share);
        let helped = starving || chance(rng, self.share);
        if helped && self.budget.spend(scene.estimator, scene.class) {
            Verdict::Admit(Grant::Allowance)
        } else {
            verdict
        }
    }

    fn settled(&self, class: ClassId, admitted: bool) {
        self.ratios.count(class, admitted);
    }

    fn tick(&self, estimator: &Estimator, interval_ended: bool, now: Nanos) -> Nanos {
        self.budget.fill(estimator, now);
        self.bouncer.tick(estimator, interval_ended, now).min(self.ratios.advance(now))
    }
}
