//! `[slo.NAME]` and `slo = ...`: objectives as a file writes them.

use serde_json::{Value as Json, json};

use super::report::Report;
use super::table::Field;
use super::value::{Node, Value};
use crate::{Nanos, Percentile, Slo};

/// Most percentiles of one objective.
const MAX_TARGETS: usize = 16;

impl Value for Slo {
    const EXAMPLE: &'static str = "{ p50 = \"18ms\", p90 = \"50ms\" }";
    fn kind() -> String {
        "a table of percentiles and durations".to_owned()
    }
    fn schema() -> Json {
        json!({
            "type": "object",
            "patternProperties": { r"^p[0-9]{1,2}(\.[0-9]{1,3})?$": Nanos::schema() },
            "minProperties": 1,
            "maxProperties": MAX_TARGETS,
            "additionalProperties": false,
        })
    }
    fn fields() -> &'static [Field] {
        &[Field {
            key: "pNN",
            doc: &[
                "The response time that NN % of the requests may take at most, in the queue and at the server.",
                "Any percentile, also p99.9; one is enough.",
            ],
            default: None,
            range: None,
            only: None,
            named: false,
            required: || true,
            kind: Nanos::kind,
            schema: Nanos::schema,
            fields: Nanos::fields,
        }]
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<Slo> {
        let table = node.table::<Self>(report)?;
        if !(1..=MAX_TARGETS).contains(&table.len()) {
            let found = table.len();
            return node.fail(
                report,
                format!("{found} percentiles; write 1 to {MAX_TARGETS}, for example {}", Self::EXAMPLE),
            );
        }
        let mut targets = Vec::new();
        for (key, value) in table {
            match key.get_ref().parse::<Percentile>() {
                Ok(percentile) => {
                    let limit = Nanos::read(Node { key: key.get_ref(), value, example: "" }, report);
                    targets.extend(limit.map(|limit| (percentile, limit, value.span())));
                }
                Err(error) => report.error(key.span(), error),
            }
        }
        if targets.len() < table.len() {
            return None;
        }
        targets.sort_by_key(|&(percentile, ..)| percentile);
        let mut slo = Slo::default();
        // Grown one by one, so that an error stands where the contradiction is.
        for (i, (.., span)) in targets.iter().enumerate() {
            match Slo::new(targets[..=i].iter().map(|&(percentile, limit, _)| (percentile, limit))) {
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
    const EXAMPLE: &'static str = Slo::EXAMPLE;
    fn kind() -> String {
        "the name of an SLO, or a table of percentiles and durations".to_owned()
    }
    fn schema() -> Json {
        json!({ "anyOf": [String::schema(), Slo::schema()] })
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<SloRef> {
        match node.value.get_ref().as_str() {
            Some(name) => Some(SloRef::Named(name.to_owned())),
            None if node.value.get_ref().is_table() => Slo::read(node, report).map(SloRef::Inline),
            None => node.mismatch(report),
        }
    }
}
