//! Processes as the kernel shows them in `/proc`.

use std::fs;

use plimsoll_herald::parse::Stat;
use serde::{Deserialize, Serialize};

/// A process or thread. A number is given to another one once its owner is gone; the start tells the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since the machine did.
    pub started: u64,
}

impl Process {
    /// The one that has this number now.
    pub fn of(pid: i32) -> Option<Process> {
        stat(pid).map(|stat| Process { pid, started: stat.started })
    }

    /// Whether it is still there; one that has ended and that nobody has waited for is not.
    pub fn lives(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && !stat.has_ended())
    }

    /// What it does, as `R`, `S` or `T`; where its first thread has ended and others go on, what one of those does. Nothing where it is
    /// there no more.
    pub fn state(&self) -> Option<u8> {
        let first = stat(self.pid).filter(|stat| stat.started == self.started)?;
        if first.has_ended() || !first.is_over() {
            return Some(first.state);
        }
        let others = self.threads().into_iter().filter_map(stat);
        others.filter(|other| !other.is_over()).map(|other| other.state).next()
    }

    /// The numbers of its threads, in no order.
    pub fn threads(&self) -> Vec<i32> {
        numbers(&format!("/proc/{}/task", self.pid))
    }
}

/// What `stat` tells of a process or thread, if there is one of this number.
pub fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    Stat::parse(&text).map(|(_, stat)| stat)
}

/// All processes, in no order.
pub fn all() -> Vec<i32> {
    numbers("/proc")
}

fn numbers(directory: &str) -> Vec<i32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_has_threads() {
        let me = Process::of(std::process::id() as i32).unwrap();
        assert!(me.lives());
        assert!(me.threads().contains(&me.pid));
        assert!(all().contains(&me.pid));
        assert!(!Process { started: me.started + 1, ..me }.lives());
    }
}
