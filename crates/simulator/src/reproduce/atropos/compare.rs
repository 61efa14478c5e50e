//! Fig. 9 to 11: throughput, tail latency and drops of all cases, of ours and the others.

use super::charts;
use super::remedy::Remedy;
use super::study::{Study, TOLERATED, mean};
use crate::figures::Figure;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values;

/// How near a baseline's throughput must come to what is published of it, as a share of that. PARTIES needs it: in c7, which is held against
/// a real PostgreSQL, bulk inserts leave 71 % of the throughput to whoever does nothing about them.
const NEAR: f64 = 0.25;
/// What is wanted of ours beyond the paper: means of the sixteen cases, and the cases in which the objective is kept.
const THROUGHPUT: f64 = 0.97;
const P99: f64 = 1.12;
const KEPT: f64 = 15.0;

/// Ours beside the four others (Fig. 9).
pub fn fig9(study: &Study) -> Result<Findings, String> {
    let paper = values::atropos();
    let mut rows = Vec::new();
    for remedy in Remedy::COMPARED {
        let outcomes = study.of(remedy)?;
        let throughput = mean(outcomes, |outcome| outcome.throughput);
        let what = format!("{}: throughput", remedy.name());
        rows.push(match remedy {
            Remedy::Atropos => Row::against(what, &paper.throughput, throughput),
            Remedy::Protego => near(what, paper.protego.throughput, throughput),
            Remedy::Pbox => near(what, paper.pbox.throughput, throughput),
            Remedy::Darc => near(what, paper.darc.throughput, throughput),
            Remedy::Parties => near(what, paper.parties.throughput, throughput),
            _ => Row::beside(what, None, Some(throughput)),
        });
        let p99 = mean(outcomes, |outcome| outcome.p99);
        let what = format!("{}: p99, times that of the undisturbed run", remedy.name());
        rows.push(match remedy {
            Remedy::Atropos => Row::against(what, &paper.p99_ratio, p99),
            _ => Row::beside(what, None, Some(p99)),
        });
    }
    // The paper's mean for Protego is of the cases that it watches: locks and the system's resources (section 5.2).
    let watched: Vec<_> = study
        .calm()?
        .iter()
        .zip(study.of(Remedy::Protego)?)
        .filter(|(calm, _)| WATCHED.contains(&calm.case.id.as_str()))
        .map(|(_, outcome)| *outcome)
        .collect();
    let what = "protego: p99 where it watches locks";
    rows.push(Row::beside(what, Some(paper.protego.p99_ratio), Some(mean(&watched, |outcome| outcome.p99))));
    Ok(Findings { rows, figures: vec![figure("fig9", study, &Remedy::COMPARED)?] })
}

/// The cases in which a lock is what is contended (Table 2).
const WATCHED: [&str; 8] = ["c1", "c3", "c4", "c6", "c7", "c13", "c14", "c16"];

fn near(what: String, paper: f64, ours: f64) -> Row {
    Row::near(what, paper, paper * NEAR, ours)
}

/// Every case with ours and without (Fig. 10), and in how many the objective is kept (section 5.3).
pub fn fig10(study: &Study) -> Result<Findings, String> {
    let paper = values::atropos();
    let (calm, ours, none) = (study.calm()?, study.of(Remedy::Atropos)?, study.of(Remedy::None)?);
    let mut rows = Vec::new();
    for ((calm, ours), none) in calm.iter().zip(ours).zip(none) {
        let id = &calm.case.id;
        let beside = |what: &str, value| Row::beside(format!("{id}: {what}"), None, Some(value));
        rows.push(beside("throughput, nobody intervenes", none.throughput));
        rows.push(beside("throughput", ours.throughput));
        rows.push(beside("p99", ours.p99));
        rows.push(beside("cancelled", ours.cancelled));
        rows.push(beside("cancelled that did no harm", ours.innocent));
    }
    let throughput = mean(ours, |outcome| outcome.throughput);
    let p99 = mean(ours, |outcome| outcome.p99);
    let kept = ours.iter().filter(|outcome| outcome.p99 <= 1.0 + TOLERATED).count() as f64;
    rows.push(Row::against("mean throughput", &paper.throughput, throughput));
    rows.push(Row::no_less("mean throughput, our own target", THROUGHPUT, throughput));
    rows.push(Row::against("mean p99", &paper.p99_ratio, p99));
    rows.push(Row::no_more("mean p99, our own target", P99, p99));
    rows.push(Row::against("cases in which p99 rises by 20 % at most", &paper.slo20_cases_kept, kept));
    rows.push(Row::no_less("cases in which p99 rises by 20 % at most, our own target", KEPT, kept));
    Ok(Findings { rows, figures: vec![figure("fig10", study, &[Remedy::Atropos, Remedy::None])?] })
}

/// Throughput and tail latency.
fn figure(name: &str, study: &Study, remedies: &[Remedy]) -> Result<Figure, String> {
    let throughput = charts::over_cases(study, "throughput", remedies, |outcome| outcome.throughput)?;
    let p99 = charts::over_cases(study, "p99", remedies, |outcome| outcome.p99)?;
    Ok(Figure { name: name.to_owned(), charts: vec![throughput, p99] })
}

/// What is taken away, by ours and by Protego (Fig. 11).
pub fn fig11(study: &Study) -> Result<Findings, String> {
    let paper = values::atropos();
    let dropped = |remedy| Ok::<_, String>(mean(study.of(remedy)?, |outcome| outcome.dropped_pct));
    let rows = vec![
        Row::against("atropos: dropped, %", &paper.drop_pct, dropped(Remedy::Atropos)?),
        Row::beside("protego: dropped, %", Some(paper.protego.drop_pct), Some(dropped(Remedy::Protego)?)),
    ];
    let remedies = [Remedy::Atropos, Remedy::Protego];
    let charts = vec![charts::over_cases(study, "dropped, %", &remedies, |outcome| outcome.dropped_pct)?];
    Ok(Findings { rows, figures: vec![Figure { name: "fig11".to_owned(), charts }] })
}
