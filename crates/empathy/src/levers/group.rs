//! A control group of the job's own: it catches every process that the job starts, however fast, and one write acts on all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::hierarchy::{Hierarchy, Purpose, Version};
use crate::process;

/// How its name begins; the process id of who made it follows.
const NAME: &str = "plimsoll-yield-";
/// Passes over a group that is being emptied while its processes start others, at most.
const MOST_PASSES: usize = 100;
/// The kernel's unit of weights: that of a thread of nice 0.
const UNIT: u64 = 1024;
/// What a group of version 2 has for that.
const UNIT_OF_VERSION_2: u64 = 100;

/// A group of control.
#[derive(Clone, Debug)]
pub struct Group {
    dir: PathBuf,
    version: Version,
}

impl Group {
    /// What it will be called where it can be made for a process. Changes nothing.
    ///
    /// # Errors
    /// What is missing.
    pub fn planned(pid: i32, purpose: Purpose) -> Result<Group, String> {
        let hierarchy = Hierarchy::of(pid, purpose)?;
        let place = hierarchy.place(purpose)?;
        Ok(Group { dir: place.join(format!("{NAME}{}", std::process::id())), version: hierarchy.version })
    }

    /// Whether a process shares the CPUs in no group but the outermost, so that its session counts.
    pub fn is_outermost(pid: i32) -> bool {
        let Ok(hierarchy) = Hierarchy::of(pid, Purpose::Share) else { return true };
        let groups = hierarchy.own.ancestors().take_while(|group| *group != hierarchy.top);
        let weighed = |group: &Path| group.join("cpu.weight").exists() || group.join("cpu.shares").exists();
        !groups.into_iter().any(weighed)
    }

    /// Makes it. Empty ones that were left behind by others who have ended are removed.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn make(&self) -> io::Result<()> {
        if let Some(place) = self.dir.parent() {
            remove_stale(place);
        }
        fs::create_dir(&self.dir)
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether it can freeze too.
    pub fn freezes(&self) -> bool {
        self.version == Version::Two
    }

    /// The file that a process joins by.
    pub fn seat(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Moves a process here, with all its threads.
    ///
    /// # Errors
    /// Those of the kernel; a process that has gone is none.
    pub fn adopt(&self, pid: i32) -> io::Result<()> {
        moved(&self.seat(), pid)
    }

    /// The processes in it.
    pub fn pids(&self) -> Vec<i32> {
        inside(&self.dir)
    }

    /// Makes it give way to all other groups and threads beside it. On a kernel that cannot (before 5.15), it gets the least
    /// weight that there is.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn set_idle(&self) -> io::Result<()> {
        fs::write(self.dir.join("cpu.idle"), "1").or_else(|_| self.set_weight(1))
    }

    /// Sets its weight beside its siblings: 1024 is that of a thread of nice 0. The kernel rounds to what it has.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn set_weight(&self, weight: u64) -> io::Result<()> {
        match self.version {
            Version::One => fs::write(self.dir.join("cpu.shares"), weight.clamp(2, 262_144).to_string()),
            Version::Two => {
                let weight = (weight * UNIT_OF_VERSION_2).div_ceil(UNIT).clamp(1, 10_000);
                fs::write(self.dir.join("cpu.weight"), weight.to_string())
            }
        }
    }

    /// Freezes all that is in it, or lets it go on.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn freeze(&self, frozen: bool) -> io::Result<()> {
        freeze(&self.dir, frozen)
    }
}

/// Freezes a group of either version, or lets it go on.
fn freeze(dir: &Path, frozen: bool) -> io::Result<()> {
    let (file, text) = match (dir.join("freezer.state"), frozen) {
        (state, true) if state.exists() => (state, "FROZEN"),
        (state, false) if state.exists() => (state, "THAWED"),
        (_, true) => (dir.join("cgroup.freeze"), "1"),
        (_, false) => (dir.join("cgroup.freeze"), "0"),
    };
    fs::write(file, text)
}

/// Lets a group go on that may have been frozen. One that has gone needs no help.
pub fn thaw(dir: &Path) {
    let _ = freeze(dir, false);
}

/// Empties a group and removes it; `home` says where each process goes.
pub fn dissolve(dir: &Path, home: impl Fn(i32) -> PathBuf) {
    thaw(dir);
    for _ in 0..MOST_PASSES {
        let pids = inside(dir);
        for &pid in &pids {
            let _ = moved(&home(pid).join("cgroup.procs"), pid);
        }
        if fs::remove_dir(dir).is_ok() || !dir.exists() {
            return;
        }
    }
}

fn moved(seat: &Path, pid: i32) -> io::Result<()> {
    match fs::write(seat, pid.to_string()) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        done => done,
    }
}

fn inside(dir: &Path) -> Vec<i32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    // One of another pid namespace is 0, and out of reach.
    text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid > 0).collect()
}

fn remove_stale(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(NAME)).and_then(|pid| pid.parse().ok());
        if owner.is_some_and(|pid: i32| process::Process::of(pid).is_none()) {
            // Only an empty one lets itself be removed.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The group that a process is in, where one like this would hold it.
///
/// # Errors
/// Why that cannot be said.
pub fn home(pid: i32, purpose: Purpose) -> Result<PathBuf, String> {
    Hierarchy::of(pid, purpose).map(|hierarchy| hierarchy.own)
}
