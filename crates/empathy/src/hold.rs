//! The plan, applied to the job: sets its share, pauses it and lets it go on. Whatever must be put back, the guard learns first.

use std::cell::Cell;
use std::collections::HashSet;
use std::io;

use crate::guard::Guard;
use crate::levers::group::{self, Group};
use crate::levers::scheduling::{Scheduling, each_thread, set_nice};
use crate::levers::{autogroup, stop};
use crate::plan::{Pause, Plan, Share};
use crate::process::{self, Process};
use crate::rights::Raise;
use crate::tree::Tree;
use crate::undo::Undo;

/// Sweeps over a job that starts processes while it is stopped, at most. Whoever escapes is stopped at the next tick.
const MOST_SWEEPS: usize = 8;
/// The least and the greatest weight of a group: that of nice 19 is 15, that of nice 0 is 1024.
const LEAST_WEIGHT: f64 = 2.0;
/// Steps for a doubling of a group's weight: one is 9 %.
const STEPS_TO_DOUBLE: f64 = 8.0;
/// The greatest weight is this many steps above the least, as the kernel has it.
const MOST_STEPS: i64 = 17 * STEPS_TO_DOUBLE as i64;

/// The means, in use.
#[derive(Debug)]
pub struct Hold {
    plan: Plan,
    tree: Tree,
    /// The first of a job that ran before.
    running: Option<Process>,
    guard: Guard,
    paused: bool,
    /// The level that is in force.
    level: Option<i64>,
    /// The weight of a session that the job shares has been written down.
    session_noted: bool,
}

impl Hold {
    /// Makes the groups of the plan. The job is started, or adopted, next.
    ///
    /// # Errors
    /// What could not be made.
    pub fn prepare(plan: Plan, running: Option<Process>, mut guard: Guard) -> Result<Hold, (String, Guard)> {
        let own = std::process::id() as i32;
        let of = running.map_or(own, |process| process.pid);
        let tree = match running {
            Some(process) => Tree::from(process.pid, &[own, guard.pid()]),
            None => Tree::below(own, &[guard.pid()]),
        };
        for (one, purpose) in plan.groups() {
            let mut make = || {
                let home = group::home(of, purpose)?;
                guard.will(Undo::Group { dir: one.dir().into(), home });
                one.make().map_err(|error| format!("{}: {error}", one.dir().display()))
            };
            if let Err(why) = make() {
                return Err((why, guard));
            }
        }
        Ok(Hold { plan, tree, running, guard, paused: false, level: None, session_noted: false })
    }

    fn helpers(&self) -> [i32; 2] {
        [std::process::id() as i32, self.guard.pid()]
    }

    /// Which means.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The guard.
    pub fn guard(&mut self) -> &mut Guard {
        &mut self.guard
    }

    /// To be called before the job is started: what it inherits is set first.
    ///
    /// # Errors
    /// What could not be set.
    pub fn begin(&mut self) -> Result<(), String> {
        match &self.plan.share {
            Share::Group(_) if self.plan.idle_policy => self.idle().map(drop),
            _ => Ok(()),
        }
    }

    /// The level at which the job is one among equals.
    fn equal_level(&self) -> i64 {
        match self.plan.share {
            Share::Group(_) => ((1024.0 / LEAST_WEIGHT).log2() * STEPS_TO_DOUBLE) as i64,
            _ => 0,
        }
    }

    /// The level to begin with under a limit: that at which one equal beside the job slows it `limit` times, and never more than its equal
    /// share. What it has too much before its share is right is never had back in full.
    pub fn level_for(&self, limit: f64) -> i64 {
        self.equal_level() - ((limit - 1.0).max(1.0).log2() * self.doubling()) as i64
    }

    /// Levels for a doubling of the job's weight.
    pub fn doubling(&self) -> f64 {
        match self.plan.share {
            Share::Group(_) => STEPS_TO_DOUBLE,
            // A nice value is a quarter more or less.
            _ => 2.0_f64.ln() / 1.25_f64.ln(),
        }
    }

    /// Takes hold of a job that runs already, and gives it `SCHED_IDLE` if that is planned.
    ///
    /// # Errors
    /// What could not be done.
    pub fn adopt(&mut self, root: Process) -> Result<(), String> {
        for (group, purpose) in self.plan.clone().groups() {
            self.move_to(root, group, purpose).map_err(|why| format!("{}: {why}", group.dir().display()))?;
        }
        if self.plan.idle_policy {
            let was = scheduling(root)?;
            self.guard.will(Undo::Heirs { root, was, not: self.helpers() });
            let raise = Raise::of(root.pid);
            // Who could not be taken back is left as it is.
            let change = |was: Scheduling| !was.is_idle() && raise.can_put_back(&was);
            self.sweep(|tid, was| if change(was) { was.idle().set(tid) } else { Ok(()) })
                .map_err(|error| format!("SCHED_IDLE: {error}"))?;
        }
        Ok(())
    }

