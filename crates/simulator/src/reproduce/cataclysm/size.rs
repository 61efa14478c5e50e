//! Fig. 7 and 8: requests of one importance and many sizes.

use plimsoll_core::Nanos;
use plimsoll_core::config::PolicingPolicy;

use super::checks::{p95, p95s};
use super::watch::Seen;
use super::{Ran, charts, scenario, setup};
use crate::figures::Figure;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};

/// The workloads.
const FIG7: &str = include_str!("../../../../../paper/cataclysm/fig7.toml");
const FIG8: &str = include_str!("../../../../../paper/cataclysm/fig8.toml");
/// The mean that is owed (Table 1), which the paper holds the 95th percentile to.
const TARGET: Nanos = Nanos::from_secs(1);
/// A point of the figures of response times.
const INTERVAL: Nanos = Nanos::from_secs(10);
/// Of the intervals, how many may be over the target, in per cent.
const VIOLATIONS_PCT: f64 = 1.0;
/// What the paper calls almost all, in per cent.
const ALMOST_ALL: f64 = 95.0;
/// What it calls dropped.
const ALMOST_NONE: f64 = 5.0;

/// The cheapest requests are admitted, with control and without (section 6.5).
pub fn fig7(settings: Settings) -> Result<Findings, String> {
    let scenario = scenario(FIG7, "fig7.toml")?;
    let mut open = scenario.clone();
    open.policing.policy = PolicingPolicy::Off;
    let (ran, open) = (Ran::new(scenario, &setup(settings.seed)), Ran::new(open, &setup(settings.seed)));
    let mut rows = Vec::new();
    let expected = ["image", "dynamic", "text"].map(String::from);
    for (from, to) in [(100, 1250), (1250, 1900), (1900, 2400)] {
        let measured = ["text", "dynamic", "image"].map(|name| (name, ran.admitted_pct(name, from, to)));
        let what = format!("{from}-{to} s: text files admitted, %");
        rows.push(Row::no_less(what, ALMOST_ALL, measured[0].1));
        let what = format!("{from}-{to} s: least admitted first");
        rows.push(Row::ordered(what, &expected, None, &measured));
        for (name, ours) in &measured[1..] {
            rows.push(Row::beside(format!("{from}-{to} s: {name} admitted, %"), None, Some(*ours)));
        }
    }
    rows.push(violations(&ran));
    let uncontrolled = p95(open.requests.iter().filter_map(Seen::response)).map(Nanos::as_millis_f64);
    rows.push(Row::no_less(
        "p95 without control, ms: over the target",
        TARGET.as_millis_f64(),
        uncontrolled.unwrap_or(f64::NAN),
    ));
    let charts = vec![
        charts::arrivals(&ran),
        charts::admissions(&ran),
        charts::response_times(&ran, "response time, p95", TARGET),
        charts::response_times(&open, "without control", TARGET),
    ];
    Ok(Findings { rows, figures: vec![Figure { name: "fig7".to_owned(), charts }] })
}

/// A mix that changes, far above the capacity (section 6.6).
pub fn fig8(settings: Settings) -> Result<Findings, String> {
    let ran = Ran::new(scenario(FIG8, "fig8.toml")?, &setup(settings.seed));
    let admitted = |name: &str, from, to| ran.admitted_pct(name, from, to);
    let per_s = |name: &str, from: u64, to: u64| {
        let class = ran.class(name);
        let admitted =
            ran.within(from, to).iter().filter(|seen| seen.arrival.class == class && seen.is_admitted());
        admitted.count() as f64 / (to - from) as f64
    };
    let mut rows = vec![Row::no_less(
        "60-160 s: dynamic requests admitted, %",
        ALMOST_ALL,
        admitted("dynamic", 60, 160),
    )];
    for name in ["moderate", "large"] {
        rows.push(Row::beside(
            format!("60-160 s: {name} files admitted/s"),
            None,
            Some(per_s(name, 60, 160)),
        ));
    }
    for name in ["moderate", "large"] {
        let what = format!("170-410 s: {name} files admitted, %");
        rows.push(Row::no_more(what, ALMOST_NONE, admitted(name, 170, 410)));
    }
    rows.push(Row::beside("170-410 s: dynamic requests admitted/s", None, Some(per_s("dynamic", 170, 410))));
    let files = per_s("moderate", 410, 600) + per_s("large", 410, 600);
    // Nearly 50/s fit, less what the dynamic requests take.
    rows.push(Row::no_less("410-600 s: files admitted/s", 40.0, files));
    rows.push(violations(&ran));
    let charts = vec![
        charts::arrivals(&ran),
        charts::admissions(&ran),
        charts::response_times(&ran, "response time, p95", TARGET),
    ];
    Ok(Findings { rows, figures: vec![Figure { name: "fig8".to_owned(), charts }] })
}

fn violations(ran: &Ran) -> Row {
    let intervals = p95s(&ran.requests, INTERVAL);
    let over = intervals.iter().filter(|&&(_, time)| time > TARGET).count();
    let pct = 100.0 * over as f64 / intervals.len().max(1) as f64;
    Row::no_more("intervals of 10 s with p95 over 1 s, %", VIOLATIONS_PCT, pct)
}
