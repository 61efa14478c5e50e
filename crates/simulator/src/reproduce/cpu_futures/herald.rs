//! Samples a machine as a host's herald does, ten times a second, and tells what its tasks will get.

use plimsoll_core::Nanos;
use plimsoll_cpufutures::timesharing::{PrioritySample, Timesharing};
use plimsoll_cpufutures::{Allocations, Futures, Group, Host, Settings, TaskId, TaskSample};

use crate::scheduler::array::PRIORITIES;
use crate::scheduler::{Fair, Machine, O1, Scheduler, Task, Workload};

/// Between two samples (section 3.1).
pub const PERIOD: Nanos = Nanos::from_millis(100);
/// More threads than any experiment has.
const MOST_TASKS: usize = 4_096;

/// Of a machine with shares.
pub struct Herald {
    /// What it knows.
    pub futures: Futures,
    host: Host,
}

impl Herald {
    /// Of `cpus` CPUs that are shared in these groups, the root first.
    pub fn new(cpus: usize, groups: &[Group]) -> Herald {
        let host = Host { groups: groups.to_vec(), ..Host::plain(cpus) };
        Herald { futures: Futures::new(Settings::default()), host }
    }

    /// Takes a sample.
    pub fn sample<W: Workload>(&mut self, machine: &Machine<Fair, W>) {
        let sample = |(task, account): (Task, crate::scheduler::Account)| TaskSample {
            id: id(task),
            run_ns: account.ran.0,
            wait_ns: account.waited.0,
            born: None,
            policy: account.attributes.policy,
            nice: account.attributes.nice,
            group: account.attributes.group,
            cpus: 0,
        };
        let samples: Vec<TaskSample> = machine.accounts().map(sample).collect();
        self.futures.sample(machine.now(), &self.host, &samples);
    }

    /// What a task wanted, got and will get.
    pub fn of(&self, task: Task) -> Allocations {
        self.futures.of(&id(task)).unwrap_or_default()
    }
}

/// Of a machine with priorities.
pub struct PriorityHerald {
    timesharing: Timesharing,
}

impl PriorityHerald {
    /// Of `cpus` CPUs.
    pub fn new(cpus: usize) -> PriorityHerald {
        PriorityHerald { timesharing: Timesharing::new(cpus, PRIORITIES, MOST_TASKS) }
    }

    /// Takes a sample. Here the least priority is the best, there the greatest.
    pub fn sample<W: Workload>(&mut self, machine: &Machine<O1, W>) {
        let o1 = &machine.scheduler;
        let sample = |(task, account): (Task, crate::scheduler::Account)| PrioritySample {
            id: id(task),
            run_ns: account.ran.0,
            wait_ns: account.waited.0,
            priority: PRIORITIES - 1 - o1.priority(task),
            expected: PRIORITIES - 1 - o1.expected_priority(task, machine.now()),
        };
        let samples: Vec<PrioritySample> = machine.accounts().map(sample).collect();
        self.timesharing.sample(machine.now(), &samples);
    }

    /// What a task wanted, got and will get.
    pub fn of(&self, task: Task) -> Option<Allocations> {
        self.timesharing.of(&id(task))
    }
}

/// The name of a task in samples.
pub fn id(task: Task) -> TaskId {
    TaskId { pid: task as u32 + 1, tid: task as u32 + 1, started: 0 }
}

/// Lets a machine run for `span`, and does something after every period.
pub fn each_period<S: Scheduler, W: Workload>(
    machine: &mut Machine<S, W>,
    span: Nanos,
    mut then: impl FnMut(&mut Machine<S, W>),
) {
    let end = machine.now() + span;
    while machine.now() < end {
        machine.advance(machine.now() + PERIOD);
        then(machine);
    }
}
