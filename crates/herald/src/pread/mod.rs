//! The reader that needs no right and no library: it keeps `/proc/PID/task/TID/schedstat` of every thread open and reads it again and
//! again, which costs a quarter of opening it each time.
//!
//! The scene's tasks are kept in the order of the threads, and only those that did anything are touched.

mod files;
mod newcomers;
mod thread;
mod waiting;

use std::io;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::TaskId;

use self::files::Files;
use self::newcomers::Newcomers;
use self::thread::{Due, Thread};
use crate::describe::Describer;
use crate::parse::Load;
use crate::scene::Scene;

/// Threads that are taken in at one reading. Those beyond have their turn at the next one.
const MOST_NEW: usize = 1_000;

/// So many more than are known to be ready to run are somebody who has woken up before it was read again.
const SOMEBODY: f64 = 0.5;
/// From one time that all threads are told of to the next; else those alone that are not as they were.
const BETWEEN_ALL: Nanos = Nanos::from_secs(1);

/// Reads files of `/proc`.
pub struct Pread {
    describer: Describer,
    newcomers: Newcomers,
    files: Files,
    threads: Vec<Thread>,
    /// Where the search for those who wait goes on.
    next_checked: usize,
    all_told_at: Nanos,
    /// Whose turn it is of those who sleep.
    turn: u32,
}

impl Pread {
    /// Takes in all threads that there are.
    ///
    /// # Errors
    /// Where `/proc` does not show this process.
    pub fn new(now: Nanos, scene: &mut Scene) -> Result<Pread, String> {
        let mut pread = Pread {
            describer: Describer::new()?,
            newcomers: Newcomers::default(),
            files: Files::default(),
            threads: Vec::new(),
            next_checked: 0,
            all_told_at: Nanos::ZERO,
            turn: 0,
        };
        pread.newcomers.walk(now, &mut pread.describer.proc);
        pread.take_in(now, usize::MAX, scene);
        Ok(pread)
    }

    /// Reads all threads.
    pub fn read(&mut self, now: Nanos, scene: &mut Scene) {
        let load = self.describer.proc.text("loadavg").ok().and_then(Load::parse);
        scene.news.begin(now.since(self.all_told_at) >= BETWEEN_ALL);
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        self.read_counters(now, scene, |thread| thread.is_in_turn(turn, now));
        // This thread itself is ready to run, too.
        let ready = load.as_ref().map_or(f64::INFINITY, |load| load.runnable.saturating_sub(1) as f64);
        if ready > waiting::explained(&self.threads, now) + SOMEBODY {
            self.read_counters(now, scene, |thread| thread.read_at < now);
        }
        if let Some(load) = load {
            let Pread { threads, next_checked, describer, .. } = self;
            waiting::find(threads, next_checked, load.runnable, &scene.host.groups, now, &mut describer.proc);
            self.newcomers.numbers(load.last);
        }
        if self.newcomers.walk_is_due(now) {
            self.newcomers.walk(now, &mut self.describer.proc);
        }
        self.take_in(now, MOST_NEW, scene);
        self.look_again(now, scene);
        scene.now = now;
        scene.host = self.describer.host(now);
        for (thread, task) in self.threads.iter_mut().zip(&mut scene.tasks) {
            if let Some(sample) = thread.news() {
                *task = sample;
                scene.news.changed.push(sample);
            }
        }
        if scene.news.all {
            self.all_told_at = now;
        }
    }

    /// The counters of those who are wanted; those who do not live any more are dropped.
    fn read_counters(&mut self, now: Nanos, scene: &mut Scene, wanted: impl Fn(&Thread) -> bool) {
        let mut at = 0;
        while let Some(thread) = self.threads.get_mut(at) {
            if !wanted(thread) {
                at += 1;
                continue;
            }
            match thread.read(now, &mut self.describer.proc) {
                Err(error) if is_gone(&error) => {}
                // What cannot be read for now is as it was.
                _ => {
                    at += 1;
                    continue;
                }
            }
            let gone = self.threads.swap_remove(at);
            scene.tasks.swap_remove(at);
            scene.news.gone.push(gone.id);
            self.newcomers.forget(gone.id.tid);
            self.files.give_back(gone.did.file);
            scene.described.remove(&gone.id);
        }
    }

    /// Those who are new, so many at most.
    fn take_in(&mut self, now: Nanos, most: usize, scene: &mut Scene) {
        for _ in 0..most {
            let Some((pid, tid)) = self.newcomers.next(&mut self.describer.proc) else { return };
            let file = self.files.open(pid, tid, &self.describer.proc);
            // It may be gone already: most new threads live for less than the time between two readings.
            let Ok((id, scheduling, described)) = self.describer.describe(now, pid, tid) else {
                self.newcomers.forget(tid);
                self.files.give_back(file);
                continue;
            };
            scene.described.insert(id, described);
            // Should it be gone now, the next reading tells.
            let mut thread = Thread::new(id, scheduling, file, now);
            let _ = thread.read(now, &mut self.describer.proc);
            // Of those who were there before all readings it does not matter when they were born.
            if self.turn > 0 {
                let ready = waiting::check(&mut thread, now, &mut self.describer.proc);
                thread.was_born(self.describer.born(id), ready);
            }
            scene.tasks.push(thread.sample());
            self.threads.push(thread);
        }
    }

    /// What changes rarely is looked at rarely.
    fn look_again(&mut self, now: Nanos, scene: &mut Scene) {
        for thread in &mut self.threads {
            match thread.due(now) {
                Due::Nothing => {}
                Due::Glance => {
                    let Ok(scheduling) = self.describer.glance(now, thread.id.tid, thread.did.scheduling)
                    else {
                        continue;
                    };
                    if scheduling != thread.did.scheduling {
                        thread.reschedule(scheduling);
                        if let Some(described) = scene.described.get_mut(&thread.id) {
                            (described.policy, described.nice) = (scheduling.policy, scheduling.nice);
                        }
                    }
                }
                Due::Description => {
                    let TaskId { pid, tid, .. } = thread.id;
                    let Ok((id, scheduling, described)) = self.describer.describe(now, pid, tid) else {
                        continue;
                    };
                    if id == thread.id {
                        thread.reschedule(scheduling);
                        scene.described.insert(id, described);
                    } else {
                        thread.is_another = true;
                    }
                }
            }
        }
    }
}

/// Whether an error says that a thread has ended, or may not be seen any more. That this process or the host has run out of descriptors or
/// memory says nothing of the thread.
fn is_gone(error: &io::Error) -> bool {
    !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}
