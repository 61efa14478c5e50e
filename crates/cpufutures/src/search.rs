//! The search for a setting of which nothing is known but whether it is too low or too high (section 5.1).
//!
//! Steps double while the verdict stays the same and halve the distance when it turns. What lies between two neighbours cannot be
//! set: the better of them is kept, and the other tried again from time to time, ever more rarely (minimal interference mode). The
//! paper doubles whatever was found before, which can go round in circles; here no step goes beyond what was found on the other
//! side.

use std::ops::RangeInclusive;

use plimsoll_core::Nanos;

/// How long the first of two neighbours is kept before the other is tried again,
const FIRST_KEEP: Nanos = Nanos::from_millis(125);
/// and how long at most.
const LONGEST_KEEP: Nanos = Nanos::from_secs(1);

/// What was found of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A greater one is needed.
    TooLow,
    /// A smaller one is needed.
    TooHigh,
    /// Let it be.
    Right,
}

/// A setting that was found to be too low or too high, and what it cost.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Found {
    value: i64,
    cost: f64,
}

/// Minimal interference mode: one of two neighbours is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// What the kept one cost, when last measured.
    cost: f64,
    /// When the other is due.
    until: Nanos,
    /// For how long it was kept this time.
    length: Nanos,
    /// Whether the other is being tried.
    trying: bool,
}

/// The search. Whoever uses it sets what it says, waits until that shows, measures, and says what was found.
#[derive(Clone, Debug)]
pub struct Search {
    range: RangeInclusive<i64>,
    value: i64,
    /// How far the last step went.
    step: i64,
    /// What was last found to be too low, while nothing contradicts it,
    low: Option<Found>,
    /// and too high.
    high: Option<Found>,
    kept: Option<Kept>,
}

impl Search {
    /// Settings in `range`, from `start` on (or the end of the range that is nearest). An empty range has its lower end alone.
    pub fn new(range: RangeInclusive<i64>, start: i64) -> Search {
        let range = *range.start()..=(*range.end()).max(*range.start());
        let value = start.clamp(*range.start(), *range.end());
        Search { range, value, step: 0, low: None, high: None, kept: None }
    }

    /// All settings.
    pub fn range(&self) -> RangeInclusive<i64> {
        self.range.clone()
    }

    /// The setting that is to be in force.
    pub fn value(&self) -> i64 {
        self.value
    }

    /// Whether it keeps the better of two neighbours, and searches no more.
    pub fn is_settled(&self) -> bool {
        self.kept.is_some()
    }

    /// Takes what was measured of the setting in force: the verdict, and what the setting costs in a unit of the caller's choice, the
    /// less the better; it decides between two neighbours of which one is too low and one too high. Returns the setting to use next.
    pub fn measured(&mut self, now: Nanos, verdict: Verdict, cost: f64) -> i64 {
        let found = Found { value: self.value, cost };
        self.value = match self.kept {
            Some(kept) => self.keep(now, kept, verdict, found),
            None => self.seek(now, verdict, found),
        };
        self.value
    }

    fn seek(&mut self, now: Nanos, verdict: Verdict, found: Found) -> i64 {
        let (value, ends) = (found.value, (*self.range.start(), *self.range.end()));
        let up = match verdict {
            Verdict::Right => {
                (self.step, self.low, self.high) = (0, None, None);
                return value;
            }
            Verdict::TooLow => true,
            Verdict::TooHigh => false,
        };
        let before = if up { &mut self.low } else { &mut self.high };
        let again = before.is_some();
        *before = Some(found);
        // What was found on the other side, unless this contradicts it.
        let beyond = if up { &mut self.high } else { &mut self.low };
        *beyond = beyond.filter(|other| if up { other.value > value } else { other.value < value });
        match *beyond {
            Some(other) if other.value.abs_diff(value) == 1 => return self.settle(now, found, other),
            Some(other) => {
                let half = (other.value.abs_diff(value) / 2) as i64;
                self.step = if again { (self.step.saturating_mul(2)).clamp(1, half) } else { half };
            }
            None => self.step = if again { self.step.saturating_mul(2).max(1) } else { 1 },
        }
        let next = if up { value.saturating_add(self.step) } else { value.saturating_sub(self.step) };
        let next = next.clamp(ends.0, ends.1);
        if next == value {
            self.step = 0; // at the end of the range: what was doubled so far leads nowhere
        }
        next
    }

    /// Of two neighbours the better. The one that is in force where they are equal.
    fn settle(&mut self, now: Nanos, here: Found, other: Found) -> i64 {
        let better = if other.cost < here.cost { other } else { here };
        self.kept =
            Some(Kept { cost: better.cost, until: now + FIRST_KEEP, length: FIRST_KEEP, trying: false });
        better.value
    }

