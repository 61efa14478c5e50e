//! The programs that the parent starts, and the one that it becomes. The parent has one thread, which is what makes
//! [`inheriting`] exact.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::Parent;
use super::descriptors::inheriting;
use super::handover::{PARENT_VAR, ParentState, WORKER_VAR, WorkerShare, encode};
use super::lifecycle::Order;
use crate::clock;

/// The hidden subcommand that runs a worker.
pub const WORKER_COMMAND: &str = "sentry-worker";

/// This very program, even where the file that it was started from has been replaced since.
const RUNNING_BINARY: &str = "/proc/self/exe";

impl Parent {
    /// Starts a worker in this seat.
    pub(super) fn spawn(&mut self, seat: usize) -> Vec<Order> {
        self.follow_config();
        self.slots.clear(seat);
        match self.spawn_worker(seat) {
            Ok((pid, channel)) => {
                log::info!(worker = pid, seat; "worker started");
                self.channels.insert(pid, channel);
                self.lifecycle.spawned(pid, seat, clock::now());
                Vec::new()
            }
            Err(error) => {
                log::error!(error:%; "cannot start a worker");
                self.lifecycle.spawn_failed(clock::now())
            }
        }
    }

    fn spawn_worker(&self, seat: usize) -> io::Result<(u32, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let share = WorkerShare { held: &self.held, seat, restarts: self.restarts, channel: theirs.into() };
        let mut command = Command::new(RUNNING_BINARY);
        command
            .arg0(&self.binary)
            .arg(WORKER_COMMAND)
            .arg("--config")
            .arg(&self.options.config)
            .env(WORKER_VAR, encode(std::process::id(), &share)?)
            .env_remove(PARENT_VAR)
            .stdin(Stdio::null());
        if let Some(record) = &self.options.record {
            command.arg("--record").arg(record);
        }
        let passed = self.held.descriptors().chain([share.channel.as_fd()]);
        let child = inheriting(passed, || command.spawn())??;
        Ok((child.id(), ours))
    }

    /// Starts the trial of an upgrade: does the binary on disk run at all, and does it understand the config?
    pub(super) fn try_binary(&mut self) {
        let trial = Command::new(&self.binary)
            .arg("check")
            .arg(&self.options.config)
            .env_remove(PARENT_VAR)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match trial {
            Ok(child) => self.lifecycle.trial_started(child.id(), clock::now()),
            Err(error) => {
                log::error!(binary:% = self.binary.display(), error:%; "cannot start the binary on disk; no upgrade");
            }
        }
    }

    /// Becomes the binary on disk. Comes back only if that fails.
    pub(super) fn become_binary(&mut self) {
        let error = self.exec().unwrap_or_else(|error| error);
        log::error!(error:%; "cannot become the binary on disk; no upgrade");
    }

    fn exec(&self) -> io::Result<io::Error> {
        let workers = self.lifecycle.workers().to_vec();
        let channels = workers.iter().map(|w| self.channels[&w.pid].try_clone().map(OwnedFd::from));
        let state = ParentState {
            binary: self.binary.clone(),
            held: &self.held,
            channels: channels.collect::<io::Result<_>>()?,
            workers,
            drain_limit_ns: self.lifecycle.drain_limit().0,
            restarts: self.restarts,
        };
        let mut command = Command::new(&self.binary);
        command.args(std::env::args_os().skip(1)).env(PARENT_VAR, encode(std::process::id(), &state)?);
        let passed = self.held.descriptors().chain(state.channels.iter().map(AsFd::as_fd));
        inheriting(passed, || command.exec())
    }
}
