//! The papers' experiments, run with our code, beside what the papers report.
//!
//! An [`Experiment`] has an id and a closure; what a group of them shares (runs already made, a system that was started)
//! lives in what the closures capture. Hosts that can run more than a simulation bring theirs along.

pub mod atropos;
pub mod bouncer;
pub mod cataclysm;
pub mod cpu_futures;
pub mod findings;
pub mod topfull;
pub mod values;

use std::io;

use findings::{Findings, Row, Tolerance, Value};
use serde::Serialize;

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Of everything random.
    pub seed: u64,
    /// Fewer loads and single runs, held to the same tolerances: all of a paper within 55 s on two cores.
    pub quick: bool,
    /// On the real testbed, where a paper has both.
    pub real: bool,
}

/// One table or figure of a paper.
pub struct Experiment {
    /// As the paper numbers it: `table3`, `fig6`.
    pub id: &'static str,
    /// Runs it.
    pub run: Box<dyn Fn() -> Result<Findings, String>>,
}

/// What came of several.
#[derive(Serialize)]
pub struct Results {
    /// In the order in which they ran.
    pub experiments: Vec<ExperimentResult>,
}

/// What came of one.
#[derive(Serialize)]
pub struct ExperimentResult {
    /// Its id.
    pub id: &'static str,
    /// Its rows.
    pub rows: Vec<Row>,
}

impl Results {
    /// Whether no row failed.
    pub fn pass(&self) -> bool {
        self.rows().all(|row| row.pass != Some(false))
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.experiments.iter().flat_map(|experiment| &experiment.rows)
    }

    /// For people.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write_text(&self, mut output: impl io::Write) -> io::Result<()> {
        for ExperimentResult { id, rows } in &self.experiments {
            writeln!(output, "{id}")?;
            let width = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
            for row in rows {
                let text = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::to_string);
                let (paper, ours) = (text(&row.paper), text(&row.ours));
                let tolerance = row.tolerance.as_ref().map_or(String::new(), Tolerance::to_string);
                let verdict = match row.pass {
                    Some(true) => "PASS",
                    Some(false) => "FAIL",
                    None => "",
                };
                let line = format!("  {:width$}  paper {paper:>6}  ours {ours:>6}  {tolerance:8}", row.what);
                writeln!(output, "{line} {verdict}")?;
            }
        }
        let judged = self.rows().filter(|row| row.pass.is_some()).count();
        let failed = self.rows().filter(|row| row.pass == Some(false)).count();
        writeln!(output, "{} of {judged} judged rows pass, {failed} fail", judged - failed)
    }
}
