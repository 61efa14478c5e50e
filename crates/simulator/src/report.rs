//! What `plimsoll simulate` prints: JSON, CSV, or a table for people.

use std::io;

use plimsoll_core::Nanos;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::run::{ClassOutcome, Outcome, Percentiles};

/// All runs.
#[derive(serde::Serialize)]
pub struct Report {
    /// In the order in which they were asked for.
    pub runs: Vec<Run>,
}

/// One policy under one load.
#[derive(serde::Serialize)]
pub struct Run {
    /// As it was asked for.
    pub policy: String,
    /// As a multiple of the full load; of a log, how much faster than recorded.
    pub load: f64,
    /// Of everything random.
    pub seed: u64,
    /// Requests that counted: the warm-up is left out.
    pub queries: u64,
    /// Of them.
    pub rejected_pct: f64,
    /// Of all processes.
    pub utilization_pct: f64,
    /// Simulated time that counted.
    pub simulated_s: f64,
    /// What the answers were worth, a second; where there is policing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revenue_per_s: Option<f64>,
    /// Those that were asked for, by name, in the order of the workload.
    pub classes: Classes,
}

/// Classes by name.
pub struct Classes(pub Vec<(String, Class)>);

impl Serialize for Classes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, class)| (name, class)))
    }
}

/// One class in one run. Times are in milliseconds.
#[derive(serde::Serialize)]
pub struct Class {
    /// Requests that came.
    pub received: u64,
    /// Of them.
    pub rejected_pct: f64,
    /// Of all that was served; nothing where nothing was.
    pub rt_p50_ms: Option<f64>,
    /// As above.
    pub rt_p90_ms: Option<f64>,
    /// As above.
    pub rt_p99_ms: Option<f64>,
    /// Whether what was let in by the estimate met every objective. Where there was none of either, none was missed:
    /// it is true also of a class that was refused altogether, which `by_estimate` and `rejected_pct` tell apart.
    pub slo_met: bool,
    /// Of all that was served, at each percentile of its objective.
    #[serde(skip)]
    pub at_objectives_ms: Vec<Option<f64>>,
    /// Requests let in against the estimate, for which no objective is claimed.
    pub overridden: u64,
    /// Requests let in on the promise of the class, untested; where there is policing. They count as `overridden` too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promised: Option<u64>,
    /// What was let in by the estimate.
    pub by_estimate: ByEstimate,
    /// Requests turned away, by mechanism.
    pub refused: Refused,
}

/// What was let in because it was expected to meet its objectives. Times are in milliseconds.
#[derive(serde::Serialize)]
pub struct ByEstimate {
    /// Requests served.
    pub served: u64,
    /// Nothing where nothing was served.
    pub rt_p50_ms: Option<f64>,
    /// As above.
    pub rt_p90_ms: Option<f64>,
    /// As above.
    pub rt_p99_ms: Option<f64>,
}

/// Counts by mechanism.
pub struct Refused(Vec<(&'static str, u64)>);

impl Serialize for Refused {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (mechanism, n) in &self.0 {
            map.serialize_entry(mechanism, n)?;
        }
        map.end()
    }
}

impl Run {
    /// What came of `policy` at `load`. Classes of which nothing came are left out.
    pub fn new(policy: &str, load: f64, seed: u64, outcome: &Outcome, names: &[String]) -> Run {
        let classes = names.iter().zip(&outcome.classes).filter(|(_, class)| class.received > 0);
        Run {
            policy: policy.to_owned(),
            load,
            seed,
            queries: outcome.queries,
            rejected_pct: outcome.rejected_pct(),
            utilization_pct: outcome.utilization_pct,
            simulated_s: outcome.span.as_secs_f64(),
            revenue_per_s: outcome.revenue_per_s(),
            classes: Classes(
                classes.map(|(name, class)| (name.clone(), Class::new(class, outcome.policed))).collect(),
            ),
        }
    }
}

impl Class {
    fn new(class: &ClassOutcome, policed: bool) -> Class {
        let ms = |time: Option<Nanos>| time.map(Nanos::as_millis_f64);
        let Percentiles { count, p50, p90, p99 } = class.by_estimate;
        Class {
            received: class.received,
            rejected_pct: class.rejected_pct(),
            rt_p50_ms: ms(class.served.p50),
            rt_p90_ms: ms(class.served.p90),
            rt_p99_ms: ms(class.served.p99),
            slo_met: class.slo_met.unwrap_or(true),
            at_objectives_ms: class.at_objectives.iter().copied().map(ms).collect(),
            overridden: class.overridden(),
            promised: policed.then(|| class.promised()),
            by_estimate: ByEstimate {
                served: count,
                rt_p50_ms: ms(p50),
                rt_p90_ms: ms(p90),
                rt_p99_ms: ms(p99),
            },
            refused: Refused(class.refused.iter().map(|(mechanism, n)| (mechanism.as_str(), *n)).collect()),
        }
    }
}

/// One line a run and class.
///
/// # Errors
/// Where it cannot be written.
pub fn write_csv(report: &Report, output: impl io::Write) -> csv::Result<()> {
    let mut writer = csv::Writer::from_writer(output);
    let header = "policy,load,seed,utilization_pct,class,received,rejected_pct,rt_p50_ms,rt_p90_ms,rt_p99_ms,slo_met,overridden";
    writer.write_record(header.split(','))?;
    let optional = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
    for run in &report.runs {
        for (name, class) in &run.classes.0 {
            writer.write_record([
                run.policy.clone(),
                run.load.to_string(),
                run.seed.to_string(),
                run.utilization_pct.to_string(),
                name.clone(),
                class.received.to_string(),
                class.rejected_pct.to_string(),
                optional(class.rt_p50_ms),
                optional(class.rt_p90_ms),
                optional(class.rt_p99_ms),
                class.slo_met.to_string(),
                class.overridden.to_string(),
            ])?;
        }
    }
    writer.flush()?;
    Ok(())
}

/// A block of lines a run.
///
/// # Errors
/// Where it cannot be written.
pub fn write_table(report: &Report, mut output: impl io::Write) -> io::Result<()> {
    let names = report.runs.iter().flat_map(|run| &run.classes.0).map(|(name, _)| name.chars().count());
    let width = names.max().unwrap_or(0).max(5);
    for run in &report.runs {
        writeln!(
            output,
            "{} at load {}: {:.2} % of {} rejected, {:.1} % utilisation, {:.1} s simulated",
            run.policy, run.load, run.rejected_pct, run.queries, run.utilization_pct, run.simulated_s
        )?;
        writeln!(
            output,
            "  {:width$} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9}  objectives",
            "class", "received", "rejected %", "overridden", "p50 ms", "p90 ms", "p99 ms"
        )?;
        for (name, class) in &run.classes.0 {
            let ms = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
            let met = match class.slo_met {
                _ if class.by_estimate.served == 0 => "-",
                true => "met",
                false => "MISSED",
            };
            writeln!(
                output,
                "  {name:width$} {:>10} {:>10.2} {:>10} {:>9} {:>9} {:>9}  {met}",
                class.received,
                class.rejected_pct,
                class.overridden,
                ms(class.rt_p50_ms),
                ms(class.rt_p90_ms),
                ms(class.rt_p99_ms)
            )?;
        }
        writeln!(output)?;
    }
    Ok(())
}
