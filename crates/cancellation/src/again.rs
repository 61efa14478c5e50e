//! What becomes of who was cancelled (section 4, fairness). A task is cancelled at most once; what can be run again is, when it has ended and there
//! has been room for a while. A request whose deadline passes meanwhile is given up, or one that has none and has waited for long;
//! a background task is run again in the end, room or not.

use plimsoll_core::Nanos;

use crate::decision::Again;
use crate::scene::Task;

/// There must have been room for so long.
pub const ROOM: Nanos = Nanos::from_secs(1);
/// Between two that are run again: each may need all the room there is.
pub const APART: Nanos = Nanos::from_secs(1);
/// Nobody waits longer than this. SDKs run a task again by themselves after 30 s of silence.
pub const PATIENCE: Nanos = Nanos::from_secs(20);
/// So many wait at most; what would be one more is given up.
pub const MOST: usize = 1_024;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    task: u64,
    since: Nanos,
    deadline_ns: u64,
    request: bool,
}

/// Those who wait to be run again, the longest first.
#[derive(Debug, Default)]
pub struct Cancelled {
    waiting: Vec<Waiting>,
    room_since: Option<Nanos>,
    last: Option<Nanos>,
}

impl Cancelled {
    /// This one was cancelled and can be run again. Gives it up if too many wait.
    pub fn push(&mut self, now: Nanos, task: &Task) -> Option<Again> {
        if self.waiting.len() >= MOST {
            return Some(Again::Abandon(task.id));
        }
        self.waiting.push(Waiting {
            task: task.id,
            since: now,
            deadline_ns: task.deadline_ns,
            request: task.request,
        });
        None
    }

    /// It was not cancelled after all.
    pub fn remove(&mut self, task: u64) {
        self.waiting.retain(|w| w.task != task);
    }

    /// Decides who is run again now, and who is given up. `room` tells whether objectives are kept and nothing is contended, `runs` whether a
    /// task that was cancelled is still there: its application would not know what is to be run again.
    pub fn look(&mut self, now: Nanos, room: bool, runs: impl Fn(u64) -> bool, again: &mut Vec<Again>) {
        self.room_since = if room { self.room_since.or(Some(now)) } else { None };
        self.waiting.retain(|w| {
            let passed = match w.deadline_ns {
                0 => w.request && now.since(w.since) >= PATIENCE,
                deadline_ns => deadline_ns <= now.0,
            };
            let given_up = passed && !runs(w.task);
            if given_up {
                again.push(Again::Abandon(w.task));
            }
            !given_up
        });
        if self.last.is_some_and(|last| now.since(last) < APART) {
            return;
        }
        let room = self.room_since.is_some_and(|since| now.since(since) >= ROOM);
        let next = self
            .waiting
            .iter()
            .position(|w| (room || (!w.request && now.since(w.since) >= PATIENCE)) && !runs(w.task));
        if let Some(next) = next {
            again.push(Again::Rerun(self.waiting.remove(next).task));
            self.last = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at_ms, request, task};

    fn decide(cancelled: &mut Cancelled, ms: u64, room: bool) -> Vec<Again> {
        let mut again = Vec::new();
        cancelled.look(at_ms(ms), room, |_| false, &mut again);
        again
    }

    #[test]
    fn they_are_run_again_one_by_one_once_there_has_been_room() {
        let mut cancelled = Cancelled::default();
        (1..=2).for_each(|id| assert_eq!(cancelled.push(at_ms(0), &request(id, 0)), None));
        assert_eq!(decide(&mut cancelled, 100, true), []);
        assert_eq!(decide(&mut cancelled, 900, false), [], "the room is gone");
        assert_eq!(decide(&mut cancelled, 1_000, true), []);
        assert_eq!(decide(&mut cancelled, 2_000, true), [Again::Rerun(1)]);
        assert_eq!(decide(&mut cancelled, 2_500, true), []);
        assert_eq!(decide(&mut cancelled, 3_000, true), [Again::Rerun(2)]);
        assert_eq!(decide(&mut cancelled, 9_000, true), []);
    }

    #[test]
    fn a_deadline_that_passes_ends_the_wait() {
        let mut cancelled = Cancelled::default();
        cancelled.push(at_ms(0), &Task { deadline_ns: 5_000_000_000, ..request(1, 0) });
        assert_eq!(decide(&mut cancelled, 4_999, false), []);
        assert_eq!(decide(&mut cancelled, 5_000, true), [Again::Abandon(1)]);
    }

    #[test]
    fn a_background_task_is_run_again_in_the_end() {
        let mut cancelled = Cancelled::default();
        cancelled.push(at_ms(0), &request(1, 0));
        cancelled.push(at_ms(0), &task(2));
        assert_eq!(decide(&mut cancelled, 19_999, false), []);
        assert_eq!(decide(&mut cancelled, 20_000, false), [Again::Abandon(1), Again::Rerun(2)]);
    }

    #[test]
    fn who_has_not_ended_yet_waits_and_holds_nobody_up() {
        let mut cancelled = Cancelled::default();
        cancelled.push(at_ms(0), &request(1, 0));
        cancelled.push(at_ms(0), &Task { deadline_ns: 5_000_000_000, ..request(2, 0) });
        cancelled.push(at_ms(0), &request(3, 0));
        let mut decide = |ms, ended: u64| {
            let mut again = Vec::new();
            cancelled.look(at_ms(ms), true, |task| task != ended, &mut again);
            again
        };
        assert_eq!(decide(0, 3), []);
        assert_eq!(decide(1_000, 3), [Again::Rerun(3)]);
        assert_eq!(decide(6_000, 3), []);
        assert_eq!(decide(6_000, 2), [Again::Abandon(2)]);
        assert_eq!(decide(7_000, 1), [Again::Rerun(1)]);
    }

    #[test]
    fn not_too_many_wait() {
        let mut cancelled = Cancelled::default();
        (0..MOST as u64).for_each(|id| assert_eq!(cancelled.push(at_ms(0), &request(id, 0)), None));
        assert_eq!(cancelled.push(at_ms(0), &request(9_999, 0)), Some(Again::Abandon(9_999)));
    }
}
