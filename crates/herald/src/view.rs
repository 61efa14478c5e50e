//! What is known of threads as programs are told it: the JSON of `plimsoll top --once --json` and of the agent's `/futures`.

use plimsoll_cpufutures::{Allocations, TaskId};
use serde::{Deserialize, Serialize};

/// What stands for a slowdown that is infinite, of a thread that got nothing of what it desired: JSON has no such number, and scripts
/// compare. No slowdown is told as greater.
pub const MOST_SLOWDOWN: f64 = 1e6;

/// The threads that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The time that the figures are about, in seconds: about one, less when the herald has just begun, more where it reads rarely.
    pub interval_s: f64,
    /// By process and thread.
    pub tasks: Vec<Task>,
}

/// A thread; see [`Allocations`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its process.
    pub pid: u32,
    /// Itself.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// What it got.
    pub actual_ms_per_s: f64,
    /// What it would have got on an idle machine.
    pub desired_ms_per_s: f64,
    /// What it will get in the next second.
    pub predicted_ms_per_s: f64,
    /// The most that it could get.
    pub potential_ms_per_s: f64,
    /// How long it was ready to run without running.
    #[serde(default)]
    pub waited_ms_per_s: f64,
    /// How many times slower than on an idle machine it ran, in 1..=[`MOST_SLOWDOWN`].
    pub slowdown: f64,
    /// The same of the next second.
    pub predicted_slowdown: f64,
    /// Whether what it desires may be wrong.
    #[serde(default)]
    pub low_confidence: bool,
}

impl Task {
    /// This thread, by that name.
    pub fn new(id: TaskId, comm: &str, found: &Allocations) -> Task {
        Task {
            pid: id.pid,
            tid: id.tid,
            comm: comm.to_owned(),
            actual_ms_per_s: rounded(found.actual_ms_per_s),
            desired_ms_per_s: rounded(found.desired_ms_per_s),
            predicted_ms_per_s: rounded(found.predicted_ms_per_s),
            potential_ms_per_s: rounded(found.potential_ms_per_s),
            waited_ms_per_s: rounded(found.waited_ms_per_s),
            slowdown: finite(found.slowdown()),
            predicted_slowdown: finite(found.predicted_slowdown()),
            low_confidence: found.low_confidence,
        }
    }
}

/// A slowdown as it is told.
pub fn finite(slowdown: f64) -> f64 {
    rounded(slowdown.min(MOST_SLOWDOWN))
}

/// To the microsecond: more is noise.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinity_is_told_as_a_number() {
        let starved = Allocations {
            desired_ms_per_s: 1000.0,
            predicted_ms_per_s: 333.333_333,
            ..Allocations::default()
        };
        let task = Task::new(TaskId { pid: 1, tid: 2, started: 3 }, "a", &starved);
        assert_eq!((task.slowdown, task.predicted_slowdown), (MOST_SLOWDOWN, 3.0));
        assert_eq!(task.predicted_ms_per_s, 333.333);
        let text = serde_json::to_string(&Report { interval_s: 1.0, tasks: vec![task.clone()] }).unwrap();
        assert!(text.contains("\"slowdown\":1000000.0"), "{text}");
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap().tasks, [task]);
    }
}
