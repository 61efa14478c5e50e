//! Fig. 13 and Table 2: how soon after an overload begins as much is answered in time as can be.

use plimsoll_core::config::fleet::Scenario;

use super::scenes::{Altered, online_boutique};
use super::study::{OURS, Runs, Who, compare};
use crate::figures::{Chart, Figure};
use crate::fleet::run::Controller;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values::topfull;

/// DAGOR's steps of Table 2.
const STEPS: [f64; 3] = [0.05, 0.1, 0.5];
/// What we want: with what agents and sentries tell four times a second, and with Prometheus alone, once a second.
const AGENTS_S: f64 = 2.0;
const PROMETHEUS_S: f64 = 6.0;
/// Any service may be asked for over 110 % of what it can do for so long.
const OVERSHOOT_S: f64 = 1.0;
/// What is drawn.
const DRAWN_S: u64 = 60;

/// One API, which takes the narrowest service.
fn scenario() -> Result<Scenario, String> {
    Ok(online_boutique()?.only(&["postcheckout"]))
}

/// Over time.
pub fn fig13(settings: Settings) -> Result<Findings, String> {
    let dagors = STEPS.map(Who::DagorStep);
    let all = compare(&scenario()?, &[&[OURS][..], &dagors].concat(), settings)?;
    let lines = all.iter().map(|runs| runs.line(runs.who.to_string(), None, (0, DRAWN_S))).collect();
    let chart = Chart::new("postcheckout alone", "seconds", "requests/s in time", lines);
    let best = all[0].first().optimum((60, 90))?.iter().sum();
    let overshoot = all[0].mean(|ran| ran.report.overshoot_s);
    let rows = vec![Row::no_more("seconds over 110 % of what a service can do", OVERSHOOT_S, overshoot)];
    let figure = Figure { name: "fig13".to_owned(), charts: vec![chart.with_level("optimum", best)] };
    Ok(Findings { rows, figures: vec![figure] })
}

/// In seconds. DAGOR with steps of a half never gets there, in the paper either.
pub fn table2(settings: Settings) -> Result<Findings, String> {
    let paper = topfull().convergence_s;
    let whos = [&[OURS, Who::Named(Controller::Mimd)][..], &STEPS.map(Who::DagorStep)].concat();
    let all = compare(&scenario()?, &whos, settings)?;
    let slower = compare(&scenario()?.by_prometheus(), &[OURS], settings)?;
    let seconds = |runs: &Runs| runs.converged_s();
    let measured = |runs: &Runs| Some(runs.converged_s()).filter(|s| s.is_finite());
    let [ours, mimd, dagor_0_05, dagor_0_1, dagor_0_5] = &all[..] else { return Err("five ran".to_owned()) };
    let rows = vec![
        Row::at_most("ours", paper.topfull, seconds(ours)),
        Row::no_more("ours, signals of agents and sentries", AGENTS_S, seconds(ours)),
        Row::no_more("ours, Prometheus alone", PROMETHEUS_S, seconds(&slower[0])),
        Row::beside("DAGOR, steps of 0.05", Some(paper.dagor_0_05), measured(dagor_0_05)),
        Row::beside("DAGOR, steps of 0.1", Some(paper.dagor_0_1), measured(dagor_0_1)),
        Row::beside("DAGOR, steps of 0.5", None, measured(dagor_0_5)),
        Row::beside("TopFull with fixed steps", None, measured(mimd)),
    ];
    Ok(Findings { rows, figures: Vec::new() })
}
