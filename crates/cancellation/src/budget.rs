//! How many may be cancelled: never faster than an effect can be seen, never more than so many a second, never more than such a share
//! of what is completed. A controller that errs does so within these bounds.

use plimsoll_core::Nanos;

use crate::decision::Restraint;

/// The bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Between two cancellations at least. What the first freed shows at the next look or the one after.
    pub interval: Nanos,
    /// Cancellations a second in the long run.
    pub rate_per_s: f64,
    /// Cancellations a completed request in the long run.
    pub ratio: f64,
    /// Cancellations that may be saved up against both. The worst case of Table 2 has as many culprits as a pool has workers.
    pub burst: f64,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { interval: Nanos::from_millis(40), rate_per_s: 1.0, ratio: 0.01, burst: 32.0 }
    }
}

/// What is left of the bounds.
#[derive(Clone, Debug)]
pub struct Budget {
    terms: Terms,
    by_rate: f64,
    by_ratio: f64,
    last: Option<Nanos>,
}

impl Budget {
    /// A full one.
    pub fn new(terms: Terms) -> Budget {
        Budget { by_rate: terms.burst, by_ratio: terms.burst, terms, last: None }
    }

    /// Time passes, and requests are completed.
    pub fn look(&mut self, elapsed: Nanos, completions: u64) {
        let Terms { rate_per_s, ratio, burst, .. } = self.terms;
        self.by_rate = (self.by_rate + rate_per_s * elapsed.as_secs_f64()).min(burst);
        self.by_ratio = (self.by_ratio + ratio * completions as f64).min(burst);
    }

    /// What stands against a cancellation now.
    pub fn restraint(&self, now: Nanos) -> Option<Restraint> {
        if self.last.is_some_and(|last| now.since(last) < self.terms.interval) {
            Some(Restraint::TooSoon)
        } else if self.by_rate < 1.0 {
            Some(Restraint::Rate)
        } else if self.by_ratio < 1.0 {
            Some(Restraint::Ratio)
        } else {
            None
        }
    }

    /// One is cancelled.
    pub fn spend(&mut self, now: Nanos) {
        self.by_rate -= 1.0;
        self.by_ratio -= 1.0;
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms;

    const TERMS: Terms = Terms { interval: Nanos::from_millis(50), rate_per_s: 1.0, ratio: 0.01, burst: 3.0 };

    #[test]
    fn an_effect_must_be_seen_before_the_next() {
        let mut budget = Budget::new(TERMS);
        assert_eq!(budget.restraint(at_ms(0)), None);
        budget.spend(at_ms(0));
        assert_eq!(budget.restraint(at_ms(49)), Some(Restraint::TooSoon));
        assert_eq!(budget.restraint(at_ms(50)), None);
    }

    /// How many are cancelled in 100 s if one is wanted ten times a second.
    fn spent(terms: Terms, completions_per_s: u64, restraint: Restraint) -> u32 {
        let mut budget = Budget::new(terms);
        let mut cancelled = 0;
        for second in 0..100 {
            for look in 0..10 {
                let now = at_ms(1_000 * second + 100 * look);
                match budget.restraint(now) {
                    None => {
                        budget.spend(now);
                        cancelled += 1;
                    }
                    // In the first second both are spent at once.
                    Some(why) => assert!(why == restraint || second == 0, "{why:?}"),
                }
            }
            budget.look(Nanos::from_secs(1), completions_per_s);
        }
        cancelled
    }

    #[test]
    fn rate_and_ratio_bound_the_long_run() {
        assert_eq!(spent(TERMS, 1_000_000, Restraint::Rate), 102, "three saved up, one a second");
        let ratio = Terms { rate_per_s: 1_000.0, ..TERMS };
        assert_eq!(spent(ratio, 10, Restraint::Ratio), 12, "three saved up, one in a hundred of 990");
    }
}
