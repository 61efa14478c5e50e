//! Stopping and continuing by signal: the means of last resort, which needs no right but to signal the job. Others see it: the
//! parent of a stopped process is told.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::Process;

/// Whether a process runs or may: whoever was stopped by somebody else is not ours to stop, nor to continue.
pub fn runs(process: Process) -> bool {
    process.state().is_some_and(|state| !matches!(state, b'T' | b't' | b'Z' | b'X'))
}

/// Stops a process.
pub fn stop(process: Process) {
    let _ = kill(Pid::from_raw(process.pid), Signal::SIGSTOP);
}

/// Continues a process that was stopped here.
pub fn resume(process: Process) {
    if process.lives() {
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGCONT);
    }
}
