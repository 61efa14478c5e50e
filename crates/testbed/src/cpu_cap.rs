//! A part of a core, and no more, for some processes: a small machine on a large one, to overload what runs there with little load.

use std::io;

use crate::control_group::ControlGroup;

/// The quota holds for each period of this length, in microseconds. Short, so that who has used his up stands still for milliseconds.
const PERIOD_US: f64 = 10_000.0;
/// The kernel grants no less.
const LEAST_US: f64 = 1_000.0;

/// A control group of its own with a CPU quota. Dropped, it lets go of those that it holds.
#[derive(Debug)]
pub struct CpuCap(ControlGroup);

impl CpuCap {
    /// One that allows so many cores, at least 0.1, to all that it will hold together. By control groups of version 1 or 2, whichever
    /// this process may make here.
    ///
    /// # Errors
    /// Why neither is to be had: mostly for want of permission, which containers rarely give.
    pub fn new(cores: f64) -> Result<CpuCap, String> {
        let (quota, period) = ((cores * PERIOD_US).max(LEAST_US).round(), PERIOD_US);
        let of_version_1 =
            [("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())];
        let of_version_2 = [("cpu.max", format!("{quota} {period}"))];
        ControlGroup::new(&[("/sys/fs/cgroup/cpu", &of_version_1), ("/sys/fs/cgroup", &of_version_2)])
            .map(CpuCap)
    }

    /// Holds a process and its children from now on, and what they start later.
    ///
    /// # Errors
    /// Where one of them cannot be moved. One that has ended meanwhile is none.
    pub fn hold(&self, root: u32) -> io::Result<()> {
        self.0.hold(root)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::control_group::family;

    #[test]
    fn it_holds_a_process_and_its_children_until_it_is_dropped() {
        let mut shell = Command::new("sh").args(["-c", "sleep 100 & wait"]).spawn().unwrap();
        while family(shell.id()).len() < 2 {
            std::thread::yield_now();
        }
        let pids = family(shell.id());
        match CpuCap::new(0.2) {
            Ok(cap) => {
                cap.hold(shell.id()).unwrap();
                let mut expected = pids.clone();
                expected.sort_unstable();
                assert_eq!(cap.0.inside(), expected);
                cap.hold(u32::MAX).unwrap();
                let group = cap.0.path().to_owned();
                drop(cap);
                assert!(!group.exists());
            }
            Err(why) => eprintln!("not capped: {why}"),
        }
        for pid in pids {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        shell.wait().unwrap();
    }
}
