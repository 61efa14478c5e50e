//! `[arrivals]` of a workload: how requests come.

use serde_json::json;

use crate::Nanos;
use crate::config::report::{Report, Span};
use crate::config::table::{choice, table};
use crate::config::value::{Derived, Node, Shape, Value};

table! {
    /// How requests come.
    pub struct ArrivalsTable {
        /// "poisson" at a constant rate; "on-off" and "schedule" are Poisson too, at a rate that changes.
        process: Process = "poisson",
        /// Length of the busy phase, with which the run starts.
        on: Option<Nanos> ["1us"..="24h"] where process = "on-off",
        /// Length of the other phase.
        off: Option<Nanos> ["1us"..="24h"] where process = "on-off",
        /// The busy rate as a multiple of the load. The other one is such that the mean of both is the load.
        burst: Option<f64> [1.0..=1000.0] where process = "on-off",
        /// Start times and multiples of the load, `[["0s", 0.9], ["30s", 1.5]]`; the last holds to the end.
        schedule: Option<Vec<Step>> where process = "schedule",
    }
}

choice! {
    /// How requests come.
    pub enum Process {
        /// At a constant rate.
        Poisson = "poisson",
        /// At a rate that switches.
        OnOff = "on-off",
        /// At a rate that follows a table.
        Schedule = "schedule",
    }
}

/// How requests come, relative to the load of the run.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// At a constant rate, each independent of the others.
    Poisson,
    /// Poisson at a rate that switches between two, whose mean is the load.
    OnOff {
        /// Length of the busy phase, with which the run starts; above zero.
        on: Nanos,
        /// Length of the other one; above zero.
        off: Nanos,
        /// The busy rate as a multiple of the load: from 1 to `(on + off) / on`.
        burst: f64,
        /// The other rate as a multiple of the load: from 0 to 1.
        lull: f64,
    },
    /// Poisson at a rate that follows a table: start times, rising from zero, and multiples of the load. Never empty;
    /// the last step holds to the end.
    Schedule(Vec<Step>),
}

/// Highest multiple of the load.
const MAX_FACTOR: f64 = 1000.0;

/// From when on, and how many times the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Since the start of the run.
    pub start: Nanos,
    /// At least 0.
    pub factor: f64,
}

impl Value for Step {
    const SHAPE: Shape = Shape::new(
        || "a pair of a start time and a factor".to_owned(),
        || "[\"30s\", 1.5]".to_owned(),
        || {
            let factor = json!({ "type": "number", "minimum": 0, "maximum": MAX_FACTOR });
            let pair = [(Nanos::SHAPE.schema)(), factor];
            json!({ "type": "array", "prefixItems": pair, "minItems": 2, "maxItems": 2 })
        },
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<Step> {
        let Some([start, factor]) = node.value.get_ref().as_array().map(|pair| &pair[..]) else {
            return node.mismatch(report);
        };
        let start = Nanos::read(Node::new(node.key, start), report);
        let factor_node = Node::new(node.key, factor);
        let factor = f64::read(factor_node, report)?;
        if !(0.0..=MAX_FACTOR).contains(&factor) {
            return factor_node
                .fail(report, format!("{factor} is no factor; write a number from 0 to {MAX_FACTOR}"));
        }
        Some(Step { start: start?, factor })
    }
}

impl Derived for Arrivals {
    type Written = ArrivalsTable;

    fn derive(written: ArrivalsTable, node: Node<'_>, report: &mut Report) -> Option<Arrivals> {
        let ArrivalsTable { process, on, off, burst, schedule } = written;
        match (process, on, off, burst) {
            (Process::Poisson, ..) => Some(Arrivals::Poisson),
            (Process::OnOff, Some(on), Some(off), Some(burst)) => {
                let (on_s, off_s) = (on.as_secs_f64(), off.as_secs_f64());
                let highest = (on_s + off_s) / on_s;
                let lull = (on_s + off_s - burst * on_s) / off_s;
                // A hair below zero is how floats write `highest` itself.
                if lull < -1e-9 {
                    let message = format!(
                        "with these phases `burst` is at most {highest:.3}, or their mean is above the load"
                    );
                    report.error(node.at(&["burst"]), format!("{message}; lower it or make `off` longer"));
                    return None;
                }
                Some(Arrivals::OnOff { on, off, burst, lull: lull.clamp(0.0, 1.0) })
            }
            (Process::OnOff, ..) => {
                let example = "on = \"2s\", off = \"8s\", burst = 3.0";
                node.fail(
                    report,
                    format!(
                        "process = \"on-off\" needs `on`, `off` and `burst`; write for example {example}"
                    ),
                )
            }
            (Process::Schedule, ..) => {
                let steps = schedule.unwrap_or_default();
                let rises = check_steps(&steps, node.at(&["schedule"]), report);
                rises.then_some(Arrivals::Schedule(steps))
            }
        }
    }
}

/// Whether it is a schedule: start times that rise from zero. Says what is wrong.
pub fn check_steps(steps: &[Step], at: Span, report: &mut Report) -> bool {
    let starts = steps.first().is_some_and(|step| step.start == Nanos::ZERO);
    let rises = starts && steps.is_sorted_by(|a, b| a.start < b.start);
    if !rises {
        let wanted = "`schedule` needs start times that rise from \"0s\"";
        let example = "schedule = [[\"0s\", 0.9], [\"30s\", 1.5]]";
        report.error(at, format!("{wanted}; write for example {example}"));
    }
    rises
}
