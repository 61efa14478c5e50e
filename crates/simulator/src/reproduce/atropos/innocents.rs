//! Beyond the paper: a wrong cancellation is worse than none. Under plain overload, and beside a culprit, nothing innocent is
//! cancelled, in a hundred runs.

use super::cases;
use super::remedy::Remedy;
use super::study::{Study, TOLERATED, calm_runs, limit};
use crate::application::ran::{Done, Ran};
use crate::application::{Case, run};
use crate::parallel;
use crate::reproduce::findings::{Findings, Row};

/// Runs of the full study, and of the quick one.
const RUNS: u64 = 100;
const QUICK_RUNS: u64 = 10;

/// More requests than fit, and nobody to blame.
pub fn ordinary(study: &Study) -> Result<Findings, String> {
    let case = cases::ordinary()?;
    let runs = runs(study, &case)?;
    let cancelled = |ran: &Ran| ran.acts.iter().any(|act| act.what == Done::Cancelled);
    let wrong = runs.iter().filter(|ran| cancelled(ran)).count() as f64;
    let what = format!("of {} runs, those in which anything was cancelled", runs.len());
    Ok(Findings { rows: vec![Row::no_more(what, 0.0, wrong)], figures: Vec::new() })
}

/// Somebody to blame, and others who work long.
pub fn innocent(study: &Study) -> Result<Findings, String> {
    let case = cases::innocent()?;
    let runs = runs(study, &case)?;
    let cancelled = |ran: &Ran, trigger: bool| {
        let hit = |class: u32| case.classes[class as usize].trigger == trigger;
        ran.acts.iter().any(|act| act.what == Done::Cancelled && hit(act.class))
    };
    let wrong = runs.iter().filter(|ran| cancelled(ran, false)).count() as f64;
    let right = runs.iter().filter(|ran| cancelled(ran, true)).count() as f64;
    let of = |what: &str| format!("of {} runs, those in which {what}", runs.len());
    let rows = vec![
        Row::no_more(of("somebody innocent was cancelled"), 0.0, wrong),
        Row::no_less(of("the culprit was cancelled"), runs.len() as f64, right),
    ];
    Ok(Findings { rows, figures: Vec::new() })
}

fn runs(study: &Study, case: &Case) -> Result<Vec<Ran>, String> {
    let first = study.settings.seed;
    let limit = limit(&calm_runs(case, &[first])[0], TOLERATED);
    let count = if study.settings.quick { QUICK_RUNS } else { RUNS };
    let seeds: Vec<u64> = (first..).take(count as usize).collect();
    let ran = parallel::map(&seeds, |&seed| {
        let mut controller = Remedy::Atropos.controller(limit)?;
        let looks = controller.as_mut().map(|controller| &mut **controller as _);
        // Only what was done is of interest, and a hundred runs of everything are much.
        Ok(Ran { records: Vec::new(), ..run(case, seed, true, looks) })
    });
    ran.into_iter().collect()
}
