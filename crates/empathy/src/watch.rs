//! What the job gets and what it costs the others, from the herald's readings.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::TaskId;
use plimsoll_herald::{Herald, Options};

use crate::clock;
use plimsoll_cpufutures::empathy::Seen;

/// So many threads are asked who took the CPU from them, those that waited most: asking all would cost more than it is worth.
const ASKED: usize = 16;
/// Threads that waited less, in milliseconds a second, are not asked.
const LEAST_WAIT_MS_PER_S: f64 = 1.0;

/// Watches.
pub struct Watch {
    herald: Herald,
    before: HashMap<TaskId, (u64, u64)>,
    last: Option<Nanos>,
}

impl Watch {
    /// Begins.
    ///
    /// # Errors
    /// Where threads cannot be read here.
    pub fn new() -> Result<Watch, String> {
        Ok(Watch { herald: Herald::new(Options::default())?, before: HashMap::new(), last: None })
    }

    /// How long it is until the next look is due.
    pub fn next_in(&self) -> Duration {
        self.herald.next_in()
    }

    /// Looks. `job` are its processes, `paused` says whether they have been paused since the last look. The first look has no length.
    pub fn look(&mut self, job: &HashSet<u32>, paused: bool) -> Seen {
        self.herald.sample();
        let now = clock::now();
        let first = self.last.is_none();
        let length = self.last.map_or(Nanos(0), |last| now.since(last));
        self.last = Some(now);
        let mut seen = Seen { length, paused, ..Seen::default() };
        let mut after = HashMap::with_capacity(self.herald.tasks().len());
        let cpus_ms_per_s = 1e3 * self.herald.host().online.len() as f64;
        let mut waiting: Vec<(f64, TaskId)> = Vec::new();
        for task in self.herald.tasks() {
            after.insert(task.id, (task.run_ns, task.wait_ns));
            // A new thread has begun at nothing.
            let (run, wait) = self.before.get(&task.id).copied().unwrap_or_default();
            let (ran, waited) = (task.run_ns.saturating_sub(run), task.wait_ns.saturating_sub(wait));
            let future = self.herald.futures().of(&task.id).unwrap_or_default();
            if first {
                continue;
            }
            if job.contains(&task.id.pid) {
                seen.job_ran.0 += ran;
                seen.job_waited.0 += waited;
                seen.job_desired_ms_per_s += future.desired_ms_per_s;
                seen.job_actual_ms_per_s += future.actual_ms_per_s;
            } else {
                seen.others_ran.0 += ran;
                seen.others_waited.0 += waited;
                seen.others_desired_ms_per_s += future.desired_ms_per_s;
                seen.others_actual_ms_per_s += future.actual_ms_per_s;
                let waited = future.waited_ms_per_s;
                waiting.extend((waited >= LEAST_WAIT_MS_PER_S).then_some((waited, task.id)));
            }
        }
        self.before = after;
        seen.taken_ms_per_s = self.taken(waiting, job);
        // Threads that compete with each other would not all run at once on an idle machine either.
        seen.cpus_ms_per_s = cpus_ms_per_s;
        seen.job_desired_ms_per_s = seen.job_desired_ms_per_s.min(cpus_ms_per_s);
        seen.others_desired_ms_per_s = seen.others_desired_ms_per_s.min(cpus_ms_per_s);
        seen
    }

    fn taken(&self, mut waiting: Vec<(f64, TaskId)>, job: &HashSet<u32>) -> f64 {
        waiting.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let takers =
            waiting.iter().take(ASKED).flat_map(|(_, id)| self.herald.futures().takers(id, usize::MAX));
        takers.filter(|taker| job.contains(&taker.id.pid)).map(|taker| taker.ms_per_s).sum()
    }
}
