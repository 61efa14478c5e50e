//! What must be put back when the job is let go. Every entry is written down before the thing is done.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::levers::scheduling::{Scheduling, each_thread};
use crate::levers::{autogroup, group, stop};
use crate::process::{self, Process};
use crate::tree::Tree;

/// Tries at an autogroup, which takes one change each tenth of a second.
const TRIES: u32 = 30;
const PAUSE_MS: u16 = 20;

/// One thing to put back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Undo {
    /// A thread was scheduled so.
    Thread {
        /// Which.
        thread: Process,
        /// How.
        was: Scheduling,
    },
    /// Whatever a process has started since is to be scheduled so: it has inherited what we set.
    Heirs {
        /// The first of the job.
        root: Process,
        /// How.
        was: Scheduling,
        /// Processes that are none of it.
        not: [i32; 2],
    },
    /// The group of a session was so.
    Autogroup {
        /// One of the session's processes, which may have gone by then,
        of: Process,
        /// and which session it is, for there may be others.
        session: i32,
        /// Its nice value.
        nice: i32,
    },
    /// A control group was made.
    Group {
        /// Where.
        dir: PathBuf,
        /// Where its processes go.
        home: PathBuf,
    },
    /// A process was moved to a control group from another one than the job's first.
    Member {
        /// Which.
        process: Process,
        /// The group that we made.
        dir: PathBuf,
        /// Where it came from.
        home: PathBuf,
    },
}

/// All that must be put back.
#[derive(Debug, Default)]
pub struct Undos {
    all: Vec<Undo>,
    stopped: Vec<Process>,
    /// The processes of the job as they were known last.
    job: Vec<Process>,
}

impl Undos {
    /// One more.
    pub fn push(&mut self, undo: Undo) {
        self.all.push(undo);
    }

    /// These are the job, as far as is known: who has lost its parents cannot be found by them.
    pub fn is_job(&mut self, processes: Vec<Process>) {
        self.job = processes;
    }

    /// Processes that will be stopped.
    pub fn stopping(&mut self, processes: Vec<Process>) {
        self.stopped.extend(processes);
    }

    /// Somebody else has let them go on.
    pub fn running(&mut self) {
        self.stopped.clear();
    }

    /// Lets everybody go on who is frozen or was stopped.
    pub fn resume(&mut self) {
        for undo in &self.all {
            if let Undo::Group { dir, .. } = undo {
                group::thaw(dir);
            }
        }
        self.stopped.drain(..).for_each(stop::resume);
    }

    /// Puts everything back, the last first. Whatever has gone meanwhile needs nothing.
    pub fn put_back(mut self) {
        self.resume();
        let threads: HashMap<i32, u64> = self
            .all
            .iter()
            .filter_map(|undo| {
                if let Undo::Thread { thread, .. } = undo { Some((thread.pid, thread.started)) } else { None }
            })
            .collect();
        for undo in self.all.iter().rev() {
            match undo {
                Undo::Thread { thread, was } if thread.lives() => _ = was.set(thread.pid),
                Undo::Thread { .. } => {}
                Undo::Heirs { root, was, not } => heirs(*root, *was, not, &self.job, &threads),
                Undo::Autogroup { of, session, nice } => {
                    // Of whoever may not be written to another may be.
                    members(*session, *of).any(|pid| regroup(pid, *nice));
                }
                Undo::Group { dir, home } => group::dissolve(dir, |pid| self.home(dir, home, pid)),
                // With its group.
                Undo::Member { .. } => {}
            }
        }
    }

    fn home(&self, of: &Path, default: &Path, pid: i32) -> PathBuf {
        let noted = self.all.iter().find_map(|undo| match undo {
            Undo::Member { process, dir, home } if dir == of && process.pid == pid && process.lives() => {
                Some(home)
            }
            _ => None,
        });
        noted.map_or(default, PathBuf::as_path).to_owned()
    }
}

fn heirs(root: Process, was: Scheduling, not: &[i32], job: &[Process], known: &HashMap<i32, u64>) {
    let mut tree = Tree::from(root.pid, not);
    tree.know_all(std::iter::once(&root).chain(job));
    let processes = || {
        tree.refresh();
        tree.processes().collect()
    };
    let is_known = |tid| known.get(&tid).is_some_and(|&started| Process { pid: tid, started }.lives());
    // One that cannot be put back must not keep the others from it.
    let _ = each_thread(processes, |tid| {
        // Who has a policy that is not handed down from here has it from somebody else.
        if !is_known(tid) && Scheduling::of(tid).is_ok_and(|is| is.is_fair()) {
            let _ = was.set(tid);
        }
        Ok(())
    });
}

/// A session's processes: that one, and whoever else is left of it.
fn members(session: i32, of: Process) -> impl Iterator<Item = i32> {
    // The number is another session's once nobody is left of this one: its leader is younger then.
    let is_another = Process::of(session).is_some_and(|leader| leader.started > of.started);
    let others = if is_another { Vec::new() } else { process::all() };
    let is_of_it =
        move |pid: &i32| process::stat(*pid).is_some_and(|stat| stat.session == session && !stat.has_ended());
    of.lives().then_some(of.pid).into_iter().chain(others.into_iter().filter(is_of_it))
}

/// Whether it is in force.
fn regroup(pid: i32, nice: i32) -> bool {
    for _ in 0..TRIES {
        match autogroup::set_nice(pid, nice) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                // Interrupted by a signal it is shorter, and nobody minds.
                let _ = nix::poll::poll(&mut [], PAUSE_MS);
            }
            done => return done.is_ok(),
        }
    }
    false
}
