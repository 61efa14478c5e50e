//! Priority-based timesharing: a scheduler that gives threads other priorities by how they behave, such as Linux' O(1) (section 4.3.1).
//!
//! What each dynamic priority gets changes slowly, though threads move between them. So a thread that will have a priority gets what
//! all threads of that priority got, divided by how many there were on average. It may also lose its priority and share what a worse
//! one gets, if that is more.

use plimsoll_core::Nanos;

use crate::allocation::Allocations;
use crate::census::{Census, Known, Member, Reading, Told};
use crate::task::TaskId;
use crate::timeline::Mark;
use crate::usage::ALMOST_WINDOW;

/// A thread as a timesharing scheduler knows it. Both counters only ever grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrioritySample {
    /// Who.
    pub id: TaskId,
    /// For how long it has run since it started, in nanoseconds.
    pub run_ns: u64,
    /// For how long it has been ready to run without running, in nanoseconds.
    pub wait_ns: u64,
    /// The dynamic priority that it has, from 0, the worst, to less than the number of priorities.
    pub priority: usize,
    /// The one that it would have if it became eligible now: that which it has if it is eligible.
    pub expected: usize,
}

/// The four allocations of every thread under such a scheduler.
pub struct Timesharing {
    census: Census<Prioritised>,
    levels: Vec<Level>,
    /// `levels` in the places of the timeline, one after the other.
    places: Vec<Level>,
    /// By priority, what one thread is to expect, and the most of that and all worse ones (Eq. 2 and 3); parts of a CPU.
    potential: Vec<f64>,
    cpus: f64,
}

/// What the threads of a priority did all in all since the beginning, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    ran: f64,
    eligible: f64,
}

struct Prioritised {
    priority: usize,
    expected: usize,
    run_ns: u64,
    wait_ns: u64,
    /// Since the sample before.
    grown: Level,
}

impl Known for Prioritised {
    type Sample = PrioritySample;

    fn reading(sample: &PrioritySample) -> Reading {
        Reading { id: sample.id, run_ns: sample.run_ns, wait_ns: sample.wait_ns, born: None }
    }

    fn begin(sample: &PrioritySample) -> Prioritised {
        let PrioritySample { priority, expected, run_ns, wait_ns, .. } = *sample;
        Prioritised { priority, expected, run_ns, wait_ns, grown: Level::default() }
    }

    fn renew(&mut self, sample: &PrioritySample, _: Nanos) {
        let ran = sample.run_ns.saturating_sub(self.run_ns) as f64;
        let waited = sample.wait_ns.saturating_sub(self.wait_ns) as f64;
        *self = Prioritised { grown: Level { ran, eligible: ran + waited }, ..Prioritised::begin(sample) };
    }
}

impl Timesharing {
    /// Of a host with so many CPUs and dynamic priorities (at least 1 of each), of which at most `max_tasks` threads are followed.
    pub fn new(cpus: usize, priorities: usize, max_tasks: usize) -> Timesharing {
        let priorities = priorities.max(1);
        Timesharing {
            census: Census::new(max_tasks),
            levels: vec![Level::default(); priorities],
            places: vec![Level::default(); priorities * crate::timeline::PLACES],
            potential: vec![1.0; priorities],
            cpus: cpus.max(1) as f64,
        }
    }

    /// Takes a sample of all threads, about every 100 ms, as [`crate::Futures::sample`] does. Priorities beyond the best count as the best.
    pub fn sample(&mut self, now: Nanos, tasks: &[PrioritySample]) {
        let places = self.census.take(now, Told::All(tasks));
        let best = self.levels.len() - 1;
        for member in self.census.members.iter_mut().filter(|member| member.died.is_none()) {
            let level = &mut self.levels[member.known.priority.min(best)];
            level.ran += member.known.grown.ran;
            level.eligible += member.known.grown.eligible;
        }
        for place in places.into_iter().flatten() {
            self.places[place * (best + 1)..][..best + 1].copy_from_slice(&self.levels);
        }
        let second = self.census.timeline.back(ALMOST_WINDOW).next();
        let oldest = || self.census.timeline.steps().last();
        if let Some(mark) = second.or_else(oldest) {
            self.renew(mark);
        }
    }

