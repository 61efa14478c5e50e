//! Who waits for a worker, from look to look, where only their number is to be seen: who came first is served first. Pure.

use std::collections::VecDeque;

use crate::server::chains::Pid;
use crate::server::stamp::Stamp;

/// Those who wait that are told apart at most; a listen queue is not longer than a few hundred.
const MOST: usize = 4_096;

/// Somebody who waits and of whom nothing is known but that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// A number that nobody else ever has.
    pub number: i64,
    /// Since when, or a little earlier.
    pub since: Stamp,
}

impl Waiting {
    /// What it goes by among workers, whose numbers are above zero.
    pub fn id(self) -> Pid {
        -1 - self.number
    }
}

/// Those who wait.
#[derive(Debug, Default)]
pub struct Line {
    waiting: VecDeque<Waiting>,
    next: i64,
}

impl Line {
    /// Takes in a look at `at`: so many wait now, and workers have taken so many requests since the last look. Returns since when those of
    /// them that were seen to wait had been waiting, the first first.
    pub fn look(&mut self, at: Stamp, waiting: usize, taken: u64) -> Vec<Stamp> {
        let waiting = waiting.min(MOST);
        let seen = (self.waiting.len() as u64).min(taken) as usize;
        let taken = self.waiting.drain(..seen).map(|waiting| waiting.since).collect();
        // Some have given up, and nobody knows which.
        let gone = self.waiting.len().saturating_sub(waiting);
        self.waiting.drain(..gone);
        while self.waiting.len() < waiting {
            // It came after the last look: it is not held to be late for what was not seen.
            self.waiting.push_back(Waiting { number: self.next, since: at });
            self.next += 1;
        }
        taken
    }

    /// Who waits, the first to come first.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.waiting.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_is_served_first() {
        let mut line = Line::default();
        assert_eq!(line.look(Stamp(10), 2, 5), [], "those that were taken did not wait");
        assert_eq!(line.look(Stamp(20), 4, 0), []);
        assert_eq!(line.look(Stamp(30), 2, 3), [Stamp(10), Stamp(10), Stamp(20)]);
        let since: Vec<_> = line.waiting().iter().map(|waiting| waiting.since).collect();
        assert_eq!(since, [Stamp(20), Stamp(30)], "somebody has come");
        let numbers: Vec<_> = line.waiting().iter().map(|waiting| waiting.number).collect();
        assert_eq!(numbers, [3, 4]);
        assert_eq!(line.look(Stamp(40), 1, 0), [], "one has given up");
        assert_eq!(line.waiting(), [Waiting { number: 4, since: Stamp(30) }]);
    }

    #[test]
    fn a_line_is_bounded() {
        let mut line = Line::default();
        line.look(Stamp(1), usize::MAX, 0);
        assert_eq!(line.waiting().len(), MOST);
        assert_eq!(line.look(Stamp(2), 0, u64::MAX).len(), MOST);
        assert!(line.waiting().is_empty());
    }
}
