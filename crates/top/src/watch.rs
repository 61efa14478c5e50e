//! The herald's readings as scenes.

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Taker as Take, TaskId, TaskSample};
use plimsoll_herald::view::Report;
use plimsoll_herald::{Herald, Options, Reader as HowToRead};

use crate::clock;
use crate::row::Key;
use crate::scene::{Reader, Scene, Task};
use crate::takers::{Taker, takers};

/// Reads the host.
pub struct Watcher {
    herald: Herald,
}

impl Watcher {
    /// Begins, and makes sure that these processes are there.
    ///
    /// # Errors
    /// In words, where the host cannot be read, or there is no process that was asked for.
    pub fn new(reader: HowToRead, pids: &[u32]) -> Result<Watcher, String> {
        let mut herald = Herald::new(Options { reader, ..Options::default() })?;
        herald.sample();
        let missing = |pid: &&u32| !herald.tasks().iter().any(|task| task.id.pid == **pid);
        match pids.iter().find(missing) {
            Some(pid) => Err(format!(
                "there is no process {pid}, or it is hidden: what others run may be seen by root alone where /proc is mounted with hidepid"
            )),
            None => Ok(Watcher { herald }),
        }
    }

    /// Reads as often as the herald sees fit, for at least this long from the first reading to the last.
    pub fn watch_for(&mut self, time: Nanos) {
        self.herald.sample();
        let until = clock::now() + time;
        loop {
            self.herald.wait();
            // Before the reading: it is of a later time, however long this program has to wait for a CPU meanwhile.
            let last = clock::now() >= until;
            self.herald.sample();
            if last {
                return;
            }
        }
    }

    /// Reads if it is time. Says whether it did.
    pub fn tick(&mut self) -> bool {
        let due = self.herald.next_in().is_zero();
        if due {
            self.herald.sample();
        }
        due
    }

    /// Reads, whether it is time or not.
    pub fn read(&mut self) {
        self.herald.sample();
    }

    /// How long it is until the next reading.
    pub fn next_in(&self) -> Duration {
        self.herald.next_in()
    }

    /// The host as of the last reading.
    pub fn scene(&self) -> Scene {
        let herald = &self.herald;
        let cost = herald.cost();
        let name_of = |id| herald.described(id).map(|described| described.comm.as_str());
        let leaders = herald.tasks().iter().filter(|task| task.id.pid == task.id.tid);
        let leaders: HashMap<u32, &str> =
            leaders.map(|task| (task.id.pid, name_of(&task.id).unwrap_or_default())).collect();
        let task = |sample: &TaskSample| {
            let described = herald.described(&sample.id)?;
            Some(Task {
                id: sample.id,
                comm: described.comm.clone(),
                process: leaders.get(&sample.id.pid).copied().unwrap_or(&described.comm).to_owned(),
                cgroup: if described.cgroup.is_empty() { "/".to_owned() } else { described.cgroup.clone() },
                run_ns: sample.run_ns,
                wait_ns: sample.wait_ns,
                of: herald.futures().of(&sample.id).unwrap_or_default(),
            })
        };
        Scene {
            cpus: herald.host().online.len(),
            tasks: herald.tasks().iter().filter_map(task).collect(),
            reader: Reader {
                name: cost.reader.to_owned(),
                cost_pct: 100.0 * cost.cpu,
                readings_per_s: 1.0 / cost.period.as_secs_f64().max(1e-3),
            },
        }
    }

    /// The threads of the processes that were chosen, as programs are told of them.
    pub fn report(&self, chosen: impl Fn(u32) -> bool) -> Report {
        self.herald.report(|id, _| chosen(id.pid))
    }

    /// Who took the CPU from a thread over the last second: all of them, since many threads of one process may each take little.
    pub fn takers(&self, id: &TaskId) -> Vec<Take> {
        self.herald.futures().takers(id, usize::MAX)
    }

    /// The same of what is behind a row.
    pub fn takers_of(&self, scene: &Scene, row: &Key) -> Vec<Taker> {
        takers(scene, row, &|id| self.takers(id))
    }
}
