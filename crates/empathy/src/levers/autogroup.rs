//! Autogroups: where the kernel has them switched on, every session is a group of its own that shares the CPUs with the other
//! sessions as one, whatever its processes are. A `SCHED_IDLE` job that is alone in its session takes as much as another session
//! unless the session's own weight is lowered. It can be lowered and raised again without any right, ten times a second.
//!
//! They count for processes in the root of the cpu controller's groups only.

use std::fs;
use std::io;

use plimsoll_herald::parse;

/// Nobody may be lower.
pub const LOWEST: i32 = 19;

/// Whether the kernel has them switched on.
pub fn enabled() -> bool {
    fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").is_ok_and(|text| text.trim() == "1")
}

/// The nice value of the group of a process's session.
///
/// # Errors
/// Where there is no such process, or no autogroups in this kernel.
pub fn nice(pid: i32) -> io::Result<i32> {
    let text = fs::read(file(pid))?;
    let found = parse::autogroup(&text).map(|(_, nice)| i32::from(nice));
    found.ok_or_else(|| io::Error::other(format!("{}: {:?}", file(pid), String::from_utf8_lossy(&text))))
}

/// Sets it.
///
/// # Errors
/// `EAGAIN` less than 0.1 s after the last time, `EPERM` below 0 without the right to.
pub fn set_nice(pid: i32, nice: i32) -> io::Result<()> {
    fs::write(file(pid), nice.to_string())
}

fn file(pid: i32) -> String {
    format!("/proc/{pid}/autogroup")
}
