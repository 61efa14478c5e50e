//! What those weigh together with whom a job shares the CPUs, by what came of the weights that it had (Eq. 5).

use plimsoll_core::Nanos;

use super::Seen;
use super::window::Got;

/// In so long, in seconds, a look counts half of what it did.
const HALF_S: f64 = 4.0;
/// What they are believed to weigh at first counts as so much CPU time of the job.
const BELIEVED_MS: f64 = 10.0;
/// CPU time of a job in one piece, in milliseconds, as measured beside a busy server.
const SLICE_MS: f64 = 7.0;
/// What is off by more standard deviations is no chance: they weigh something else than they did.
const SURE: f64 = 3.0;
/// What was seen of late is held against what was known for so long at least, the counters of a look are not all of the same moment, and at
/// most.
const LATE: (Nanos, Nanos) = (Nanos::from_millis(180), Nanos::from_secs(1));

/// What came of the job's weights.
#[derive(Clone, Copy, Debug, Default)]
struct Came {
    /// What the job desired and others had, times its weight.
    others_weighed_ms: f64,
    /// What it had.
    ran_ms: f64,
}

impl Came {
    fn of(weight: f64, ran_ms: f64) -> Came {
        Came { others_weighed_ms: weight * ran_ms, ran_ms }
    }

    /// Adds another, of which so much is left.
    fn add(&mut self, left: f64, other: Came) {
        self.others_weighed_ms = self.others_weighed_ms * left + other.others_weighed_ms;
        self.ran_ms = self.ran_ms * left + other.ran_ms;
    }

    /// By Eq. 5, whatever weights the job had: each adds as much to both sides.
    fn weight(self) -> f64 {
        self.others_weighed_ms / self.ran_ms
    }
}

/// What was seen of late.
#[derive(Clone, Copy, Debug, Default)]
struct Late {
    length: Nanos,
    came: Came,
    /// What the job should have had, by what was known.
    expected_ms: f64,
}

impl Late {
    fn is_no_chance(&self) -> bool {
        let off_ms = (self.came.ran_ms - self.expected_ms).abs();
        off_ms > SURE * (SLICE_MS * self.expected_ms.max(self.came.ran_ms)).sqrt()
    }
}

/// The others.
#[derive(Clone, Debug)]
pub struct Rivals {
    known: Came,
    late: Late,
}

impl Rivals {
    /// They are believed to weigh so much, in the unit of the job's weights.
    pub fn new(weight: f64) -> Rivals {
        Rivals { known: Came::of(weight, BELIEVED_MS), late: Late::default() }
    }

    /// What they weigh.
    pub fn weight(&self) -> f64 {
        self.known.weight()
    }

    /// This was seen while the job had that weight.
    pub fn saw(&mut self, seen: &Seen, weight: f64) {
        let Got { length, desired_ms, ran_ms } = Got::of(seen);
        let others_weighed_ms = weight * (desired_ms - ran_ms).max(0.0);
        let came = Came { others_weighed_ms, ran_ms };
        self.late.length = Nanos(self.late.length.0 + length.0);
        self.late.expected_ms += desired_ms * weight / (weight + self.weight());
        self.late.came.add(1.0, came);
        self.known.add((-(length.0 as f64) / 1e9 / HALF_S).exp2(), came);
        if self.late.length < LATE.0 {
            return;
        }
        if self.late.is_no_chance() {
            self.known = Came::of(self.weight(), BELIEVED_MS);
            self.known.add(1.0, self.late.came);
        } else if self.late.length < LATE.1 {
            return;
        }
        self.late = Late::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenth of a second of one CPU, shared by weight.
    fn shared(ours: f64, theirs: f64) -> Seen {
        let ran = 1e8 * ours / (ours + theirs);
        Seen {
            length: Nanos::from_millis(100),
            job_ran: Nanos(ran as u64),
            job_desired_ms_per_s: 1e3,
            ..Seen::default()
        }
    }

    #[test]
    fn whatever_weights_the_job_had_the_others_weigh_the_same() {
        let mut rivals = Rivals::new(1_024.0);
        for weight in [20.0, 700.0, 3.0, 90.0].repeat(50) {
            rivals.saw(&shared(weight, 5_000.0), weight);
        }
        assert!((rivals.weight() / 5_000.0 - 1.0).abs() < 0.01, "{}", rivals.weight());
    }

    #[test]
    fn many_who_come_or_go_at_once_are_seen_within_a_second() {
        for (before, after) in [(500.0, 40_000.0), (40_000.0, 500.0)] {
            let mut rivals = Rivals::new(before);
            let ours = 100.0 + before;
            (0..200).for_each(|_| rivals.saw(&shared(ours, before), ours));
            (0..10).for_each(|_| rivals.saw(&shared(ours, after), ours));
            // Whoever begins with too little is paced up meanwhile; here the weight stays.
            let off = (rivals.weight() / after).ln().abs();
            assert!(off < 0.6, "{} for {after}", rivals.weight());
        }
    }
}
