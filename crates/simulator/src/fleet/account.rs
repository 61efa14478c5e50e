//! What became of requests. Every attempt ends in exactly one way; a test adds them up.

use plimsoll_core::Nanos;

use crate::stats::Histogram;

/// How finely goodput is told over time.
pub const TIMELINE_STEP: Nanos = Nanos::from_millis(250);

/// What became of the requests of one API, from the start on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that users sent.
    pub sent: u64,
    /// Attempts: those and their retries.
    pub attempts: u64,
    /// Attempts that were refused where they enter.
    pub limited: u64,
    /// Attempts that a service refused on the way.
    pub refused: u64,
    /// Attempts that ended with an instance.
    pub lost: u64,
    /// Attempts that were answered, in time or not.
    pub answered: u64,
    /// Requests that were answered within their deadline from when their users first sent them.
    pub good: u64,
    /// Attempts that their clients gave up, whatever became of them.
    pub abandoned: u64,
}

impl Counts {
    /// Attempts that were let in.
    pub fn admitted(&self) -> u64 {
        self.attempts - self.limited
    }

    /// What came since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            sent: self.sent - before.sent,
            attempts: self.attempts - before.attempts,
            limited: self.limited - before.limited,
            refused: self.refused - before.refused,
            lost: self.lost - before.lost,
            answered: self.answered - before.answered,
            good: self.good - before.good,
            abandoned: self.abandoned - before.abandoned,
        }
    }
}

/// All that is counted of one API.
#[derive(Clone, Default)]
pub struct Account {
    /// From the start on.
    pub counts: Counts,
    /// Of the attempts since the last look of the controller, those that were answered in time.
    pub good_attempts: u64,
    /// How long the attempts took that were answered since then, in nanoseconds.
    pub latencies: Vec<u64>,
    /// How long requests took from when their users first sent them, since the window began.
    pub window: Histogram,
    /// Requests that were answered in time, by [`TIMELINE_STEP`].
    pub timeline: Vec<u32>,
}

impl Account {
    /// An answer: to an attempt that took so long, of a request that was first sent so long ago.
    pub fn answered(&mut self, now: Nanos, attempt: Nanos, request: Nanos, deadline: Nanos, abandoned: bool) {
        self.counts.answered += 1;
        self.latencies.push(attempt.0);
        self.good_attempts += u64::from(attempt <= deadline);
        if abandoned {
            return;
        }
        self.window.record(request);
        if request <= deadline {
            self.counts.good += 1;
            let step = (now.0 / TIMELINE_STEP.0) as usize;
            if self.timeline.len() <= step {
                self.timeline.resize(step + 1, 0);
            }
            self.timeline[step] += 1;
        }
    }

    /// The latency that this part of the attempts since the last look kept below; none where none was answered.
    pub fn tail(&mut self, part: f64) -> Option<Nanos> {
        let last = self.latencies.len().checked_sub(1)?;
        let place = ((last as f64 * part).round() as usize).min(last);
        Some(Nanos(*self.latencies.select_nth_unstable(place).1))
    }
}
