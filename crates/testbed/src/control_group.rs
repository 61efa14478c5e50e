//! Control groups: limits of the kernel on what some processes may use together, in version 1 or 2, whichever this process may make.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A control group of its own. Dropped, it lets go of those that it holds.
#[derive(Debug)]
pub struct ControlGroup(PathBuf);

impl ControlGroup {
    /// One with these limits, by the first hierarchy, a directory, that lets itself be told them: each limit is a file and its text.
    ///
    /// # Errors
    /// Why there is none: mostly for want of permission, which containers rarely give.
    pub fn new(hierarchies: &[(&str, &[(&str, String)])]) -> Result<ControlGroup, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("plimsoll-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let mut why = Vec::new();
        for (root, limits) in hierarchies {
            let group = ControlGroup(Path::new(root).join(&name));
            let set = || {
                fs::create_dir(&group.0)?;
                limits.iter().try_for_each(|(file, text)| group.set(file, text))
            };
            match set() {
                Ok(()) => return Ok(group),
                Err(error) => why.push(format!("{root}: {error}")),
            }
        }
        Err(format!("no control group to be had here ({})", why.join("; ")))
    }

    /// Sets one more limit.
    pub(crate) fn set(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.0.join(file), text)
    }

    /// Whether it is of version 2, where one group has all limits.
    pub(crate) fn is_unified(&self) -> bool {
        self.0.join("cgroup.controllers").exists()
    }

    /// Holds a process and its children from now on, and what they start later.
    ///
    /// # Errors
    /// Where one of them cannot be moved. One that has ended meanwhile is none.
    pub fn hold(&self, root: u32) -> io::Result<()> {
        for pid in family(root) {
            match self.set("cgroup.procs", &pid.to_string()) {
                Err(_) if !Path::new("/proc").join(pid.to_string()).exists() => {}
                moved => moved?,
            }
        }
        Ok(())
    }

    /// The processes inside.
    #[cfg(test)]
    pub(crate) fn inside(&self) -> Vec<u32> {
        let inside = fs::read_to_string(self.0.join("cgroup.procs")).unwrap();
        let mut inside: Vec<u32> = inside.lines().map(|pid| pid.parse().unwrap()).collect();
        inside.sort_unstable();
        inside
    }

    /// Where it is.
    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ControlGroup {
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
