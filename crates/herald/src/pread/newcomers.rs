//! Threads that were not there before. Numbers are given in turn, and `loadavg` tells the last one: so whoever is new has one of
//! those between the last of the reading before and that. A walk through all directories, now and then, finds the others.

use std::collections::{HashSet, VecDeque};

use plimsoll_core::Nanos;

use crate::parse;
use crate::proc::Proc;

/// So many numbers are tried at one reading; to walk is cheaper than to try more.
const MOST_TRIED: u32 = 512;
/// From one walk to the next: the longer the fewer it finds.
const BETWEEN_WALKS: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(10));

/// Finds them.
#[derive(Default)]
pub struct Newcomers {
    /// Who is known, or found.
    known: HashSet<u32>,
    /// Who is found, with the process if that is known.
    found: VecDeque<(Option<u32>, u32)>,
    /// The last number that was given.
    last: Option<u32>,
    walked_at: Nanos,
    /// From that walk to the next one.
    between: Nanos,
}

impl Newcomers {
    /// `last` is the last number that was given.
    pub fn numbers(&mut self, last: u32) {
        let Some(before) = self.last.replace(last) else { return };
        if last < before || last - before > MOST_TRIED {
            // They began again from the smallest one, or are too many.
            self.between = BETWEEN_WALKS.0;
            return;
        }
        for number in before + 1..=last {
            self.find(None, number);
        }
    }

    /// Whether it is time for a walk.
    pub fn walk_is_due(&self, now: Nanos) -> bool {
        now.since(self.walked_at) >= self.between
    }

    /// Goes through all processes.
    pub fn walk(&mut self, now: Nanos, proc: &mut Proc) {
        let mut pids = Vec::new();
        // Where `/proc` itself cannot be read nothing is found, and what is known is read on.
        let _ = proc.numbers(".", |pid| pids.push(pid));
        let mut missed = false;
        for pid in pids {
            let _ = proc.numbers(format_args!("{pid}/task"), |tid| {
                let new = self.find(Some(pid), tid);
                missed |= new && self.last.is_some_and(|last| tid <= last);
            });
        }
        // Should the numbers not tell (another program may write `loadavg`, as in some containers), this does.
        self.between = if missed { BETWEEN_WALKS.0 } else { Nanos(2 * self.between.0) };
        self.between = self.between.clamp(BETWEEN_WALKS.0, BETWEEN_WALKS.1);
        self.walked_at = now;
    }

    /// Somebody who is new, as process and thread.
    pub fn next(&mut self, proc: &mut Proc) -> Option<(u32, u32)> {
        loop {
            let (pid, tid) = self.found.pop_front()?;
            match pid.or_else(|| process_of(tid, proc)) {
                Some(pid) => return Some((pid, tid)),
                None => self.forget(tid),
            }
        }
    }

    /// That one is gone.
    pub fn forget(&mut self, tid: u32) {
        self.known.remove(&tid);
    }

    fn find(&mut self, pid: Option<u32>, tid: u32) -> bool {
        let new = self.known.insert(tid);
        if new {
            self.found.push_back((pid, tid));
        }
        new
    }
}

/// The process of a thread, which `/proc` shows under the thread's number too, though it does not list it.
fn process_of(tid: u32, proc: &mut Proc) -> Option<u32> {
    let text = proc.text(format_args!("{tid}/status")).ok()?;
    parse::status(text, "Tgid")?.parse().ok()
}
