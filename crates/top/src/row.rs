//! Rows: threads, processes or cgroups, each with the sums of its threads.

use std::collections::BTreeMap;

use plimsoll_cpufutures::{Allocations, Sum, TaskId};

use crate::scene::Task;

/// What a row is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Threads of a process as one.
    #[default]
    Process,
    /// Threads.
    Thread,
    /// All that is in a cgroup or below it as one.
    Group,
}

/// Which row, from one second to the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A process, by its number.
    Process(u32),
    /// A thread.
    Thread(TaskId),
    /// A cgroup, by its path.
    Group(String),
}

impl Key {
    /// Whether a thread is part of it.
    pub fn holds(&self, task: &Task) -> bool {
        match self {
            Key::Process(pid) => task.id.pid == *pid,
            Key::Thread(id) => task.id == *id,
            Key::Group(path) => ancestry(&task.cgroup).any(|above| above == path),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which.
    pub key: Key,
    /// The name of the thread or process, or the last part of the path.
    pub name: String,
    /// How deep in the tree of cgroups; 0 otherwise.
    pub depth: usize,
    /// How many threads it has.
    pub threads: usize,
    /// Of its threads together ([`Sum`]).
    pub of: Allocations,
    /// The slowdown of the thread that is slowed the most, of those that want enough to tell ([`wants_enough`]); 1 where there is none.
    pub worst_slowdown: f64,
    sum: Sum,
}

/// Whether a process is among those that were asked for: all are where none was named.
pub fn is_chosen(pids: &[u32], pid: u32) -> bool {
    pids.is_empty() || pids.contains(&pid)
}

/// Below this nobody is called short of CPU, in ms/s. A thread that wakes up for a tenth of a millisecond and waits as long is "2x
/// slower", and nobody will ever notice.
pub const ENOUGH_MS_PER_S: f64 = 1.0;

/// Whether it desires so much that its slowdown says anything: a thousandth of a CPU.
pub fn wants_enough(of: &Allocations) -> bool {
    of.desired_ms_per_s >= ENOUGH_MS_PER_S
}

impl Row {
    fn new(key: Key, name: &str, depth: usize) -> Row {
        let (of, sum) = (Allocations::default(), Sum::default());
        Row { key, name: name.to_owned(), depth, threads: 0, of, worst_slowdown: 1.0, sum }
    }

    fn add(&mut self, task: &Task) {
        self.threads += 1;
        self.sum.add(&task.of);
        self.of = *self.sum.allocations();
        if wants_enough(&task.of) {
            self.worst_slowdown = self.worst_slowdown.max(task.of.slowdown());
        }
    }
}

/// The rows of these threads, in the order of their keys. A cgroup counts all that is below it, too, and is listed before that.
pub fn rows<'a>(tasks: impl Iterator<Item = &'a Task>, by: By) -> Vec<Row> {
    let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
    let mut add = |task: &Task, key: Key, name: &str, depth: usize| {
        rows.entry(key).or_insert_with_key(|key| Row::new(key.clone(), name, depth)).add(task);
    };
    for task in tasks {
        match by {
            By::Process => add(task, Key::Process(task.id.pid), &task.process, 0),
            By::Thread => add(task, Key::Thread(task.id), &task.comm, 0),
            By::Group => {
                for (depth, path) in ancestry(&task.cgroup).enumerate() {
                    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/");
                    add(task, Key::Group(path.to_owned()), name, depth);
                }
            }
        }
    }
    rows.into_values().collect()
}

/// A path and all that is above it, from the root on: `/`, `/a`, `/a/b` of `/a/b`.
pub fn ancestry(path: &str) -> impl Iterator<Item = &str> {
    let parts = path.match_indices('/').map(|(at, _)| at).filter(|&at| at > 0);
    let whole = (path.len() > 1).then_some(path);
    std::iter::once("/").chain(parts.map(|at| &path[..at])).chain(whole)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A thread that wants and gets so much.
    pub fn task(pid: u32, tid: u32, comm: &str, cgroup: &str, desired: f64, actual: f64) -> Task {
        let of = Allocations {
            desired_ms_per_s: desired,
            actual_ms_per_s: actual,
            predicted_ms_per_s: actual,
            potential_ms_per_s: 500.0,
            waited_ms_per_s: desired - actual,
            low_confidence: false,
        };
        let id = TaskId { pid, tid, started: 1 };
        Task {
            id,
            comm: comm.into(),
            process: format!("proc-{pid}"),
            cgroup: cgroup.into(),
            run_ns: 0,
            wait_ns: 0,
            of,
        }
    }

    #[test]
    fn a_process_is_the_sum_of_its_threads_and_tells_of_the_worst() {
        let tasks = [
            task(1, 1, "main", "/", 900.0, 300.0),
            task(1, 2, "io", "/", 100.0, 100.0),
            task(1, 3, "tick", "/", 0.5, 0.01),
            task(2, 2, "other", "/", 200.0, 100.0),
        ];
        let rows = rows(tasks.iter(), By::Process);
        assert_eq!(
            rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>(),
            [Key::Process(1), Key::Process(2)]
        );
        assert_eq!((rows[0].threads, rows[0].name.as_str()), (3, "proc-1"));
        assert!((rows[0].of.slowdown() - 1000.5 / 400.01).abs() < 1e-9);
        assert_eq!(rows[0].worst_slowdown, 3.0, "not that of the one that hardly wants anything");
        assert_eq!(rows[0].of.potential_ms_per_s, 500.0, "of one thread, not of three");
        assert_eq!(super::rows(tasks.iter(), By::Thread).len(), 4);
    }

    #[test]
    fn a_cgroup_counts_what_is_below_it() {
        let tasks = [
            task(1, 1, "a", "/", 10.0, 10.0),
            task(2, 2, "b", "/web/x", 400.0, 100.0),
            task(3, 3, "c", "/web/y", 400.0, 300.0),
            task(4, 4, "d", "/webby", 5.0, 5.0),
        ];
        let rows = rows(tasks.iter(), By::Group);
        let shown: Vec<_> = rows.iter().map(|row| (row.depth, row.name.as_str(), row.threads)).collect();
        assert_eq!(shown, [(0, "/", 4), (1, "web", 2), (2, "x", 1), (2, "y", 1), (1, "webby", 1)]);
        assert_eq!(rows[1].of.slowdown(), 2.0);
        assert!(Key::Group("/web".into()).holds(&tasks[2]) && !Key::Group("/web".into()).holds(&tasks[3]));
    }
}
