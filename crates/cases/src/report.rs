//! What is known of a case after its runs: what `--out DIR` keeps in DIR/CASE.json, and all that is told of it comes from.

use std::fs;
use std::path::Path;

use plimsoll_core::config::case::CaseFile;
use serde::{Deserialize, Serialize};

use crate::judge::Judged;
use crate::run::Plan;

/// A case, and what came of its runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The name of its file.
    pub case: String,
    /// As the file has it.
    pub title: String,
    /// Likewise.
    pub paper: Option<String>,
    /// Likewise: who is to be ended.
    pub culprit: Option<String>,
    /// The kind of server.
    pub server: String,
    /// What the server calls itself; nothing where none was started.
    pub version: Option<String>,
    /// What it ran on.
    pub machine: Machine,
    /// How long a run is that counts.
    pub seconds: f64,
    /// How long the load has run before.
    pub warm_up_s: f64,
    /// When the first task begins.
    pub trigger_s: f64,
    /// Requests a second.
    pub rate_per_s: f64,
    /// What 99 % of them are promised.
    pub slo_ms: f64,
    /// The runs, undisturbed and with each remedy, by seed.
    pub repetitions: Vec<Repetition>,
    /// Remedies that the case does not have.
    pub not_applicable: Vec<String>,
    /// Why there are no more runs, if there are not as many as were wanted.
    pub failed: Option<String>,
}

/// Runs that saw the same requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Repetition {
    /// What decided them.
    pub seed: u64,
    /// What the others are held against.
    pub undisturbed: Judged,
    /// One for each remedy.
    pub remedies: Vec<Judged>,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Machine {
    /// As its kernel calls its processors.
    pub processor: String,
    /// How many of them this program may use.
    pub processors: usize,
    /// In GiB.
    pub memory_gib: u64,
    /// The kernel's version.
    pub kernel: String,
}

impl Report {
    /// One of a case that has not run yet.
    pub fn new(name: &str, case: &CaseFile, plan: &Plan) -> Report {
        Report {
            case: name.to_owned(),
            title: case.title.clone(),
            paper: case.paper.clone(),
            culprit: case.culprit.clone(),
            server: case.server.kind.to_string(),
            version: None,
            machine: Machine::this(),
            seconds: plan.length.as_secs_f64(),
            warm_up_s: plan.warm_up.as_secs_f64(),
            trigger_s: plan.trigger_at.as_secs_f64(),
            rate_per_s: case.load.rate.per_s,
            slo_ms: case.slo.as_millis_f64(),
            repetitions: Vec::new(),
            not_applicable: Vec::new(),
            failed: None,
        }
    }

    /// The runs with this remedy.
    pub fn runs_with<'a>(&'a self, remedy: &'a str) -> impl Iterator<Item = &'a Judged> {
        let remedies = self.repetitions.iter().flat_map(|repetition| &repetition.remedies);
        remedies.filter(move |run| run.remedy == remedy)
    }

    /// The remedies of its runs, in their order.
    pub fn remedies(&self) -> impl Iterator<Item = &str> {
        let first = self.repetitions.first();
        first.into_iter().flat_map(|first| &first.remedies).map(|run| run.remedy.as_str())
    }

    /// The reports of a directory.
    ///
    /// # Errors
    /// What cannot be read; that there are none.
    pub fn read_all(directory: &Path) -> Result<Vec<Report>, String> {
        let failed = |path: &Path, e: String| format!("cannot read {}: {e}", path.display());
        let entries = fs::read_dir(directory).map_err(|e| failed(directory, e.to_string()))?;
        let mut reports = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| failed(directory, e.to_string()))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let text = fs::read_to_string(&path).map_err(|e| failed(&path, e.to_string()))?;
                let report = serde_json::from_str(&text);
                reports
                    .push(report.map_err(|e| failed(&path, format!("it is not of `case run --out`: {e}")))?);
            }
        }
        match reports.is_empty() {
            true => Err(format!(
                "there is nothing in {}; `plimsoll case run --all --out {0}` writes there",
                directory.display()
            )),
            false => Ok(reports),
        }
    }
}

impl Machine {
    /// This one, as far as its kernel tells.
    pub fn this() -> Machine {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_start_matches([':', ' ', '\t']).to_owned()).unwrap_or_default()
        };
        let memory = value(&text("/proc/meminfo"), "MemTotal");
        let memory_kib = memory.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        Machine {
            processor: value(&text("/proc/cpuinfo"), "model name"),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: memory_kib.div_ceil(1 << 20),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}
