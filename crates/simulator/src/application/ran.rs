//! What became of a run.

use plimsoll_core::Nanos;

use super::case::Case;

/// What became of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was not done when the run ended.
    Unfinished,
    /// It was done.
    Done,
    /// There was no connection for it, and no room to wait for one.
    Refused,
    /// A controller had it cancelled, and it was not run again to its end.
    Cancelled,
    /// A controller had it dropped.
    Dropped,
    /// The application gave it up: no memory.
    Failed,
}

/// A task and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of which class.
    pub class: u32,
    /// When it came.
    pub came: Nanos,
    /// When it ended.
    pub ended: Nanos,
    /// How.
    pub fate: Fate,
}

/// What a controller did that changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// When.
    pub at: Nanos,
    /// To a task of which class.
    pub class: u32,
    /// To which task.
    pub task: u64,
    /// What.
    pub what: Done,
}

/// What was done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was told to end.
    Cancelled,
    /// It was dropped.
    Dropped,
    /// It was run again.
    Rerun,
    /// It was given up.
    Abandoned,
}

/// A run that is over.
#[derive(Clone, Debug)]
pub struct Ran {
    /// All tasks, in the order in which they came.
    pub records: Vec<Record>,
    /// Everything that was done to tasks, but for pauses and caps.
    pub acts: Vec<Act>,
    /// How often tasks were made to pause.
    pub pauses: u64,
}

impl Ran {
    /// The requests that a run is measured by: those that do not disturb it, that somebody waits for, from the end of the warm-up on.
    pub fn measured<'a>(&'a self, case: &'a Case) -> impl Iterator<Item = &'a Record> {
        self.records.iter().filter(|record| {
            let class = &case.classes[record.class as usize];
            !class.trigger && !class.background && record.came >= case.warmup
        })
    }

    /// How many of them were answered in a second.
    pub fn throughput_per_s(&self, case: &Case) -> f64 {
        let answered = self.measured(case).filter(|record| record.fate == Fate::Done).count();
        answered as f64 / (case.length - case.warmup).as_secs_f64()
    }

    /// How many of them were answered in a second that took no longer than this.
    pub fn in_time_per_s(&self, case: &Case, limit: Nanos) -> f64 {
        let answered = self.measured(case).filter(|record| record.fate == Fate::Done);
        let in_time = answered.filter(|record| record.ended - record.came <= limit).count();
        in_time as f64 / (case.length - case.warmup).as_secs_f64()
    }

    /// The response time that 99 of 100 did not exceed, of those that were answered and those that were still waiting for their answer
    /// when the run ended, who had taken so long already; not a number if there are none.
    pub fn p99_ms(&self, case: &Case) -> f64 {
        let time = |record: &Record| match record.fate {
            Fate::Done => Some(record.ended - record.came),
            Fate::Unfinished => Some(case.length - record.came),
            _ => None,
        };
        let mut times: Vec<Nanos> = self.measured(case).filter_map(time).collect();
        let rank = (times.len() as f64 * 0.99).ceil() as usize;
        if rank == 0 {
            return f64::NAN;
        }
        let (_, time, _) = times.select_nth_unstable(rank - 1);
        time.as_millis_f64()
    }

    /// The share of all tasks that came that a controller took away, whoever they were, in per cent.
    pub fn dropped_pct(&self) -> f64 {
        let taken = |record: &&Record| matches!(record.fate, Fate::Cancelled | Fate::Dropped);
        100.0 * self.records.iter().filter(taken).count() as f64 / self.records.len().max(1) as f64
    }

    /// What was cancelled, by class.
    pub fn cancelled(&self, case: &Case) -> Vec<(String, usize)> {
        let of = |class: u32| {
            self.acts.iter().filter(|act| act.what == Done::Cancelled && act.class == class).count()
        };
        let counts = (0..).zip(&case.classes).map(|(i, class)| (class.name.clone(), of(i)));
        counts.filter(|&(_, count)| count > 0).collect()
    }
}