    fn move_to(
        &mut self,
        root: Process,
        group: &Group,
        purpose: crate::levers::hierarchy::Purpose,
    ) -> Result<(), String> {
        let default = group::home(root.pid, purpose)?;
        let mut seen = HashSet::new();
        for _ in 0..MOST_SWEEPS {
            self.tree.refresh();
            let new: Vec<Process> = self.tree.processes().filter(|process| seen.insert(*process)).collect();
            if new.is_empty() {
                break;
            }
            for process in new {
                let Ok(home) = group::home(process.pid, purpose) else { continue };
                if home != default && home != group.dir() {
                    self.guard.will(Undo::Member { process, dir: group.dir().into(), home });
                }
                group.adopt(process.pid).map_err(|error| format!("process {}: {error}", process.pid))?;
            }
        }
        Ok(())
    }

    /// Writes down how each thread of the job is scheduled, and changes it.
    fn sweep(&mut self, change: impl Fn(i32, Scheduling) -> io::Result<()>) -> io::Result<()> {
        let (tree, guard, must_undo) = (&mut self.tree, &mut self.guard, self.running.is_some());
        let processes = || {
            tree.refresh();
            tree.processes().collect()
        };
        each_thread(processes, |tid| {
            let was = Scheduling::of(tid)?;
            if let Some(thread) = Process::of(tid).filter(|_| must_undo) {
                guard.will(Undo::Thread { thread, was });
            }
            change(tid, was)
        })
    }

    /// Gives the job its least share for good: for the cycles that nobody wants. Returns whether it is in force: a session takes one
    /// change each tenth of a second, of all that anybody makes on this machine.
    ///
    /// # Errors
    /// What could not be set.
    pub fn idle(&mut self) -> Result<bool, String> {
        match &self.plan.share {
            Share::Group(group) => {
                let set = group.set_idle().map(|()| true);
                set.map_err(|error| format!("{}: {error}", group.dir().display()))
            }
            Share::Autogroup { .. } => self.weigh_session(autogroup::LOWEST),
            Share::Nice { .. } | Share::Equal => Ok(true),
        }
    }

    /// The levels of the job's share, the greater the more of the CPU; none where nothing sets its share. They mean nothing but
    /// their order.
    pub fn levels(&self) -> Option<std::ops::RangeInclusive<i64>> {
        match self.plan.share {
            Share::Group(_) => Some(0..=MOST_STEPS),
            Share::Autogroup { lowest } | Share::Nice { lowest } => {
                Some(i64::from(-autogroup::LOWEST)..=i64::from(-lowest))
            }
            Share::Equal => None,
        }
    }

    /// The level that is in force.
    pub fn level(&self) -> i64 {
        self.level.unwrap_or_else(|| self.equal_level())
    }

    /// Sets the level of the job's share. Returns whether it is in force: a session takes one change each tenth of a second.
    ///
    /// # Errors
    /// What could not be set.
    pub fn set(&mut self, level: i64) -> Result<bool, String> {
        if self.level == Some(level) && !matches!(self.plan.share, Share::Nice { .. }) {
            return Ok(true);
        }
        let done = match &self.plan.share {
            Share::Group(group) => {
                let weight = LEAST_WEIGHT * (level as f64 / STEPS_TO_DOUBLE).exp2();
                group.set_weight(weight.round() as u64).map(|()| true).map_err(|error| error.to_string())?
            }
            Share::Autogroup { .. } => self.weigh_session(-level as i32)?,
            Share::Nice { .. } => self.renice(-level as i32)?,
            Share::Equal => true,
        };
        if done {
            self.level = Some(level);
        }
        Ok(done)
    }

