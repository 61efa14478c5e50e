//! Runs of the paper's applications under one controller or another, and what they are asked.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use plimsoll_core::Nanos;
use plimsoll_core::config::fleet::Scenario;
use plimsoll_ratecontrol::baselines::dagor;
use plimsoll_ratecontrol::{
    Controller as RateController, Network, RateControl, Settings as RateSettings, learned,
};

use crate::figures::Line;
use crate::fleet::account::TIMELINE_STEP;
use crate::fleet::engine::Fleet;
use crate::fleet::plan::Plan;
use crate::fleet::report::{Report, best_over, share};
use crate::fleet::run::{Controller, Driver, run_driver};
use crate::fleet::service::Guards;
use crate::parallel;
use crate::reproduce::Settings;
use crate::reproduce::findings::percentile;

/// What we ship.
pub const OURS: Who = Who::Named(Controller::Model);
/// Seeds of the full study, and of the quick one.
const SEEDS: u64 = 5;
const QUICK_SEEDS: u64 = 3;

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Who {
    /// Whom `plimsoll fleet run` knows, too.
    Named(Controller),
    /// One that relieves one service of the whole fleet at a time (section 6.2).
    Unclustered(Controller),
    /// DAGOR that takes away this part after a window with overload (Table 2).
    DagorStep(f64),
    /// TopFull with the steps of a network (Fig. 17).
    Learned(Weights),
}

/// A network, and whether somebody looks after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// As rows name it.
    pub name: &'static str,
    /// A file as [`Network::read`] takes it.
    pub file: &'static [u8],
    /// The model does not look on: the network decides whatever comes of it.
    pub alone: bool,
}

impl Who {
    fn driver(self, plan: Arc<Plan>, seed: u64) -> Result<Driver, String> {
        Ok(match self {
            Who::Named(controller) => Driver::with(plan, controller, seed),
            Who::Unclustered(controller) => {
                let settings = controller.rates();
                let rates = settings.map(|all| RateControl::new(RateSettings { clustering: false, ..all }));
                Driver::new(plan, controller.guards(), rates, seed)
            }
            Who::DagorStep(decrease) => {
                let settings = dagor::Settings { decrease, ..dagor::Settings::default() };
                Driver::new(plan, Guards::Dagor(settings), None, seed)
            }
            Who::Learned(weights) => {
                let mut settings = learned::Settings::new(Network::read(weights.file)?);
                if weights.alone {
                    settings.guard = None;
                }
                let controller = RateController::Learned(settings);
                let rates = RateControl::new(RateSettings { controller, ..RateSettings::default() });
                Driver::new(plan, Guards::None, Some(rates), seed)
            }
        })
    }
}

/// As rows and figures name it.
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Named(Controller::None) => f.write_str("no control"),
            Who::Named(controller) => write!(f, "{controller}"),
            Who::Unclustered(controller) => write!(f, "{controller} without clusters"),
            Who::DagorStep(decrease) => write!(f, "dagor, steps of {decrease}"),
            Who::Learned(Weights { name, alone: true, .. }) => f.write_str(name),
            Who::Learned(Weights { name, .. }) => write!(f, "{name}, watched by the model"),
        }
    }
}

/// Seconds of a run: from the first on and before the second.
pub type Span = (u64, u64);

/// A run that is over.
pub struct Ran {
    /// What is told of it.
    pub report: Report,
    fleet: Fleet,
}

impl Ran {
    fn new(plan: &Arc<Plan>, who: Who, seed: u64) -> Result<Ran, String> {
        let mut driver = who.driver(plan.clone(), seed)?;
        let report = run_driver(&mut driver, &who.to_string(), seed)?;
        Ok(Ran { report, fleet: driver.fleet })
    }

    /// Requests a second of an API that were answered in time.
    pub fn api_per_s(&self, api: usize, (from, to): Span) -> f64 {
        let step = |second: u64| (second * 1_000_000_000 / TIMELINE_STEP.0) as usize;
        let steps = self.fleet.timeline_of(api).iter().skip(step(from)).take(step(to) - step(from));
        f64::from(steps.sum::<u32>()) / (to - from) as f64
    }

    /// The same of all APIs.
    pub fn per_s(&self, span: Span) -> f64 {
        (0..self.fleet.plan().apis.len()).map(|api| self.api_per_s(api, span)).sum()
    }

    /// Requests a second of each API in the optimum of these seconds.
    pub fn optimum(&self, (from, to): Span) -> Result<Vec<f64>, String> {
        Ok(best_over(&self.fleet, Nanos::from_secs(from), Nanos::from_secs(to))?.rates)
    }

    /// Goodput over that, by priority as [`Report::share_of_optimum`] has it.
    pub fn share(&self, span: Span) -> Result<f64, String> {
        let goodput: Vec<f64> =
            (0..self.fleet.plan().apis.len()).map(|api| self.api_per_s(api, span)).collect();
        Ok(share(self.fleet.plan(), &goodput, &self.optimum(span)?))
    }

