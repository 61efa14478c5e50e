//! What an experiment found: rows that hold ours against the paper's, and figures.

use std::fmt;

use serde::Serialize;

use super::values::{Kind, Target};
use crate::figures::Figure;

/// What came of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Ours beside the paper's.
    pub rows: Vec<Row>,
    /// To be drawn.
    pub figures: Vec<Figure>,
}

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured, with its unit.
    pub what: String,
    /// Nothing where the paper gives no number.
    pub paper: Option<Value>,
    /// Nothing where there was nothing to measure.
    pub ours: Option<Value>,
    /// Nothing where the row is only for reading.
    pub tolerance: Option<Tolerance>,
    /// Likewise.
    pub pass: Option<bool>,
}

/// A number, or names in an order.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// In the unit that the row says.
    Number(f64),
    /// Lowest first.
    Names(Vec<String>),
}

/// How ours must stand to the paper's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", content = "value", rename_all = "lowercase")]
pub enum Tolerance {
    /// Differ by so much at most.
    Abs(f64),
    /// Be the same at most.
    Max,
    /// Be the same at least.
    Min,
    /// Be this at most, which is our limit and not the paper's.
    #[serde(rename = "at_most")]
    AtMost(f64),
    /// Be this at least, likewise.
    #[serde(rename = "at_least")]
    AtLeast(f64),
    /// Be in the same order, but for this pair.
    Order(Option<Tie>),
}

/// Two names in an order that may come in either, if what was measured for them is this near.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tie {
    /// In any order.
    pub names: [&'static str; 2],
    /// The largest difference, in the unit of what was measured.
    pub within: f64,
}

/// As the text beside a row says it.
impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tolerance::Abs(by) => write!(f, "+-{by}"),
            Tolerance::Max => f.write_str("at most"),
            Tolerance::Min => f.write_str("at least"),
            Tolerance::AtMost(limit) => write!(f, "at most {limit}"),
            Tolerance::AtLeast(limit) => write!(f, "at least {limit}"),
            Tolerance::Order(None) => f.write_str("order"),
            Tolerance::Order(Some(Tie { names: [a, b], within })) => {
                write!(f, "order; {a} and {b} in either within {within}")
            }
        }
    }
}

/// With at most three decimals.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{}", (number * 1e3).round() / 1e3),
            Value::Names(names) => f.write_str(&names.join(" < ")),
        }
    }
}

impl Row {
    /// A number that must be near the paper's.
    pub fn near(what: impl Into<String>, paper: f64, tolerance: f64, ours: f64) -> Row {
        Row::judged(what.into(), paper, Tolerance::Abs(tolerance), ours)
    }

    /// A number that must stand to the paper's as its target says.
    pub fn against(what: impl Into<String>, target: &Target, ours: f64) -> Row {
        let tolerance = match target.kind {
            Kind::Abs => Tolerance::Abs(target.tolerance.unwrap_or(0.0)),
            Kind::Max => Tolerance::Max,
            Kind::Min => Tolerance::Min,
        };
        Row::judged(what.into(), target.value, tolerance, ours)
    }

    /// A number that may not exceed the paper's.
    pub fn at_most(what: impl Into<String>, paper: f64, ours: f64) -> Row {
        Row::judged(what.into(), paper, Tolerance::Max, ours)
    }

    /// A number that may not be below the paper's.
    pub fn at_least(what: impl Into<String>, paper: f64, ours: f64) -> Row {
        Row::judged(what.into(), paper, Tolerance::Min, ours)
    }

    /// A number that may not exceed a limit of ours.
    pub fn no_more(what: impl Into<String>, limit: f64, ours: f64) -> Row {
        Row { paper: None, ..Row::judged(what.into(), limit, Tolerance::AtMost(limit), ours) }
    }

    /// A number that may not be below a limit of ours.
    pub fn no_less(what: impl Into<String>, limit: f64, ours: f64) -> Row {
        Row { paper: None, ..Row::judged(what.into(), limit, Tolerance::AtLeast(limit), ours) }
    }

    fn judged(what: String, paper: f64, tolerance: Tolerance, ours: f64) -> Row {
        // A hair for what is written in decimals and held in binary. What is not a number passes nothing.
        let difference = ours - paper;
        let pass = match &tolerance {
            Tolerance::Abs(by) => difference.abs() <= by + 1e-9,
            Tolerance::Max | Tolerance::AtMost(_) => difference <= 1e-9,
            Tolerance::Min | Tolerance::AtLeast(_) => difference >= -1e-9,
            Tolerance::Order(_) => false,
        };
        Row {
            what,
            paper: Some(Value::Number(paper)),
            ours: ours.is_finite().then_some(Value::Number(ours)),
            tolerance: Some(tolerance),
            pass: Some(pass),
        }
    }

