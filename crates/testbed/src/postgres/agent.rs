//! `plimsoll agent` beside a server, as a process of its own with a role that may do what `docs/agent.md` asks for and no more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use plimsoll_core::Nanos;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::server::{Server, ends_with_this_thread};
use super::session::Session;
use crate::ports::free_ports;

/// The role as which it connects.
pub const ROLE: &str = "watcher";

/// How it is to watch.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The program whose `agent` it is.
    pub program: PathBuf,
    /// What 99 % of the requests are promised.
    pub slo: Nanos,
    /// `enforce` or `shadow`.
    pub mode: &'static str,
    /// Whether sessions that are idle in a transaction are ended.
    pub terminate: bool,
}

/// One that runs. Dropped, it is killed.
pub struct Agent {
    process: Child,
    directory: TempDir,
}

/// Makes [`ROLE`] where it is not there yet, a member of `pg_monitor` and `pg_signal_backend` and of nothing else.
///
/// # Errors
/// What the server says.
pub async fn make_role(server: &Server) -> Result<(), String> {
    let session = Session::connect(&server.config("setup")).await?;
    let made = format!("select from pg_roles where rolname = '{ROLE}'");
    let made = session.client.query_opt(&made, &[]).await.map_err(|e| super::session::why(&e))?;
    if made.is_none() {
        session.run(&format!("create role {ROLE} login")).await?;
        session.run(&format!("grant pg_monitor, pg_signal_backend to {ROLE}")).await?;
    }
    Ok(())
}

impl Watch {
    /// Starts it.
    ///
    /// # Errors
    /// Where its role cannot be made, or its program does not start.
    pub async fn start(&self, server: &Server) -> Result<Agent, String> {
        make_role(server).await?;
        let directory = tempfile::tempdir().map_err(|e| format!("cannot make a directory: {e}"))?;
        let config = directory.path().join("agent.toml");
        fs::write(&config, self.config(server.port())?)
            .map_err(|e| format!("cannot write {}: {e}", config.display()))?;
        let mut command = Command::new(&self.program);
        command.arg("agent").arg("--config").arg(&config);
        command.arg("--events").arg(events(directory.path())).stdin(Stdio::null()).stdout(Stdio::null());
        ends_with_this_thread(&mut command, Signal::TERM);
        let process = command.spawn().map_err(|e| format!("cannot start {}: {e}", self.program.display()))?;
        Ok(Agent { process, directory })
    }

    fn config(&self, port: u16) -> Result<String, String> {
        let admin = free_ports(1)?.start;
        let escalate = if self.terminate { "terminate" } else { "never" };
        Ok(format!(
            "[agent]
admin = \"127.0.0.1:{admin}\"

[postgres.main]
dsn = \"postgres://{ROLE}@127.0.0.1:{port}/postgres\"
slo = {{ p99 = \"{}us\" }}
mode = \"{}\"
escalate = \"{escalate}\"
",
            self.slo.0 / 1_000,
            self.mode,
        ))
    }
}

impl Agent {
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
            return Err(format!("the agent has ended by itself: {status}"));
        }
        if let Some(pid) = Pid::from_raw(self.process.id() as i32) {
            // It has not been waited for, so the number is still its own.
            kill_process(pid, Signal::TERM).map_err(|e| format!("cannot end the agent: {e}"))?;
        }
        self.process.wait().map_err(|e| format!("the agent does not end: {e}"))?;
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
