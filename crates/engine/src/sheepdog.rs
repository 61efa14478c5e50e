//! A pool's threads, as many at work at once as run without any of them being slowed more than a bound (CPU Futures, section 5.3: SheepDog).
//!
//! ```no_run
//! # fn job() {}
//! let dog = plimsoll_engine::SheepDog::start(1..=64, 4.0);
//! std::thread::scope(|scope| {
//!     for _ in 0..64 {
//!         scope.spawn(|| loop {
//!             let _working = dog.enter(); // waits while enough others work
//!             job();
//!         });
//!     }
//! });
//! ```
//!
//! How long its own threads wait for CPUs a program may always see, so this needs no agent and no right. Where it cannot be seen, all may
//! work at once, as if nobody looked.
#![allow(clippy::disallowed_types)] // Whoever enters may have to wait, which is the point.

mod herd;
mod threads;

use std::ops::RangeInclusive;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::following::Advice;
use plimsoll_cpufutures::{Following, sheepdog};
use rustix::thread::gettid;

pub use herd::Herd;
use threads::{Fare, Threads};

use crate::{clock, host, thread};

/// From one look to the next: many turns of a CPU among its threads.
const STEP: Nanos = Nanos::from_millis(200);
/// That there are too many at work is believed when it was so for so long.
const TOLD: Nanos = Nanos::from_millis(700);

/// Keeps a pool's threads within a slowdown. Ends, and lets everybody work, when it is dropped.
#[derive(Debug)]
pub struct SheepDog {
    shared: Arc<Shared>,
    watching: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Somebody may enter.
    room: Condvar,
    /// All is over.
    over: Condvar,
}

#[derive(Debug)]
struct State {
    most: u32,
    working: u32,
    /// Whether somebody had to wait since the last look: only then more at once would change anything.
    held_back: bool,
    /// How often somebody has left.
    done: u64,
    ended: bool,
    threads: Threads,
}

/// One thread at work; dropped, it no longer is.
#[derive(Debug)]
#[must_use = "dropped, it no longer works"]
pub struct Working<'a> {
    dog: &'a SheepDog,
    tid: i32,
}

impl SheepDog {
    /// For a pool of which so many threads may work at once, none of them slowed more than `max_slowdown` times (above 1). To begin with, as
    /// many as keep all CPUs busy.
    pub fn start(workers: RangeInclusive<u32>, max_slowdown: f64) -> SheepDog {
        let most = (*workers.end()).max(1);
        let dog = policy(workers, max_slowdown);
        let first = u32::try_from(dog.workers()).unwrap_or(u32::MAX);
        let state = State {
            most: first,
            working: 0,
            held_back: false,
            done: 0,
            ended: false,
            threads: Threads::default(),
        };
        let (room, over) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { state: Mutex::new(state), room, over });
        let watching = thread::spawn("sheepdog", {
            let shared = Arc::clone(&shared);
            move || shared.watch(dog)
        });
        if watching.is_err() {
            shared.lock().most = most; // nobody looks, and all may work
        }
        SheepDog { shared, watching: watching.ok() }
    }

    /// How many may work at once, as of now.
    pub fn workers(&self) -> u32 {
        self.shared.lock().most
    }

    /// The calling thread is about to work; waits while enough others do.
    pub fn enter(&self) -> Working<'_> {
        let tid = gettid().as_raw_nonzero().get();
        self.shared.enter(tid);
        Working { dog: self, tid }
    }

    /// The calling thread no longer works: for a language in which nothing can be dropped, after `std::mem::forget` of what
    /// [`SheepDog::enter`] gave.
    pub fn leave(&self) {
        self.shared.leave(gettid().as_raw_nonzero().get());
    }
}

impl Drop for SheepDog {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.over.notify_all();
        self.shared.room.notify_all();
        if let Some(watching) = self.watching.take() {
            _ = watching.join();
        }
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.dog.shared.leave(self.tid);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done where a thread panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, tid: i32) {
        let mut state = self.lock();
        while state.working >= state.most && !state.ended {
            state.held_back = true;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.working += 1;
        state.threads.note(tid, true);
    }

    fn leave(&self, tid: i32) {
        let mut state = self.lock();
        state.working = state.working.saturating_sub(1);
        state.done += 1;
        state.threads.note(tid, false);
        drop(state);
        self.room.notify_one();
    }

    /// Looks until it is ended.
    fn watch(&self, mut dog: sheepdog::SheepDog) {
        let mut before = clock::now();
        let mut following = Following::default();
        let mut state = self.lock();
        loop {
            (state, _) = self.over.wait_timeout(state, STEP.into()).unwrap_or_else(PoisonError::into_inner);
            if state.ended {
                return;
            }
            let now = clock::now();
            let fare = state.threads.look(now.since(before));
            before = now;
            let so_far = SoFar {
                at_work: i64::from(state.working),
                held_back: std::mem::take(&mut state.held_back),
                done: state.done,
            };
            let may_work = judge(&mut dog, &mut following, &mut state.threads, now, fare, so_far);
            let may_work = u32::try_from(may_work).unwrap_or(u32::MAX);
            if may_work != std::mem::replace(&mut state.most, may_work) {
                self.room.notify_all();
            }
        }
    }
}

