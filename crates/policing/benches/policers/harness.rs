//! Times loops, the cases taking turns, in CPU time of the thread: a turn over millions of waiting requests is longer than a
//! scheduler's time slice, and whom else it let run meanwhile is no part of the cost.

use rustix::time::{ClockId, clock_gettime};

/// How long a round takes, unless one turn is longer.
const ROUND_NS: f64 = 2e6;
/// How long a case is measured in all, in the full form, and in how many rounds at least.
const CASE_NS: f64 = 400e6;
const LEAST_ROUNDS: usize = 3;

/// A loop to be timed: runs so many turns.
type Loop = Box<dyn FnMut(usize)>;

/// A loop with a name.
pub struct Case {
    pub name: String,
    /// Requests that a turn decides about.
    pub requests: usize,
    prepare: Option<Box<dyn FnOnce() -> Loop>>,
    run: Option<Loop>,
}

impl Case {
    /// `prepare` makes the loop when it is first run.
    pub fn new<F: FnMut(usize) + 'static>(
        name: String,
        requests: usize,
        prepare: impl FnOnce() -> F + 'static,
    ) -> Case {
        let prepare: Box<dyn FnOnce() -> Loop> = Box::new(|| Box::new(prepare()));
        Case { name, requests, prepare: Some(prepare), run: None }
    }

    /// Runs so many turns.
    pub fn run(&mut self, turns: usize) {
        let prepare = || self.prepare.take().expect("it is prepared once")();
        self.run.get_or_insert_with(prepare)(turns);
    }

    /// Runs so many turns and returns nanoseconds of all of them.
    fn time(&mut self, turns: usize) -> f64 {
        self.run(0);
        let began = cpu_ns();
        self.run(turns);
        (cpu_ns() - began) as f64
    }

    /// Turns that fill a round, and how long that then is; finding them warms the case up.
    fn calibrate(&mut self) -> (usize, f64) {
        let mut turns = 1;
        loop {
            let round_ns = self.time(turns);
            if round_ns > ROUND_NS / 4.0 {
                let wanted = (turns as f64 * ROUND_NS / round_ns).ceil();
                return (wanted as usize, wanted * round_ns / turns as f64);
            }
            turns *= 4;
        }
    }
}

/// Nanoseconds a request of every case in every round, sorted; `share` is how much of the full form is wanted.
pub fn measure(cases: &mut [Case], share: f64) -> Vec<Vec<f64>> {
    let plans: Vec<(usize, usize)> = cases
        .iter_mut()
        .map(|case| {
            let (turns, round_ns) = case.calibrate();
            (turns, ((CASE_NS * share / round_ns) as usize).max(LEAST_ROUNDS))
        })
        .collect();
    let mut ns = vec![Vec::new(); cases.len()];
    for round in 0..plans.iter().map(|plan| plan.1).max().unwrap_or(0) {
        for ((case, &(turns, rounds)), ns) in cases.iter_mut().zip(&plans).zip(&mut ns) {
            if round < rounds {
                ns.push(case.time(turns) / (turns * case.requests) as f64);
            }
        }
    }
    ns.iter_mut().for_each(|ns| ns.sort_by(f64::total_cmp));
    ns
}

/// The value at or below which a `share` of the sorted values lies.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// CPU time of this thread.
pub fn cpu_ns() -> u64 {
    // A benchmark is the one who asks what time it is.
    #[allow(clippy::disallowed_methods)]
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
