//! What is known of a case after its runs: what `--out DIR` keeps in DIR/CASE.json, and all that is told of it comes from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_core::Nanos;
use plimsoll_core::config::case::{CaseFile, CaseSlo};
use serde::{Deserialize, Serialize};

use crate::judge::Judged;
use crate::run::{Plan, Remedy};

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
    /// How it was asked for, without what names a directory; nothing of runs of before this was written down.
    #[serde(default)]
    pub command: Option<String>,
    /// How long a run is that counts.
    pub seconds: f64,
    /// How long the load has run before.
    pub warm_up_s: f64,
    /// When the first task begins.
    pub trigger_s: f64,
    /// Requests a second.
    pub rate_per_s: f64,
    /// What 99 % of them are promised; in the first repetition, where it is a multiple.
    pub slo_ms: f64,
    /// How many times what they take undisturbed, where it is one.
    pub slo_times: Option<f64>,
    /// The runs, undisturbed and with each remedy, by seed.
    pub repetitions: Vec<Repetition>,
    /// Remedies that the case does not have.
    pub not_applicable: Vec<String>,
    /// Why there are no more runs, if there are not as many as were wanted.
    pub failed: Option<String>,
    /// Below which of the directories that were read it was found: nothing, or "long/".
    #[serde(skip)]
    pub place: String,
}

/// Runs that saw the same requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Repetition {
    /// What decided them.
    pub seed: u64,
    /// The commit of the repository in which the results are kept, if they are kept in one, with a `+` where other files of it differed;
    /// nothing of runs of before this was written down.
    #[serde(default)]
    pub commit: Option<String>,
    /// How long they took, servers' starts and ends included, in seconds; likewise.
    #[serde(default)]
    pub took_s: Option<f64>,
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
            command: None,
            seconds: plan.length.as_secs_f64(),
            warm_up_s: plan.warm_up.as_secs_f64(),
            trigger_s: plan.trigger_at.as_secs_f64(),
            rate_per_s: case.load.rate.per_s,
            slo_ms: case.slo.beside(Nanos::ZERO).as_millis_f64(),
            slo_times: match case.slo {
                CaseSlo::Within(_) => None,
                CaseSlo::Times(times) => Some(times),
            },
            repetitions: Vec::new(),
            not_applicable: Vec::new(),
            failed: None,
            place: String::new(),
        }
    }

    /// Takes over the repetitions of its last runs in a directory, if there are any.
    ///
    /// # Errors
    /// What cannot be read; that those were other runs: of another length or warm-up, or on another machine.
    pub fn resume(&mut self, directory: &Path) -> Result<(), String> {
        let path = directory.join(&self.case).with_extension("json");
        if !path.exists() {
            return Ok(());
        }
        let last = Report::read(&path)?;
        let kind = |it: &Report| {
            // What a multiple came to is no part of it.
            let slo_ms = it.slo_times.is_none().then_some(it.slo_ms);
            (it.seconds, it.warm_up_s, it.rate_per_s, slo_ms, it.slo_times, it.machine.clone())
        };
        if kind(&last) != kind(self) {
            return Err(format!(
                "{} is of other runs than these; name another directory, or run without --resume",
                path.display()
            ));
        }
        (self.repetitions, self.version, self.slo_ms) = (last.repetitions, last.version, last.slo_ms);
        Ok(())
    }

    /// The runs with this remedy.
    pub fn runs_with<'a>(&'a self, remedy: &'a str) -> impl Iterator<Item = &'a Judged> {
        let remedies = self.repetitions.iter().flat_map(|repetition| &repetition.remedies);
        remedies.filter(move |run| run.remedy == remedy)
    }

    /// Whether in no run with an agent it did what it must not, or left undone what it must do.
    pub fn did_no_harm(&self) -> bool {
        self.runs_with(Remedy::Plimsoll.as_str()).all(|run| run.harms(self.culprit.as_deref()).is_empty())
    }

    /// The remedies of its runs, in their order.
    pub fn remedies(&self) -> impl Iterator<Item = &str> {
        let first = self.repetitions.first();
        first.into_iter().flat_map(|first| &first.remedies).map(|run| run.remedy.as_str())
    }

    /// The reports of a directory, and of the directories in it.
    ///
    /// # Errors
    /// What cannot be read; that there are none.
    pub fn read_all(directory: &Path) -> Result<Vec<Report>, String> {
        let mut reports = Report::read_some(directory, "")?;
        for path in entries(directory)?.into_iter().filter(|path| path.is_dir()) {
            let place = path.file_name().unwrap_or_default().to_string_lossy();
            reports.extend(Report::read_some(&path, &format!("{place}/"))?);
        }
        match reports.is_empty() {
            true => Err(format!(
                "there is nothing in {}; `plimsoll case run --all --out {0}` writes there",
                directory.display()
            )),
            false => Ok(reports),
        }
    }

    /// Those that lie in a directory itself.
    fn read_some(directory: &Path, place: &str) -> Result<Vec<Report>, String> {
        let mut reports = Vec::new();
        for path in entries(directory)? {
            if path.extension().is_some_and(|extension| extension == "json") {
                reports.push(Report { place: place.to_owned(), ..Report::read(&path)? });
            }
        }
        Ok(reports)
    }

    fn read(path: &Path) -> Result<Report, String> {
        let failed = |e: String| format!("cannot read {}: {e}", path.display());
        let text = fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
        let report: Result<Report, _> = serde_json::from_str(&text);
        let mut report = report.map_err(|e| failed(format!("it is not of `case run --out`: {e}")))?;
        // Runs of before this was written down.
        let runs = report.repetitions.iter_mut().flat_map(|repetition| &mut repetition.remedies);
        runs.for_each(|run| run.tell_action(report.trigger_s));
        Ok(report)
    }
}

