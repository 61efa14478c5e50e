//! Fig. 11 and 12: the more important first, and nobody starved by requests that are refused further on.

use plimsoll_core::config::fleet::Scenario;

use super::scenes::{Altered, SURGE_S, online_boutique};
use super::standing;
use super::study::{OURS, Runs, Span, Who, compare};
use crate::figures::{Chart, Figure};
use crate::fleet::run::Controller;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values::topfull;

const DAGOR: Who = Who::Named(Controller::Dagor);
/// The first is the most important (section 6.2).
const APIS: [&str; 4] = ["postcheckout", "getproduct", "getcart", "postcart"];
const SPAN: Span = (SURGE_S, 90);
/// When rates have come to rest.
const LATER: Span = (60, 90);
/// Of what its path can carry the most important one has, in per cent.
const FIRST_PCT: f64 = 95.0;
/// Of the optimum, at every level of priority, in per cent.
const SHARE_PCT: f64 = 95.0;

fn scenario() -> Result<Scenario, String> {
    Ok(online_boutique()?.only(&APIS).ranked())
}

/// API by API.
pub fn fig11(settings: Settings) -> Result<Findings, String> {
    let all = compare(&scenario()?, &[OURS, DAGOR], settings)?;
    let [ours, dagor] = &all[..] else { return Err("two ran".to_owned()) };
    let best = ours.first().optimum(LATER)?;
    let of_path = 100.0 * ours.mean(|ran| ran.api_per_s(0, LATER)) / best[0];
    let share = 100.0 * ours.try_mean(|ran| ran.share(LATER))?;
    let over = ours.per_s(SPAN) / dagor.per_s(SPAN);
    let mut rows = vec![
        Row::against("goodput over DAGOR's", &topfull().with_priorities_over_dagor, over),
        Row::no_less("the most important, % of what its path can carry", FIRST_PCT, of_path),
        Row::no_less("% of the optimum at each level of priority", SHARE_PCT, share),
    ];
    rows.extend(standing(&all, SPAN)?);
    for (place, name) in APIS.iter().enumerate() {
        let of = |runs: &Runs| runs.mean(|ran| ran.api_per_s(place, SPAN));
        for runs in &all {
            rows.push(Row::beside(
                format!("{}: requests/s of {name} in time", runs.who),
                None,
                Some(of(runs)),
            ));
        }
        rows.push(Row::beside(format!("{name} over DAGOR's"), None, Some(of(ours) / of(dagor).max(1e-9))));
    }
    let lines = APIS.iter().enumerate();
    let chart = |runs: &Runs| {
        let lines = lines.clone().map(|(place, name)| runs.line(*name, Some(place), (0, SPAN.1)));
        Chart::new(runs.who.to_string(), "seconds", "requests/s in time", lines.collect())
    };
    let charts = all.iter().map(chart).collect();
    Ok(Findings { rows, figures: vec![Figure { name: "fig11".to_owned(), charts }] })
}

/// The first two of them over time: `postcheckout` is limited for the sake of `checkout`, and `getproduct` gets what that leaves of
/// what they share.
pub fn fig12(settings: Settings) -> Result<Findings, String> {
    let all = compare(&scenario()?.only(&APIS[..2]), &[OURS, DAGOR], settings)?;
    let [ours, dagor] = &all[..] else { return Err("two ran".to_owned()) };
    let best = ours.first().optimum(LATER)?;
    let mut rows = Vec::new();
    for (place, name) in APIS[..2].iter().enumerate() {
        let of = |runs: &Runs| runs.mean(|ran| ran.api_per_s(place, LATER));
        rows.push(Row::no_less(
            format!("{name}, % of the optimum"),
            SHARE_PCT,
            100.0 * of(ours) / best[place],
        ));
        rows.push(Row::beside(
            format!("{name} with DAGOR, likewise"),
            None,
            Some(100.0 * of(dagor) / best[place]),
        ));
    }
    let chart = |(place, name): (usize, &&str)| {
        let lines = all.iter().map(|runs| runs.line(runs.who.to_string(), Some(place), (0, SPAN.1)));
        let chart = Chart::new(*name, "seconds", "requests/s in time", lines.collect());
        chart.with_level("optimum", best[place])
    };
    let charts = APIS[..2].iter().enumerate().map(chart).collect();
    Ok(Findings { rows, figures: vec![Figure { name: "fig12".to_owned(), charts }] })
}
