//! What a starvation strategy may spend on admissions against the estimate: half of the servers' time.
//!
//! The paper's strategies look at shares of requests, not at what these cost. At ten times the capacity an allowance of 0.1
//! is the whole capacity, spent without looking at objectives: the queue grows to its limit and everyone else's
//! objective is missed. Within this budget the estimates keep the other half. The loads of the paper's studies
//! spend less than a third.

use plimsoll_core::estimator::Estimator;
use plimsoll_core::sync::{AtomicU64, Ordering::Relaxed};
use plimsoll_core::{ClassId, Nanos};

/// The share of the slots' time.
const SHARE: f64 = 0.5;
/// What may be saved up, as time at full spending.
const SAVED: Nanos = Nanos::from_millis(100);

/// Processing time left to spend.
pub struct Budget {
    /// Nanoseconds, an `i64`: the last request of a round may leave a debt, which the next rounds pay.
    left_ns: AtomicU64,
    filled_at: AtomicU64,
}

impl Budget {
    /// A full budget, once [`Budget::fill`] knows the slots.
    pub fn new(now: Nanos) -> Budget {
        Budget { left_ns: AtomicU64::new(1), filled_at: AtomicU64::new(now.0) }
    }

    /// Spends the mean time of a request of `class`, where anything is left.
    pub fn spend(&self, estimator: &Estimator, class: ClassId) -> bool {
        let left = self.left_ns.load(Relaxed) as i64;
        if left > 0 {
            // Threads that come together may overdraw; what they owe stays owed.
            self.left_ns.fetch_sub(estimator.mean(class).0, Relaxed);
        }
        left > 0
    }

    /// Adds what the time since the last call is worth.
    pub fn fill(&self, estimator: &Estimator, now: Nanos) {
        let per_ns = SHARE * f64::from(estimator.slots());
        let since = now.since(Nanos(self.filled_at.swap(now.0, Relaxed)));
        let (added, most) = ((since.0 as f64 * per_ns) as i64, (SAVED.0 as f64 * per_ns) as i64);
        let filled = |left: u64| Some((left as i64).saturating_add(added).min(most) as u64);
        // The closure never declines.
        let _ = self.left_ns.fetch_update(Relaxed, Relaxed, filled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Slo;
    use plimsoll_core::estimator::Wait;

    #[test]
    fn half_of_the_slots_time_is_spent_whatever_a_request_costs() {
        for ms in [1, 7, 60, 900] {
            let estimator = Estimator::new(vec![Slo::default()], 8, Nanos::ZERO);
            (0..200).for_each(|_| estimator.completed(ClassId(0), Wait::default(), Nanos::from_millis(ms)));
            estimator.tick(Nanos::from_secs(1));
            let budget = Budget::new(Nanos::ZERO);
            let (mut spent, ticks) = (0.0, 10_000u64);
            for tick in 1..=ticks {
                budget.fill(&estimator, Nanos::from_millis(10 * tick));
                // Far more ask than can be paid for.
                spent += (0..100).filter(|_| budget.spend(&estimator, ClassId(0))).count() as f64 * ms as f64;
            }
            let share = spent / (8.0 * 10.0 * ticks as f64);
            assert!((0.49..0.52).contains(&share), "{ms} ms: {share}");
        }
    }
}
