//! How it goes for those who were let in: how many a second are answered in time, and how long the slowest take. From the histograms of
//! the sentries, which only grow.

use std::collections::BTreeMap;

/// What one sentry has counted of one class so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Responses {
    /// Those within the objective.
    pub good: f64,
    /// How many took at most so long, and longer than the number before: microseconds.
    pub took_us: BTreeMap<u64, f64>,
}

/// What was counted between two looks, by one sentry or by all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Responses a second within the objective.
    pub goodput_per_s: f64,
    took_us: BTreeMap<u64, f64>,
}

impl Outcome {
    /// Between two looks, so many seconds apart; nothing where a count has fallen: the sentry has begun anew.
    pub fn between(before: &Responses, now: &Responses, span_s: f64) -> Option<Outcome> {
        let more = |now: f64, before: f64| Some(now - before).filter(|more| *more >= 0.0);
        let took = |(&us, &n): (&u64, &f64)| {
            let before = before.took_us.get(&us).copied().unwrap_or(0.0);
            Some((us, more(n, before)?))
        };
        Some(Outcome {
            goodput_per_s: more(now.good, before.good)? / span_s,
            took_us: now.took_us.iter().map(took).collect::<Option<_>>()?,
        })
    }

    /// This and that together.
    pub fn and(mut self, other: &Outcome) -> Outcome {
        self.goodput_per_s += other.goodput_per_s;
        for (&us, n) in &other.took_us {
            *self.took_us.entry(us).or_default() += n;
        }
        self
    }

    /// What this share of them took at most, in ms, to the width of a bucket; nothing where there are none.
    pub fn tail_ms(&self, share: f64) -> Option<f64> {
        let all: f64 = self.took_us.values().sum();
        let mut below = 0.0;
        let at = self.took_us.iter().find(|(_, n)| {
            below += **n;
            below >= share * all
        });
        at.filter(|_| all > 0.0).map(|(us, _)| *us as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn responses(good: f64, took_us: &[(u64, f64)]) -> Responses {
        Responses { good, took_us: took_us.iter().copied().collect() }
    }

    #[test]
    fn what_came_in_between_adds_up_over_sentries() {
        let before = responses(100.0, &[(1_000, 100.0)]);
        let now = responses(140.0, &[(1_000, 140.0), (500_000, 10.0)]);
        let one = Outcome::between(&before, &now, 2.0).unwrap();
        assert_eq!((one.goodput_per_s, one.tail_ms(0.5), one.tail_ms(0.95)), (20.0, Some(1.0), Some(500.0)));
        let other =
            Outcome::between(&Responses::default(), &responses(950.0, &[(2_000, 950.0)]), 2.0).unwrap();
        let both = one.and(&other);
        assert_eq!(
            (both.goodput_per_s, both.tail_ms(0.95), both.tail_ms(0.995)),
            (495.0, Some(2.0), Some(500.0))
        );
    }

    #[test]
    fn nobody_is_no_time_and_a_sentry_that_began_anew_says_nothing() {
        let now = responses(5.0, &[(1_000, 5.0)]);
        assert_eq!(Outcome::between(&now, &now, 1.0).unwrap().tail_ms(0.95), None);
        assert_eq!(Outcome::between(&now, &responses(1.0, &[(1_000, 1.0)]), 1.0), None);
        assert_eq!(Outcome::default().tail_ms(0.5), None);
    }
}
