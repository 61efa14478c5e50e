//! What the job gave up, and what it cost the others.

use std::fmt;

use serde::Serialize;

use crate::plan::Want;
use plimsoll_cpufutures::empathy::Seen;

/// The bill, as of now.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// `idle-only` or `max-slowdown`.
    pub policy: &'static str,
    /// The limit of `max-slowdown`.
    pub limit: Option<f64>,
    /// What the job was held back by.
    pub means: String,
    /// Better means that were not allowed, and what is missing for them.
    pub missing: Vec<String>,
    /// Why it was not held back to the end, if it was not.
    pub lost: Option<String>,
    /// How long it was watched, in seconds.
    pub elapsed_s: f64,
    /// What became of the job.
    pub job: Job,
    /// What became of the others.
    pub others: Others,
    /// The CPU time that this program has used, its guard apart, in seconds.
    pub own_cpu_s: f64,
    /// The exit code, if the job was started by this program.
    pub exit_code: Option<u8>,
}

/// What became of the job; times of all its threads together, without those that came and went between two looks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Job {
    /// CPU time that it got, in seconds.
    pub ran_s: f64,
    /// How long it was ready to run without running, in seconds.
    pub waited_s: f64,
    /// For how long it was paused, in seconds.
    pub paused_s: f64,
    /// How many times it was paused.
    pub pauses: u64,
    /// How many times slower than alone it was, over all.
    pub slowdown: f64,
    /// And over the worst ten seconds (over all, if there were no ten); with a limit alone.
    pub worst_slowdown_10s: Option<f64>,
}

/// What became of the others.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Others {
    /// CPU time that they got, in seconds.
    pub ran_s: f64,
    /// How long they were ready to run without running, in seconds.
    pub waited_s: f64,
    /// For how long the job had a CPU that others waited for, in seconds.
    pub taken_s: f64,
}

/// Sums up.
#[derive(Debug, Default)]
pub struct Tally {
    report: Report,
    desired_s: f64,
    was_paused: bool,
}

impl Tally {
    /// Of a job that is held back so.
    pub fn new(want: Want, means: String, missing: Vec<String>) -> Tally {
        let (policy, limit) = match want {
            Want::IdleOnly => ("idle-only", None),
            Want::MaxSlowdown(limit) => ("max-slowdown", Some(limit)),
        };
        Tally { report: Report { policy, limit, means, missing, ..Report::default() }, ..Tally::default() }
    }

    /// One more look.
    pub fn add(&mut self, seen: &Seen) {
        let s = |time: plimsoll_core::Nanos| time.0 as f64 / 1e9;
        let (report, length) = (&mut self.report, s(seen.length));
        report.elapsed_s += length;
        report.job.ran_s += s(seen.job_ran);
        report.job.waited_s += s(seen.job_waited);
        if seen.paused {
            report.job.paused_s += length;
            report.job.pauses += u64::from(!self.was_paused);
        }
        self.was_paused = seen.paused;
        self.desired_s += seen.job_desired_ms_per_s * length / 1e3;
        report.others.ran_s += s(seen.others_ran);
        report.others.waited_s += s(seen.others_waited);
        // Several may have waited for the same CPU at once, each because of the job: it can have taken no more than it got, nor than they lacked.
        let most = s(seen.others_waited).min(s(seen.job_ran));
        report.others.taken_s += (seen.taken_ms_per_s * length / 1e3).min(most);
    }

    /// The bill.
    pub fn close(
        mut self,
        worst: Option<f64>,
        lost: Option<String>,
        own_cpu_s: f64,
        exit_code: Option<u8>,
    ) -> Report {
        let job = &mut self.report.job;
        job.slowdown = if job.ran_s > 0.0 { (self.desired_s / job.ran_s).max(1.0) } else { 1.0 };
        job.worst_slowdown_10s = worst;
        Report { lost, own_cpu_s, exit_code, ..self.report }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { job, others, .. } = self;
        write!(
            f,
            "the job ran {:.1} s in {:.1} s and waited {:.1} s",
            job.ran_s, self.elapsed_s, job.waited_s
        )?;
        if job.pauses > 0 {
            write!(f, "; it was paused {} times, {:.1} s in all", job.pauses, job.paused_s)?;
        }
        write!(f, "; {:.1}x slower than alone", job.slowdown)?;
        if let Some(worst) = job.worst_slowdown_10s {
            write!(f, " ({worst:.1}x over the worst 10 s)")?;
        }
        let part = if others.ran_s > 0.0 { 100.0 * others.taken_s / others.ran_s } else { 0.0 };
        write!(f, ". It took {:.2} s from others ({part:.1} % of what they got)", others.taken_s)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Nanos;

    use super::*;

    #[test]
    fn a_job_takes_no_more_than_it_got_however_many_wait_for_it() {
        let mut tally = Tally::new(Want::IdleOnly, String::new(), Vec::new());
        let second = Nanos::from_secs(1);
        let seen = Seen {
            length: second,
            job_ran: Nanos::from_millis(400),
            others_ran: Nanos::from_millis(600),
            // Eight that waited for the one CPU all the time, 40 % of it because of the job.
            others_waited: Nanos::from_secs(8),
            taken_ms_per_s: 3_200.0,
            ..Seen::default()
        };
        tally.add(&seen);
        // Nobody waited, whatever was taken in the second before.
        tally.add(&Seen { others_waited: Nanos::ZERO, ..seen });
        let report = tally.close(None, None, 0.0, None);
        assert!((report.others.taken_s - 0.4).abs() < 1e-9, "{report:?}");
        assert_eq!(report.others.waited_s, 8.0);
    }
}
