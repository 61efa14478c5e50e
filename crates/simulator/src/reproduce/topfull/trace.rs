//! The demo from a public trace (section 5): 127 services, 13 of them overloaded, 25 APIs with 43 paths.

use super::scenes::trace_demo;
use super::standing;
use super::study::{OURS, Span, Who, compare};
use crate::figures::{Chart, Figure};
use crate::fleet::run::Controller;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};

/// Too much comes from the start on.
const SPAN: Span = (0, 120);
const LATER: Span = (80, 120);
/// Of the optimum once rates have come to rest, in per cent.
const SHARE_PCT: f64 = 90.0;

/// Beside all others.
pub fn trace(settings: Settings) -> Result<Findings, String> {
    let others = [Controller::Mimd, Controller::Dagor, Controller::Breakwater, Controller::None];
    let whos = [&[OURS][..], &others.map(Who::Named)].concat();
    let all = compare(&trace_demo()?, &whos, settings)?;
    let later = 100.0 * all[0].try_mean(|ran| ran.share(LATER))?;
    let mut rows = vec![Row::no_less("% of the optimum in the last third", SHARE_PCT, later)];
    for other in &all[1..] {
        let over = all[0].per_s(SPAN) / other.per_s(SPAN);
        rows.push(Row::no_less(format!("goodput over that of {}", other.who), 1.0, over));
    }
    rows.extend(standing(&all, SPAN)?);
    let lines = all.iter().map(|runs| runs.line(runs.who.to_string(), None, SPAN)).collect();
    let optimum = all[0].first().optimum(LATER)?.iter().sum();
    let chart = Chart::new("127 services", "seconds", "requests/s in time", lines);
    let figure = Figure { name: "trace".to_owned(), charts: vec![chart.with_level("optimum", optimum)] };
    Ok(Findings { rows, figures: vec![figure] })
}