    fn weigh_session(&mut self, nice: i32) -> Result<bool, String> {
        // A session of its own goes with the job. One that it shares is put back.
        let shared = !self.plan.own_session;
        self.tree.refresh();
        let own = Process::of(std::process::id() as i32);
        let of = match self.running {
            None if shared => own,
            None => self.tree.processes().next(),
            running => running,
        };
        let Some(of) = of else { return Ok(true) };
        if shared && !self.session_noted {
            let was = autogroup::nice(of.pid).map_err(|error| format!("the session's weight: {error}"))?;
            if let Some(session) = process::stat(of.pid).map(|stat| stat.session) {
                self.guard.will(Undo::Autogroup { of, session, nice: before_anybody(was) });
            }
            self.session_noted = true;
        }
        match autogroup::set_nice(of.pid, nice) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(format!("the session's weight: {error}")),
        }
    }

    fn renice(&mut self, nice: i32) -> Result<bool, String> {
        let raise = Raise::of(self.running.map_or(std::process::id() as i32, |root| root.pid));
        // What was set here can be taken back; who could not be is left as it is, and so is a program that has become another user's.
        let (set, refused) = (Cell::new(false), Cell::new(false));
        let set_nice = |tid, is: Scheduling| {
            if !raise.can_put_back(&is) {
                return Ok(());
            }
            match set_nice(tid, nice) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused.set(true),
                done => set.set(done.map(|()| true)?),
            }
            Ok(())
        };
        if self.level.is_none()
            && let Some(root) = self.running
        {
            let was = scheduling(root)?;
            self.guard.will(Undo::Heirs { root, was, not: self.helpers() });
            self.sweep(set_nice)
        } else {
            self.tree.refresh();
            let processes: Vec<Process> = self.tree.processes().collect();
            each_thread(|| processes.clone(), |tid| set_nice(tid, Scheduling::of(tid)?))
        }
        .map_err(|error| format!("nice {nice}: {error}"))?;
        if refused.get() && !set.get() {
            return Err(format!("nice {nice}: may not be set for any thread of the job"));
        }
        Ok(true)
    }

    /// The processes of the job now.
    pub fn pids(&mut self) -> HashSet<u32> {
        let pids = match (&self.plan.share, &self.plan.pause) {
            (Share::Group(group), _) | (_, Pause::Group(group)) => group.pids(),
            _ => {
                self.tree.refresh();
                self.tree.processes().map(|process| process.pid).collect()
            }
        };
        pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect()
    }

    /// Whether the job is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Pauses the job. Where it is paused already, says so to the guard once more, and stops what has escaped, or what the guard let go
    /// on meanwhile.
    ///
    /// # Errors
    /// What could not be done. Then it runs.
    pub fn pause(&mut self) -> Result<(), String> {
        match &self.plan.pause {
            Pause::Group(group) => {
                self.guard.paused();
                group.freeze(true).map_err(|error| format!("{}: {error}", group.dir().display()))?;
            }
            Pause::Stop => self.stop_all(),
        }
        self.paused = true;
        Ok(())
    }

    /// To be called a few times a second while the job may be paused: looks at it may be further apart than the guard's patience.
    pub fn confirm(&mut self) {
        if self.paused {
            self.guard.paused();
        }
    }

    fn stop_all(&mut self) {
        self.guard.paused();
        for _ in 0..MOST_SWEEPS {
            self.tree.refresh();
            let running: Vec<Process> =
                self.tree.processes().filter(|process| stop::runs(*process)).collect();
            if running.is_empty() {
                break;
            }
            self.guard.stopping(running.clone());
            running.into_iter().for_each(stop::stop);
        }
    }

    /// Lets the job go on.
    pub fn resume(&mut self) {
        if self.paused {
            self.guard.resume();
            self.paused = false;
        }
    }

    /// Lets the job go, and puts back what is to be put back.
    pub fn release(mut self) {
        self.resume();
        if self.running.is_some() {
            let mut job: HashSet<Process> =
                self.pids().into_iter().filter_map(|pid| Process::of(pid as i32)).collect();
            self.tree.refresh();
            job.extend(self.tree.processes());
            self.guard.is_job(job.into_iter().collect());
        }
        self.guard.finish();
    }
}

/// What a session's nice value was before any `plimsoll yield` set it. Nobody but one sets it to the lowest: were that put back by the
/// second of two in one session, it would stay.
fn before_anybody(found: i32) -> i32 {
    if found == autogroup::LOWEST { 0 } else { found }
}

fn scheduling(root: Process) -> Result<Scheduling, String> {
    Scheduling::of(root.pid).map_err(|error| format!("process {}: {error}", root.pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_of_two_in_a_session_puts_back_what_was_before_the_first() {
        assert_eq!(before_anybody(autogroup::LOWEST), 0);
        assert_eq!([-5, 0, 10].map(before_anybody), [-5, 0, 10]);
    }
}
