//! A limit on a job's slowdown where nothing sets its share: it is stopped while it has had more than it is due. So it can have less than its
//! equal share, never more.

use super::Seen;
use super::account::{Account, others_wait};

/// The controller, where the job can only be stopped.
#[derive(Clone, Debug)]
pub struct Pauses {
    account: Account,
    /// Whether others waited when the job was last seen to run.
    others_wait: bool,
}

impl Pauses {
    /// One that keeps the slowdown below `limit`, above 1, where an equal share allows that.
    pub fn new(limit: f64) -> Pauses {
        Pauses { account: Account::new(limit), others_wait: false }
    }

    /// Whether the job is to run until the next look.
    pub fn runs(&mut self, seen: &Seen) -> bool {
        self.account.enter(seen);
        if !seen.paused {
            self.others_wait = others_wait(seen);
        }
        !(self.others_wait && self.account.has_spare())
    }

    /// How many times slower the job was over the worst ten seconds, or over all if it ran no longer.
    pub fn worst(&self) -> f64 {
        self.account.worst()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Nanos;

    use super::*;

    /// How much of one CPU the job has beside so many others, and how many times slower it was at worst.
    fn beside(others: u64, limit: f64) -> (f64, f64) {
        let mut control = Pauses::new(limit);
        let (mut paused, mut ran, tenths) = (false, 0.0, 1_000);
        for _ in 0..tenths {
            let share = if paused { 0.0 } else { 1.0 / (1 + others) as f64 };
            let seen = Seen {
                length: Nanos::from_millis(100),
                job_ran: Nanos((1e8 * share) as u64),
                job_desired_ms_per_s: 1e3,
                others_waited: Nanos::from_millis(100 * others.saturating_sub(u64::from(paused))),
                paused,
                ..Seen::default()
            };
            paused = !control.runs(&seen);
            ran += share;
        }
        (ran / f64::from(tenths), control.worst())
    }

    #[test]
    fn it_has_what_the_limit_leaves_it() {
        for limit in [5.0, 10.0, 20.0] {
            let (part, worst) = beside(1, limit);
            assert!((0.8..1.0).contains(&(1.0 / part / limit)), "limit {limit}: {part}");
            assert!(worst <= limit, "limit {limit}: {worst}");
        }
    }

    #[test]
    fn whoever_slows_nobody_and_whoever_has_less_anyhow_runs() {
        assert_eq!(beside(0, 5.0).0, 1.0);
        assert!((beside(7, 5.0).0 - 1.0 / 8.0).abs() < 1e-6);
    }
}
