//! Fig. 3 and 5: gold, silver and bronze, policed by batches and by the threshold.

use plimsoll_core::Nanos;
use plimsoll_core::config::PolicingPolicy;

use super::checks::{p95, p95s};
use super::watch::Seen;
use super::{Ran, charts, scenario, setup};
use crate::figures::Figure;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values;

/// The workload of both.
const WORKLOAD: &str = include_str!("../../../../../paper/cataclysm/fig3.toml");
/// Seconds at which the rates change, and the end.
const PHASES: [u64; 6] = [0, 130, 195, 210, 390, 480];
/// What the paper calls nearly all, or almost exclusively, in per cent.
const NEARLY_ALL: f64 = 90.0;
/// What it calls almost zero, or totally suppressed.
const ALMOST_NONE: f64 = 10.0;
/// How long the response time may be over its target when the load has jumped; the paper's is so for 15 and 20 s.
const OVER_S: f64 = 5.0;

/// The batch policer with the paper's fixed delays (section 6.2).
pub fn fig3(settings: Settings) -> Result<Findings, String> {
    let ran = Ran::new(scenario(WORKLOAD, "fig3.toml")?, &setup(settings.seed));
    let mut rows = response_times(&ran);
    rows.push(Row::no_less("until 130 s: all classes admitted, %", NEARLY_ALL, least_admitted(&ran)));
    for (from, to) in [(130, 195), (195, 210)] {
        let what = format!("{from}-{to} s: of what is refused, bronze, %");
        rows.push(Row::no_less(what, NEARLY_ALL, refused_pct(&ran, "bronze", from, to)));
    }
    let between = |name: &str, from, to| ran.admitted_pct(name, from, to);
    rows.push(Row::beside("195-210 s: silver admitted, %", None, Some(between("silver", 195, 210))));
    rows.push(Row::no_more("200-210 s: bronze admitted, %", ALMOST_NONE, between("bronze", 200, 210)));
    for name in ["silver", "bronze"] {
        let what = format!("215-390 s: {name} admitted, %");
        rows.push(Row::no_more(what, ALMOST_NONE, between(name, 215, 390)));
    }
    rows.push(Row::beside("215-390 s: gold admitted, %", None, Some(between("gold", 215, 390))));
    Ok(Findings { rows, figures: vec![figure("fig3", &ran)] })
}

/// The threshold policer on the same (section 6.3).
pub fn fig5(settings: Settings) -> Result<Findings, String> {
    let mut scenario = scenario(WORKLOAD, "fig3.toml")?;
    scenario.policing.policy = PolicingPolicy::Threshold;
    let ran = Ran::new(scenario, &setup(settings.seed));
    let mut rows = response_times(&ran);
    let over_s = longest_over_s(&ran.requests, target());
    rows.push(Row::no_more("longest time over the target, s (paper: 20)", OVER_S, over_s));
    for pair in PHASES.windows(2) {
        for name in ran.names() {
            let what = format!("{}-{} s: {name} admitted, %", pair[0], pair[1]);
            rows.push(Row::beside(what, None, Some(ran.admitted_pct(name, pair[0], pair[1]))));
        }
    }
    Ok(Findings { rows, figures: vec![figure("fig5", &ran)] })
}

/// Most consecutive seconds with the 95th percentile over `target`.
pub fn longest_over_s(requests: &[Seen], target: Nanos) -> f64 {
    let over = |&(_, time): &(Nanos, Nanos)| time > target;
    let (mut longest, mut now) = (0, 0);
    for second in &p95s(requests, Nanos::from_secs(1)) {
        now = if over(second) { now + 1 } else { 0 };
        longest = longest.max(now);
    }
    f64::from(longest)
}

fn target() -> Nanos {
    Nanos::from_secs_f64(values::cataclysm().fig3_p95_ms.value / 1e3)
}

fn response_times(ran: &Ran) -> Vec<Row> {
    let row = |pair: &[u64]| {
        let times = ran.within(pair[0], pair[1]).iter().filter_map(Seen::response);
        let ours = p95(times).map_or(f64::NAN, Nanos::as_millis_f64);
        let what = format!("{}-{} s: p95 of what is admitted, ms", pair[0], pair[1]);
        Row::against(what, &values::cataclysm().fig3_p95_ms, ours)
    };
    PHASES.windows(2).map(row).collect()
}

/// The share of a class in what is refused, in per cent.
fn refused_pct(ran: &Ran, name: &str, from: u64, to: u64) -> f64 {
    let class = ran.class(name);
    let refused: Vec<&Seen> = ran.within(from, to).iter().filter(|seen| !seen.is_admitted()).collect();
    100.0 * refused.iter().filter(|seen| seen.arrival.class == class).count() as f64 / refused.len() as f64
}

fn least_admitted(ran: &Ran) -> f64 {
    ran.names().iter().map(|name| ran.admitted_pct(name, 0, 130)).fold(f64::INFINITY, f64::min)
}

fn figure(name: &str, ran: &Ran) -> Figure {
    let times = charts::response_times(ran, "response time, p95", target());
    let charts = vec![charts::arrivals(ran), charts::admissions(ran), charts::fractions(ran), times];
    Figure { name: name.to_owned(), charts }
}
