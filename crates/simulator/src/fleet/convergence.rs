//! How soon controllers follow a change of the fleet: on many random fleets, with both kinds of telemetry.
//!
//! The fleets are those of the study, three times as large, so that every service has a third of its instances to lose. Half-way through
//! a run something changes once; what comes then is what [`Report`] says of the last change.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use plimsoll_core::Nanos;
use plimsoll_core::config::fleet::{Failure, Offered, Scenario, Telemetry};
use serde::Serialize;

use super::plan::Plan;
use super::random::{self, Ranges};
use super::report::Report;
use super::run::{Controller, run};
use super::study::Summary;

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The load, from where the busiest service is used to four fifths to what the fleet is drawn with.
    Surge,
    /// A third of the instances of every service end in the middle of what they do.
    Loss,
    /// Every service has three times the instances that it began with.
    Growth,
}

impl Change {
    /// All there are.
    pub const ALL: [Change; 3] = [Change::Surge, Change::Loss, Change::Growth];
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Change::Surge => "surge",
            Change::Loss => "loss",
            Change::Growth => "growth",
        })
    }
}

/// What controllers are told, how often, and within how many seconds they are to have followed.
const TOLD: [(Telemetry, Nanos, f64); 2] =
    [(Telemetry::Agents, Nanos::from_millis(250), 2.0), (Telemetry::Prometheus, Nanos::from_secs(1), 6.0)];
const LASTS: Nanos = Nanos::from_secs(60);
const CHANGES: Nanos = Nanos::from_secs(30);
/// How long a service may be asked for more than 110 % of what it can do.
const OVER_S: f64 = 1.0;
/// How many times as large as those of the study the fleets are.
const TIMES: u32 = 3;
/// How much the busiest service is used before a surge.
const CALM: f64 = 0.8;

/// What came of one change on all fleets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Who decided.
    pub controller: String,
    /// What it was told.
    pub telemetry: String,
    /// What changed.
    pub change: String,
    /// Of [`Report::converged_s`] where there is one.
    pub converged_s: Summary,
    /// Within how many seconds that is to be,
    pub within_s: f64,
    /// of how many fleets it was, and the seeds of the others.
    pub within: usize,
    /// See there.
    pub not_within: Vec<u64>,
    /// Fleets whose goodput did not become steady.
    pub never_steady: usize,
    /// Of [`Report::overshoot_s`].
    pub overshoot_s: Summary,
    /// Fleets of which that was at most a second, and the seeds of the others.
    pub brief: usize,
    /// See there.
    pub not_brief: Vec<u64>,
    /// Of [`Report::share_of_optimum`]: what goodput became steady at.
    pub share_of_optimum: Summary,
}

/// The fleet of a seed, and what changes in it half-way.
///
/// # Errors
/// As [`Plan::new`].
pub fn scenario(seed: u64, change: Change, telemetry: Telemetry, signals: Nanos) -> Result<Scenario, String> {
    let mut fleet = random::fleet(seed, &Ranges { duration: LASTS, signals, ..Ranges::default() });
    fleet.telemetry = telemetry;
    for service in &mut fleet.services {
        service.instances *= TIMES;
        let part = service.instances / TIMES;
        service.failures = match change {
            Change::Surge => Vec::new(),
            Change::Loss => vec![Failure { at: CHANGES, instances: part, back_after: None }],
            Change::Growth => {
                vec![Failure { at: Nanos::ZERO, instances: 2 * part, back_after: Some(CHANGES) }]
            }
        };
    }
    let plan = Plan::new(&fleet, Path::new(""))?;
    let calm = CALM / busiest(&plan);
    for api in &mut fleet.apis {
        let full = f64::from(TIMES) * api.offered.at(Nanos::ZERO);
        api.min_rate = api.min_rate.map(|promised| f64::from(TIMES) * promised);
        api.offered = match change {
            Change::Surge => Offered::schedule(vec![(Nanos::ZERO, full * calm), (CHANGES, full)])?,
            Change::Loss | Change::Growth => Offered::constant(full),
        };
    }
    Ok(fleet)
}

/// How many times what it can do is asked of the service of which that is most, when [`TIMES`] the load comes.
fn busiest(plan: &Plan) -> f64 {
    let mut asked = vec![0.0; plan.services.len()];
    for (api, with) in plan.apis.iter().enumerate() {
        let per_s = f64::from(TIMES) * with.offered.at(Nanos::ZERO);
        asked.iter_mut().zip(plan.load(api)).for_each(|(asked, load)| *asked += load * per_s);
    }
    let can = plan.services.iter().map(|service| service.instance_per_s() * f64::from(service.instances));
    asked.iter().zip(can).map(|(asked, can)| asked / can).fold(0.0, f64::max)
}

/// Runs each controller through every change, with each kind of telemetry, on the fleets of `fleets` seeds from `seed` on; `each` is called
/// as each run ends.
///
/// # Errors
/// As [`run`].
pub fn convergence(
    controllers: &[Controller],
    seed: u64,
    fleets: usize,
    each: impl Fn() + Sync,
) -> Result<Vec<Outcome>, String> {
    let mut cases = Vec::new();
    for &controller in controllers {
        for told in TOLD {
            cases.extend(Change::ALL.map(|change| (controller, told, change)));
        }
    }
    let jobs: Vec<_> =
        cases.iter().flat_map(|&case| (seed..).take(fleets).map(move |seed| (case, seed))).collect();
    let reports = crate::parallel::map(&jobs, |&((controller, (telemetry, signals, _), change), seed)| {
        let plan = Plan::new(&scenario(seed, change, telemetry, signals)?, Path::new(""))?;
        let report = run(&Arc::new(plan), controller, seed);
        each();
        report
    });
    let reports: Vec<Report> = reports.into_iter().collect::<Result<_, _>>()?;
    let outcome = |(&(controller, (telemetry, _, within_s), change), reports): (&_, &[Report])| {
        let not = |is: &dyn Fn(&Report) -> bool| -> Vec<u64> {
            (seed..).zip(reports).filter(|(_, report)| !is(report)).map(|(seed, _)| seed).collect()
        };
        let not_within = not(&|report| report.converged_s.is_some_and(|s| s <= within_s));
        let not_brief = not(&|report| report.overshoot_s <= OVER_S);
        Outcome {
            controller: Controller::to_string(&controller),
            telemetry: Telemetry::to_string(&telemetry),
            change: Change::to_string(&change),
            converged_s: Summary::of(reports.iter().filter_map(|report| report.converged_s)),
            within_s,
            within: reports.len() - not_within.len(),
            not_within,
            never_steady: not(&|report| report.converged_s.is_some()).len(),
            overshoot_s: Summary::of(reports.iter().map(|report| report.overshoot_s)),
            brief: reports.len() - not_brief.len(),
            not_brief,
            share_of_optimum: Summary::of(reports.iter().map(|report| report.share_of_optimum)),
        }
    };
    Ok(cases.iter().zip(reports.chunks(fleets.max(1))).map(outcome).collect())
}
