//! Fig. 12: objectives from 10 to 60 % above what is undisturbed, in six cases.

use super::remedy::Remedy;
use super::study::{Calm, Study, outcome};
use crate::figures::{Chart, Figure, Line};
use crate::parallel;
use crate::reproduce::findings::{Findings, Row};

/// What is tolerated.
const TOLERATED: [f64; 4] = [0.1, 0.2, 0.4, 0.6];
/// Which six the paper took it does not tell: here one or two of every kind of resource, but for those that need many cancellations.
const CASES: [&str; 6] = ["c1", "c5", "c7", "c8", "c13", "c16"];

/// Whether each objective is kept.
pub fn fig12(study: &Study) -> Result<Findings, String> {
    let chosen: Vec<&Calm> =
        study.calm()?.iter().filter(|calm| CASES.contains(&calm.case.id.as_str())).collect();
    let jobs: Vec<(&Calm, f64)> =
        TOLERATED.iter().flat_map(|&tolerated| chosen.iter().map(move |&calm| (calm, tolerated))).collect();
    let outcomes = parallel::map(&jobs, |&(calm, tolerated)| outcome(calm, Remedy::Atropos, tolerated));
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, String>>()?;
    let mut rows = Vec::new();
    let mut lines: Vec<Line> = Vec::new();
    for (tolerated, outcomes) in TOLERATED.iter().zip(outcomes.chunks(chosen.len())) {
        let kept = outcomes.iter().filter(|outcome| outcome.p99 <= 1.0 + tolerated).count() as f64;
        let percent = tolerated * 100.0;
        rows.push(Row::no_less(format!("p99 rises by {percent} % at most: cases"), CASES.len() as f64, kept));
        let cancelled = outcomes.iter().map(|outcome| outcome.cancelled).sum();
        rows.push(Row::beside(format!("at most {percent} %: cancelled in all six"), None, Some(cancelled)));
        let points = (1u32..).zip(outcomes).map(|(i, outcome)| (f64::from(i), (outcome.p99 - 1.0) * 100.0));
        lines.push(Line { name: format!("held to {percent} %"), points: points.collect() });
    }
    let chart = Chart {
        title: format!("p99 of {}", CASES.join(", ")),
        x: "case".to_owned(),
        y: "rise, %".to_owned(),
        lines,
        levels: TOLERATED
            .iter()
            .map(|tolerated| (format!("{} %", tolerated * 100.0), tolerated * 100.0))
            .collect(),
    };
    Ok(Findings { rows, figures: vec![Figure { name: "fig12".to_owned(), charts: vec![chart] }] })
}
