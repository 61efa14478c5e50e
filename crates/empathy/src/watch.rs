//! What the job gets and what it costs the others, from the herald's readings.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Futures, Host, Settings, TaskId, TaskSample};
use plimsoll_herald::{Herald, Options};

use crate::clock;
use plimsoll_cpufutures::empathy::Seen;

/// So many threads are asked who took the CPU from them, those that waited most: asking all would cost more than it is worth.
const ASKED: usize = 16;
/// What a thread wants is not known before it has lived for so long: the wait of one that has just begun is told when it runs.
const BEGINS: Nanos = Nanos::from_secs(2);
/// All of a CPU.
const CPU_MS_PER_S: f64 = 1e3;
/// Threads that waited less, in milliseconds a second, are not asked.
const LEAST_WAIT_MS_PER_S: f64 = 1.0;

/// Watches.
pub struct Watch {
    herald: Herald,
    before: HashMap<TaskId, Before>,
    last: Option<Nanos>,
    unpaused: Option<Unpaused>,
}

/// A thread at the last look.
#[derive(Clone, Copy)]
struct Before {
    run_ns: u64,
    wait_ns: u64,
    /// When it was seen first; nothing of one that was there from the beginning.
    born: Option<Nanos>,
}

impl Before {
    /// One that has begun since, at nothing.
    fn new(now: Nanos) -> Before {
        Before { run_ns: 0, wait_ns: 0, born: Some(now) }
    }
}

/// What the job wants while it is not paused: a paused thread neither runs nor waits, as one that wants nothing.
struct Unpaused {
    futures: Futures,
    /// A clock that stands still during pauses. What is counted while it does is left out.
    now: Nanos,
}

impl Unpaused {
    fn new() -> Unpaused {
        Unpaused { futures: Futures::new(Settings::default()), now: Nanos::ZERO }
    }

    /// What the job's threads would run on an idle machine, in milliseconds a second together.
    fn desired_ms_per_s(&mut self, length: Nanos, paused: bool, host: &Host, tasks: &[TaskSample]) -> f64 {
        if !paused {
            self.now += length;
        }
        self.futures.sample(self.now, host, tasks);
        self.futures.iter().map(|(_, future)| future.desired_ms_per_s).sum()
    }
}

impl Watch {
    /// Begins. `pauses` says whether the job may be paused.
    ///
    /// # Errors
    /// Where threads cannot be read here.
    pub fn new(pauses: bool) -> Result<Watch, String> {
        let herald = Herald::new(Options::default())?;
        let unpaused = pauses.then(Unpaused::new);
        Ok(Watch { herald, before: HashMap::new(), last: None, unpaused })
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
        let mut own: Vec<TaskSample> = Vec::new();
        for task in self.herald.tasks() {
            let before = self.before.get(&task.id).copied().unwrap_or(Before::new(now));
            let born = before.born.filter(|_| !first);
            after.insert(task.id, Before { run_ns: task.run_ns, wait_ns: task.wait_ns, born });
            let (ran, waited) =
                (task.run_ns.saturating_sub(before.run_ns), task.wait_ns.saturating_sub(before.wait_ns));
            let future = self.herald.futures().of(&task.id).unwrap_or_default();
            let is_own = job.contains(&task.id.pid);
            if is_own && self.unpaused.is_some() {
                own.push(*task);
            }
            if first {
                continue;
            }
            if is_own {
                seen.job_ran.0 += ran;
                seen.job_waited.0 += waited;
                let age = born.map(|born| now.since(born));
                seen.job_desired_ms_per_s += wanted(future.desired_ms_per_s, age, ran + waited > 0);
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
        if let Some(unpaused) = &mut self.unpaused {
            let desired = unpaused.desired_ms_per_s(length, paused, self.herald.host(), &own);
            seen.job_desired_ms_per_s = if first { 0.0 } else { desired };
        }
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

/// What a thread of the job counts as wanting, in milliseconds a second, of which it is said that it desires so much: all of a CPU while it only begins,
/// to err on the job's side. `age` is nothing for one that was there from the beginning.
fn wanted(desired_ms_per_s: f64, age: Option<Nanos>, did_anything: bool) -> f64 {
    if did_anything && age.is_some_and(|age| age < BEGINS) { CPU_MS_PER_S } else { desired_ms_per_s }
}

#[cfg(test)]
mod tests {
    use plimsoll_cpufutures::Policy;

    use super::*;

    /// Before, a job that began under a limit of 20 was found to have too much while it had next to nothing.
    #[test]
    fn who_has_just_begun_wants_a_cpu_unless_it_sleeps() {
        let ms = |ms| Some(Nanos::from_millis(ms));
        assert_eq!(wanted(120.0, ms(300), true), CPU_MS_PER_S);
        assert_eq!(wanted(0.0, ms(300), false), 0.0);
        assert_eq!(wanted(120.0, ms(2_500), true), 120.0);
        assert_eq!(wanted(120.0, None, true), 120.0);
    }

    #[test]
    fn a_job_wants_while_it_is_paused_what_it_wanted_before() {
        const TICK: Nanos = Nanos::from_millis(100);
        let id = TaskId { pid: 7, tid: 7, started: 1 };
        let mut task = TaskSample {
            id,
            run_ns: 0,
            wait_ns: 0,
            born: None,
            policy: Policy::Normal,
            nice: 0,
            group: 0,
            cpus: 0,
        };
        let mut unpaused = Unpaused::new();
        unpaused.desired_ms_per_s(Nanos::ZERO, false, &Host::plain(1), &[task]);
        // It runs one tick in five, beside one as hungry as itself. What it waits to be stopped is not its own doing either.
        for tick in 1..=600_u64 {
            let paused = tick % 5 != 0;
            let (ran, waited) = if paused { (0, TICK.0 / 50) } else { (TICK.0 / 2, TICK.0 / 2) };
            task.run_ns += ran;
            task.wait_ns += waited;
            let desired = unpaused.desired_ms_per_s(TICK, paused, &Host::plain(1), &[task]);
            assert!(tick < 50 || (950.0..=1_000.0).contains(&desired), "{desired} at tick {tick}");
        }
    }
}
