//! `plimsoll agent` beside a server, as a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use plimsoll_core::Nanos;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::child::{self, ends_with_this_thread};
use crate::ports::free_ports;

/// How long it may take to end.
const ENDS_WITHIN: Nanos = Nanos::from_secs(10);

/// One that runs. Dropped, it is killed.
pub struct Agent {
    process: Child,
    directory: TempDir,
}

impl Agent {
    /// Starts the `agent` of this program, with tables of a config that say what it watches.
    ///
    /// # Errors
    /// Where its program does not start.
    pub fn start(program: &Path, watched: &str) -> Result<Agent, String> {
        let directory = tempfile::tempdir().map_err(|e| format!("cannot make a directory: {e}"))?;
        let config = directory.path().join("agent.toml");
        let admin = free_ports(1)?.start;
        let text = format!("[agent]\nadmin = \"127.0.0.1:{admin}\"\n\n{watched}");
        fs::write(&config, text).map_err(|e| format!("cannot write {}: {e}", config.display()))?;
        let mut command = Command::new(program);
        command.arg("agent").arg("--config").arg(&config);
        command.arg("--events").arg(events(directory.path())).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(said(directory.path())).map_err(|e| e.to_string())?);
        ends_with_this_thread(&mut command, Signal::TERM);
        let process = command.spawn().map_err(|e| format!("cannot start {}: {e}", program.display()))?;
        Ok(Agent { process, directory })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends it, and returns the events that it has told.
    ///
    /// # Errors
    /// Where it has ended by itself before.
    pub fn stop(mut self) -> Result<Vec<Value>, String> {
        if let Ok(Some(status)) = self.process.try_wait() {
            let said = fs::read_to_string(said(self.directory.path())).unwrap_or_default();
            return Err(format!("the agent has ended by itself: {status}: {}", said.trim_end()));
        }
        if !child::stop(&mut self.process, &[Signal::TERM], ENDS_WITHIN) {
            return Err("the agent does not end".to_owned());
        }
        let told = fs::read_to_string(events(self.directory.path())).unwrap_or_default();
        told.lines().map(|line| serde_json::from_str(line).map_err(|e| format!("{line}: {e}"))).collect()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Where it has ended already there is nothing to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn events(directory: &Path) -> PathBuf {
    directory.join("events")
}

fn said(directory: &Path) -> PathBuf {
    directory.join("said")
}
