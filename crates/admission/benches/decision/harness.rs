//! Times loops of a few nanoseconds a turn: many short rounds, the cases taking turns. A round is shorter than a
//! scheduler's time slice, so that most rounds are whole even where the machine is shared, and the low quantiles say
//! what the code costs.

// A benchmark is the one who asks what time it is.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use plimsoll_core::Nanos;

/// How long a round takes, unless the case asks for another length.
const ROUND_NS: f64 = 2e6;

/// A loop to be timed: runs so many turns.
type Loop = Box<dyn FnMut(usize)>;

/// A loop with a name.
pub struct Case {
    pub name: String,
    /// Most nanoseconds a turn that the project promises.
    pub target_ns: Option<f64>,
    /// How long a round takes.
    pub round_ns: f64,
    prepare: Option<Box<dyn FnOnce() -> Loop>>,
    run: Option<Loop>,
}

impl Case {
    /// `prepare` makes the loop when it is first run.
    pub fn new<F: FnMut(usize) + 'static>(
        name: impl Into<String>,
        target_ns: Option<f64>,
        prepare: impl FnOnce() -> F + 'static,
    ) -> Case {
        let prepare: Box<dyn FnOnce() -> Loop> = Box::new(|| Box::new(prepare()));
        Case { name: name.into(), target_ns, round_ns: ROUND_NS, prepare: Some(prepare), run: None }
    }

    /// Runs so many turns and returns nanoseconds a turn.
    pub fn time(&mut self, turns: usize) -> f64 {
        if let Some(prepare) = self.prepare.take() {
            self.run = Some(prepare());
        }
        let run = self.run.as_mut().expect("it is prepared");
        let began = Instant::now();
        run(turns);
        began.elapsed().as_nanos() as f64 / turns as f64
    }

    /// Turns that fill a round; finding them warms the case up.
    fn calibrate(&mut self) -> usize {
        let mut turns = 1_000;
        loop {
            let round_ns = self.time(turns) * turns as f64;
            if round_ns > self.round_ns / 4.0 {
                return (turns as f64 * self.round_ns / round_ns).ceil() as usize;
            }
            turns *= 4;
        }
    }
}

/// Nanoseconds a turn of every case in every round, sorted.
pub fn measure(cases: &mut [Case], rounds: usize) -> Vec<Vec<f64>> {
    let turns: Vec<usize> = cases.iter_mut().map(Case::calibrate).collect();
    let mut ns = vec![Vec::with_capacity(rounds); cases.len()];
    for _ in 0..rounds {
        for ((case, &turns), ns) in cases.iter_mut().zip(&turns).zip(&mut ns) {
            ns.push(case.time(turns));
        }
    }
    ns.iter_mut().for_each(|ns| ns.sort_by(f64::total_cmp));
    ns
}

/// The value at or below which a `share` of the sorted values lies.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// A clock as a host has one.
pub struct Clock(Instant);

impl Clock {
    pub fn new() -> Clock {
        Clock(Instant::now())
    }
    pub fn now(&self) -> Nanos {
        Nanos::from(self.0.elapsed())
    }
}
