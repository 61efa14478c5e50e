//! How far a task is, and how much is to come (section 3.4: the GetNext model, or what the application reports).

use crate::scene::Task;

/// No task counts as less far than this: a newborn innocent would have an almost infinite future.
pub const LEAST: f64 = 0.05;

/// How far a task is of which nobody knows. Half: whatever has lasted for so long is expected to last as long again, which is
/// right for heavy-tailed work and cautious for the rest.
pub const UNKNOWN: f64 = 0.5;

/// The part that is done, in [`LEAST`]..=1. Rows done over rows expected, or what the application reports.
pub fn of(task: &Task) -> f64 {
    if task.total == 0 { UNKNOWN } else { (task.done as f64 / task.total as f64).clamp(LEAST, 1.0) }
}

/// What is to come for each unit that was: `(1 - progress) / progress`, in 0..=19.
pub fn to_come(task: &Task) -> f64 {
    1.0 / of(task) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::task;

    #[test]
    fn what_is_to_come_follows_from_what_is_done() {
        let at = |done, total| to_come(&crate::Task { done, total, ..task(1) });
        assert_eq!(at(0, 0), 1.0, "nothing known: as much again");
        assert_eq!(at(40, 100), 1.5, "the example of section 3.4");
        assert_eq!((at(100, 100), at(120, 100)), (0.0, 0.0), "finished, and past what was expected");
        assert_eq!((at(0, 1_000_000), at(1, 1_000_000)), (19.0, 19.0), "a newborn is held to 5 %");
    }
}
