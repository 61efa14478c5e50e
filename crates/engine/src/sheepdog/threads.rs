//! How threads fare: how long they ran and waited for CPUs since the last look.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use plimsoll_core::Nanos;

/// The most threads that are looked at.
const MOST: usize = 4_096;

/// Those of a pool.
#[derive(Debug, Default)]
pub struct Threads(HashMap<i32, Thread>);

#[derive(Debug)]
struct Thread {
    /// Nothing where it cannot be read. Such a file never shows another thread that was given the same number.
    schedstat: Option<File>,
    working: bool,
    /// Whether it was at work at the last look.
    worked: bool,
    run_ns: u64,
    wait_ns: u64,
}

impl Threads {
    /// Takes note of whether one is at work. One that is not known is from now on as soon as it is.
    pub fn note(&mut self, tid: i32, working: bool) {
        if let Some(thread) = self.0.get_mut(&tid) {
            thread.working = working;
        } else if working && self.0.len() < MOST {
            self.0.insert(tid, Thread::new(tid));
        }
    }

    /// The slowdown of that thread of those that have worked since the last look which was slowed most. That was so long ago.
    pub fn look(&mut self, since: Nanos) -> Option<f64> {
        let mut worst: Option<f64> = None;
        let mut slowed = |by: f64| worst = Some(worst.map_or(by, |worst| worst.max(by)));
        self.0.retain(|&tid, thread| {
            let before = (thread.run_ns, thread.wait_ns);
            match thread.read() {
                Some(counters) => (thread.run_ns, thread.wait_ns) = counters,
                None => return thread.working && thread.schedstat.is_none(), // it is gone, or cannot be seen
            }
            let ran = thread.run_ns.saturating_sub(before.0);
            let waited = thread.wait_ns.saturating_sub(before.1);
            if ran > 0 || waited > 0 {
                // Desired over actual, both of Eq. 1: the time that it could have run in, over the time left to it.
                slowed(since.0 as f64 / since.0.saturating_sub(waited).max(1) as f64);
            } else if thread.worked && thread.working && is_ready(tid) {
                slowed(f64::INFINITY); // the wait that is going on is told when it ends
            }
            thread.worked = thread.working;
            true
        });
        worst
    }
}

impl Thread {
    fn new(tid: i32) -> Thread {
        let schedstat = File::open(format!("/proc/{tid}/schedstat")).ok();
        let mut thread = Thread { schedstat, working: true, worked: false, run_ns: 0, wait_ns: 0 };
        (thread.run_ns, thread.wait_ns) = thread.read().unwrap_or_default();
        thread
    }

    /// For how long it has run and waited, in nanoseconds.
    fn read(&self) -> Option<(u64, u64)> {
        let mut text = [0; 64];
        let length = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        let mut words = std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    }
}

/// Whether a thread is ready to run, or running.
fn is_ready(tid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{tid}/stat")) else { return false };
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}
