//! The log of single requests: `load --log FILE`, a line each, for whoever wants to see a run second by second.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use plimsoll_core::Nanos;

use crate::stats::Outcome;

/// How one request ended.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its intended send time, since the start of the run.
    pub at: Nanos,
    /// How it ended,
    pub outcome: Outcome,
    /// and how long after that time.
    pub latency: Nanos,
}

/// A CSV file: `at_s,request,outcome,latency_ms`, in the order of the ends.
pub(crate) struct Log {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Log {
    /// A new file with its header.
    pub(crate) fn create(path: &Path) -> Result<Log, String> {
        let file = File::create(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut log = Log { path: path.to_owned(), out: BufWriter::new(file) };
        log.line(format_args!("at_s,request,outcome,latency_ms"))?;
        Ok(log)
    }

    /// Requests of this name of the mix.
    pub(crate) fn write(&mut self, request: &str, entries: &[Entry]) -> Result<(), String> {
        // As CSV wants it: a name may hold anything.
        let name = format!("\"{}\"", request.replace('"', "\"\""));
        for Entry { at, outcome, latency } in entries {
            let outcome = match outcome {
                Outcome::Ok => "ok".to_owned(),
                Outcome::Rejected => "rejected".to_owned(),
                Outcome::RefusedOther => "refused_other".to_owned(),
                Outcome::Error(kind) => kind.to_string(),
            };
            let (at_s, latency_ms) = (at.as_secs_f64(), latency.as_millis_f64());
            self.line(format_args!("{at_s:.6},{name},{outcome},{latency_ms:.3}"))?;
        }
        Ok(())
    }

    /// Says that all is in the file.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        self.out.flush().map_err(|e| format!("{}: {e}", self.path.display()))
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), String> {
        writeln!(self.out, "{line}").map_err(|e| format!("{}: {e}", self.path.display()))
    }
}
