//! The processes of a job: what it started, and what those started.
//!
//! Every process is looked at once, when it is new. A process belongs to the job if its parent does, or if its session was
//! opened by one that does, which catches a daemon that lets go of its parent. For a job that `yield` started itself the root is
//! `yield`, to which the kernel gives all orphans of the job (`PR_SET_CHILD_SUBREAPER`), so that none gets lost.

use std::collections::HashMap;

use plimsoll_herald::parse::Stat;

use crate::process::{self, Process};

/// New processes that are looked at in one go. A job that forks wildly takes some more goes.
const MOST_NEW: usize = 4_000;

/// The processes of a job.
#[derive(Debug)]
pub struct Tree {
    root: i32,
    /// Whether the root belongs to the job itself.
    root_belongs: bool,
    /// All processes that were there last time, and who belongs. Others are kept too, so as to not look again.
    known: HashMap<i32, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    started: u64,
    belongs: bool,
}

impl Tree {
    /// A running process and all below it, without `helpers`.
    pub fn from(root: i32, helpers: &[i32]) -> Tree {
        Tree { root, root_belongs: true, known: strangers(helpers) }
    }

    /// All below this process, without itself and `helpers`.
    pub fn below(root: i32, helpers: &[i32]) -> Tree {
        Tree { root, root_belongs: false, known: strangers(helpers) }
    }

    /// These belong, as long as they live, and nobody else does for having one of their numbers.
    pub fn know_all<'a>(&mut self, processes: impl Iterator<Item = &'a Process>) {
        for process in processes {
            let seen = Seen { started: process.started, belongs: process.lives() };
            self.known.entry(process.pid).or_insert(seen);
        }
    }

    /// Looks who is new and who has gone.
    pub fn refresh(&mut self) {
        let pids = process::all();
        let mut there: HashMap<i32, Seen> = HashMap::with_capacity(pids.len());
        let mut new: Vec<(i32, Stat)> = Vec::new();
        for pid in pids {
            match self.known.get(&pid) {
                Some(seen) => _ = there.insert(pid, *seen),
                None if new.len() < MOST_NEW => new.extend(process::stat(pid).map(|stat| (pid, stat))),
                None => {}
            }
        }
        self.known = there;
        if let Some(&(_, stat)) = new.iter().find(|(pid, _)| *pid == self.root) {
            self.know(self.root, stat, self.root_belongs);
            new.retain(|(pid, _)| *pid != self.root);
        }
        // Parents and children may be new together, in any order.
        loop {
            let before = new.len();
            let mut strangers = Vec::with_capacity(new.len());
            for (pid, stat) in std::mem::take(&mut new) {
                if self.is_from_job(&stat) {
                    self.know(pid, stat, true);
                } else {
                    strangers.push((pid, stat));
                }
            }
            new = strangers;
            if new.len() == before {
                break;
            }
        }
        // One whose parent has not been looked at yet is looked at again.
        new.retain(|(_, stat)| stat.parent == 0 || self.known.contains_key(&stat.parent));
        for (pid, stat) in new {
            self.know(pid, stat, false);
        }
    }

    fn know(&mut self, pid: i32, stat: Stat, belongs: bool) {
        self.known.insert(pid, Seen { started: stat.started, belongs });
    }

    fn is_from_job(&self, stat: &Stat) -> bool {
        let belongs = |pid| self.known.get(&pid).is_some_and(|seen| seen.belongs);
        belongs(stat.parent) || belongs(stat.session) || (stat.parent == self.root && !self.root_belongs)
    }

    /// Whether a process belongs to the job, as of the last look.
    pub fn has(&self, pid: i32) -> bool {
        self.known.get(&pid).is_some_and(|seen| seen.belongs)
    }

    /// The job's processes, as of the last look.
    pub fn processes(&self) -> impl Iterator<Item = Process> + '_ {
        let belonging = self.known.iter().filter(|(_, seen)| seen.belongs);
        belonging.map(|(&pid, seen)| Process { pid, started: seen.started })
    }
}

fn strangers(pids: &[i32]) -> HashMap<i32, Seen> {
    pids.iter().map(|pid| (*pid, Seen { started: 0, belongs: false })).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap()
    }

    fn wait_for(tree: &mut Tree, processes: usize) {
        while tree.processes().count() != processes {
            tree.refresh();
            std::thread::yield_now();
        }
    }

    #[test]
    fn grandchildren_belong_and_strangers_do_not() {
        let mut stranger = shell("sleep 60");
        let mut child = shell("sh -c 'sleep 60 & wait' & wait");
        let mut tree = Tree::from(child.id() as i32, &[]);
        wait_for(&mut tree, 3);
        assert!(tree.has(child.id() as i32));
        assert!(!tree.has(stranger.id() as i32) && !tree.has(1));

        let pids: Vec<Process> = tree.processes().collect();
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        for process in pids.iter().filter(|process| process.pid != child.id() as i32) {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(process.pid), nix::sys::signal::SIGKILL);
        }
        child.wait().unwrap();
        tree.refresh();
        assert!(!tree.has(child.id() as i32), "who has gone does not belong");
    }

    #[test]
    fn a_daemon_that_lets_go_of_its_parent_belongs_by_its_session() {
        // The daemon's parent ends before anybody has looked; the session's leader is still there.
        let script = "(sleep 60 > /dev/null & echo $!); exec sleep 61 > /dev/null";
        let mut leader =
            Command::new("setsid").args(["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        // The end of the output is that of the parent.
        let mut daemon = String::new();
        leader.stdout.take().unwrap().read_to_string(&mut daemon).unwrap();
        let daemon: i32 = daemon.trim().parse().unwrap();
        let mut tree = Tree::from(leader.id() as i32, &[]);
        wait_for(&mut tree, 2);
        assert!(tree.has(daemon) && tree.has(leader.id() as i32));
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(daemon), nix::sys::signal::SIGKILL).unwrap();
        leader.kill().unwrap();
        leader.wait().unwrap();
    }
}
