//! `[slo.NAME]` and `slo = ...`: objectives as a file writes them.

use serde_json::json;
use toml::de::DeValue;

use super::report::Report;
use super::table::Field;
use super::value::{Node, Shape, Value};
use crate::{Nanos, Slo, Statistic};

/// Most statistics of one objective.
const MAX_TARGETS: usize = 16;
const EXAMPLE: &str = "{ p50 = \"18ms\", p90 = \"50ms\" }";

impl Value for Slo {
    const SHAPE: Shape = Shape {
        fields: &[
            Field {
                key: "pNN",
                doc: &[
                    "The response time, in the queue and at the server, that NN % of the requests may take at most.",
                    "Any percentile, also p99.9; one is enough.",
                ],
                default: None,
                range: None,
                only: None,
                shape: Nanos::SHAPE,
            },
            Field {
                key: "mean",
                doc: &[
                    "The response time that the requests may take on average, beside percentiles or instead of them.",
                ],
                default: None,
                range: None,
                only: None,
                shape: <Option<Nanos>>::SHAPE,
            },
        ],
        ..Shape::new(
            || "a table of percentiles and durations".to_owned(),
            || EXAMPLE.to_owned(),
            || {
                json!({
                    "type": "object",
                    "patternProperties": { r"^(p[0-9]{1,2}(\.[0-9]{1,3})?|mean)$": (Nanos::SHAPE.schema)() },
                    "minProperties": 1,
                    "maxProperties": MAX_TARGETS,
                    "additionalProperties": false,
                })
            },
        )
    };
    fn read(node: Node<'_>, report: &mut Report) -> Option<Slo> {
        let entries = node.entries::<Self>(report)?;
        if !(1..=MAX_TARGETS).contains(&entries.len()) {
            let found = entries.len();
            return node.fail(
                report,
                format!("{found} objectives; write 1 to {MAX_TARGETS}, for example {EXAMPLE}"),
            );
        }
        let mut targets = Vec::new();
        for (key, entry) in &entries {
            match key.get_ref().parse::<Statistic>() {
                Ok(statistic) => {
                    let limit = Nanos::read(*entry, report);
                    targets.extend(limit.map(|limit| (statistic, limit, entry.span())));
                }
                Err(error) => report.error(key.span(), error),
            }
        }
        if targets.len() < entries.len() {
            return None;
        }
        targets.sort_by_key(|&(statistic, ..)| statistic);
        let mut slo = Slo::default();
        // Grown one by one, so that an error stands where the contradiction is.
        for (i, (.., span)) in targets.iter().enumerate() {
            match Slo::new(targets[..=i].iter().map(|&(statistic, limit, _)| (statistic, limit))) {
                Ok(grown) => slo = grown,
                Err(error) => {
                    report.error(span.clone(), error);
                    return None;
                }
            }
        }
        Some(slo)
    }
}

/// An objective, or the NAME of one.
#[derive(Clone, Debug, PartialEq)]
pub enum SloRef {
    /// `[slo.NAME]`.
    Named(String),
    /// Written in place.
    Inline(Slo),
}

impl Value for SloRef {
    const SHAPE: Shape = Shape::new(
        || "the name of an SLO, or a table of percentiles and durations".to_owned(),
        Slo::SHAPE.example,
        || json!({ "anyOf": [{ "type": "string" }, (Slo::SHAPE.schema)()] }),
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<SloRef> {
        match node.value.get_ref() {
            DeValue::String(name) => Some(SloRef::Named(name.to_string())),
            DeValue::Table(_) => Slo::read(node, report).map(SloRef::Inline),
            _ => node.mismatch(report),
        }
    }
}
