//! A control group of the job's own: it catches every process that the job starts, however fast, and one write acts on all.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::hierarchy::{Hierarchy, Purpose, Version};
use crate::process;

/// How its name begins; the process id of who made it follows, and of which namespace that is.
const NAME: &str = "plimsoll-yield-";
/// Passes over a group that is being emptied while its processes start others, at most.
const MOST_PASSES: usize = 100;
/// The pause after one that found nobody.
const PAUSE_MS: u16 = 2;
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
        Ok(Group { dir: place.join(Owner::of_this().name()), version: hierarchy.version })
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

    /// The processes in it, and in the groups that were made inside of it, as by a job that has another give way in its turn.
    pub fn pids(&self) -> Vec<i32> {
        let (mut pids, mut groups) = (Vec::new(), vec![self.dir.clone()]);
        while let Some(group) = groups.pop() {
            pids.extend(inside(&group));
            // The kernel counts two links, and one for each group inside: nearly always none, so that there is nothing to list.
            if fs::metadata(&group).is_ok_and(|is| is.nlink() != 2) {
                let entries = fs::read_dir(&group).into_iter().flatten().flatten();
                let is_group = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
                groups.extend(entries.filter(is_group).map(|entry| entry.path()));
            }
        }
        pids
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

/// Empties a group and removes it; `home` says where each process goes. Where a home has gone, or takes nobody any more, it is the
/// nearest above it that does. A group that cannot be emptied holds nobody back from then on.
pub fn dissolve(dir: &Path, home: impl Fn(i32) -> PathBuf) {
    thaw(dir);
    for _ in 0..MOST_PASSES {
        let pids = inside(dir);
        for &pid in &pids {
            let home = home(pid);
            let mut homes = home.ancestors().filter(|place| *place != dir && !is_left_over(place));
            homes.any(|place| moved(&place.join("cgroup.procs"), pid).is_ok());
        }
        if fs::remove_dir(dir).is_ok() || !dir.exists() {
            return;
        }
        if pids.is_empty() {
            // One that is about to end keeps the group though it is listed no more, and may have to wait for a CPU. Interrupted it is
            // shorter, and nobody minds.
            let _ = nix::poll::poll(&mut [], PAUSE_MS);
        }
    }
    // Whichever of them there are. A group that is idle has no weight to be set, so that comes first.
    for (file, text) in [("cpu.idle", "0"), ("cpu.weight", "100"), ("cpu.shares", "1024")] {
        let _ = write(&dir.join(file), text);
    }
}

fn moved(seat: &Path, pid: i32) -> io::Result<()> {
    match write(seat, &pid.to_string()) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        done => done,
    }
}

/// Writes to a file that is there: outside of the control groups none is to be made.
fn write(file: &Path, text: &str) -> io::Result<()> {
    fs::File::options().write(true).open(file)?.write_all(text.as_bytes())
}

fn inside(dir: &Path) -> Vec<i32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    // One of another pid namespace is 0, and out of reach.
    text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid > 0).collect()
}

fn remove_stale(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if is_left_over(&entry.path()) {
            // Only an empty one lets itself be removed.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Who made a group like this. A container may see the groups of its host, or of another container, and none of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    pid: i32,
    /// The inode of the process ids' namespace, which tells it from all others of this host.
    namespace: u64,
}

impl Owner {
    fn of_this() -> Owner {
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |is| is.ino());
        Owner { pid: std::process::id() as i32, namespace }
    }

    fn of(dir: &Path) -> Option<Owner> {
        let (pid, namespace) = dir.file_name()?.to_str()?.strip_prefix(NAME)?.split_once('-')?;
        Some(Owner { pid: pid.parse().ok()?, namespace: namespace.parse().ok()? })
    }

    fn name(self) -> String {
        format!("{NAME}{}-{}", self.pid, self.namespace)
    }
}

/// Whether it was made for a job that gives way.
pub fn is_of_a_yield(dir: &Path) -> bool {
    Owner::of(dir).is_some()
}

/// Whether whoever made it has ended, as far as can be seen from here.
fn is_left_over(dir: &Path) -> bool {
    let here = |owner: &Owner| owner.namespace == Owner::of_this().namespace;
    Owner::of(dir).filter(here).is_some_and(|owner| process::Process::of(owner.pid).is_none())
}

