//! What came of the surge, API by API, without and with.

use std::fmt;

use plimsoll_core::Nanos;
use plimsoll_simulator::figures::{Chart, Figure, Line};
use serde_json::{Map, Value, json};

use super::super::Side;
use super::super::screen::time;
use super::Phases;
use super::stage::{APIS, DEADLINE_MS, Limit};
use super::view::Watched;
use crate::observed::{Seen, Tally, by_second};

const WITHIN: Nanos = Nanos::from_millis(DEADLINE_MS);

/// The whole of it.
pub struct Outcome {
    phases: Phases,
    watched: Watched,
    /// By API, requests a second.
    optimum: Vec<f64>,
}

/// What became of an API on one side in the surge.
struct Fate {
    tally: Tally,
    in_time_per_s: f64,
}

impl Outcome {
    pub fn new(phases: Phases, watched: Watched, optimum: Vec<f64>) -> Outcome {
        Outcome { phases, watched, optimum }
    }

    fn fate(&self, side: Side, api: usize) -> Fate {
        let Phases { surge, end, .. } = self.phases;
        let of_api = |seen: &&Seen| seen.class == api && (surge..end).contains(&seen.at);
        let requests = || self.watched.requests[side as usize].iter().filter(of_api);
        let in_time = requests().filter(|seen| seen.is_in_time(WITHIN)).count();
        let in_time_per_s = in_time as f64 / end.since(surge).as_secs_f64();
        Fate { tally: Tally::of(requests()), in_time_per_s }
    }

    fn total(&self, side: Side) -> f64 {
        (0..APIS.len()).map(|api| self.fate(side, api).in_time_per_s).sum()
    }

    /// What an API was limited to when the surge ended, where it was.
    fn limit(&self, api: usize) -> Option<&Limit> {
        let surge =
            self.watched.looks.iter().filter(|(at, _)| (self.phases.surge..self.phases.end).contains(at));
        surge.map(|(_, limits)| &limits[api]).next_back().filter(|limit| limit.per_s.is_some())
    }

    /// By name.
    pub fn apis_json(&self) -> Value {
        let side = |Fate { tally, in_time_per_s }: Fate| {
            json!({
                "came": tally.came, "in_time_per_s": in_time_per_s, "refused": tally.refused, "errors": tally.errors,
                "p95_ms": tally.p95.map(Nanos::as_millis_f64),
            })
        };
        let api = |(place, api): (usize, &super::stage::Api)| {
            let limit = self.limit(place);
            let of = json!({
                "without": side(self.fate(Side::Without, place)), "with": side(self.fate(Side::With, place)),
                "optimum_per_s": self.optimum[place], "priority": api.priority,
                "limit_per_s": limit.and_then(|limit| limit.per_s), "why": limit.and_then(|limit| limit.why.as_deref()),
            });
            (api.name.to_owned(), of)
        };
        APIS.iter().enumerate().map(api).collect::<Map<String, Value>>().into()
    }

    /// Of all APIs together.
    pub fn totals_json(&self) -> Value {
        json!({
            "without": self.total(Side::Without), "with": self.total(Side::With),
            "optimum": self.optimum.iter().sum::<f64>(),
        })
    }

    /// The run as a picture.
    pub fn figure(&self) -> Figure {
        let end = self.phases.end;
        let seconds = |side: Side, api: Option<usize>| -> Vec<(f64, f64)> {
            let meant = |seen: &&Seen| seen.is_in_time(WITHIN) && api.is_none_or(|api| seen.class == api);
            let requests = self.watched.requests[side as usize].iter().filter(meant);
            let points = by_second(requests, Nanos::ZERO, end).into_iter();
            points.map(|(at_s, tally)| (at_s + 0.5, tally.came as f64)).collect()
        };
        let line = |name: &str, points| Line { name: name.to_owned(), points };
        let by_api = |side| -> Vec<Line> {
            let line = |(place, api): (usize, &super::stage::Api)| line(api.name, seconds(side, Some(place)));
            APIS.iter().enumerate().map(line).collect()
        };
        let both = vec![
            line("with the load line", seconds(Side::With, None)),
            line("without", seconds(Side::Without, None)),
        ];
        let chart = |title: &str, lines| Chart::new(title, "seconds", "requests/s in time", lines);
        Figure {
            name: "fleet".to_owned(),
            charts: vec![
                chart("All requests", both)
                    .with_level("the best possible in the surge", self.optimum.iter().sum()),
                chart("Without, by API", by_api(Side::Without)),
                chart("With the load line, by API", by_api(Side::With)),
            ],
        }
    }
}

/// A table for people, and who was limited.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = ["without", "with the load line"];
        writeln!(f, "\n{:<12}{:>8}{one:>22}{other:>32}{:>12}", "the surge", "come/s", "optimum")?;
        writeln!(
            f,
            "{:<20}{:>12}{:>10}{:>12}{:>10}{:>10}{:>12}",
            "", "in time/s", "p95", "in time/s", "p95", "refused", "in time/s"
        )?;
        for (place, api) in APIS.iter().enumerate() {
            let [without, with] = [Side::Without, Side::With].map(|side| self.fate(side, place));
            let p95 = |fate: &Fate| time(fate.tally.p95.map(Nanos::as_millis_f64));
            writeln!(
                f,
                "  {:<10}{:>8.1}{:>12.1}{:>10}{:>12.1}{:>10}{:>10}{:>12.1}",
                api.name,
                with.tally.came as f64 / self.phases.end.since(self.phases.surge).as_secs_f64(),
                without.in_time_per_s,
                p95(&without),
                with.in_time_per_s,
                p95(&with),
                with.tally.refused,
                self.optimum[place],
            )?;
        }
        writeln!(f)?;
        for (place, api) in APIS.iter().enumerate() {
            match self.limit(place) {
                Some(Limit { per_s: Some(per_s), why }) => {
                    let why = why.as_deref().map_or(String::new(), |why| format!(": {why}"));
                    writeln!(f, "{} was limited, in the end to {per_s:.1}/s{why}", api.name)?;
                }
                _ => writeln!(
                    f,
                    "{} was not limited in the end: no service on its path is overloaded",
                    api.name
                )?,
            }
        }
        let [without, with] = [Side::Without, Side::With].map(|side| self.total(side));
        let best = self.optimum.iter().sum::<f64>();
        writeln!(
            f,
            "\nAnswered in time: {without:.0}/s without, {with:.0}/s with the load line, which is {:.0} % of the {best:.0}/s that could be at best.",
            100.0 * with / best
        )
    }
}
