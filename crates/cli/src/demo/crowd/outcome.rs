//! What came of the crowd, class by class and phase by phase, from what the load generator saw of every request.

use std::fmt;

use plimsoll_core::Nanos;
use plimsoll_simulator::figures::{Chart, Figure, Line};
use serde_json::{Map, Value, json};

use super::super::screen::time;
use super::Phases;
use super::stage::{TARGET_MS, TIERS};
use super::view::{Look, promise_kept};
use crate::observed::{Seen, Tally, by_second};

/// The whole of it.
pub struct Outcome {
    phases: Vec<(&'static str, Vec<Class>)>,
    /// Servers over time.
    pub servers: Value,
}

/// What became of a class in a phase.
struct Class {
    tally: Tally,
    span_s: f64,
    /// Seconds in which the 95th percentile was over the target.
    seconds_over: usize,
    promise_kept: bool,
}

impl Outcome {
    /// Of these requests and looks at the platform.
    pub fn of(requests: &[Seen], looks: &[Look], phases: Phases) -> Outcome {
        let class = |class: usize, from: Nanos, to: Nanos| {
            let of_class = || requests.iter().filter(move |seen| seen.class == class);
            let tally = Tally::of(of_class().filter(|seen| (from..to).contains(&seen.at)));
            let seconds = by_second(of_class(), from, to);
            let is_over =
                |(_, tally): &&(f64, Tally)| tally.p95.is_some_and(|p95| p95 > Nanos::from_millis(TARGET_MS));
            let span_s = to.since(from).as_secs_f64();
            Class {
                tally,
                span_s,
                seconds_over: seconds.iter().filter(is_over).count(),
                promise_kept: promise_kept(class, tally.came, tally.admitted, span_s),
            }
        };
        let phase = |(name, from, to)| (name, (0..TIERS.len()).map(|i| class(i, from, to)).collect());
        Outcome { phases: phases.each().into_iter().map(phase).collect(), servers: servers(looks, phases) }
    }

    /// By phase and class.
    pub fn phases_json(&self) -> Value {
        let class = |(tier, class): (&super::Tier, &Class)| {
            let Class { tally, span_s, seconds_over, promise_kept } = class;
            let of = json!({
                "arrived_per_s": tally.came as f64 / span_s, "admitted_per_s": tally.admitted as f64 / span_s,
                "admitted_pct": tally.admitted_pct(), "refused": tally.refused, "errors": tally.errors,
                "p95_ms": tally.p95.map(Nanos::as_millis_f64), "seconds_over_target": seconds_over,
                "promised_per_s": tier.promised_per_s, "promise_kept": promise_kept,
            });
            (tier.name.to_owned(), of)
        };
        let phase = |(name, classes): &(&str, Vec<Class>)| {
            let classes: Map<String, Value> = TIERS.iter().zip(classes).map(class).collect();
            ((*name).to_owned(), Value::from(classes))
        };
        self.phases.iter().map(phase).collect::<Map<String, Value>>().into()
    }

    /// The run as a picture.
    pub fn figure(&self, requests: &[Seen], looks: &[Look]) -> Figure {
        let end = looks.last().map_or(Nanos::ZERO, |look| look.at);
        let classes: Vec<Vec<(f64, Tally)>> = (0..TIERS.len())
            .map(|class| by_second(requests.iter().filter(|seen| seen.class == class), Nanos::ZERO, end))
            .collect();
        let by_class = |of: fn(&Tally) -> Option<f64>| {
            let line = |(tier, seconds): (&super::Tier, &Vec<(f64, Tally)>)| Line {
                name: tier.name.to_owned(),
                points: seconds.iter().filter_map(|(at_s, tally)| Some((at_s + 0.5, of(tally)?))).collect(),
            };
            TIERS.iter().zip(&classes).map(line).collect()
        };
        let second = |look: &Look| look.at.0 / Nanos::from_secs(1).0;
        let each_second = || looks.chunk_by(|a, b| second(a) == second(b)).map(|same| &same[0]);
        let servers = |name: &str, of: fn(&Look) -> u64| Line {
            name: name.to_owned(),
            points: each_second().map(|look| (look.at.as_secs_f64(), of(look) as f64)).collect(),
        };
        let chart = |title, y, lines| Chart::new(title, "seconds", y, lines);
        let planned_and_ready =
            vec![servers("planned", |look| look.pool.planned), servers("ready", |look| look.pool.ready)];
        let p95 = |tally: &Tally| tally.p95.map(Nanos::as_millis_f64);
        Figure {
            name: "crowd".to_owned(),
            charts: vec![
                chart("Let in", "% of what came", by_class(Tally::admitted_pct)),
                chart("95 of 100 answers took at most", "ms", by_class(p95))
                    .with_level("target", TARGET_MS as f64),
                chart("Servers", "servers", planned_and_ready),
            ],
        }
    }
}

/// How many servers there were, and when; times are seconds from when the crowd came, or from when it left.
fn servers(looks: &[Look], phases: Phases) -> Value {
    let before = |to: Nanos| looks.iter().rfind(|look| look.at < to).map(|look| look.pool.ready);
    let first = looks.first().map(|look| look.pool.ready);
    let most = looks.iter().map(|look| look.pool.servers()).max();
    let since = |look: &Look, from: Nanos| look.at.since(from).as_secs_f64();
    let added =
        looks.iter().find(|look| look.at >= phases.crowd && Some(look.pool.ready) > before(phases.crowd));
    let returned =
        looks.iter().find(|look| look.at >= phases.lull && Some(look.pool.ready) < before(phases.lull));
    json!({
        "start": first, "most": most, "end": looks.last().map(|look| look.pool.ready),
        "first_added_after_s": added.map(|look| since(look, phases.crowd)),
        "first_returned_after_s": returned.map(|look| since(look, phases.lull)),
    })
}

/// A table for people.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (phase, classes) in &self.phases {
            writeln!(
                f,
                "\n{phase:<10}{:>10}{:>10}{:>10}{:>12}{:>10}{:>10}{:>8}",
                "come/s", "let in/s", "let in", "promised", "p95", "over", "errors"
            )?;
            for (tier, Class { tally, span_s, seconds_over, promise_kept }) in TIERS.iter().zip(classes) {
                let kept = if *promise_kept { "kept" } else { "not kept" };
                writeln!(
                    f,
                    "  {:<8}{:>10.1}{:>10.1}{:>8.1} %{:>12}{:>10}{:>8} s{:>8}",
                    tier.name,
                    tally.came as f64 / span_s,
                    tally.admitted as f64 / span_s,
                    tally.admitted_pct().unwrap_or(0.0),
                    kept,
                    time(tally.p95.map(Nanos::as_millis_f64)),
                    seconds_over,
                    tally.errors,
                )?;
            }
        }
        let count = |key: &str| self.servers[key].as_u64().unwrap_or(0);
        let after = |key: &str| match self.servers[key].as_f64() {
            Some(s) => format!("after {s:.1} s"),
            None => "never".to_owned(),
        };
        writeln!(
            f,
            "\nServers: {} at first, {} at most, {} at the end. The first was added {} of the crowd, and the first given back {} of the lull.\n\
             `over`: seconds in which 95 of 100 answers took more than {TARGET_MS} ms. All figures of requests are the load generator's.",
            count("start"),
            count("most"),
            count("end"),
            after("first_added_after_s"),
            after("first_returned_after_s"),
        )
    }
}
