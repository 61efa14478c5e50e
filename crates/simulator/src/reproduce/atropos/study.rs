//! The runs that the experiments share, each made when it is first needed.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use plimsoll_core::Nanos;

use super::cases;
use super::remedy::Remedy;
use crate::application::ran::Done;
use crate::application::{Case, run};
use crate::parallel;
use crate::reproduce::Settings;

/// Latency above that of the undisturbed run that is tolerated (section 5.3).
pub const TOLERATED: f64 = 0.2;
/// Seeds of the full study.
const SEEDS: u64 = 3;

/// A case, and how it is without what disturbs it, by seed.
pub struct Calm {
    /// The case.
    pub case: Case,
    /// By seed.
    pub runs: Vec<CalmRun>,
}

/// An undisturbed run.
#[derive(Clone, Copy, Debug)]
pub struct CalmRun {
    /// Its seed.
    pub seed: u64,
    /// Requests answered in a second.
    pub throughput_per_s: f64,
    /// In milliseconds.
    pub p99_ms: f64,
}

/// What a remedy made of a case, as multiples of the undisturbed run; means over the seeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Requests answered.
    pub throughput: f64,
    /// Requests answered within the objective.
    pub in_time: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// Tasks taken away, in per cent.
    pub dropped_pct: f64,
    /// Cancellations a run.
    pub cancelled: f64,
    /// Those of them that hit what does not disturb.
    pub innocent: f64,
}

/// What has been run.
pub struct Study {
    /// How.
    pub settings: Settings,
    calm: OnceCell<Result<Vec<Calm>, String>>,
    outcomes: BTreeMap<Remedy, OnceCell<Result<Vec<Outcome>, String>>>,
}

impl Study {
    /// Nothing has been run yet.
    pub fn new(settings: Settings) -> Study {
        let remedies = Remedy::COMPARED.into_iter().chain(Remedy::ABLATED);
        let outcomes = remedies.map(|remedy| (remedy, OnceCell::new()));
        Study { settings, calm: OnceCell::new(), outcomes: outcomes.collect() }
    }

    /// The sixteen cases, undisturbed.
    pub fn calm(&self) -> Result<&[Calm], String> {
        let seeds = if self.settings.quick { 1 } else { SEEDS };
        let calm = self.calm.get_or_init(|| {
            let cases = cases::table2()?;
            let seeds: Vec<u64> = (self.settings.seed..).take(seeds as usize).collect();
            Ok(parallel::map(&cases, |case| Calm { case: case.clone(), runs: calm_runs(case, &seeds) }))
        });
        calm.as_deref().map_err(Clone::clone)
    }

    /// What a remedy makes of each of the sixteen.
    pub fn of(&self, remedy: Remedy) -> Result<&[Outcome], String> {
        let cell = self.outcomes.get(&remedy).ok_or("a remedy that is in no experiment")?;
        let calm = self.calm()?;
        let all = cell.get_or_init(|| {
            parallel::map(calm, |calm| outcome(calm, remedy, TOLERATED)).into_iter().collect()
        });
        all.as_deref().map_err(Clone::clone)
    }
}

/// Undisturbed runs of a case.
pub fn calm_runs(case: &Case, seeds: &[u64]) -> Vec<CalmRun> {
    let calm = |&seed: &u64| {
        let ran = run(case, seed, false, None);
        CalmRun { seed, throughput_per_s: ran.throughput_per_s(case), p99_ms: ran.p99_ms(case) }
    };
    seeds.iter().map(calm).collect()
}

/// The objective: so much above what is undisturbed.
pub fn limit(calm: &CalmRun, tolerated: f64) -> Nanos {
    Nanos((calm.p99_ms * (1.0 + tolerated) * 1e6) as u64)
}

/// What a remedy makes of a case.
pub fn outcome(calm: &Calm, remedy: Remedy, tolerated: f64) -> Result<Outcome, String> {
    let case = &calm.case;
    let mut sum = Outcome::default();
    for undisturbed in &calm.runs {
        let limit = limit(undisturbed, tolerated);
        let mut controller = remedy.controller(limit)?;
        let looks = controller.as_mut().map(|controller| &mut **controller as _);
        let ran = run(case, undisturbed.seed, true, looks);
        let cancelled = ran.acts.iter().filter(|act| act.what == Done::Cancelled);
        let innocent = cancelled.clone().filter(|act| !case.classes[act.class as usize].trigger);
        let share = 1.0 / calm.runs.len() as f64;
        sum.throughput += share * ran.throughput_per_s(case) / undisturbed.throughput_per_s;
        sum.in_time += share * ran.in_time_per_s(case, limit) / undisturbed.throughput_per_s;
        sum.p99 += share * ran.p99_ms(case) / undisturbed.p99_ms;
        sum.dropped_pct += share * ran.dropped_pct();
        sum.cancelled += share * cancelled.count() as f64;
        sum.innocent += share * innocent.count() as f64;
    }
    Ok(sum)
}

/// The mean of something over all cases.
pub fn mean(outcomes: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64
}
