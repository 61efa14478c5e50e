//! Something of every case, a line a remedy.

use super::remedy::Remedy;
use super::study::{Outcome, Study};
use crate::figures::{Chart, Line};

/// Where tails are cut off: without anybody who intervenes they are thousands of times what they should be.
const MOST: f64 = 100.0;

/// From c1 to c16.
pub fn over_cases(
    study: &Study,
    what: &str,
    remedies: &[Remedy],
    of: impl Fn(&Outcome) -> f64,
) -> Result<Chart, String> {
    let line = |&remedy: &Remedy| {
        let points = (1u32..).zip(study.of(remedy)?);
        let points = points.map(|(case, outcome)| (f64::from(case), of(outcome).min(MOST))).collect();
        Ok(Line { name: remedy.name().to_owned(), points })
    };
    Ok(Chart {
        title: what.to_owned(),
        x: "case".to_owned(),
        y: "of the undisturbed run".to_owned(),
        lines: remedies.iter().map(line).collect::<Result<_, String>>()?,
        levels: Vec::new(),
    })
}
