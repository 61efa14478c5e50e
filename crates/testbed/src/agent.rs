//! `plimsoll agent` beside a server, or `plimsoll sentry` in front of one, as a process of its own.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use plimsoll_core::Nanos;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::child::{self, ends_with_this_thread};
use crate::clock::Clock;
use crate::ports::free_ports;

/// How long it may take to listen.
const STARTS_WITHIN: Nanos = Nanos::from_secs(20);
const LOOK: Nanos = Nanos::from_millis(20);
/// How long it may take to end.
const ENDS_WITHIN: Nanos = Nanos::from_secs(10);

/// One that runs. Dropped, it is killed.
pub struct Agent {
    role: &'static str,
    process: Child,
    directory: TempDir,
}

impl Agent {
    /// Starts the `agent` of this program, with tables of a config that say what it watches, and where ledgers are if it is to look for some.
    ///
    /// # Errors
    /// Where its program does not start.
    pub fn start(program: &Path, watched: &str, ledgers: Option<&Path>) -> Result<Agent, String> {
        let admin = free_ports(1)?.start;
        let ledgers = ledgers.map_or(String::new(), |place| format!("ledgers = [\"{}\"]\n", place.display()));
        Agent::run(program, "agent", |events| {
            format!("[agent]\nadmin = \"127.0.0.1:{admin}\"\nevents = \"{events}\"\n{ledgers}\n{watched}")
        })
    }

    /// Starts the `sentry` of this program, with tables of a config that say what it protects, and waits until it listens. Also returns
    /// where, and its admin address.
    ///
    /// # Errors
    /// Where its program does not start.
    pub fn sentry(program: &Path, protected: &str) -> Result<(Agent, SocketAddr, SocketAddr), String> {
        let ports = free_ports(2)?;
        let [listen, admin] =
            [ports.start, ports.start + 1].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut sentry = Agent::run(program, "sentry", |events| {
            format!(
                "[sentry]\nlisten = \"{listen}\"\nadmin = \"{admin}\"\ndrain_timeout = \"1s\"\nevents = \"{events}\"\n\n{protected}"
            )
        })?;
        let clock = Clock::start();
        while TcpStream::connect(listen).is_err() {
            if child::has_ended(&mut sentry.process) || clock.now() > STARTS_WITHIN {
                return Err(format!("the sentry does not listen: {}", sentry.said()));
            }
            clock.sleep_until(clock.now() + LOOK);
        }
        Ok((sentry, listen, admin))
    }

    /// Runs a role with a config, which is told where events go.
    fn run(program: &Path, role: &'static str, text: impl FnOnce(&str) -> String) -> Result<Agent, String> {
        let directory = tempfile::tempdir().map_err(|e| format!("cannot make a directory: {e}"))?;
        let config = directory.path().join("plimsoll.toml");
        let text = text(&events(directory.path()).display().to_string());
        fs::write(&config, text).map_err(|e| format!("cannot write {}: {e}", config.display()))?;
        let mut command = Command::new(program);
        command.arg(role).arg("--config").arg(&config).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(said(directory.path())).map_err(|e| e.to_string())?);
        ends_with_this_thread(&mut command, Signal::TERM);
        let process = command.spawn().map_err(|e| format!("cannot start {}: {e}", program.display()))?;
        Ok(Agent { role, process, directory })
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
            return Err(format!("the {} has ended by itself: {status}: {}", self.role, self.said()));
        }
        if !child::stop(&mut self.process, &[Signal::TERM], ENDS_WITHIN) {
            return Err(format!("the {} does not end", self.role));
        }
        let told = fs::read_to_string(events(self.directory.path())).unwrap_or_default();
        told.lines().map(|line| serde_json::from_str(line).map_err(|e| format!("{line}: {e}"))).collect()
    }
}

impl Agent {
    /// What it has logged.
    fn said(&self) -> String {
        fs::read_to_string(said(self.directory.path())).unwrap_or_default().trim_end().to_owned()
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
