//! Fig. 8 and 9: how much is answered in time while too much comes.

use plimsoll_core::config::fleet::Scenario;

use super::scenes::{Altered, SURGE_S, online_boutique};
use super::study::{OURS, Span, Who, compare, compare_all};
use super::{over, standing};
use crate::figures::{Chart, Figure, Line};
use crate::fleet::run::Controller;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values::topfull;

const DAGOR: Who = Who::Named(Controller::Dagor);
const BREAKWATER: Who = Who::Named(Controller::Breakwater);
const NOBODY: Who = Who::Named(Controller::None);
/// While too much comes, and the last third, when everybody has had time: DAGOR takes half a minute.
const SPAN: Span = (SURGE_S, 90);
const LATER: Span = (60, 90);
/// Of the optimum, in per cent.
const SHARE_PCT: f64 = 95.0;
/// Demand in Fig. 9, as multiples of 2,600 users.
const DEMANDS: [f64; 6] = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0];
/// What more demand may cost, in per cent of what is answered in time at once the demand.
const STEADY_PCT: f64 = 95.0;
/// What these services can do. The paper tells of one that most APIs share (section 6.2), and of requests that pass it to be refused at
/// `recommendation`, `productcatalog` and `checkout`. How narrow they are was chosen by what becomes of DAGOR and Breakwater: 0.44 and 0.53
/// of the optimum, where the paper has 0.55 and 0.44 of TopFull's goodput. Both at once is not to be had; either is within a quarter.
const NARROW: [(&str, f64); 4] =
    [("frontend", 1_000.0), ("productcatalog", 170.0), ("recommendation", 130.0), ("checkout", 35.0)];

fn scenario() -> Result<Scenario, String> {
    Ok(online_boutique()?.with_capacity(&NARROW))
}

/// 2,600 users of Online Boutique, all APIs alike.
pub fn fig8(settings: Settings) -> Result<Findings, String> {
    let all = compare(&scenario()?, &[OURS, DAGOR, BREAKWATER, NOBODY], settings)?;
    let [ours, dagor, breakwater, _] = &all[..] else { return Err("four ran".to_owned()) };
    let paper = topfull();
    let best: f64 = ours.first().optimum(LATER)?.iter().sum();
    let share = 100.0 * ours.try_mean(|ran| ran.share(LATER))?;
    let mut rows = vec![Row::no_less("% of the optimum in the last third", SHARE_PCT, share)];
    for (name, paper, other) in [
        ("DAGOR", paper.goodput_over_dagor.value, dagor),
        ("Breakwater", paper.goodput_over_breakwater.value, breakwater),
    ] {
        rows.extend(over(name, paper, ours.per_s(LATER), other.per_s(LATER), best));
        rows.push(Row::beside(
            format!("{name}'s as a part of ours"),
            Some(1.0 / paper),
            Some(other.per_s(LATER) / ours.per_s(LATER)),
        ));
    }
    rows.extend(standing(&all, SPAN)?);
    let ran = ours.first();
    for api in &ran.report.apis.0 {
        let place = ran.api(&api.0)?;
        for runs in &all {
            let what = format!("{}: requests/s of {} in time", runs.who, api.0);
            rows.push(Row::beside(what, None, Some(runs.mean(|ran| ran.api_per_s(place, SPAN)))));
        }
    }
    let lines = all.iter().map(|runs| runs.line(runs.who.to_string(), None, (0, SPAN.1)));
    let optimum = ran.optimum(SPAN)?.iter().sum();
    let chart = Chart::new("Online Boutique", "seconds", "requests/s in time", lines.collect());
    let figure = Figure { name: "fig8".to_owned(), charts: vec![chart.with_level("optimum", optimum)] };
    Ok(Findings { rows, figures: vec![figure] })
}

/// The same over what users send.
pub fn fig9(settings: Settings) -> Result<Findings, String> {
    let base = scenario()?;
    let whos = [OURS, DAGOR, BREAKWATER, NOBODY];
    let scenarios =
        DEMANDS.iter().map(|&factor| base.clone().times(factor)).collect::<Result<Vec<_>, _>>()?;
    let all = compare_all(&scenarios, &whos, settings)?;
    let at = |nth: usize, demand: f64| {
        let place = DEMANDS.iter().position(|&factor| factor == demand);
        place.map_or(f64::NAN, |place| all[place][nth].per_s(LATER))
    };
    let kept = |nth: usize| 100.0 * at(nth, 2.0) / at(nth, 1.0);
    let mut rows =
        vec![Row::no_less("ours at twice the demand, % of what it serves at once", STEADY_PCT, kept(0))];
    for (nth, name) in [(1, "DAGOR"), (2, "Breakwater"), (3, "no control")] {
        rows.push(Row::beside(
            format!("{name}, likewise"),
            None,
            Some(kept(nth)).filter(|pct| pct.is_finite()),
        ));
    }
    let line = |(nth, who): (usize, &Who)| Line {
        name: who.to_string(),
        points: DEMANDS.iter().map(|&demand| (2_600.0 * demand, at(nth, demand))).collect(),
    };
    let lines = whos.iter().enumerate().map(line).collect();
    let chart = Chart::new("Online Boutique, the last third", "users", "requests/s in time", lines);
    Ok(Findings { rows, figures: vec![Figure { name: "fig9".to_owned(), charts: vec![chart] }] })
}
