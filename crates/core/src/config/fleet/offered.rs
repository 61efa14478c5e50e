//! `offered = ...` of an API: how many of its requests users send, all the time or by a schedule.

use serde_json::json;
use toml::Spanned;
use toml::de::DeValue;

use crate::Nanos;
use crate::config::report::Report;
use crate::config::units::Rate;
use crate::config::value::{Node, Shape, Value};

/// Most requests a second of one API.
const MAX_PER_S: f64 = 1e7;
const EXAMPLE: &str = "[[\"0s\", \"2000/s\"], [\"30s\", \"10000/s\"]]";

/// From when on users send how many requests a second: rising from zero, never empty; the last holds to the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Offered(Vec<(Nanos, f64)>);

impl Offered {
    /// The same rate all the time, in requests a second.
    pub fn constant(per_s: f64) -> Offered {
        Offered(vec![(Nanos::ZERO, per_s)])
    }

    /// Start times and rates in requests a second.
    ///
    /// # Errors
    /// Where the times do not rise from zero or a rate is no rate: what to write instead.
    pub fn schedule(steps: Vec<(Nanos, f64)>) -> Result<Offered, String> {
        let starts = steps.first().is_some_and(|&(start, _)| start == Nanos::ZERO);
        if !starts || !steps.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(format!(
                "a schedule needs start times that rise from \"0s\"; write for example {EXAMPLE}"
            ));
        }
        match steps.iter().find(|&&(_, per_s)| !(0.0..=MAX_PER_S).contains(&per_s)) {
            Some((_, per_s)) => {
                Err(format!("{per_s} requests a second are out of range; write 0 to {MAX_PER_S}"))
            }
            None => Ok(Offered(steps)),
        }
    }

    /// Start times and rates in requests a second.
    pub fn steps(&self) -> &[(Nanos, f64)] {
        &self.0
    }

    /// How many a second at a time.
    pub fn at(&self, now: Nanos) -> f64 {
        let after = self.0.partition_point(|&(start, _)| start <= now);
        self.0[after.max(1) - 1].1
    }

    /// When the rate changes next after a time; never again at the last step.
    pub fn changes_after(&self, now: Nanos) -> Option<Nanos> {
        let after = self.0.partition_point(|&(start, _)| start <= now);
        self.0.get(after).map(|&(start, _)| start)
    }
}

impl Value for Offered {
    const SHAPE: Shape = Shape::new(
        || "a rate, or a list of start times and rates".to_owned(),
        || "\"500/s\"".to_owned(),
        || {
            let rate = (Rate::SHAPE.schema)();
            let pair = [(Nanos::SHAPE.schema)(), rate.clone()];
            let step = json!({ "type": "array", "prefixItems": pair, "minItems": 2, "maxItems": 2 });
            json!({ "anyOf": [rate, { "type": "array", "items": step, "minItems": 1 }] })
        },
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<Offered> {
        let steps = match node.value.get_ref() {
            DeValue::String(_) => vec![(Nanos::ZERO, Rate::read(node, report)?.per_s)],
            DeValue::Array(list) => {
                let steps: Vec<_> = list.iter().map(|step| read_step(node.key, step, report)).collect();
                steps.into_iter().collect::<Option<_>>()?
            }
            _ => return node.mismatch::<Offered>(report),
        };
        Offered::schedule(steps).map_or_else(|error| node.fail(report, error), Some)
    }
}

fn read_step(key: &str, step: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<(Nanos, f64)> {
    let node = Node::new(key, step);
    let Some([start, rate]) = step.get_ref().as_array().map(|pair| &pair[..]) else {
        return node.fail(report, format!("a step is a start time and a rate; write for example {EXAMPLE}"));
    };
    let start = Nanos::read(Node::new(key, start), report);
    let rate = Rate::read(Node::new(key, rate), report);
    Some((start?, rate?.per_s))
}