    fn keep(&mut self, now: Nanos, kept: Kept, verdict: Verdict, found: Found) -> i64 {
        let (Some(low), Some(high)) = (self.low, self.high) else { return self.restart(now, verdict, found) };
        let other = if found.value == low.value { high.value } else { low.value };
        let as_before = match verdict {
            Verdict::Right => true,
            Verdict::TooLow => found.value == low.value,
            Verdict::TooHigh => found.value == high.value,
        };
        if !as_before || (kept.trying && found.cost < kept.cost) {
            return self.restart(now, verdict, found);
        }
        if kept.trying {
            let length = Nanos(kept.length.0 * 2).min(LONGEST_KEEP);
            self.kept = Some(Kept { until: now + length, length, trying: false, ..kept });
            other
        } else if now >= kept.until && verdict != Verdict::Right {
            self.kept = Some(Kept { cost: found.cost, trying: true, ..kept });
            other
        } else {
            self.kept = Some(Kept { cost: found.cost, ..kept });
            found.value
        }
    }

    fn restart(&mut self, now: Nanos, verdict: Verdict, found: Found) -> i64 {
        (self.kept, self.low, self.high, self.step) = (None, None, None, 0);
        self.seek(now, verdict, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEP: Nanos = Nanos::from_millis(100);

    /// Settings that a search tries for something that is right between `optimum` and its successor, and costs what it is away from it.
    fn run(search: &mut Search, now: &mut Nanos, optimum: f64, steps: usize) -> Vec<i64> {
        (0..steps)
            .map(|_| {
                *now += STEP;
                let away = search.value() as f64 - optimum;
                let verdict = if away < 0.0 { Verdict::TooLow } else { Verdict::TooHigh };
                search.measured(*now, verdict, away.abs())
            })
            .collect()
    }

    #[test]
    fn steps_double_then_halve_then_the_better_neighbour_is_kept() {
        let mut search = Search::new(-20..=19, 0);
        let tried = run(&mut search, &mut Nanos::ZERO.clone(), 11.2, 7);
        assert_eq!(tried, [1, 3, 7, 15, 11, 13, 12]);
        let mut now = Nanos::from_secs(1);
        let tried = run(&mut search, &mut now, 11.2, 60);
        assert!(tried.iter().all(|&value| value == 11 || value == 12), "{tried:?}");
        assert!(search.is_settled());
        let looks: Vec<usize> = (0..60).filter(|&at| tried[at] == 12).collect();
        let gaps: Vec<usize> = looks.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]), "ever more rarely: {looks:?}");
        assert!(gaps.last().is_some_and(|&gap| (10..=12).contains(&gap)), "a second at last: {looks:?}");
    }

    #[test]
    fn what_is_right_is_left_alone_and_what_changes_is_found_again() {
        let mut search = Search::new(1..=1_000, 500);
        assert_eq!(search.measured(STEP, Verdict::Right, 0.0), 500);
        let mut now = STEP;
        run(&mut search, &mut now, 20.5, 40);
        assert!((20..=21).contains(&search.value()));
        run(&mut search, &mut now, 900.5, 60);
        assert!((900..=901).contains(&search.value()), "{}", search.value());
    }

    #[test]
    fn stays_at_the_end_of_its_range() {
        let mut search = Search::new(0..=10, 5);
        let mut now = Nanos::ZERO;
        assert!(run(&mut search, &mut now, 50.0, 20).ends_with(&[10; 10]));
        assert!(run(&mut search, &mut now, -50.0, 20).ends_with(&[0; 10]));
        let mut one = Search::new(i64::MAX..=i64::MAX, 0);
        assert_eq!(one.measured(now, Verdict::TooLow, 0.0), i64::MAX);
        #[expect(clippy::reversed_empty_ranges)]
        let empty = Search::new(3..=2, 7);
        assert_eq!(empty.value(), 3);
    }

    proptest! {
        /// From anywhere to anywhere in about two logarithms of the way, never out of the range, and it stays there.
        #[test]
        fn finds_any_optimum(start in 0i64..4_096, optimum in 0i64..4_095, further in 0i64..4_095) {
            let mut search = Search::new(0..=4_095, start);
            let mut now = Nanos::ZERO;
            for target in [optimum, further] {
                let tried = run(&mut search, &mut now, target as f64 + 0.4, 80);
                prop_assert!(tried.iter().all(|value| (0..4_096).contains(value)));
                prop_assert!(tried[45..].iter().all(|&value| value == target || value == target + 1), "{tried:?}");
                let kept = tried[45..].iter().filter(|&&value| value == target).count();
                prop_assert!(kept >= 25, "the better one: {tried:?}");
            }
        }

        /// Whatever it is told, it stays in its range.
        #[test]
        fn any_verdicts_keep_it_in_range(told in prop::collection::vec((0u8..3, -1.0f64..1.0, 0u64..2_000), 0..200)) {
            let mut search = Search::new(-3..=12, 0);
            let mut now = Nanos::ZERO;
            for (verdict, cost, gap) in told {
                now += Nanos::from_millis(gap);
                let verdict = [Verdict::TooLow, Verdict::TooHigh, Verdict::Right][usize::from(verdict)];
                let value = search.measured(now, verdict, cost);
                prop_assert!((-3..=12).contains(&value));
                prop_assert_eq!(value, search.value());
            }
        }
    }
}
