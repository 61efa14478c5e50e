//! The runs of the study, each made once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use plimsoll_core::Nanos;
use plimsoll_core::config::workload::Workload;
use plimsoll_core::config::{self, Admission};

use crate::reproduce::Settings;
use crate::reproduce::values;
use crate::run::{ClassOutcome, Outcome, Setup};
use crate::scenario::Scenario;
use crate::work::Work;

/// Table 1 of the paper.
const WORKLOAD: &str = include_str!("../../../../../paper/bouncer.toml");

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

/// A median of fewer response times than this is too noisy to hold against an objective. (Of this many lognormal ones with the
/// sigma of the slow class it is known within 1 %.) At 1.5 times the full load Bouncer lets 1 % of the slow class in.
const ENOUGH_SERVED: u64 = 10_000;
/// Most runs of one policy at one load.
const MAX_RUNS: u64 = 40;

/// One run of the study.
#[derive(Clone, Debug, PartialEq)]
struct Cell {
    policy: String,
    load: f64,
    /// Runs of the same policy and load differ in their seeds.
    repetition: u64,
}

/// Runs that are kept.
pub struct Study {
    scenario: Scenario,
    settings: Settings,
    made: RefCell<Vec<(Cell, Rc<Outcome>)>>,
    /// By repetition: what the traffic of its seed offers at load 1.
    offered: RefCell<HashMap<u64, f64>>,
    work: Work,
}

impl Study {
    /// Nothing has run yet.
    pub fn new(settings: Settings) -> Study {
        let (workload, _) =
            config::parse::<Workload>(WORKLOAD, "paper/bouncer.toml").expect("a valid workload");
        let scenario = Scenario::new(workload, Path::new("")).expect("no files of durations");
        Study { scenario, settings, made: RefCell::default(), offered: RefCell::default(), work: Work::new() }
    }

    /// What came of these policies at these loads, in this order.
    pub fn outcomes(&self, policies_and_loads: &[(&str, f64)]) -> Vec<Rc<Outcome>> {
        let cell = |&(policy, load): &(&str, f64)| Cell { policy: policy.to_owned(), load, repetition: 0 };
        self.cells(&policies_and_loads.iter().map(cell).collect::<Vec<_>>())
    }

    /// What came of a policy at every load of the study.
    pub fn over_loads(&self, policy: &str) -> Vec<(f64, Rc<Outcome>)> {
        let loads = &values::bouncer().table3.loads;
        let cells: Vec<_> = loads.iter().map(|&load| (policy, load)).collect();
        loads.iter().copied().zip(self.outcomes(&cells)).collect()
    }

    /// The median response time of the slow class in milliseconds: the mean over as many runs as it takes to have enough of them
    /// served. Not a number where none was.
    pub fn slow_p50_ms(&self, policies_and_loads: &[(&str, f64)]) -> Vec<f64> {
        let first = self.outcomes(policies_and_loads);
        let repetitions = first.iter().map(|outcome| {
            let served = self.class(outcome, "slow").served.count.max(1);
            0..ENOUGH_SERVED.div_ceil(served).min(MAX_RUNS)
        });
        let cells: Vec<Vec<Cell>> = policies_and_loads
            .iter()
            .zip(repetitions)
            .map(|(&(policy, load), repetitions)| {
                repetitions.map(|repetition| Cell { policy: policy.to_owned(), load, repetition }).collect()
            })
            .collect();
        let mut outcomes = self.cells(&cells.concat()).into_iter();
        let mean = |runs: &Vec<Cell>| {
            let p50s = outcomes.by_ref().take(runs.len()).filter_map(|o| self.class(&o, "slow").served.p50);
            let p50s: Vec<f64> = p50s.map(Nanos::as_millis_f64).collect();
            p50s.iter().sum::<f64>() / p50s.len() as f64
        };
        cells.iter().map(mean).collect()
    }

    /// What came of a class.
    pub fn class<'a>(&self, outcome: &'a Outcome, name: &str) -> &'a ClassOutcome {
        let class = self.scenario.names.iter().position(|n| n == name);
        &outcome.classes[class.expect("a class of the workload")]
    }

    fn made(&self, cell: &Cell) -> Option<Rc<Outcome>> {
        self.made.borrow().iter().find(|(c, _)| c == cell).map(|(_, outcome)| Rc::clone(outcome))
    }

    /// Makes the runs that have not been made yet.
    fn cells(&self, cells: &[Cell]) -> Vec<Rc<Outcome>> {
        let missing: Vec<&Cell> = cells.iter().filter(|cell| self.made(cell).is_none()).collect();
        let setups: Vec<Setup> = missing.iter().map(|cell| self.setup(cell)).collect();
        let requests = setups.iter().map(|setup| setup.queries + setup.warmup).sum();
        let scenario = &self.scenario;
        let outcomes = self.work.map(requests, &setups, |setup, progress| setup.run(scenario, progress));
        self.work.finish();
        let made = missing.into_iter().cloned().zip(outcomes.into_iter().map(Rc::new));
        self.made.borrow_mut().extend(made);
        cells.iter().filter_map(|cell| self.made(cell)).collect()
    }

    fn setup(&self, cell: &Cell) -> Setup {
        let Cell { policy, load, repetition } = cell;
        let Admission { policy, .. } = Admission::from_args(policy).expect("a valid policy");
        // The paper's runs have 1.5 million queries. The warm-up is more than four simulated seconds.
        let (queries, warmup) = if self.settings.quick { (500_000, 100_000) } else { (1_500_000, 150_000) };
        // Far apart, so that one seed's repetitions are not another's.
        let seed = self.settings.seed.wrapping_add(repetition << 32);
        let setup = Setup { policy, load: 1.0, seed, queries, warmup, stalls: Vec::new() };
        // Even 1.5 million heavy-tailed service times sum to 0.2 % more or less than they should, which at 1.5 times the full load
        // is a tenth of a point of all rejections. A run of the study offers what its load says, at every seed.
        let mut offered = self.offered.borrow_mut();
        let offered = offered.entry(*repetition).or_insert_with(|| setup.offered_load(&self.scenario));
        Setup { load: load / *offered, ..setup }
    }
}