    /// Eq. 2 and 3 for all priorities, by what was done since then.
    fn renew(&mut self, since: Mark) {
        let span = self.census.timeline.now().since(since.at).0 as f64;
        if span <= 0.0 {
            return;
        }
        let count = self.levels.len();
        let then = &self.places[since.place * count..][..count];
        // What better priorities leave.
        let mut left = self.cpus;
        for ((potential, now), then) in self.potential.iter_mut().zip(&self.levels).zip(then).rev() {
            let (ran, eligible) = ((now.ran - then.ran) / span, (now.eligible - then.eligible) / span);
            // Where there was nobody the first gets what better ones leave. Fewer than one at a time get what they get while they are there.
            *potential = if eligible > 1e-3 { ran / eligible } else { left.clamp(0.0, 1.0) };
            left -= ran;
        }
        let mut most = 0.0f64;
        for potential in &mut self.potential {
            most = most.max(*potential);
            *potential = most;
        }
    }

    /// What is known of a thread.
    pub fn of(&self, id: &TaskId) -> Option<Allocations> {
        self.census.find(id).map(|at| self.allocations(&self.census.members[at]))
    }

    /// What is known of all threads, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, Allocations)> + '_ {
        self.census.living().map(|member| (member.id, self.allocations(member)))
    }

    /// The scheduler will give a thread this priority once it is eligible. What it will get is different from now on. False for a thread that is
    /// not known.
    pub fn reprioritise(&mut self, id: &TaskId, expected: usize) -> bool {
        let at = self.census.find(id);
        if let Some(at) = at {
            self.census.members[at].known.expected = expected;
        }
        at.is_some()
    }

    fn allocations(&self, member: &Member<Prioritised>) -> Allocations {
        let potential = 1e3 * self.potential[member.known.expected.min(self.potential.len() - 1)];
        let measured = member.measured();
        let predicted_ms_per_s = measured.desired_ms_per_s.min(potential);
        Allocations { predicted_ms_per_s, potential_ms_per_s: potential, ..measured }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that ran and waited so many ms of every 100 at a priority each.
    fn run(threads: &[(u64, u64, usize)]) -> (Timesharing, Vec<Allocations>) {
        let mut model = Timesharing::new(1, 40, 100);
        let id = |at: usize| TaskId { pid: 1, tid: at as u32, started: 0 };
        for step in 0..=20 {
            let sample = |(at, &(run, wait, priority)): (usize, &(u64, u64, usize))| PrioritySample {
                id: id(at),
                run_ns: step * run * 1_000_000,
                wait_ns: step * wait * 1_000_000,
                priority,
                expected: priority,
            };
            let samples: Vec<PrioritySample> = threads.iter().enumerate().map(sample).collect();
            model.sample(Nanos::from_millis(100 * step), &samples);
        }
        let found = (0..threads.len()).map(|at| model.of(&id(at)).expect("one that lives")).collect();
        (model, found)
    }

    #[test]
    fn those_of_a_priority_share_what_it_gets() {
        let (_, found) = run(&[(10, 0, 30), (10, 10, 25), (30, 70, 10), (30, 70, 10), (20, 80, 8)]);
        let predicted: Vec<f64> = found.iter().map(|found| found.predicted_ms_per_s.round()).collect();
        assert_eq!(predicted, [100.0, 111.0, 300.0, 300.0, 200.0]);
        let potential: Vec<f64> = found.iter().map(|found| found.potential_ms_per_s.round()).collect();
        assert_eq!(potential, [1_000.0, 800.0, 300.0, 300.0, 200.0]);
        assert_eq!(found[1].slowdown().round(), 1.0);
        assert_eq!(found[4].slowdown().round(), 5.0);
    }

    #[test]
    fn another_priority_counts_at_once() {
        let (mut model, _) = run(&[(10, 0, 30), (45, 55, 10), (45, 55, 10)]);
        let id = TaskId { pid: 1, tid: 1, started: 0 };
        assert_eq!(model.of(&id).expect("one that lives").predicted_ms_per_s.round(), 450.0);
        assert!(model.reprioritise(&id, 30));
        assert_eq!(model.of(&id).expect("one that lives").predicted_ms_per_s.round(), 1_000.0);
        assert!(!model.reprioritise(&TaskId { tid: 9, ..id }, 30));
    }

    #[test]
    fn nobody_runs_where_nobody_was() {
        let (model, found) = run(&[(30, 0, 20)]);
        assert_eq!(found[0].predicted_ms_per_s.round(), 300.0);
        assert_eq!(model.iter().count(), 1);
        assert!((model.potential[5] - 0.7).abs() < 1e-9, "what better ones leave");
        assert!((model.potential[39] - 1.0).abs() < 1e-9);
    }
}
