//! What is sampled: threads, the groups in which they share the CPUs, and the host.

use plimsoll_core::Nanos;

/// The most CPUs that a host may have. Those beyond are left out.
pub const MAX_CPUS: usize = 1024;

/// A thread. A number is given to another thread once its owner is gone; the start tells the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// Its process.
    pub pid: u32,
    /// Itself.
    pub tid: u32,
    /// When it started, in a unit of the host's choice.
    pub started: u64,
}

/// How the scheduler treats a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// `SCHED_OTHER`: a share by its nice value.
    #[default]
    Normal,
    /// `SCHED_BATCH`: the same share; it preempts nobody when it wakes up.
    Batch,
    /// `SCHED_IDLE`: the smallest share there is, whatever its nice value.
    Idle,
    /// `SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE` and the kernel's own stop class: before all others.
    RealTime,
}

/// One thread as it is now. Both counters only ever grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskSample {
    /// Who.
    pub id: TaskId,
    /// For how long it has run since it started, in nanoseconds.
    pub run_ns: u64,
    /// For how long it has been ready to run without running, in nanoseconds, the wait included that is going on.
    pub wait_ns: u64,
    /// When it started, by the clock of the samples, where that is known.
    pub born: Option<Nanos>,
    /// How it is scheduled.
    pub policy: Policy,
    /// -20 to 19.
    pub nice: i8,
    /// The group that it belongs to: an index into [`Host::groups`].
    pub group: u32,
    /// The CPUs on which it may run: an index into [`Host::sets`].
    pub cpus: u32,
}

/// How a thread is scheduled, and where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    pub policy: Policy,
    pub nice: i8,
    pub group: u32,
    pub cpus: u32,
}

impl TaskSample {
    pub(crate) fn terms(&self) -> Terms {
        let TaskSample { policy, nice, group, cpus, .. } = *self;
        Terms { policy, nice, group, cpus }
    }
}

/// Threads that share CPUs as one: a cgroup of the cpu controller or an autogroup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// The group that it shares CPUs in: an index into [`Host::groups`], smaller than its own. That of the root is its own.
    pub parent: u32,
    /// Its weight beside its siblings, in the kernel's unit: 1024 is that of a thread of nice 0, of `cpu.weight` 100 and of `cpu.shares` 1024.
    pub weight: u32,
    /// `cpu.idle`, whose weight is 3 and whose threads give way to all siblings'.
    pub idle: bool,
    /// The most that it may use, in CPUs (`cpu.max`), if that is limited.
    pub quota_cpus: Option<f64>,
}

impl Group {
    /// The root: all that there is.
    pub const ROOT: Group = Group { parent: 0, weight: 1024, idle: false, quota_cpus: None };
}

/// CPUs by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    /// The first `count` CPUs.
    pub fn first(count: usize) -> CpuSet {
        (0..count).collect()
    }

    /// Whether CPU `cpu` is in it.
    pub fn contains(&self, cpu: usize) -> bool {
        self.words.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..64 * self.words.len()).filter(|&cpu| self.contains(cpu))
    }
}

impl FromIterator<usize> for CpuSet {
    /// Numbers from [`MAX_CPUS`] on are left out.
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> CpuSet {
        let mut words = Vec::new();
        for cpu in cpus.into_iter().filter(|&cpu| cpu < MAX_CPUS) {
            if words.len() <= cpu / 64 {
                words.resize(cpu / 64 + 1, 0);
            }
            words[cpu / 64] |= 1 << (cpu % 64);
        }
        CpuSet { words }
    }
}

/// What threads share.
#[derive(Clone, Debug)]
pub struct Host {
    /// The CPUs that are on line.
    pub online: CpuSet,
    /// The root first, parents before their children.
    pub groups: Vec<Group>,
    /// The different sets of CPUs that threads may run on. The first is that of all CPUs.
    pub sets: Vec<CpuSet>,
}

impl Host {
    /// `cpus` CPUs that all threads share in one group.
    pub fn plain(cpus: usize) -> Host {
        let online = CpuSet::first(cpus);
        Host { sets: vec![online.clone()], groups: vec![Group::ROOT], online }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_and_no_number_that_no_host_has() {
        let set: CpuSet = [0, 3, 64, 130, MAX_CPUS, usize::MAX].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 64, 130]);
        assert_eq!(set.len(), 4);
        assert!(!set.contains(1) && !set.contains(MAX_CPUS));
        assert!(CpuSet::default().is_empty());
        assert_eq!(CpuSet::first(2), [1, 0].into_iter().collect());
    }
}
