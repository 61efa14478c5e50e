//! Who waits for a thread, where a pool of them serves all clients: pure.
//!
//! Such a session looks idle: the server has not read yet what its client wants. For how long it has been waiting is told at each look, but
//! counted from then; so what was computed at the first look at a wait stays.

use std::collections::HashMap;

use crate::server::chains::Pid;
use crate::server::stamp::Stamp;

/// So much later or earlier it is still the same wait.
const SAME_NS: u64 = 20_000_000;

/// Those who wait, since when.
#[derive(Debug, Default)]
pub struct Queue(HashMap<Pid, Stamp>);

impl Queue {
    /// Takes in what a look at `at` shows: connections, and for how many microseconds they have been waiting.
    pub fn look(&mut self, at: Stamp, waiting: &[(Pid, i64)]) {
        let before = std::mem::take(&mut self.0);
        let since = |&(id, us): &(Pid, i64)| {
            let since = Stamp(at.0.saturating_sub(us));
            let same = |known: &Stamp| known.since_ns(since).max(since.since_ns(*known)) < SAME_NS;
            (id, before.get(&id).copied().filter(same).unwrap_or(since))
        };
        self.0 = waiting.iter().map(since).collect();
    }

    /// Since when a connection has been waiting, if it does.
    pub fn since(&self, id: Pid) -> Option<Stamp> {
        self.0.get(&id).copied()
    }

    /// Who waits.
    pub fn ids(&self) -> impl Iterator<Item = Pid> {
        self.0.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_began_when_it_was_first_seen_to_have_begun() {
        let mut queue = Queue::default();
        let at = |ms: i64| Stamp(1_000 * ms);
        queue.look(at(1_000), &[(1, 30_000), (2, 5_000)]);
        assert_eq!((queue.since(1), queue.since(2)), (Some(at(970)), Some(at(995))));
        // Told a little differently; and another wait.
        queue.look(at(1_050), &[(1, 80_100), (2, 10_000)]);
        assert_eq!((queue.since(1), queue.since(2)), (Some(at(970)), Some(at(1_040))));
        queue.look(at(1_100), &[]);
        assert_eq!((queue.since(1), queue.ids().count()), (None, 0));
    }
}
