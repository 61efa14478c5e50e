//! How threads fare: how long they ran and waited for CPUs since the last look.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use plimsoll_core::Nanos;

/// The most threads that are looked at.
const MOST: usize = 4_096;

/// The part of the time in which CPUs may have nothing to do and count as busy: one tick of the clock of two of them in a fifth of a second is less.
const MOMENT: f64 = 0.05;

/// Those of a pool.
#[derive(Debug, Default)]
pub struct Threads {
    known: HashMap<i32, Thread>,
    cpus: Cpus,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fare {
    /// The slowdown of that thread of those that have worked since the last look which was slowed most. Who cannot be seen counts as not slowed.
    pub worst: f64,
    /// As many threads as wanted a CPU on average.
    pub wanted: f64,
    /// Whether no CPU of this host had nothing to do for more than a moment.
    pub cpus_busy: bool,
}

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
        if let Some(thread) = self.known.get_mut(&tid) {
            thread.working = working;
        } else if working && self.known.len() < MOST {
            self.known.insert(tid, Thread::new(tid));
        }
    }

    /// How those fare that have worked since the last look, which was so long ago; nothing where nobody has.
    pub fn look(&mut self, since: Nanos) -> Option<Fare> {
        let cpus_busy = self.cpus.were_busy();
        let mut worst: Option<f64> = None;
        let mut wanted_ns = 0;
        let mut slowed = |by: f64| worst = Some(worst.map_or(by, |worst| worst.max(by)));
        self.known.retain(|&tid, thread| {
            let before = (thread.run_ns, thread.wait_ns);
            match thread.read() {
                Some(counters) => (thread.run_ns, thread.wait_ns) = counters,
                // It cannot be seen, or is gone.
                None if thread.working && thread.schedstat.is_none() => {
                    slowed(1.0);
                    return true;
                }
                None => return false,
            }
            let ran = thread.run_ns.saturating_sub(before.0);
            let waited = thread.wait_ns.saturating_sub(before.1);
            wanted_ns += (ran + waited).min(since.0);
            if ran > 0 || waited > 0 {
                // Desired over actual, both of Eq. 1: the time that it could have run in, over the time left to it.
                slowed(since.0 as f64 / since.0.saturating_sub(waited).max(1) as f64);
            } else if thread.worked && thread.working && is_ready(tid) {
                slowed(f64::INFINITY); // the wait that is going on is told when it ends
            } else if thread.working {
                slowed(1.0); // it waits for something else than a CPU
            }
            thread.worked = thread.working;
            true
        });
        let wanted = wanted_ns as f64 / since.0.max(1) as f64;
        worst.map(|worst| Fare { worst, wanted, cpus_busy })
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

/// The CPUs of this host.
#[derive(Debug, Default)]
struct Cpus {
    stat: Option<File>,
    /// Ticks of the kernel's clock: all, and those in which a CPU had nothing to do.
    before: (u64, u64),
}

impl Cpus {
    /// Whether hardly one had nothing to do since this was last asked. Where that cannot be seen, no.
    fn were_busy(&mut self) -> bool {
        let Some(now) = self.read() else { return false };
        let all = now.0.saturating_sub(self.before.0);
        let idle = now.1.saturating_sub(self.before.1);
        self.before = now;
        all > 0 && (idle as f64) < MOMENT * all as f64
    }

    fn read(&mut self) -> Option<(u64, u64)> {
        if self.stat.is_none() {
            self.stat = File::open("/proc/stat").ok();
        }
        let mut text = [0; 256];
        let length = self.stat.as_ref()?.read_at(&mut text, 0).ok()?;
        let all_cpus = std::str::from_utf8(&text[..length]).ok()?.lines().next()?.strip_prefix("cpu ")?;
        // User, nice, system, idle, waiting for disks, interrupts (two), stolen; guests are counted among users.
        let ticks: Vec<u64> =
            all_cpus.split_ascii_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        Some((ticks.iter().sum(), ticks.get(3)? + ticks.get(4)?))
    }
}

/// Whether a thread is ready to run, or running.
fn is_ready(tid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{tid}/stat")) else { return false };
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}