    /// The place of an API of the scenario.
    pub fn api(&self, name: &str) -> Result<usize, String> {
        let place = self.fleet.plan().apis.iter().position(|api| api.name == name);
        place.ok_or_else(|| format!("the scenario has no API {name}"))
    }

    /// Instances of all services, in the mean over these seconds.
    pub fn instances(&self, (from, to): Span) -> f64 {
        let (from, to) = (Nanos::from_secs(from), Nanos::from_secs(to));
        let mut counts = vec![0; self.fleet.plan().services.len()];
        let (mut at, mut sum) = (from, 0.0);
        let all = |counts: &[u32]| counts.iter().map(|&count| f64::from(count)).sum::<f64>();
        for &(changed, service, count) in self.fleet.history() {
            let until = changed.clamp(from, to);
            sum += all(&counts) * until.since(at).as_secs_f64();
            at = until;
            counts[service as usize] = count;
        }
        (sum + all(&counts) * to.since(at).as_secs_f64()) / to.since(from).as_secs_f64()
    }
}

/// What the seeds made of a scenario under one controller.
pub struct Runs {
    /// Who decided.
    pub who: Who,
    runs: Vec<Ran>,
}

impl Runs {
    /// The mean of something over the seeds.
    pub fn mean(&self, of: impl Fn(&Ran) -> f64) -> f64 {
        self.runs.iter().map(of).sum::<f64>() / self.runs.len() as f64
    }

    /// The same of something that may fail.
    ///
    /// # Errors
    /// What the first one says that does.
    pub fn try_mean(&self, of: impl Fn(&Ran) -> Result<f64, String>) -> Result<f64, String> {
        let all = self.runs.iter().map(of).collect::<Result<Vec<f64>, String>>()?;
        Ok(all.iter().sum::<f64>() / all.len() as f64)
    }

    /// Requests a second that were answered in time, in the mean.
    pub fn per_s(&self, span: Span) -> f64 {
        self.mean(|ran| ran.per_s(span))
    }

    /// How long they took to converge, in the median: of a single run one second of bad luck says that it did much later. Infinite where half
    /// of them did not.
    pub fn converged_s(&self) -> f64 {
        let all = self.runs.iter().map(|ran| ran.report.converged_s.unwrap_or(f64::INFINITY));
        percentile(&mut all.collect::<Vec<f64>>(), 0.5)
    }

    /// The first of them.
    pub fn first(&self) -> &Ran {
        &self.runs[0]
    }

    /// Goodput second by second in the first of them; of one API, or of all.
    pub fn line(&self, name: impl Into<String>, api: Option<usize>, (from, to): Span) -> Line {
        let ran = self.first();
        let at = |second: u64| {
            let span = (second, second + 1);
            let per_s = api.map_or_else(|| ran.per_s(span), |api| ran.api_per_s(api, span));
            (second as f64 + 1.0, per_s)
        };
        Line { name: name.into(), points: (from..to).map(at).collect() }
    }
}

/// Runs each of some scenarios under each of some controllers, with as many seeds as there is time for.
///
/// # Errors
/// Where a scenario cannot be made ready or has no optimum.
pub fn compare_all(
    scenarios: &[Scenario],
    whos: &[Who],
    settings: Settings,
) -> Result<Vec<Vec<Runs>>, String> {
    let seeds = if settings.quick { QUICK_SEEDS } else { SEEDS };
    let plans = scenarios.iter().map(|scenario| Ok(Arc::new(Plan::new(scenario, Path::new(""))?)));
    let plans = plans.collect::<Result<Vec<Arc<Plan>>, String>>()?;
    let jobs: Vec<(&Arc<Plan>, Who, u64)> = plans
        .iter()
        .flat_map(|plan| whos.iter().map(move |&who| (plan, who)))
        .flat_map(|(plan, who)| (0..seeds).map(move |i| (plan, who, settings.seed.wrapping_add(i))))
        .collect();
    let runs = parallel::map(&jobs, |&(plan, who, seed)| Ran::new(plan, who, seed));
    let mut runs = runs.into_iter();
    let mut of = |who: Who| -> Result<Runs, String> {
        let runs = runs.by_ref().take(seeds as usize).collect::<Result<Vec<Ran>, String>>()?;
        Ok(Runs { who, runs })
    };
    plans.iter().map(|_| whos.iter().map(|&who| of(who)).collect()).collect()
}

/// The same of one scenario.
///
/// # Errors
/// As [`compare_all`].
pub fn compare(scenario: &Scenario, whos: &[Who], settings: Settings) -> Result<Vec<Runs>, String> {
    Ok(compare_all(std::slice::from_ref(scenario), whos, settings)?.remove(0))
}
