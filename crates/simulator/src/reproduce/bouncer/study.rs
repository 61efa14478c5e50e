//! The runs of the study, each made once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_core::Nanos;
use plimsoll_core::config::workload::Workload;
use plimsoll_core::config::{self, Admission};

use crate::reproduce::Settings;
use crate::reproduce::values;
use crate::run::{ClassOutcome, Outcome, Setup};
use crate::scenario::Scenario;
use crate::work::Work;

use super::sample::Sample;

/// Table 1 of the paper.
const WORKLOAD: &str = include_str!("../../../../../paper/bouncer.toml");
/// In its order.
const CLASSES: [&str; 4] = ["fast", "medium_fast", "medium_slow", "slow"];

// Table 2 has lost its limits. What is left of them is how Fig. 6 looks: the queue waits that give the slow class
// its plateaus. Its median takes 13.1 ms, so waits of 27 and 9 ms do; 400 requests of 6.614 ms each
// before 100 processes wait 26.5 ms.
/// Alone.
pub const BASIC: &str = "bouncer";
/// With the allowance of Table 3.
pub const ALLOWANCE: &str = "bouncer,allowance=0.1";
/// With the help of Table 3.
pub const UNDERSERVED: &str = "bouncer,underserved=1.0";
/// Plateau of 40 ms.
pub const MAXQL: &str = "maxql,limit=400";
/// Plateau of 22 ms.
pub const MAXQWT: &str = "maxqwt,limit=9ms";
/// The captions of Fig. 6 and 7 say 95 %.
pub const ACCEPT_FRACTION: &str = "accept-fraction,max-util=0.95";
/// Section 5.5. A class may wait for what its objectives leave beside its own percentiles: for all four classes
/// that is 18 ms less the median of their distribution.
pub const MAXQWT_PER_CLASS: &str =
    "maxqwt,limit.fast=17.6ms,limit.medium_fast=16.8ms,limit.medium_slow=10.6ms,limit.slow=4.87ms";

/// The load of Tables 4 and 5 and of Fig. 10.
pub const OVERLOAD: f64 = 1.5;

/// Runs that a cell of the paper's tables is the mean of. So are ours, but for the quick ones, which are single runs.
const RUNS: u64 = 5;
/// Of one run, as in the paper, and before them.
const QUERIES: u64 = 1_500_000;
const WARM_UP: u64 = QUERIES / 10;
/// Response times that a median must be of to be held against an objective: of this many lognormal ones with the sigma of the slow
/// class it is known within 0.7 %. At 1.5 times the full load Bouncer lets 1 % of the slow class in.
const ENOUGH_SERVED: u64 = 30_000;
/// Most runs of one policy at one load.
const MAX_RUNS: u64 = 40;

/// The study and the runs that were made for it.
pub struct Study {
    settings: Settings,
    samples: RefCell<Vec<Arc<Sample>>>,
    /// By policy and load, the sample's number being the place in the list.
    made: RefCell<HashMap<(String, u64), Runs>>,
    work: Work,
}

/// What came of one policy at one load: the mean of several runs.
pub struct Cell {
    runs: Runs,
}

type Runs = Vec<Rc<Outcome>>;

impl Cell {
    /// Of all classes together.
    pub fn rejected_pct(&self) -> f64 {
        self.mean(Outcome::rejected_pct)
    }

    /// Of one class.
    pub fn class_rejected_pct(&self, name: &str) -> f64 {
        self.mean(|outcome| class(outcome, name).rejected_pct())
    }

    /// Of all processes.
    pub fn utilization_pct(&self) -> f64 {
        self.mean(|outcome| outcome.utilization_pct)
    }

    /// Of all of the slow class that were served; not a number where none was.
    pub fn slow_p50_ms(&self) -> f64 {
        self.mean(|outcome| class(outcome, "slow").served.p50.map_or(f64::NAN, Nanos::as_millis_f64))
    }

    fn mean(&self, value: impl Fn(&Outcome) -> f64) -> f64 {
        self.runs.iter().map(|outcome| value(outcome)).sum::<f64>() / self.runs.len() as f64
    }
}

fn class<'a>(outcome: &'a Outcome, name: &str) -> &'a ClassOutcome {
    let class = CLASSES.iter().position(|class| *class == name);
    &outcome.classes[class.expect("a class of the workload")]
}

impl Study {
    /// Nothing has run yet.
    pub fn new(settings: Settings) -> Study {
        Study { settings, samples: RefCell::default(), made: RefCell::default(), work: Work::new() }
    }

