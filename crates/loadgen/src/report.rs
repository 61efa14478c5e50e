//! The figures of a run, as JSON and as a table for people.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_core::Nanos;
use serde::{Serialize, Serializer};

use crate::schedule::Spacing;
use crate::stats::Tally;

/// The figures of one name of the mix, or of all. Latencies are in milliseconds, from the intended send time; one
/// that nothing was measured for is null.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Requests that were due and have been handed to a connection or given up; the sum of the next five once all
    /// have ended.
    pub sent: u64,
    /// Tries after the first one of a request, which is one in all other columns.
    pub retries: u64,
    /// 2xx or 3xx, and where it is gRPC, status OK.
    pub ok: u64,
    /// Refused with the header `plimsoll-reason`.
    pub rejected: u64,
    /// Refused (429, 503, RESOURCE_EXHAUSTED, UNAVAILABLE) without it.
    pub refused_other: u64,
    /// All else.
    pub errors: u64,
    /// Ok within the deadline, a second of the planned duration.
    pub goodput_per_s: f64,
    /// Of ok requests.
    pub p50_ms: Option<f64>,
    /// Of ok requests.
    pub p90_ms: Option<f64>,
    /// Of ok requests.
    pub p99_ms: Option<f64>,
    /// The longest of all, timed-out requests included.
    pub max_ms: Option<f64>,
    /// How far the generator itself lagged behind the intended time, waiting for a free connection included.
    pub late_ms_p99: Option<f64>,
    /// How long a Plimsoll's refusals took.
    pub rejected_p99_ms: Option<f64>,
    /// How long other refusals took.
    pub refused_other_p99_ms: Option<f64>,
    /// The errors by kind.
    pub error_kinds: BTreeMap<String, u64>,
}

impl Figures {
    fn new(tally: &Tally, span: Nanos) -> Figures {
        let errors: u64 = tally.errors.values().sum();
        let ended = tally.ok + tally.rejected + tally.refused_other + errors;
        Figures {
            sent: tally.sent,
            retries: tally.retries,
            ok: tally.ok,
            rejected: tally.rejected,
            refused_other: tally.refused_other,
            errors,
            goodput_per_s: rounded(tally.good as f64 / span.as_secs_f64()),
            p50_ms: tally.ok_latency.percentile_ms(50.0).map(rounded),
            p90_ms: tally.ok_latency.percentile_ms(90.0).map(rounded),
            p99_ms: tally.ok_latency.percentile_ms(99.0).map(rounded),
            max_ms: (ended > 0).then(|| rounded(tally.max.as_millis_f64())),
            late_ms_p99: tally.late.percentile_ms(99.0).map(rounded),
            rejected_p99_ms: tally.rejected_latency.percentile_ms(99.0).map(rounded),
            refused_other_p99_ms: tally.refused_other_latency.percentile_ms(99.0).map(rounded),
            error_kinds: tally.errors.iter().map(|(kind, count)| (kind.to_string(), *count)).collect(),
        }
    }
}

/// To a thousandth: no figure here is known better.
pub(crate) fn rounded(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}

/// The figures of every name and of all together.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Of all requests.
    pub total: Figures,
    /// By name, in the order of the mix.
    #[serde(serialize_with = "as_map")]
    pub requests: Vec<(String, Figures)>,
}

impl Table {
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>, tallies: &[Tally], span: Nanos) -> Table {
        let mut total = Tally::new();
        for tally in tallies {
            total.merge(tally);
        }
        Table {
            total: Figures::new(&total, span),
            requests: names
                .zip(tallies)
                .map(|(name, tally)| (name.into(), Figures::new(tally, span)))
                .collect(),
        }
    }
}

fn as_map<S: Serializer>(rows: &[(String, Figures)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(rows.iter().map(|(name, figures)| (name, figures)))
}

/// What a run has found out.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The figures.
    #[serde(flatten)]
    pub table: Table,
    /// Where the load went.
    pub target: String,
    /// The mean rate that was planned, in requests per second.
    pub rate: f64,
    /// The plan of rates, as it is written.
    pub schedule: String,
    /// How the arrivals lay within it.
    pub spacing: Spacing,
    /// What fixed the schedule.
    pub seed: u64,
    /// How long requests became due, in seconds; less than planned where the run was interrupted.
    pub duration_s: f64,
    /// Until the last request had ended, in seconds.
    pub elapsed_s: f64,
    /// The run was stopped early: what was then under way counts as sent only.
    pub interrupted: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.table.requests.iter().map(|(name, figures)| (name.as_str(), figures));
        // One name only: its figures are the total's.
        let rows: Vec<_> =
            rows.filter(|_| self.table.requests.len() > 1).chain([("total", &self.table.total)]).collect();
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(7);
        write!(f, "{:width$}", "request")?;
        for title in ["sent", "ok", "rejected", "refused", "errors", "good/s"] {
            write!(f, " {title:>9}")?;
        }
        for title in ["p50 ms", "p90 ms", "p99 ms", "max ms", "late p99"] {
            write!(f, " {title:>8}")?;
        }
        writeln!(f)?;
        for (name, row) in rows {
            write!(f, "{name:width$}")?;
            for count in [row.sent, row.ok, row.rejected, row.refused_other, row.errors] {
                write!(f, " {count:>9}")?;
            }
            write!(f, " {:>9.1}", row.goodput_per_s)?;
            for latency in [row.p50_ms, row.p90_ms, row.p99_ms, row.max_ms, row.late_ms_p99] {
                write!(f, " {:>8}", latency.map_or("-".into(), |ms| format!("{ms:.2}")))?;
            }
            writeln!(f)?;
        }
        if self.table.total.retries > 0 {
            writeln!(f, "{} times tried again", self.table.total.retries)?;
        }
        for (kind, count) in &self.table.total.error_kinds {
            writeln!(f, "{count} errors: {kind}")?;
        }
        let Report { schedule, seed, duration_s, elapsed_s, .. } = self;
        write!(
            f,
            "rate {schedule}, seed {seed}, {duration_s:.1} s of load, {elapsed_s:.1} s until the last answer"
        )?;
        f.write_str(if self.interrupted { " (interrupted)" } else { "" })
    }
}
