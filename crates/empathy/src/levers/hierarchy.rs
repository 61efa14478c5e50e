//! Where a control group may be made: version 1, version 2, or both beside each other.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_herald::parse::{self, Mount};
use rustix::fs::{Access, access};

use super::group;

/// What a group is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To set the job's share of the CPUs.
    Share,
    /// To freeze the job.
    Freeze,
}

/// Of the kernel's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy a controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// A hierarchy of groups, and where in it a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Of its interface.
    pub version: Version,
    /// The highest group that can be seen from here.
    pub top: PathBuf,
    /// The group of the process.
    pub own: PathBuf,
}

/// What must not be escaped from: where nothing is limited these files are empty, or their first word is "max".
const LIMITS: [&str; 8] = [
    "cpu.max",
    "cpuset.cpus",
    "cpuset.mems",
    "io.max",
    "memory.max",
    "memory.high",
    "memory.swap.max",
    "pids.max",
];

impl Hierarchy {
    /// The one that has a process's share of the CPUs, or that can freeze it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn of(pid: i32, purpose: Purpose) -> Result<Hierarchy, String> {
        let read = |file: &str| fs::read_to_string(file).map_err(|error| format!("{file}: {error}"));
        Hierarchy::find(&read("/proc/self/mountinfo")?, &read(&format!("/proc/{pid}/cgroup"))?, purpose)
    }

    /// From the texts of `/proc/self/mountinfo` and `/proc/PID/cgroup`.
    fn find(mounts: &str, groups: &str, purpose: Purpose) -> Result<Hierarchy, String> {
        let controller = match purpose {
            Purpose::Share => "cpu",
            Purpose::Freeze => "freezer",
        };
        // A controller is in version 1 or in version 2, never in both; version 2 freezes without one.
        let (mut one, mut two) = (None, None);
        for group in parse::memberships(groups) {
            if group.is_unified() {
                two = Some(group.path);
            } else if group.has(controller) {
                one = Some(group.path);
            }
        }
        let (version, path) = match (one, two) {
            (Some(path), _) => (Version::One, path),
            (None, Some(path)) => (Version::Two, path),
            (None, None) => return Err("this kernel has no control groups".into()),
        };
        let fits = |mount: &Mount<'_>| match version {
            Version::One => mount.kind == "cgroup" && mount.options.split(',').any(|one| one == controller),
            Version::Two => mount.kind == "cgroup2",
        };
        let Mount { root, at: top, .. } = parse::mounts(mounts)
            .find(fits)
            .ok_or_else(|| format!("the control groups ({controller}) are not mounted here"))?;
        // A container sees a part of the hierarchy. Where that part is not said, it is the part that it is in.
        let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        if below.components().any(|part| part == std::path::Component::ParentDir) {
            return Err("the process is in a control group that cannot be seen from here".into());
        }
        let own = if below.as_os_str().is_empty() { top.clone() } else { top.join(below) };
        Ok(Hierarchy { version, own, top })
    }

    /// The groups in which one for the job may be made, best first: the higher it is, the more others it gives way to. None is
    /// above a limit that the process is under now, or above the group of a job that gives way: nobody escapes one.
    fn places(&self) -> Vec<PathBuf> {
        let mut places = Vec::new();
        for place in self.own.ancestors() {
            places.push(place.to_owned());
            if place == self.top || self.is_limited(place) || group::is_of_a_yield(place) {
                break;
            }
        }
        places.reverse();
        places
    }

    fn is_limited(&self, place: &Path) -> bool {
        let first = |file| fs::read_to_string(place.join(file)).unwrap_or_default();
        match self.version {
            Version::One => first("cpu.cfs_quota_us").trim().parse().is_ok_and(|quota: i64| quota >= 0),
            Version::Two => LIMITS.iter().any(|file| {
                let text = first(file);
                !text.trim().is_empty() && !text.starts_with("max")
            }),
        }
    }

    /// Where one for the job can be made. Changes nothing.
    ///
    /// # Errors
    /// What is missing, place by place.
    pub fn place(&self, purpose: Purpose) -> Result<PathBuf, String> {
        let mut why = Vec::new();
        for place in self.places() {
            match self.allows(&place, purpose) {
                Ok(()) => return Ok(place),
                Err(missing) => why.push(missing),
            }
        }
        Err(why.join("; "))
    }

    fn allows(&self, place: &Path, purpose: Purpose) -> Result<(), String> {
        // To move a process takes the right to write to the group above both.
        for file in [place.to_owned(), place.join("cgroup.procs")] {
            if access(&file, Access::WRITE_OK).is_err() {
                return Err(format!("no right to write to {}", file.display()));
            }
        }
        if (self.version, purpose) == (Version::Two, Purpose::Share) {
            let given = fs::read_to_string(place.join("cgroup.subtree_control")).unwrap_or_default();
            if !given.split_ascii_whitespace().any(|one| one == "cpu") {
                return Err(format!(
                    "{} gives its groups no cpu controller (cgroup.subtree_control)",
                    place.display()
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n";
    const TWO: &str = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";

    fn found(mounts: &str, groups: &str, purpose: Purpose) -> (Version, String, String) {
        let found = Hierarchy::find(mounts, groups, purpose).unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        (found.version, text(&found.top), text(&found.own))
    }

    #[test]
    fn version_1_2_and_both() {
        let one = "6:freezer:/\n1:cpu,cpuacct:/a/b\n";
        let cpu = "/sys/fs/cgroup/cpu,cpuacct";
        assert_eq!(found(ONE, one, Purpose::Share), (Version::One, cpu.into(), format!("{cpu}/a/b")));
        let freezer = "/sys/fs/cgroup/freezer";
        assert_eq!(found(ONE, one, Purpose::Freeze), (Version::One, freezer.into(), freezer.into()));
        let two = "0::/user.slice/x.scope\n";
        let top = "/sys/fs/cgroup";
        assert_eq!(
            found(TWO, two, Purpose::Share),
            (Version::Two, top.into(), format!("{top}/user.slice/x.scope"))
        );
        // Version 2 freezes; version 1 has the controller.
        let both = TWO.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
            + "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let groups = "1:cpu:/\n0::/x\n";
        assert_eq!(found(&both, groups, Purpose::Share).0, Version::One);
        assert_eq!(found(&both, groups, Purpose::Freeze).2, "/sys/fs/cgroup/unified/x");
    }

    #[test]
    fn containers_see_a_part() {
        let part = TWO.replace("0:38 / ", "0:38 /docker/7f ");
        assert_eq!(found(&part, "0::/docker/7f/job\n", Purpose::Share).2, "/sys/fs/cgroup/job");
        assert_eq!(found(&part, "0::/docker/7f\n", Purpose::Share).2, "/sys/fs/cgroup");
        let hidden = Hierarchy::find(TWO, "0::/../other\n", Purpose::Share).unwrap_err();
        assert!(hidden.contains("cannot be seen"), "{hidden}");
        assert!(Hierarchy::find("", "0::/\n", Purpose::Share).unwrap_err().contains("not mounted"));
        assert!(Hierarchy::find(TWO, "", Purpose::Share).unwrap_err().contains("no control groups"));
    }

    #[test]
    fn as_high_as_no_limit_is_escaped() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("a/b/c");
        fs::create_dir_all(&own).unwrap();
        let two = Hierarchy { version: Version::Two, top: top.path().into(), own: own.clone() };
        assert_eq!(
            two.places(),
            [top.path().into(), top.path().join("a"), top.path().join("a/b"), own.clone()]
        );
        fs::write(top.path().join("a/memory.max"), "4096\n").unwrap();
        assert_eq!(two.places(), [top.path().join("a"), top.path().join("a/b"), own.clone()]);
        fs::write(own.join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(two.places().len(), 3);
        fs::write(own.join("cpu.max"), "50000 100000\n").unwrap();
        assert_eq!(two.places(), std::slice::from_ref(&own));

        // Most files say nothing.
        let own = top.path().join("x/y");
        fs::create_dir_all(&own).unwrap();
        let two = Hierarchy { version: Version::Two, top: top.path().into(), own: own.clone() };
        for (file, limit) in
            [("cpuset.cpus", "0-3\n"), ("cpuset.mems", "0\n"), ("io.max", "8:0 rbps=max wbps=1048576\n")]
        {
            fs::write(own.join(file), "\n").unwrap();
            assert_eq!(two.places().len(), 3, "{file}");
            fs::write(own.join(file), limit).unwrap();
            assert_eq!(two.places(), std::slice::from_ref(&own), "{file}");
            fs::write(own.join(file), "").unwrap();
            assert_eq!(two.places().len(), 3, "{file}");
        }
        let outer = top.path().join("plimsoll-yield-7-1");
        let two = Hierarchy { version: Version::Two, top: top.path().into(), own: outer.join("own") };
        assert_eq!(two.places(), [outer.clone(), outer.join("own")]);

        let own = top.path().join("a/b/c");
        let one = Hierarchy { version: Version::One, top: top.path().into(), own };
        assert_eq!(one.places().len(), 4);
        fs::write(top.path().join("a/b/cpu.cfs_quota_us"), "-1\n").unwrap();
        assert_eq!(one.places().len(), 4);
        fs::write(top.path().join("a/b/cpu.cfs_quota_us"), "1000\n").unwrap();
        assert_eq!(one.places().len(), 2);
    }

    #[test]
    fn a_group_of_version_2_needs_the_controller_for_its_share_alone() {
        let top = tempfile::tempdir().unwrap();
        let two = Hierarchy { version: Version::Two, top: top.path().into(), own: top.path().into() };
        assert!(two.place(Purpose::Freeze).unwrap_err().contains("no right to write"));
        fs::write(top.path().join("cgroup.procs"), "").unwrap();
        two.place(Purpose::Freeze).unwrap();
        assert!(two.place(Purpose::Share).unwrap_err().contains("cgroup.subtree_control"));
        fs::write(top.path().join("cgroup.subtree_control"), "cpuset cpu io\n").unwrap();
        assert_eq!(two.place(Purpose::Share).unwrap(), top.path());
    }
}
