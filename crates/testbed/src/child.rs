//! Processes that are started here and must not be left behind.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use plimsoll_core::Nanos;
use rustix::process::{Pid, Signal, kill_process};

use crate::clock::Clock;

/// From one look at a process that is to end to the next.
const LOOK: Nanos = Nanos::from_millis(20);

/// Has the kernel end the child in order if this program is killed.
pub(crate) fn ends_with_this_thread(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    let orphan = move || {
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // This program may have died before that took effect.
        if rustix::process::getppid() != Some(parent) {
            return Err(std::io::Error::other("orphaned"));
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(orphan) };
}

/// What is worth showing of what a server said: the last lines of its logs, one log after the other.
pub(crate) fn last_lines(logs: &[PathBuf], most: usize) -> String {
    let said: String = logs.iter().map(|log| fs::read_to_string(log).unwrap_or_default()).collect();
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}

/// Whether a process has ended by itself.
pub(crate) fn has_ended(process: &mut Child) -> bool {
    matches!(process.try_wait(), Ok(Some(_)) | Err(_))
}

/// Sends one signal after the other until it has ended, and gives it so long each time: whether it has.
pub(crate) fn stop(process: &mut Child, signals: &[Signal], each: Nanos) -> bool {
    let clock = Clock::start();
    for &signal in signals {
        if let Some(pid) = Pid::from_raw(process.id() as i32) {
            // It has not been waited for, so the number is still its own.
            let _ = kill_process(pid, signal);
        }
        let until = clock.now() + each;
        while clock.now() < until {
            if has_ended(process) {
                return true;
            }
            clock.sleep_until(clock.now() + LOOK);
        }
    }
    false
}
