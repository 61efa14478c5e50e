//! A part of a core, and no more, for some processes: a small machine on a large one, to overload what runs there with little load.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The quota holds for each period of this length, in microseconds. Short, so that who has used his up stands still for milliseconds.
const PERIOD_US: f64 = 10_000.0;
/// The kernel grants no less.
const LEAST_US: f64 = 1_000.0;

/// A control group of its own with a CPU quota. Dropped, it lets go of those that it holds.
#[derive(Debug)]
pub struct CpuCap(PathBuf);

impl CpuCap {
    /// One that allows so many cores, at least 0.1, to all that it will hold together. By control groups of version 1 or 2, whichever
    /// this process may make here.
    ///
    /// # Errors
    /// Why neither is to be had: mostly for want of permission, which containers rarely give.
    pub fn new(cores: f64) -> Result<CpuCap, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("plimsoll-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let (quota, period) = ((cores * PERIOD_US).max(LEAST_US).round(), PERIOD_US);
        let of_version_1 =
            [("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())];
        let of_version_2 = [("cpu.max", format!("{quota} {period}"))];
        let hierarchies = [("/sys/fs/cgroup/cpu", &of_version_1[..]), ("/sys/fs/cgroup", &of_version_2[..])];
        let mut why = Vec::new();
        for (root, limits) in hierarchies {
            let cap = CpuCap(Path::new(root).join(&name));
            let set = || {
                fs::create_dir(&cap.0)?;
                limits.iter().try_for_each(|(file, limit)| fs::write(cap.0.join(file), limit))
            };
            match set() {
                Ok(()) => return Ok(cap),
                Err(error) => why.push(format!("{root}: {error}")),
            }
        }
        Err(format!("no control group to be had here ({})", why.join("; ")))
    }

    /// Holds a process and its children from now on, and what they start later.
    ///
    /// # Errors
    /// Where one of them cannot be moved. One that has ended meanwhile is none.
    pub fn hold(&self, root: u32) -> io::Result<()> {
        for pid in family(root) {
            match fs::write(self.0.join("cgroup.procs"), pid.to_string()) {
                Err(_) if !Path::new("/proc").join(pid.to_string()).exists() => {}
                moved => moved?,
            }
        }
        Ok(())
    }
}

impl Drop for CpuCap {
    fn drop(&mut self) {
        // Only an empty one can be removed, so whoever is still in it goes back to the one above.
        let inside = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let above = self.0.with_file_name("cgroup.procs");
        inside.lines().for_each(|pid| _ = fs::write(&above, pid));
        let _ = fs::remove_dir(&self.0);
    }
}

/// A process and its children.
pub fn family(root: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let belongs = |pid: &u32| *pid == root || parent(*pid) == Some(root);
    pids.filter(belongs).collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, and ends with the last parenthesis.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

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
                let inside = fs::read_to_string(cap.0.join("cgroup.procs")).unwrap();
                let mut inside: Vec<u32> = inside.lines().map(|pid| pid.parse().unwrap()).collect();
                inside.sort_unstable();
                assert_eq!(inside, {
                    let mut pids = pids.clone();
                    pids.sort_unstable();
                    pids
                });
                cap.hold(u32::MAX).unwrap();
                let group = cap.0.clone();
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
