//! How threads fare: how long they ran and waited for CPUs since the last look.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use plimsoll_core::Nanos;

/// The most threads that are looked at.
const MOST: usize = 4_096;
/// What is told is about so many looks, a second of them: in one look alone, whoever has just begun has done nothing but wait for its first turn.
const LOOKS: usize = 5;

/// The part of the time in which CPUs may have nothing to do and count as busy: one tick of the clock of two of them in a fifth of a second is less.
const MOMENT: f64 = 0.05;

/// Those of a pool.
#[derive(Debug, Default)]
pub struct Threads {
    known: HashMap<i32, Thread>,
    cpus: Cpus,
    /// How long the last looks were apart,
    lengths: [u64; LOOKS],
    /// and which of them is the next to be forgotten.
    oldest: usize,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fare {
    /// The slowdown of that thread of those that have worked over the last looks which was slowed most. Who cannot be seen counts as not slowed.
    pub worst: f64,
    /// Over how much time that is: what was before [`Threads::begin_anew`] is none of it.
    pub window: Nanos,
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
    /// How long it waited from each of the last looks to the next.
    waited: [u64; LOOKS],
    /// What of that was only seen to be going on: the counter tells of it when it ends.
    going_on: u64,
}

impl Threads {
    /// Takes note of whether one is at work. One that is not known is from now on: what is short is rarely seen at work.
    pub fn note(&mut self, tid: i32, working: bool) {
        if let Some(thread) = self.known.get_mut(&tid) {
            thread.working = working;
        } else if self.known.len() < MOST {
            self.known.insert(tid, Thread::new(tid, working));
        }
    }

    /// From now on what was seen so far counts no more: it was under other circumstances.
    pub fn begin_anew(&mut self) {
        self.lengths = [0; LOOKS];
        self.known.values_mut().for_each(|thread| thread.waited = [0; LOOKS]);
    }

    /// How those fare that have worked over the last looks, of which the last was so long ago; nothing where nobody has worked since.
    pub fn look(&mut self, since: Nanos) -> Option<Fare> {
        let cpus_busy = self.cpus.were_busy();
        let at = self.oldest;
        self.oldest = (at + 1) % LOOKS;
        self.lengths[at] = since.0;
        let window: u64 = self.lengths.iter().sum();
        let mut worst: Option<f64> = None;
        let mut wanted_ns = 0;
        let mut slowed = |by: f64| worst = Some(worst.map_or(by, |worst| worst.max(by)));
        self.known.retain(|&tid, thread| {
            let before = (thread.run_ns, thread.wait_ns);
            thread.waited[at] = 0;
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
                let news = waited.saturating_sub(std::mem::take(&mut thread.going_on));
                thread.waited[at] = news.min(since.0);
            } else if thread.worked && thread.working && is_ready(tid) {
                thread.waited[at] = since.0;
                thread.going_on += since.0;
            }
            if thread.working || ran > 0 || waited > 0 {
                // Desired over actual, both of Eq. 1: the time that it could have run in, over the time left to it.
                let waited: u64 = thread.waited.iter().sum();
                slowed(window as f64 / window.saturating_sub(waited).max(1) as f64);
            }
            thread.worked = thread.working;
            true
        });
        let wanted = wanted_ns as f64 / since.0.max(1) as f64;
        worst.map(|worst| Fare { worst, window: Nanos(window), wanted, cpus_busy })
    }
}

impl Thread {
    fn new(tid: i32, working: bool) -> Thread {
        let schedstat = File::open(format!("/proc/{tid}/schedstat")).ok();
        let mut thread = Thread {
            schedstat,
            working,
            worked: false,
            run_ns: 0,
            wait_ns: 0,
            waited: [0; LOOKS],
            going_on: 0,
        };
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

#[cfg(test)]
mod tests {
    use rustix::thread::gettid;

    use super::*;

    #[test]
    fn what_is_told_is_about_the_last_looks_since_all_began_anew() {
        let mut threads = Threads::default();
        threads.note(gettid().as_raw_nonzero().get(), true);
        let length = Nanos::from_millis(200);
        for looks in 1..=2 * LOOKS as u64 {
            let fare = threads.look(length).unwrap();
            assert_eq!(fare.window.0, length.0 * looks.min(LOOKS as u64));
            assert!(fare.worst >= 1.0);
        }
        threads.begin_anew();
        assert_eq!(threads.look(length).unwrap().window, length);
    }
}
