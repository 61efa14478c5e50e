//! What this process may do to others.

use std::fs;

use plimsoll_herald::parse;
use rustix::process::{Pid, geteuid, test_kill_process};

use crate::levers::scheduling::Scheduling;

/// The bit of a capability in the kernel's masks.
const CAP_SYS_NICE: u32 = 23;
/// The greatest priority of real-time policies.
const MOST_REALTIME: i32 = 99;

/// The highest priorities that may be given to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raise {
    /// The lowest nice value.
    pub lowest_nice: i32,
    /// The highest priority of a real-time policy; 0 for none.
    pub realtime: i32,
}

impl Raise {
    /// Those that this process may give to threads of a process.
    pub fn of(pid: i32) -> Raise {
        if has(CAP_SYS_NICE) {
            return Raise { lowest_nice: -20, realtime: MOST_REALTIME };
        }
        // It is the limits of whoever is raised that count. That of nice counts the other way round: 1 is nice 19, 40 is nice -20, and 0 is
        // none at all.
        let nice = limit(pid, "Max nice priority").min(40) as i32;
        let realtime = limit(pid, "Max realtime priority").min(MOST_REALTIME as u64) as i32;
        Raise { lowest_nice: 20 - nice, realtime }
    }

    /// Whether a thread that is scheduled so can be put back once it is scheduled otherwise.
    pub fn can_put_back(&self, was: &Scheduling) -> bool {
        !was.has_deadline() && self.lowest_nice <= was.nice && was.realtime <= self.realtime
    }
}

/// A limit of a process, by its name in `/proc/PID/limits`; none at all of one that has gone.
fn limit(pid: i32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let soft = text.lines().find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next());
    soft.map_or(0, |soft| if soft == "unlimited" { u64::MAX } else { soft.parse().unwrap_or(0) })
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
        assert!((-20..=20).contains(&Raise::of(std::process::id() as i32).lowest_nice));
    }

    #[test]
    fn limits_are_read() {
        let own = std::process::id() as i32;
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        assert_eq!(limit(own, "Max open files"), files.unwrap_or(u64::MAX));
        assert_eq!(limit(i32::MAX, "Max open files"), 0);
    }

    #[test]
    fn what_takes_a_right_to_be_put_back_can_be_put_back_with_it_alone() {
        let like = |policy, realtime, nice| Scheduling { policy, realtime, nice };
        let none = Raise { lowest_nice: 20, realtime: 0 };
        let normal = Raise { lowest_nice: 0, realtime: 0 };
        let all = Raise { lowest_nice: -20, realtime: MOST_REALTIME };
        for (was, by) in [
            (like(libc::SCHED_OTHER, 0, 0), [false, true, true]),
            (like(libc::SCHED_BATCH, 0, -5), [false, false, true]),
            (like(libc::SCHED_FIFO, 1, 0), [false, false, true]),
            // It takes a runtime and a period, which are not kept.
            (like(libc::SCHED_DEADLINE, 0, 0), [false; 3]),
        ] {
            assert_eq!([none, normal, all].map(|raise| raise.can_put_back(&was)), by, "{was:?}");
        }
    }
}
