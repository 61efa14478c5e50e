//! What this process may do to others.

use std::fs;

use plimsoll_herald::parse;
use rustix::process::{Pid, Resource, geteuid, getrlimit, test_kill_process};

/// The bit of a capability in the kernel's masks.
const CAP_SYS_NICE: u32 = 23;

/// The lowest nice value, the highest priority, that may be given to a thread.
pub fn lowest_nice() -> i32 {
    if has(CAP_SYS_NICE) {
        return -20;
    }
    // The limit counts the other way round: 1 is nice 19, 40 is nice -20, and 0 is none at all.
    let ceiling = getrlimit(Resource::Nice).current.unwrap_or(40).min(40);
    20 - i32::try_from(ceiling).unwrap_or(40)
}

fn has(capability: u32) -> bool {
    let status = fs::read("/proc/self/status").unwrap_or_default();
    let mask = parse::status(&status, "CapEff").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    mask.is_some_and(|mask| mask >> capability & 1 == 1)
}

/// Whether a process may be signalled, which all means of holding it back ask for.
///
/// # Errors
/// What it is that is missing, and what to do.
pub fn over(pid: i32) -> Result<(), String> {
    let number =
        (pid > 0).then(|| Pid::from_raw(pid)).flatten().ok_or_else(|| format!("{pid} is no process id"))?;
    match test_kill_process(number) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => {
            use std::os::unix::fs::MetadataExt;
            let of = fs::metadata(format!("/proc/{pid}"))
                .map_or_else(|_| "another user".into(), |is| format!("user {}", is.uid()));
            Err(format!(
                "process {pid} belongs to {of} and this is user {}; that needs CAP_KILL and CAP_SYS_NICE: run plimsoll yield as \
                 that user or as root",
                geteuid().as_raw()
            ))
        }
        Err(rustix::io::Errno::SRCH) => Err(format!("there is no process {pid}")),
        Err(error) => Err(format!("process {pid}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_may_act_on_oneself_and_on_nobody_who_is_not_there() {
        over(std::process::id() as i32).unwrap();
        assert!(over(0).unwrap_err().contains("no process id"));
        assert!(over(-5).unwrap_err().contains("no process id"));
        assert!(over(i32::MAX).unwrap_err().contains("there is no process"));
        assert!((-20..=20).contains(&lowest_nice()));
    }
}
