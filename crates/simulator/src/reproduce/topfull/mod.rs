//! The experiments of the paper on TopFull (section 6) in the fleet simulator: rates that production's controller sets, beside DAGOR and
//! Breakwater in every instance, TopFull's own ways with fixed steps, and nobody.
//!
//! **What is measured.** Goodput: requests answered within a second of when they were sent, in the mean from the moment at which load
//! rises to the end, so that how long a controller takes counts. Beside it stands the share of the optimum, which knows what nobody is
//! told ([`crate::fleet::optimum`]).
//!
//! **The scenarios.** Who calls whom is published, and how many users there are. What services can do is not: `paper/topfull` says what
//! was taken.
//!
//! **What is judged.** How many times a baseline's goodput ours is, where the optimum is as many times; where not even that is, the baseline
//! does better here than in the paper, and nobody can be asked for it: the row is for reading. Ours is held to its share of the optimum
//! everywhere.
//!
//! **Which controller.** `model`, which we ship, stands where the paper has its learned one.

mod ablation;
mod autoscaler;
mod convergence;
mod failures;
mod goodput;
mod priorities;
mod provisioned;
mod scenes;
mod study;
mod trace;
mod transfer;

use super::findings::{Findings, Row};
use super::{Experiment, Settings};
use study::{Runs, Span};

/// Its experiments, in the order of the paper, and then the demo from a trace.
pub fn experiments(settings: Settings) -> Vec<Experiment> {
    let of = |id, run: fn(Settings) -> Result<Findings, String>| Experiment {
        id,
        run: Box::new(move || run(settings)),
    };
    vec![
        of("fig8", goodput::fig8),
        of("fig9", goodput::fig9),
        of("fig10", ablation::fig10),
        of("fig11", priorities::fig11),
        of("fig12", priorities::fig12),
        of("fig13", convergence::fig13),
        of("table2", convergence::table2),
        of("fig14", autoscaler::fig14),
        of("fig15", autoscaler::fig15),
        of("fig16", provisioned::fig16),
        of("fig17", transfer::fig17),
        of("fig18", failures::fig18),
        of("fig19", autoscaler::fig19),
        of("trace", trace::trace),
    ]
}

/// For reading: what was answered in time under each, and what share of the optimum that is, in per cent.
fn standing(all: &[Runs], span: Span) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for runs in all {
        let who = runs.who;
        rows.push(Row::beside(format!("{who}: requests/s in time"), None, Some(runs.per_s(span))));
        let share = 100.0 * runs.try_mean(|ran| ran.share(span))?;
        rows.push(Row::beside(format!("{who}: % of the optimum"), None, Some(share)));
    }
    Ok(rows)
}

/// Goodput over a baseline's, which `paper` says should be so many times that: judged where the optimum is.
fn over(baseline: &str, paper: f64, ours: f64, theirs: f64, optimum: f64) -> [Row; 2] {
    let what = format!("goodput over {baseline}'s");
    let row = if optimum >= paper * theirs {
        Row::at_least(what, paper, ours / theirs)
    } else {
        Row::beside(what, Some(paper), Some(ours / theirs))
    };
    [row, Row::beside(format!("the optimum over {baseline}'s"), None, Some(optimum / theirs))]
}

#[cfg(test)]
mod tests;