    /// Names that must come in the paper's order when sorted by what was measured for them. A tie may come in either.
    pub fn ordered(
        what: impl Into<String>,
        paper: &[String],
        tie: Option<Tie>,
        measured: &[(&str, f64)],
    ) -> Row {
        let of =
            |name: &String| measured.iter().find(|(n, _)| n == name).map_or(f64::NAN, |&(_, value)| value);
        let slack = |a: &String, b: &String| match &tie {
            Some(Tie { names, within }) if names.contains(&a.as_str()) && names.contains(&b.as_str()) => {
                *within
            }
            _ => 0.0,
        };
        let holds = |(i, name): (usize, &String)| {
            paper[i + 1..].iter().all(|later| of(name) <= of(later) + slack(name, later))
        };
        let in_order = paper.iter().enumerate().all(holds);
        let mut ours: Vec<_> = measured.to_vec();
        ours.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        Row {
            what: what.into(),
            paper: Some(Value::Names(paper.to_vec())),
            ours: Some(Value::Names(ours.iter().map(|&(name, _)| name.to_owned()).collect())),
            tolerance: Some(Tolerance::Order(tie)),
            pass: Some(in_order),
        }
    }

    /// What was to be measured and could not be.
    pub fn failed(what: impl Into<String>) -> Row {
        Row { what: what.into(), paper: None, ours: None, tolerance: None, pass: Some(false) }
    }

    /// A number for reading, beside the paper's where it gives one.
    pub fn beside(what: impl Into<String>, paper: Option<f64>, ours: Option<f64>) -> Row {
        let number = |value: Option<f64>| value.map(Value::Number);
        Row { what: what.into(), paper: number(paper), ours: number(ours), tolerance: None, pass: None }
    }
}

/// The one of these numbers, sorted by it, that `share` of them are below; not a number if there is none.
pub fn percentile(numbers: &mut [f64], share: f64) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let at = (numbers.len() as f64 * share) as usize;
    numbers.get(at.min(numbers.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_judged_as_their_kind_says() {
        let target = |kind| Target { value: 18.0, kind, tolerance: Some(2.0) };
        let pass = |kind, ours| Row::against("x", &target(kind), ours).pass;
        for (kind, ours, expected) in [
            (Kind::Abs, 20.0, true),
            (Kind::Abs, 15.9, false),
            (Kind::Max, 18.0, true),
            (Kind::Max, 18.1, false),
            (Kind::Min, 18.0, true),
            (Kind::Min, 17.9, false),
            (Kind::Abs, f64::NAN, false),
            (Kind::Max, f64::NAN, false),
            (Kind::Min, f64::NAN, false),
        ] {
            assert_eq!(pass(kind, ours), Some(expected), "{kind:?} {ours}");
        }
    }

    #[test]
    fn an_order_holds_but_for_a_tie() {
        let paper = ["a", "b", "c"].map(String::from);
        let tie = || Some(Tie { names: ["c", "b"], within: 0.5 });
        let row = |tie, [a, b, c]: [f64; 3]| Row::ordered("x", &paper, tie, &[("c", c), ("a", a), ("b", b)]);
        for (tie, values, expected) in [
            (None, [1.0, 2.0, 3.0], true),
            (None, [1.0, 3.2, 3.0], false),
            (tie(), [1.0, 3.2, 3.0], true),
            (tie(), [1.0, 3.6, 3.0], false),
            (tie(), [3.1, 3.0, 4.0], false),
            (tie(), [3.1, 3.2, 3.0], false),
            (tie(), [f64::NAN, 2.0, 3.0], false),
        ] {
            assert_eq!(row(tie, values).pass, Some(expected), "{values:?}");
        }
        assert_eq!(Row::ordered("x", &paper, None, &[("a", 1.0), ("b", 2.0)]).pass, Some(false));
        let told = row(tie(), [1.0, 2.0, 3.0]).tolerance.unwrap();
        assert_eq!(told.to_string(), "order; c and b in either within 0.5");
        let expected =
            serde_json::json!({ "kind": "order", "value": { "names": ["c", "b"], "within": 0.5 } });
        assert_eq!(serde_json::to_value(told).unwrap(), expected);
    }

    #[test]
    fn tolerances_are_told_with_their_kind() {
        let row = serde_json::to_value(Row::near("x", 1.0, 0.5, 1.2)).unwrap();
        let expected = serde_json::json!({
            "what": "x", "paper": 1.0, "ours": 1.2, "tolerance": { "kind": "abs", "value": 0.5 }, "pass": true,
        });
        assert_eq!(row, expected);
        let row = serde_json::to_value(Row::beside("x", None, None)).unwrap();
        assert!(row["pass"].is_null() && row["paper"].is_null());
        let row = serde_json::to_value(Row::no_more("x", 5.0, 5.1)).unwrap();
        let expected = serde_json::json!({
            "what": "x", "paper": null, "ours": 5.1, "tolerance": { "kind": "at_most", "value": 5.0 }, "pass": false,
        });
        assert_eq!(row, expected, "a limit of ours is not said to be the paper's");
        let least = serde_json::to_value(Row::at_least("x", 5.0, 4.9)).unwrap();
        assert_eq!(least["paper"], 5.0);
        assert_eq!((&least["tolerance"]["kind"], &least["pass"]), (&"min".into(), &false.into()));
        assert_eq!(Row::no_less("x", 5.0, 5.1).pass, Some(true));
        assert_eq!(Row::no_less("x", 5.0, f64::NAN).pass, Some(false));
    }
}
