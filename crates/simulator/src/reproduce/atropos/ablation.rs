//! Fig. 13: ours beside ours without a part: the choice by one resource alone, the gain by what a task has now.
//!
//! The paper compares throughput of clients that wait for their answers before they ask again, so that whoever is slow to relieve
//! gets less done. Here requests come regardless, and what waited is answered later: what being slow costs is the requests that are
//! answered too late. So what is compared is the throughput within the objective.

use super::charts;
use super::remedy::Remedy;
use super::study::Study;
use crate::figures::Figure;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values;

/// What one must be better by to be better, as a share of all requests: a dozen of them. Both have the same requests.
const BETTER: f64 = 0.0001;

/// In how many cases each is better: the printed policy, which the paper's numbers are of, and ours.
pub fn fig13(study: &Study) -> Result<Findings, String> {
    let paper = values::atropos();
    let single = &paper.multi_objective_beats_single_resource_in_cases;
    let current = &paper.future_gain_beats_current_use_in_cases;
    let mut rows = Vec::new();
    for (whole, without, published, is_part) in [
        (Remedy::Printed, Remedy::PrintedSingle, Some(single.value), true),
        (Remedy::Printed, Remedy::PrintedCurrent, Some(current.value), true),
        (Remedy::Atropos, Remedy::Single, None, true),
        (Remedy::Atropos, Remedy::Current, None, true),
        (Remedy::Atropos, Remedy::Printed, None, false),
    ] {
        let pairs = || Ok::<_, String>(study.of(whole)?.iter().zip(study.of(without)?));
        let better = pairs()?.filter(|(whole, without)| whole.in_time > without.in_time + BETTER).count();
        let worse = pairs()?.filter(|(whole, without)| without.in_time > whole.in_time + BETTER).count();
        let names = format!("{} and {}", whole.name(), without.name());
        for (calm, (whole, without)) in study.calm()?.iter().zip(pairs()?) {
            let lost = (whole.in_time - without.in_time) * 100.0;
            let what = format!("{}: {names}, % of requests in time between them", calm.case.id);
            rows.push(Row::beside(what, None, Some(lost)));
        }
        let better_in = format!("{names}: better in cases");
        rows.push(Row::beside(better_in, published, Some(better as f64)));
        let worse_in = format!("{names}: worse in cases");
        // Asking who is to blame costs a moment, and spares innocents: that is for `innocent` to judge.
        rows.push(if is_part {
            Row::no_more(worse_in, better as f64, worse as f64)
        } else {
            Row::beside(worse_in, None, Some(worse as f64))
        });
    }
    let remedies = [Remedy::Atropos, Remedy::Printed, Remedy::PrintedSingle, Remedy::PrintedCurrent];
    let charts = vec![charts::over_cases(study, "answered in time", &remedies, |outcome| outcome.in_time)?];
    Ok(Findings { rows, figures: vec![Figure { name: "fig13".to_owned(), charts }] })
}
