//! Tasks that compute, sleep, and do it again.

use plimsoll_core::rng::seeded;
use plimsoll_core::{Nanos, Rng};
use rand::RngExt;

use super::machine::{Sleep, Step, Task, Wakes, Workload};

/// What one task does, over and over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Program {
    /// How much CPU time it needs before it sleeps, on average.
    pub compute: Nanos,
    /// For how long it sleeps then, on average. Zero: it never does.
    pub sleep: Nanos,
    /// How far both may be from their mean, as a share of it, from 0 to 1: evenly spread.
    pub spread: f64,
}

impl Program {
    /// Computes for ever.
    pub const HOG: Program = Program { compute: Nanos::from_millis(10), sleep: Nanos::ZERO, spread: 0.0 };

    /// Computes and sleeps, always for as long.
    pub const fn cycle(compute: Nanos, sleep: Nanos) -> Program {
        Program { compute, sleep, spread: 0.0 }
    }

    /// What it desires, in milliseconds of CPU time a second: what it would get if it were alone.
    pub fn desired_ms_per_s(&self) -> f64 {
        1e3 * self.compute.0 as f64 / (self.compute.0 + self.sleep.0) as f64
    }
}

/// A program a task.
pub struct Programs {
    tasks: Vec<(Program, Rng, bool)>,
    seed: u64,
}

impl Programs {
    /// None yet.
    pub fn new(seed: u64) -> Programs {
        Programs { tasks: Vec::new(), seed }
    }

    /// That of the next task of the machine.
    pub fn push(&mut self, program: Program) {
        let rng = seeded(self.seed, self.tasks.len() as u64);
        self.tasks.push((program, rng, false));
    }
}

impl Workload for Programs {
    fn next(&mut self, task: Task, _: Nanos, _: &mut Wakes) -> Step {
        let (program, rng, computed) = &mut self.tasks[task];
        let mut about = |mean: Nanos| {
            let by = program.spread * rng.random_range(-1.0..=1.0);
            Nanos((mean.0 as f64 * (1.0 + by)) as u64)
        };
        *computed = !*computed || program.sleep == Nanos::ZERO;
        if *computed {
            Step::Compute(about(program.compute))
        } else {
            Step::Sleep(about(program.sleep), Sleep::Interruptible)
        }
    }
}