    /// What came of these policies at these loads, in this order.
    pub fn cells(&self, cells: &[(&str, f64)]) -> Vec<Cell> {
        self.run(&cells.iter().map(|&(policy, load)| (policy, load, self.runs())).collect::<Vec<_>>())
    }

    /// What came of a policy at every load.
    pub fn over_loads(&self, policy: &str) -> Vec<(f64, Cell)> {
        let loads = self.loads();
        let cells: Vec<_> = loads.iter().map(|&load| (policy, load)).collect();
        loads.into_iter().zip(self.cells(&cells)).collect()
    }

    /// The loads of the paper's tables and figures, of which the quick study takes every other one.
    pub fn loads(&self) -> Vec<f64> {
        let step = if self.settings.quick { 2 } else { 1 };
        values::bouncer().table3.loads.iter().copied().step_by(step).collect()
    }

    /// The median response times of the slow class in milliseconds, from as many runs as it takes to have enough of them
    /// served. Not a number where none was.
    pub fn slow_p50_ms(&self, cells: &[(&str, f64)]) -> Vec<f64> {
        let enough = |(cell, &(policy, load)): (Cell, _)| {
            let served = cell.mean(|outcome| class(outcome, "slow").served.count as f64);
            let runs = (ENOUGH_SERVED as f64 / served.max(1.0)).ceil() as u64;
            (policy, load, runs.clamp(self.runs(), MAX_RUNS))
        };
        let cells: Vec<_> = self.cells(cells).into_iter().zip(cells).map(enough).collect();
        self.run(&cells).iter().map(Cell::slow_p50_ms).collect()
    }

    fn runs(&self) -> u64 {
        if self.settings.quick { 1 } else { RUNS }
    }

    /// What came of policies at loads, in so many runs. Runs that were made before are not made again.
    fn run(&self, cells: &[(&str, f64, u64)]) -> Vec<Cell> {
        let key = |policy: &str, load: f64| (policy.to_owned(), load.to_bits());
        let mut jobs = Vec::new();
        for &(policy, load, runs) in cells {
            let made = self.made.borrow().get(&key(policy, load)).map_or(0, |made| made.len() as u64);
            for sample in made..runs {
                jobs.push((key(policy, load), self.sample(sample), self.setup(sample, policy, load)));
            }
        }
        let requests = jobs.iter().map(|(_, _, setup)| setup.queries + setup.warmup).sum();
        let outcomes = self.work.map(requests, &jobs, |(_, sample, setup), progress| {
            let load = setup.load / sample.offered;
            Setup { load, ..setup.clone() }.run(&sample.scenario, progress)
        });
        self.work.finish();
        let mut all = self.made.borrow_mut();
        for ((key, ..), outcome) in jobs.into_iter().zip(outcomes) {
            all.entry(key).or_default().push(Rc::new(outcome));
        }
        let cell = |&(policy, load, runs): &(&str, f64, u64)| {
            let made = all.get(&key(policy, load)).map_or(&[][..], Vec::as_slice);
            Cell { runs: made.iter().take(runs as usize).map(Rc::clone).collect() }
        };
        cells.iter().map(cell).collect()
    }

    /// The traffic that every policy sees in its run of this number.
    fn sample(&self, number: u64) -> Arc<Sample> {
        let mut samples = self.samples.borrow_mut();
        if samples.is_empty() {
            eprintln!(
                "Simulated traffic is moment-matched: what a seed draws is scaled until the mean of every class and the \
                 load are the paper's."
            );
        }
        while samples.len() as u64 <= number {
            let setup = self.setup(samples.len() as u64, BASIC, 1.0);
            samples.push(Arc::new(Sample::new(scenario(), &setup)));
        }
        Arc::clone(&samples[number as usize])
    }

    fn setup(&self, sample: u64, policy: &str, load: f64) -> Setup {
        let Admission { policy, .. } = Admission::from_args(policy).expect("a valid policy");
        // Far apart, so that one seed's samples are not another's.
        let seed = self.settings.seed.wrapping_add(sample << 32);
        Setup { policy, load, seed, queries: QUERIES, warmup: WARM_UP, stalls: Vec::new() }
    }
}

fn scenario() -> Scenario {
    let (workload, _) = config::parse::<Workload>(WORKLOAD, "paper/bouncer.toml").expect("a valid workload");
    Scenario::new(workload, Path::new("")).expect("no files of service times")
}