/// The policy for so many workers on this machine.
fn policy(workers: RangeInclusive<u32>, max_slowdown: f64) -> sheepdog::SheepDog {
    let (least, most) = ((*workers.start()).max(1), (*workers.end()).max(1));
    let cpus = host::cpus().max(1);
    let range = i64::from(least.min(most))..=i64::from(most);
    sheepdog::SheepDog::new(range, sheepdog::first(cpus as usize, max_slowdown), max_slowdown)
}

/// Whether all CPUs are busy, and those at work would keep them so by themselves: more of them would only share them.
fn is_pressed(fare: &Fare) -> bool {
    fare.cpus_busy && fare.wanted >= host::cpus() as f64
}

/// What a pool has come to.
#[derive(Clone, Copy, Debug)]
struct SoFar {
    at_work: i64,
    /// Whether anybody had to wait to enter since the last look.
    held_back: bool,
    /// How much was ever done.
    done: u64,
}

/// How many may work next, from how they fare while so many do. Nothing follows from that while more work than may, since those have to end who
/// were let in before; nor, while nobody has to wait to enter, from nobody being slowed; nor yet from a bad moment.
fn judge(
    dog: &mut sheepdog::SheepDog,
    following: &mut Following,
    threads: &mut Threads,
    now: Nanos,
    fare: Option<Fare>,
    so_far: SoFar,
) -> i64 {
    let may_work = dog.workers();
    let Some(fare) = fare.filter(|_| so_far.at_work <= may_work) else { return may_work };
    let is_beyond = dog.is_beyond(fare.worst);
    if is_beyond && fare.window < TOLD {
        return may_work;
    }
    let next = match following.look(now, may_work, so_far.done) {
        Advice::Back(workers) if !is_beyond => dog.resize(workers),
        advice => {
            let more_would_help = so_far.held_back && !is_pressed(&fare) && advice == Advice::Rise;
            dog.measured(now, [fare.worst], more_would_help)
        }
    };
    if next != may_work {
        threads.begin_anew();
    }
    next
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::Duration;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    const THREADS: u32 = 32;
    /// A condition that a slow machine comes to later.
    const PATIENCE: Nanos = Nanos::from_secs(60);

    fn eventually(what: &str, dog: &SheepDog, is_so: impl Fn(u32) -> bool) {
        let end = clock::now() + PATIENCE;
        while !is_so(dog.workers()) {
            assert!(clock::now() < end, "still not: {what}; {} may work", dog.workers());
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// Has the calling thread, and those that it starts, run on one CPU only.
    fn pin() {
        let mine = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| mine.is_set(cpu)).unwrap());
        sched_setaffinity(None, &one).unwrap();
    }

    #[test]
    fn threads_that_want_all_of_a_cpu_are_held_back_and_those_that_do_not_are_not() {
        let dog = SheepDog::start(1..=THREADS, 4.0);
        let (spin, go_on) = (AtomicBool::new(true), AtomicBool::new(true));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    pin();
                    while go_on.load(Relaxed) {
                        let _working = dog.enter();
                        let end = clock::now() + Nanos::from_millis(5);
                        while spin.load(Relaxed) && clock::now() < end {
                            std::hint::spin_loop();
                        }
                        if !spin.load(Relaxed) {
                            std::thread::park_timeout(Duration::from_millis(5));
                        }
                    }
                });
            }
            eventually("few at once", &dog, |workers| workers <= 6);
            spin.store(false, Relaxed);
            eventually("more at once", &dog, |workers| workers >= THREADS / 2);
            go_on.store(false, Relaxed);
        });
    }

    #[test]
    fn it_takes_no_signal_of_the_applications() {
        let _dog = SheepDog::start(1..=1, 2.0);
        // Its name it has a moment after it has begun.
        let end = clock::now() + PATIENCE;
        loop {
            assert!(clock::now() < end, "there is no such thread");
            let threads = std::fs::read_dir("/proc/self/task").unwrap();
            let statuses: Vec<String> = threads
                .filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).ok())
                .filter(|status| status.starts_with("Name:\tsheepdog\n"))
                .collect();
            for status in &statuses {
                let (_, blocked) = status.split_once("SigBlk:\t").unwrap();
                let blocked = u64::from_str_radix(&blocked[..16], 16).unwrap();
                // SIGTERM and SIGINT.
                assert_eq!(blocked & 0x4002, 0x4002, "{status}");
            }
            if !statuses.is_empty() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    #[test]
    fn nobody_waits_longer_than_the_dog_lives() {
        let dog = SheepDog::start(1..=1, 2.0);
        let first = dog.enter();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(dog.enter()));
            std::thread::park_timeout(Duration::from_millis(50));
            assert!(!second.is_finished(), "one at a time");
            drop(first);
        });
        assert_eq!(dog.workers(), 1);
    }
}