/// Who holds a process back already: the `plimsoll yield` in whose group it is.
pub fn held_by(pid: i32) -> Option<i32> {
    [Purpose::Share, Purpose::Freeze].into_iter().find_map(|purpose| of_another(&home(pid, purpose).ok()?))
}

fn of_another(home: &Path) -> Option<i32> {
    let mut owners = home.ancestors().filter(|group| !is_left_over(group)).filter_map(Owner::of);
    owners.find(|&owner| owner != Owner::of_this()).map(|owner| owner.pid)
}

/// The group that a process is in, where one like this would hold it.
///
/// # Errors
/// Why that cannot be said.
pub fn home(pid: i32, purpose: Purpose) -> Result<PathBuf, String> {
    Hierarchy::of(pid, purpose).map(|hierarchy| hierarchy.own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_home_any_more_goes_above_it_and_who_can_go_nowhere_is_not_held_back() {
        let top = tempfile::tempdir().unwrap();
        let group = |name: &str| {
            let dir = top.path().join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cgroup.procs"), "").unwrap();
            dir
        };
        let text = |file: PathBuf| fs::read_to_string(file).unwrap();
        let slice = group("slice");
        // As one that `kill -9` of both has left behind.
        let left_over = group(&format!("slice/{}", gone().name()));
        let own = group(&Owner { pid: i32::MAX - 1, ..gone() }.name());
        // Files do not go away as those of a control group do: so it cannot be removed.
        for (file, held) in [("cgroup.procs", "4711\n"), ("cpu.idle", "1"), ("cpu.weight", "1")] {
            fs::write(own.join(file), held).unwrap();
        }
        dissolve(&own, |_| left_over.join("service"));
        assert_eq!(text(slice.join("cgroup.procs")), "4711");
        assert_eq!(text(left_over.join("cgroup.procs")), "");
        assert!(!fs::exists(left_over.join("service")).unwrap());
        assert_eq!((text(own.join("cpu.idle")), text(own.join("cpu.weight"))), ("0".into(), "100".into()));
        assert!(!fs::exists(own.join("cpu.shares")).unwrap() && !fs::exists("/cgroup.procs").unwrap());
    }

    #[test]
    fn who_is_in_a_group_inside_belongs_too() {
        let top = tempfile::tempdir().unwrap();
        let group = Group { dir: top.path().join("job"), version: Version::One };
        for (name, pids) in [("job", "1\n2\n"), ("job/build", "3\n"), ("job/build/inner", "4\n")] {
            fs::create_dir(top.path().join(name)).unwrap();
            fs::write(top.path().join(name).join("cgroup.procs"), pids).unwrap();
        }
        let mut pids = group.pids();
        pids.sort_unstable();
        assert_eq!(pids, [1, 2, 3, 4]);
    }

    #[test]
    fn whoever_is_in_the_group_of_another_is_told_from_who_is_in_one_that_is_left_over() {
        let beside = |owner: Owner| of_another(&Path::new("/sys/fs/cgroup").join(owner.name()).join("x"));
        assert_eq!(beside(Owner { pid: 1, ..gone() }), Some(1));
        assert_eq!((beside(gone()), beside(Owner::of_this())), (None, None));
        assert_eq!(beside(elsewhere()), Some(i32::MAX), "its process cannot be seen from here");
        assert_eq!(of_another(Path::new("/sys/fs/cgroup/plimsoll")), None);
    }

    #[test]
    fn what_others_have_left_behind_is_removed_unless_they_cannot_be_seen_from_here() {
        let place = tempfile::tempdir().unwrap();
        for owner in [gone(), elsewhere(), Owner::of_this()] {
            fs::create_dir(place.path().join(owner.name())).unwrap();
        }
        remove_stale(place.path());
        let is_there = |owner: Owner| place.path().join(owner.name()).exists();
        assert_eq!([gone(), elsewhere(), Owner::of_this()].map(is_there), [false, true, true]);
    }

    fn gone() -> Owner {
        Owner { pid: i32::MAX, ..Owner::of_this() }
    }

    fn elsewhere() -> Owner {
        Owner { namespace: gone().namespace + 1, ..gone() }
    }
}
