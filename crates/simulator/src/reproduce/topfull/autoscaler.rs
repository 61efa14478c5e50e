//! Fig. 14, 15 and 19: a surge that an autoscaler answers too late, and what becomes of it until then.

use plimsoll_core::Nanos;
use plimsoll_core::config::fleet::{Scenario, Sees};

use super::scenes::{Altered, SURGE_S, online_boutique, train_ticket};
use super::study::{OURS, Runs, Span, Who, compare, compare_all};
use super::{over, standing};
use crate::figures::{Chart, Figure, Line};
use crate::fleet::run::Controller;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values::topfull;

const ALONE: Who = Who::Named(Controller::None);
const BW: Who = Who::Named(Controller::TopfullBw);
/// The surge lasts 160 s (section 6.4).
const END_S: u64 = SURGE_S + 160;
const SPAN: Span = (SURGE_S, END_S);
/// Until a pod is there whose machine has to be started first: 20, 40 and 60 s in Fig. 19, of which Fig. 14 and 15 take the middle.
const STARTS_S: [u64; 3] = [20, 40, 60];
/// Of what the instances that there were could do, in per cent.
const SHARE_PCT: f64 = 95.0;

fn surge(application: Scenario, start_s: u64, sees: Sees) -> Scenario {
    application.lasting(END_S).autoscaled(Nanos::from_secs(start_s), sees)
}

/// Train Ticket.
pub fn fig14(settings: Settings) -> Result<Findings, String> {
    let paper = topfull();
    let papers = [paper.with_autoscaler_over_autoscaler.train_ticket, paper.over_topfull_bw.train_ticket];
    under_surge("fig14", "Train Ticket", &train_ticket()?, papers, settings)
}

/// Online Boutique.
pub fn fig15(settings: Settings) -> Result<Findings, String> {
    let paper = topfull();
    let papers =
        [paper.with_autoscaler_over_autoscaler.online_boutique, paper.over_topfull_bw.online_boutique];
    under_surge("fig15", "Online Boutique", &online_boutique()?, papers, settings)
}

/// `papers`: how many times the goodput of the autoscaler alone, and of TopFull(BW) with it, the paper has.
fn under_surge(
    id: &str,
    name: &str,
    application: &Scenario,
    papers: [f64; 2],
    settings: Settings,
) -> Result<Findings, String> {
    let scenario = surge(application.clone(), STARTS_S[1], Sees::Admitted);
    let all = compare(&scenario, &[OURS, BW, ALONE], settings)?;
    let [ours, bw, alone] = &all[..] else { return Err("three ran".to_owned()) };
    let told = compare(&surge(application.clone(), STARTS_S[1], Sees::Offered), &[OURS], settings)?;
    let ratio = |of: &Runs, other: &Runs| of.per_s(SPAN) / other.per_s(SPAN);
    // With the instances that it had itself.
    let best = ours.try_mean(|ran| Ok(ran.optimum(SPAN)?.iter().sum()))?;
    let of_best = 100.0 * ours.try_mean(|ran| ran.share(SPAN))?;
    let mut rows = vec![
        Row::no_less("% of the optimum", SHARE_PCT, of_best),
        Row::no_less("goodput over the better of the two", 1.0, ratio(ours, alone).min(ratio(ours, bw))),
        Row::no_less(
            "where the autoscaler is told what was refused, goodput over that",
            1.0,
            ratio(&told[0], ours),
        ),
    ];
    for (who, paper, other) in [("the autoscaler alone", papers[0], alone), ("TopFull(BW)", papers[1], bw)] {
        rows.extend(over(who, paper, ours.per_s(SPAN), other.per_s(SPAN), best));
    }
    rows.extend(standing(&all, SPAN)?);
    for runs in &all {
        let what = format!("{}: instances in the mean", runs.who);
        rows.push(Row::beside(what, None, Some(runs.mean(|ran| ran.instances(SPAN)))));
    }
    let mut lines: Vec<Line> =
        all.iter().map(|runs| runs.line(format!("{} + autoscaler", runs.who), None, (0, END_S))).collect();
    lines.push(told[0].line("the same, told what was refused", None, (0, END_S)));
    let chart = Chart::new(name, "seconds", "requests/s in time", lines);
    Ok(Findings { rows, figures: vec![Figure { name: id.to_owned(), charts: vec![chart] }] })
}

/// Online Boutique, over how long it takes to start a machine.
pub fn fig19(settings: Settings) -> Result<Findings, String> {
    let scenarios: Vec<Scenario> = {
        let application = online_boutique()?;
        STARTS_S.iter().map(|&start_s| surge(application.clone(), start_s, Sees::Admitted)).collect()
    };
    let all = compare_all(&scenarios, &[OURS, ALONE], settings)?;
    let gain = |both: &Vec<Runs>| both[0].per_s(SPAN) / both[1].per_s(SPAN);
    let most = all.iter().map(gain).fold(f64::NAN, f64::max);
    let least = all.iter().map(gain).fold(f64::NAN, f64::min);
    let mut rows = vec![
        Row::against("goodput over the autoscaler's alone, the most", &topfull().startup_delay_gain, most),
        Row::no_less("the least", 1.0, least),
    ];
    for (start_s, both) in STARTS_S.iter().zip(&all) {
        let what = |who: &str| format!("{start_s} s to start, {who}: requests/s in time");
        rows.push(Row::beside(what("ours + autoscaler"), None, Some(both[0].per_s(SPAN))));
        rows.push(Row::beside(what("autoscaler alone"), None, Some(both[1].per_s(SPAN))));
    }
    let line = |nth: usize, name: &str| Line {
        name: name.to_owned(),
        points: STARTS_S.iter().zip(&all).map(|(&s, both)| (s as f64, both[nth].per_s(SPAN))).collect(),
    };
    let lines = vec![line(0, "ours + autoscaler"), line(1, "autoscaler alone")];
    let chart =
        Chart::new("Online Boutique", "seconds until an instance has started", "requests/s in time", lines);
    Ok(Findings { rows, figures: vec![Figure { name: "fig19".to_owned(), charts: vec![chart] }] })
}
