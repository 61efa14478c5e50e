//! Controllers beside each other on many random fleets.

use std::sync::Arc;

use plimsoll_ratecontrol::Network;
use serde::Serialize;

use super::plan::Plan;
use super::random::{self, Ranges};
use super::report::Report;
use super::run::{Controller, run_with};

/// What came of one controller on all fleets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Who decided.
    pub controller: String,
    /// Of [`Report::share_of_optimum`].
    pub share_of_optimum: Summary,
    /// Of [`Report::worst_api_share`].
    pub worst_api_share: Summary,
    /// Goodput of all fleets over the optimum of all fleets, whatever the priorities.
    pub goodput_of_optimum: f64,
    /// Of [`Report::converged_s`] where there is one.
    pub converged_s: Summary,
    /// Fleets whose goodput did not become steady.
    pub never_steady: usize,
    /// Of [`Report::overshoot_s`].
    pub overshoot_s: Summary,
    /// [`Report::share_of_optimum`] of each fleet, in the order of their seeds.
    pub shares: Vec<f64>,
}

/// A few numbers for many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The mean.
    pub mean: f64,
    /// The 5th percentile.
    pub p5: f64,
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
}

impl Summary {
    /// Of some values; zeros of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Summary {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else { return Summary::default() };
        let at = |part: f64| values[(part * last as f64).round() as usize];
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Summary { mean, p5: at(0.05), p50: at(0.5), p95: at(0.95) }
    }
}

/// Runs each controller on the fleets of `fleets` seeds from `seed` on; `each` is called as each run ends.
///
/// # Errors
/// As [`run_with`].
pub fn study(
    controllers: &[Controller],
    learned: Option<&Network>,
    seed: u64,
    fleets: usize,
    ranges: &Ranges,
    each: impl Fn() + Sync,
) -> Result<Vec<Outcome>, String> {
    let seeds: Vec<u64> = (seed..).take(fleets).collect();
    let jobs: Vec<(u64, Controller)> = seeds
        .iter()
        .flat_map(|&seed| controllers.iter().map(move |&controller| (seed, controller)))
        .collect();
    let reports = crate::parallel::map(&jobs, |&(seed, controller)| {
        let scenario = random::fleet(seed, ranges);
        let plan = Plan::new(&scenario, std::path::Path::new(""))?;
        let report = run_with(&Arc::new(plan), controller, learned, seed);
        each();
        report
    });
    let reports: Vec<Report> = reports.into_iter().collect::<Result<_, _>>()?;
    let of = |nth: usize| reports.iter().skip(nth).step_by(controllers.len());
    Ok(controllers.iter().enumerate().map(|(nth, controller)| outcome(*controller, of(nth))).collect())
}

fn outcome<'a>(controller: Controller, reports: impl Iterator<Item = &'a Report> + Clone) -> Outcome {
    let shares: Vec<f64> = reports.clone().map(|report| report.share_of_optimum).collect();
    let goodput: f64 = reports.clone().map(|report| report.goodput_per_s).sum();
    let optimum: f64 = reports.clone().map(|report| report.optimum_per_s).sum();
    Outcome {
        controller: controller.to_string(),
        share_of_optimum: Summary::of(shares.iter().copied()),
        worst_api_share: Summary::of(reports.clone().map(|report| report.worst_api_share)),
        goodput_of_optimum: if optimum > 0.0 { goodput / optimum } else { 1.0 },
        converged_s: Summary::of(reports.clone().filter_map(|report| report.converged_s)),
        never_steady: reports.clone().filter(|report| report.converged_s.is_none()).count(),
        overshoot_s: Summary::of(reports.map(|report| report.overshoot_s)),
        shares,
    }
}
