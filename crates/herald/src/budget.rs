//! What the herald may cost. It reads less often before it costs more.

use std::collections::VecDeque;

use plimsoll_core::Nanos;

/// What was saved counts for this long: a reading may be dearer than most, when all threads are new.
const SAVED_FOR: Nanos = Nanos::from_secs(1);
/// The longest wait, whatever is owed: readings that are much further apart say nothing about the threads.
const LONGEST: Nanos = Nanos::from_secs(30);
/// What [`Budget::spent_share`] looks back on.
const WINDOW: Nanos = Nanos::from_secs(10);

/// An account of CPU time.
#[derive(Debug)]
pub struct Budget {
    /// CPU time that may be used, as a part of one CPU.
    share: f64,
    /// What has been used on top of it, in nanoseconds; negative where some is left.
    owed_ns: f64,
    settled_at: Nanos,
    spent: VecDeque<(Nanos, Nanos)>,
}

impl Budget {
    /// `share` of one CPU, above 0.
    pub fn new(share: f64, now: Nanos) -> Budget {
        Budget { share, owed_ns: 0.0, settled_at: now, spent: VecDeque::new() }
    }

    /// `cpu` has been used, up to `now`.
    pub fn spend(&mut self, cpu: Nanos, now: Nanos) {
        let earned = self.share * now.since(self.settled_at).0 as f64;
        self.settled_at = now;
        self.owed_ns = (self.owed_ns - earned).max(-self.share * SAVED_FOR.0 as f64) + cpu.0 as f64;
        // What can never be earned is not owed for ever.
        self.owed_ns = self.owed_ns.min(2.0 * self.share * LONGEST.0 as f64);
        self.spent.push_back((now, cpu));
        // Those that are left reach back as far as the window, or a little further.
        while self.spent.get(1).is_some_and(|(at, _)| now.since(*at) >= WINDOW) {
            self.spent.pop_front();
        }
    }

    /// How long to wait until the next reading: `period`, or until what is owed has been earned, but half a minute at most.
    pub fn wait(&self, period: Nanos) -> Nanos {
        period.max(self.earned_in().min(LONGEST))
    }

    /// Whether more is owed than is earned until the next reading.
    pub fn is_overdrawn(&self) -> bool {
        self.earned_in() > LONGEST
    }

    fn earned_in(&self) -> Nanos {
        Nanos((self.owed_ns / self.share).max(0.0) as u64)
    }

    /// What has been used over the last ten seconds, as a part of one CPU.
    pub fn spent_share(&self) -> f64 {
        let (Some(first), Some(last)) = (self.spent.front(), self.spent.back()) else { return 0.0 };
        // What the first one cost was spent before.
        let cpu: u64 = self.spent.iter().skip(1).map(|(_, cpu)| cpu.0).sum();
        let over = last.0.since(first.0).0;
        if over == 0 { 0.0 } else { cpu as f64 / over as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_less_often_before_it_costs_more() {
        let period = Nanos::from_millis(100);
        for (cost_us, expected_ms) in [(1_000, 100), (2_000, 200), (10_000, 1_000), (300_000, 30_000)] {
            let mut budget = Budget::new(0.01, Nanos::ZERO);
            let mut now = Nanos::ZERO;
            for _ in 0..1_000 {
                budget.spend(Nanos::from_micros(cost_us), now);
                now += budget.wait(period);
            }
            let mean_ms = now.as_millis_f64() / 1_000.0;
            assert!(
                (mean_ms - expected_ms as f64).abs() <= 0.01 * expected_ms as f64,
                "{cost_us}: {mean_ms}"
            );
            assert!((0.0095..=0.0101).contains(&budget.spent_share()), "{cost_us}: {}", budget.spent_share());
        }
    }

    #[test]
    fn it_reads_every_half_a_minute_even_where_that_costs_more() {
        let mut budget = Budget::new(0.01, Nanos::ZERO);
        let mut now = Nanos::ZERO;
        for _ in 0..100 {
            budget.spend(Nanos::from_secs(2), now);
            assert_eq!(budget.wait(Nanos::from_millis(100)), Nanos::from_secs(30));
            now += Nanos::from_secs(30);
        }
        assert!(budget.is_overdrawn());
        assert!((0.06..0.07).contains(&budget.spent_share()), "{}", budget.spent_share());
        // What is owed from then does not keep it from reading for long once it is cheap again.
        for _ in 0..10 {
            budget.spend(Nanos::from_millis(1), now);
            now += budget.wait(Nanos::from_millis(100));
        }
        assert!(!budget.is_overdrawn());
        assert_eq!(budget.wait(Nanos::from_millis(100)), Nanos::from_millis(100));
    }

    #[test]
    fn after_an_hour_without_a_reading_no_more_is_saved_than_in_a_second() {
        let mut budget = Budget::new(0.01, Nanos::ZERO);
        let hour = Nanos::from_secs(3_600);
        // The process was stopped: a second's worth, 10 ms, and what the reading cost.
        budget.spend(Nanos::from_millis(30), hour);
        assert_eq!(budget.wait(Nanos::from_millis(100)), Nanos::from_secs(2));
    }

    #[test]
    fn one_dear_reading_is_paid_from_what_was_saved() {
        let mut budget = Budget::new(0.01, Nanos::ZERO);
        let period = Nanos::from_millis(100);
        for tenth in 0..20 {
            budget.spend(Nanos::from_micros(100), Nanos::from_millis(100 * tenth));
        }
        let now = Nanos::from_secs(2);
        budget.spend(Nanos::from_millis(9), now);
        assert_eq!(budget.wait(period), period);
        budget.spend(Nanos::from_millis(9), now + period);
        assert!(budget.wait(period) > Nanos::from_millis(600), "what is owed is earned first");
    }
}
