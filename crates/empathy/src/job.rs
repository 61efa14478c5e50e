//! Starting the command, and what is to be said of how it ended.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::wait::WaitStatus;

use crate::levers::scheduling;
use crate::plan::Plan;

/// What shells say of a command that is there and cannot be run.
pub const CANNOT_RUN: u8 = 126;
/// What shells say of a command that is not there.
pub const NOT_FOUND: u8 = 127;

/// A command that did not start.
#[derive(Debug)]
pub struct NotStarted {
    /// The exit code that says so.
    pub code: u8,
    /// Why.
    pub why: String,
}

/// Starts the command with all that the plan gives it from its first instruction on, so that nothing of it can escape. It keeps
/// the process group, and with it the terminal and its place in a pipeline. Returns its process id.
///
/// # Errors
/// Where it cannot be started.
pub fn start(command: &[OsString], plan: &Plan, before: SigSet) -> Result<i32, NotStarted> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| NotStarted { code: NOT_FOUND, why: "no command given".into() })?;
    let failed = |error: io::Error| NotStarted {
        code: if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN },
        why: format!("{}: {error}", program.display()),
    };
    let mut seats = Vec::new();
    for (group, _) in plan.groups() {
        seats.push(File::options().write(true).open(group.seat()).map_err(failed)?);
    }
    let (own_session, idle) = (plan.own_session, plan.idle_policy);
    let prepare = move || {
        if own_session {
            nix::unistd::setsid()?;
        }
        for mut seat in &seats {
            seat.write_all(b"0")?;
        }
        if idle {
            scheduling::become_idle()?;
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        Ok(())
    };
    let mut start = Command::new(program);
    start.args(arguments);
    // SAFETY: between fork and exec it makes system calls and allocates nothing.
    unsafe { start.pre_exec(prepare) };
    start.spawn().map(|child| child.id() as i32).map_err(failed)
}

/// The exit code of a shell for how a process ended; none if it has not.
pub fn exit_code(status: WaitStatus) -> Option<u8> {
    match status {
        WaitStatus::Exited(_, code) => Some(code as u8),
        WaitStatus::Signaled(_, signal, _) => Some(of_signal(signal)),
        _ => None,
    }
}

/// The exit code of a shell for a process that was ended by a signal.
pub fn of_signal(signal: Signal) -> u8 {
    128 + signal as i32 as u8
}
