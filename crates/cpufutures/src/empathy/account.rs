//! What a job is due under a limit on its slowdown, and what it has had of that.
//!
//! A share of a CPU is had in slices of some milliseconds, and of the two or three of a tenth of a second half may be chance. The limit holds
//! over ten seconds, so what chance took of a tenth the job has soon after, and what it had too much it gives back.

use super::Seen;
use super::window::{Got, Window};

/// The part of the limit that is aimed at; what is left of it is for what chance takes until it is given back.
const AIM: f64 = 0.85;
/// The least that is aimed at beyond 1, as a part of what the limit is beyond 1.
const LEAST_AIM: f64 = 0.5;
/// In so long, in seconds, the job has what it lacks, or gives back what it had too much.
const SOON_S: f64 = 0.5;
/// The most that it can lack, in seconds of what it is due: the time over which the limit holds,
const MOST_LACKING_S: f64 = 10.0;
/// and the most that it can have too much. What it had while nobody else wanted it is not to be given back.
const MOST_SPARE_S: f64 = 0.7;
/// How many times what is aimed at it is to have for that, at least and at most.
const LEAST: f64 = 0.4;
const MOST: f64 = 4.0;
/// The least beyond 1 that it is to be slowed, as a part of that of the aim: no weight gives all.
const LEAST_BEYOND: f64 = 0.05;
/// Others that wait less, in milliseconds a second, are not helped by a smaller share.
const BEARABLE_MS_PER_S: f64 = 10.0;

/// The account of one job.
#[derive(Clone, Debug)]
pub struct Account {
    aim: f64,
    /// What the job is due in a second.
    due_ms_per_s: f64,
    /// CPU time that it was due and did not have; below 0 what it had too much.
    lacks_ms: f64,
    window: Window,
}

impl Account {
    /// Of one that may be slowed `limit` times, above 1.
    pub fn new(limit: f64) -> Account {
        let aim = (AIM * limit).max(1.0 + LEAST_AIM * (limit - 1.0));
        Account { aim, due_ms_per_s: 0.0, lacks_ms: 0.0, window: Window::default() }
    }

    /// How many times slower it is to be.
    pub fn aim(&self) -> f64 {
        self.aim
    }

    /// Enters what was seen since the last look.
    pub fn enter(&mut self, seen: &Seen) {
        let got = Got::of(seen);
        self.window.remember(got);
        self.due_ms_per_s = seen.job_desired_ms_per_s / self.aim;
        let lacks_ms = self.lacks_ms + got.desired_ms / self.aim - got.ran_ms;
        self.lacks_ms = lacks_ms.clamp(-MOST_SPARE_S * self.due_ms_per_s, MOST_LACKING_S * self.due_ms_per_s);
    }

    /// Whether it has had more than it was due.
    pub fn has_spare(&self) -> bool {
        self.lacks_ms < 0.0
    }

    /// How many times slower it is to be next, above 1.
    pub fn next(&self) -> f64 {
        let lacking =
            if self.due_ms_per_s > 0.0 { self.lacks_ms / (SOON_S * self.due_ms_per_s) } else { 0.0 };
        (self.aim / (1.0 + lacking).clamp(LEAST, MOST)).max(1.0 + LEAST_BEYOND * (self.aim - 1.0))
    }

    /// How many times slower it was over the worst ten seconds, or over all if it ran no longer.
    pub fn worst(&self) -> f64 {
        self.window.worst()
    }
}

/// Whether others would be helped by less for the job.
pub fn others_wait(seen: &Seen) -> bool {
    seen.others_waited.0 as f64 * 1e3 > BEARABLE_MS_PER_S * seen.length.0 as f64
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Nanos;

    use super::*;

    /// A tenth of a second on two CPUs of which it had so much.
    fn tenth(had_ms: u64) -> Seen {
        Seen {
            length: Nanos::from_millis(100),
            job_ran: Nanos::from_millis(had_ms),
            job_desired_ms_per_s: 2e3,
            ..Seen::default()
        }
    }

    #[test]
    fn what_it_lacks_it_is_to_have_soon_and_what_it_has_too_much_it_gives_back() {
        let mut account = Account::new(10.0);
        assert_eq!((account.next(), account.has_spare()), (8.5, false));
        account.enter(&tenth(0));
        // A tenth of what it is due in a second, in half a second more than otherwise.
        assert!((account.next() - 8.5 / 1.2).abs() < 1e-9, "{}", account.next());
        account.enter(&tenth(70));
        assert!(account.has_spare() && account.next() > 8.5, "{}", account.next());
    }

    #[test]
    fn what_nobody_wanted_is_not_given_back_for_long() {
        let mut account = Account::new(5.0);
        (0..600).for_each(|_| account.enter(&tenth(200)));
        let tenths = (0..).take_while(|_| {
            account.enter(&tenth(0));
            account.has_spare()
        });
        assert_eq!(tenths.count(), 6);
    }

    #[test]
    fn no_aim_is_beyond_its_limit_or_no_slowdown_at_all() {
        for limit in [1.001, 1.1, 1.5, 2.0, 50.0] {
            let mut account = Account::new(limit);
            assert!(account.aim() > 1.0 && account.aim() < limit);
            (0..200).for_each(|_| account.enter(&tenth(0)));
            assert!(account.next() > 1.0, "limit {limit}");
        }
    }
}