/// The commit that a directory is at, if it is of a repository; with a `+` where files elsewhere in that differ from it.
pub fn commit(directory: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let done = Command::new("git").arg("-C").arg(directory).args(arguments).output().ok()?;
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude)."])?;
    Some(if changes.is_empty() { commit } else { commit + "+" })
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory).and_then(|entries| entries.map(|it| Ok(it?.path())).collect());
    entries.map_err(|e| format!("cannot read {}: {e}", directory.display()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::report;

    #[test]
    fn a_commit_is_that_of_the_repository_in_which_results_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("results");
        fs::create_dir(&results).unwrap();
        assert_eq!(commit(&results), None, "there is none");
        let git = |arguments: &str| {
            let identity = ["-c", "user.name=n", "-c", "user.email=e"];
            let arguments = arguments.split(' ');
            let done = Command::new("git").arg("-C").arg(dir.path()).args(identity).args(arguments).output();
            assert!(done.is_ok_and(|done| done.status.success()));
        };
        fs::write(dir.path().join("source"), "1").unwrap();
        fs::write(results.join("c9.json"), "1").unwrap();
        git("init -q");
        git("add .");
        git("commit -q -m first");
        let clean = commit(&results).unwrap();
        assert_eq!(clean.len(), 10);
        fs::write(results.join("c9.json"), "2").unwrap();
        assert_eq!(commit(&results), Some(clean.clone()), "results are no sources");
        fs::write(dir.path().join("source"), "2").unwrap();
        assert_eq!(commit(&results), Some(clean + "+"));
    }

    #[test]
    fn runs_go_on_where_they_are_of_the_same_kind() {
        let dir = tempfile::tempdir().unwrap();
        let write = |report: &Report| {
            fs::write(dir.path().join("c9.json"), serde_json::to_string(report).unwrap()).unwrap();
        };
        let last = report("c9", [0.9; 3], 0.5);
        let mut now = Report { repetitions: Vec::new(), version: None, ..last.clone() };
        now.resume(dir.path()).unwrap();
        assert!(now.repetitions.is_empty(), "there were none");
        write(&last);
        now.resume(dir.path()).unwrap();
        assert_eq!(now.repetitions.iter().map(|it| it.seed).collect::<Vec<_>>(), [1, 2, 3]);
        // What a multiple comes to is another time at each run.
        let multiple = |slo_ms| Report { slo_ms, slo_times: Some(1.2), ..last.clone() };
        write(&multiple(8.2));
        let mut other = Report { repetitions: Vec::new(), ..multiple(0.0) };
        other.resume(dir.path()).unwrap();
        assert_eq!((other.repetitions.len(), other.slo_ms), (3, 8.2));
        assert!(now.resume(dir.path()).is_err(), "50 ms is no multiple");
        write(&Report { warm_up_s: 20.0, ..last.clone() });
        assert!(now.resume(dir.path()).is_err(), "they were warmer");
        write(&Report { seconds: 120.0, ..last });
        let error = now.resume(dir.path()).unwrap_err();
        assert!(error.contains("is of other runs") && error.contains("--resume"), "{error}");
    }
}
