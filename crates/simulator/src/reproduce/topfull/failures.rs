//! Fig. 18: most instances of a service that nearly all APIs call end, and are back a minute later.

use super::scenes::{Altered, pods_fail};
use super::standing;
use super::study::{OURS, Span, Who, compare};
use crate::figures::{Chart, Figure};
use crate::fleet::run::Controller;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};

const NOBODY: Who = Who::Named(Controller::None);
/// While they are gone.
const GONE: Span = (50, 110);
/// The end of the run, when all are back.
const END_S: u64 = 150;
/// Of the optimum while they are gone, in per cent, the first seconds included.
const SHARE_PCT: f64 = 90.0;
/// Until as much is served as can be: as after any other step.
const CONVERGED_S: f64 = 2.0;

/// Train Ticket's `station`.
pub fn fig18(settings: Settings) -> Result<Findings, String> {
    let scenario = pods_fail()?;
    let all = compare(&scenario, &[OURS, NOBODY], settings)?;
    // Both changes are the last of a run that ends at a time of its own.
    let lost = compare(&scenario.clone().lasting(GONE.1 - 1), &[OURS], settings)?;
    let back = compare(&scenario.lasting(3 * (GONE.1 + 10) / 2), &[OURS], settings)?;
    let ours = &all[0];
    let share = 100.0 * ours.try_mean(|ran| ran.share(GONE))?;
    let mut rows = vec![
        Row::no_less("while they are gone, % of the optimum", SHARE_PCT, share),
        Row::no_more(
            "seconds until goodput is steady once they are gone",
            CONVERGED_S,
            lost[0].converged_s(),
        ),
        Row::no_more("seconds until it is once they are back", CONVERGED_S, back[0].converged_s()),
    ];
    rows.extend(standing(&all, GONE)?);
    let lines = all.iter().map(|runs| runs.line(runs.who.to_string(), None, (30, END_S))).collect();
    let chart = Chart::new("25 of 35 instances of `station` end", "seconds", "requests/s in time", lines);
    Ok(Findings { rows, figures: vec![Figure { name: "fig18".to_owned(), charts: vec![chart] }] })
}
