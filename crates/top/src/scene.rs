//! What is shown: all threads of a host at one moment, apart from who read them.

use plimsoll_cpufutures::{Allocations, Taker, TaskId};

/// One thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Who.
    pub id: TaskId,
    /// Its own name.
    pub comm: String,
    /// The name of its process.
    pub process: String,
    /// The path of its cgroup, as `/system.slice/nginx.service`; `/` where it is in none.
    pub cgroup: String,
    /// For how long it has run since it started, in nanoseconds.
    pub run_ns: u64,
    /// For how long it has been ready to run without running, in nanoseconds.
    pub wait_ns: u64,
    /// What it wanted and got over the last second, and what it will get.
    pub of: Allocations,
}

/// What reads the host, and what that costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reader {
    /// How it reads: `bpf` or `pread`.
    pub name: String,
    /// The CPU time that it took of late, in per cent of one CPU.
    pub cost_pct: f64,
    /// How often it reads just now.
    pub readings_per_s: f64,
}

/// A host at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// CPUs that are on line.
    pub cpus: usize,
    /// Its threads.
    pub tasks: Vec<Task>,
    /// Who read them.
    pub reader: Reader,
}

impl Scene {
    /// How many CPUs were busy over the last second.
    pub fn busy_cpus(&self) -> f64 {
        self.tasks.iter().map(|task| task.of.actual_ms_per_s).sum::<f64>() / 1e3
    }

    /// How many threads waited for a CPU on average over the last second.
    pub fn waiting(&self) -> f64 {
        self.tasks.iter().map(|task| task.of.waited_ms_per_s).sum::<f64>() / 1e3
    }
}

/// Who took the CPU from a thread while that was ready to run, the greatest first:
/// [`plimsoll_cpufutures::Futures::takers`].
pub type Takers<'a> = &'a dyn Fn(&TaskId) -> Vec<Taker>;
