//! The reader that needs no right and no library: it keeps `/proc/PID/task/TID/schedstat` of every thread open and reads it again and
//! again, which costs a quarter of opening it each time.

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

/// Reads files of `/proc`.
pub struct Pread {
    describer: Describer,
    newcomers: Newcomers,
    files: Files,
    threads: Vec<Thread>,
    /// Where the search for those who wait goes on.
    next_checked: usize,
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
        };
        pread.newcomers.walk(now, &mut pread.describer.proc);
        pread.take_in(now, usize::MAX, scene);
        Ok(pread)
    }

    /// Reads all threads.
    pub fn read(&mut self, now: Nanos, scene: &mut Scene) {
        let load = self.describer.proc.text("loadavg").ok().and_then(Load::parse);
        self.read_counters(now, scene);
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
        scene.tasks.clear();
        scene.tasks.extend(self.threads.iter().map(Thread::sample));
    }

    /// The counters of all that live; those that do not are dropped.
    fn read_counters(&mut self, now: Nanos, scene: &mut Scene) {
        let mut at = 0;
        while let Some(thread) = self.threads.get_mut(at) {
            match thread.read(now, &mut self.describer.proc) {
                Err(error) if is_gone(&error) => {}
                // What cannot be read for now is as it was.
                _ => {
                    at += 1;
                    continue;
                }
            }
            let gone = self.threads.swap_remove(at);
            self.newcomers.forget(gone.id.tid);
            self.files.give_back(gone.file);
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
            self.threads.push(thread);
        }
    }

    /// What changes rarely is looked at rarely.
    fn look_again(&mut self, now: Nanos, scene: &mut Scene) {
        for thread in &mut self.threads {
            match thread.due(now) {
                Due::Nothing => {}
                Due::Glance => {
                    let Ok(scheduling) = self.describer.glance(now, thread.id.tid, thread.scheduling) else {
                        continue;
                    };
                    if scheduling != thread.scheduling {
                        thread.scheduling = scheduling;
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
                        thread.scheduling = scheduling;
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
