//! What changes rarely about a thread: its name, its cgroup, how it is scheduled and where.

use std::io;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Host, Policy, TaskId};
use rustix::param::clock_ticks_per_second;

use crate::clock;
use crate::groups::Groups;
use crate::parse::Stat;
use crate::proc::Proc;
use crate::scene::Described;
use crate::scheduling::{self, Sets};

/// How a thread is scheduled, as [`plimsoll_cpufutures::TaskSample`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// How.
    pub policy: Policy,
    /// -20 to 19.
    pub nice: i8,
    /// The number of its group.
    pub group: u32,
    /// The number of its set of CPUs.
    pub cpus: u32,
}

/// Describes threads.
pub struct Describer {
    /// Where it reads.
    pub proc: Proc,
    groups: Groups,
    sets: Sets,
    /// When the CPUs that are on line are looked at again.
    online_at: Nanos,
    /// Of those in which `/proc` tells when a thread started.
    tick: Nanos,
}

/// From one look at the CPUs that are on line to the next.
const BETWEEN_CPUS: Nanos = Nanos::from_secs(10);

impl Describer {
    /// Of this host.
    ///
    /// # Errors
    /// As of [`Proc::open`].
    pub fn new() -> Result<Describer, String> {
        let sets = Sets::new(scheduling::online());
        let tick = Nanos(1_000_000_000 / clock_ticks_per_second());
        Ok(Describer { proc: Proc::open()?, groups: Groups::find(), sets, online_at: Nanos::ZERO, tick })
    }

    /// In which tick that was that is so long after the host was started, as `/proc` has it.
    #[cfg(feature = "bpf")]
    pub fn started(&self, since_boot: Nanos) -> u64 {
        since_boot.0 / self.tick.0
    }

    /// Between which times a thread started, by the clock of the readings: more than the tick is not known.
    pub fn born(&self, id: TaskId) -> [Nanos; 2] {
        let from = clock::after_boot(Nanos(id.started.saturating_mul(self.tick.0)));
        [from, from + self.tick]
    }

    /// All about a thread.
    ///
    /// # Errors
    /// Where it is gone, or may not be seen.
    pub fn describe(
        &mut self,
        now: Nanos,
        pid: u32,
        tid: u32,
    ) -> io::Result<(TaskId, Scheduling, Described)> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let (name, stat) =
            Stat::parse(self.proc.text(format_args!("{pid}/task/{tid}/stat"))?).ok_or_else(gone)?;
        let comm = String::from_utf8_lossy(name).into_owned();
        let (group, cgroup) = self.groups.of(now, &mut self.proc, pid, tid)?;
        let Stat { nice, policy, started, .. } = stat;
        let scheduling = Scheduling { policy, nice, group, cpus: self.sets.of(tid)? };
        Ok((TaskId { pid, tid, started }, scheduling, Described { comm, cgroup, policy, nice }))
    }

    /// What can be asked of a thread without a file: all but its group.
    ///
    /// # Errors
    /// Where it is gone.
    pub fn glance(&mut self, now: Nanos, tid: u32, before: Scheduling) -> io::Result<Scheduling> {
        self.groups.keep(now, before.group);
        let (policy, nice) = scheduling::policy(tid)?;
        Ok(Scheduling { policy, nice, cpus: self.sets.of(tid)?, ..before })
    }

    /// What the threads share, some of which is read anew at each call.
    pub fn host(&mut self, now: Nanos) -> Host {
        self.groups.refresh();
        if now >= self.online_at {
            self.online_at = now + BETWEEN_CPUS;
            self.sets.renew(scheduling::online());
        }
        let sets = self.sets.list().to_vec();
        Host { online: sets[0].clone(), groups: self.groups.list().to_vec(), sets }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The two clocks are read one after the other.
    const SLACK: Nanos = Nanos::from_millis(5);

    #[test]
    fn a_birth_is_told_to_the_tick_by_the_clock_of_the_readings() {
        let mut describer = Describer::new().expect("/proc");
        let before = clock::now();
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let after = clock::now();
        let described = describer.describe(after, child.id(), child.id());
        let _ = child.kill();
        let _ = child.wait();
        let (id, ..) = described.expect("a child");
        let [from, to] = describer.born(id);
        assert!(before <= to + SLACK && from <= after + SLACK, "{before} {from} {to} {after}");
    }
}
