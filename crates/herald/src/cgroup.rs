//! Where the cpu controller's files are, and what they say: cgroup v1, v2, or both at once, of which one has the controller.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_cpufutures::{Group, weights};

use crate::parse::{self, Membership, Mount};

/// Which files there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `cpu.shares` and `cpu.cfs_quota_us`.
    V1,
    /// `cpu.weight` and `cpu.max`.
    V2,
}

/// The hierarchy that has the cpu controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Which files there are.
    pub version: Version,
    /// Where.
    pub mount: PathBuf,
    /// The cgroup that is seen there, as `/proc` writes it: `/`, or a container's.
    pub root: String,
}

/// What the files of a cgroup say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Read {
    /// The controller has none there.
    NoController,
    /// That, with the root as its parent. What may not be read is as it is by default.
    Group(Group),
}

impl Hierarchy {
    /// Finds it among the lines of `/proc/self/mountinfo`; nothing where no hierarchy has the controller.
    pub fn find(mounts: &str) -> Option<Hierarchy> {
        parse::mounts(mounts).find_map(|Mount { root, at, kind, options }| {
            let version = match kind {
                "cgroup2" if has_word(&at.join("cgroup.controllers"), "cpu") => Version::V2,
                "cgroup" if options.split(',').any(|option| option == "cpu") => Version::V1,
                _ => return None,
            };
            Some(Hierarchy { version, mount: at, root })
        })
    }

    /// The cgroup of a thread, of what its `cgroup` file says.
    pub fn path<'a>(&self, text: &'a str) -> Option<&'a str> {
        let ours = |group: &Membership<'_>| match self.version {
            Version::V1 => group.has("cpu"),
            Version::V2 => group.is_unified(),
        };
        parse::memberships(text).find(ours).map(|group| group.path)
    }

    /// A cgroup as it is below the mount; that of the mount itself is empty, as are those that cannot be seen from here.
    pub fn inner<'a>(&self, path: &'a str) -> &'a str {
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let inner = match &*self.root {
            "/" => path,
            root => {
                path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/')).unwrap_or("")
            }
        };
        // Outside of this cgroup namespace.
        if inner.split('/').any(|part| part == "..") { "" } else { inner.trim_end_matches('/') }
    }

    /// What the files of a cgroup below the mount say.
    pub fn read(&self, inner: &str) -> Read {
        let dir = self.mount.join(inner.trim_start_matches('/'));
        let text = |name: &str| fs::read_to_string(dir.join(name));
        let number = |name: &str| text(name).ok()?.trim().parse::<i64>().ok();
        let weight_file = match self.version {
            Version::V1 => "cpu.shares",
            Version::V2 => "cpu.weight",
        };
        // The root of version 2 has no weight, and one in a container may have a quota.
        if !inner.is_empty()
            && matches!(text(weight_file), Err(error) if error.kind() == io::ErrorKind::NotFound)
        {
            return Read::NoController;
        }
        let weight =
            number(weight_file).and_then(|weight| u64::try_from(weight).ok()).map(|weight| {
                match self.version {
                    Version::V1 => weights::of_cpu_shares(weight),
                    Version::V2 => weights::of_cpu_weight(weight.min(10_000) as u32),
                }
            });
        let quota = match self.version {
            Version::V1 => number("cpu.cfs_quota_us").zip(number("cpu.cfs_period_us")),
            Version::V2 => text("cpu.max").ok().and_then(|text| {
                let (quota, period) = text.trim().split_once(' ')?;
                Some((quota.parse().ok()?, period.parse().ok()?))
            }),
        };
        let quota_cpus = quota.filter(|&(quota, period)| quota > 0 && period > 0);
        Read::Group(Group {
            parent: 0,
            weight: weight.unwrap_or(Group::ROOT.weight),
            idle: number("cpu.idle") == Some(1),
            quota_cpus: quota_cpus.map(|(quota, period)| quota as f64 / period as f64),
        })
    }
}

fn has_word(file: &Path, word: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_ascii_whitespace().any(|found| found == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_that_has_the_controller_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let unified = dir.path().display();
        let v1 = "33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n\
                  32 31 0:29 /docker/abc /sys/fs/cgroup/cpu\\040x rw,relatime shared:9 - cgroup cgroup rw,cpu\n";
        let v2 = format!("40 31 0:37 / {unified} rw,relatime - cgroup2 cgroup2 rw\n");
        let found = Hierarchy {
            version: Version::V1,
            mount: "/sys/fs/cgroup/cpu x".into(),
            root: "/docker/abc".into(),
        };
        assert_eq!(Hierarchy::find(&format!("{v2}{v1}")), Some(found), "hybrid, where version 1 has it");
        fs::write(dir.path().join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
        let found = Hierarchy::find(&v2).unwrap();
        assert_eq!((found.version, &*found.mount, &*found.root), (Version::V2, dir.path(), "/"));
        assert_eq!(Hierarchy::find("33 31 0:30 / /x rw - cgroup cgroup rw,cpuacct\nnonsense\n"), None);
    }

    #[test]
    fn a_thread_is_placed_below_the_mount() {
        let of = |version, root: &str| Hierarchy { version, mount: "/x".into(), root: root.to_owned() };
        let text = "9:name=systemd:/\n4:cpu,cpuacct:/docker/abc/a\n0::/system.slice\n";
        let (v1, v2) = (of(Version::V1, "/docker/abc"), of(Version::V2, "/"));
        assert_eq!((v1.path(text), v2.path(text)), (Some("/docker/abc/a"), Some("/system.slice")));
        assert_eq!(
            (v1.inner("/docker/abc/a"), v1.inner("/docker/abc"), v1.inner("/docker/abcd")),
            ("/a", "", "")
        );
        assert_eq!((v2.inner("/"), v2.inner("/a/b"), v2.inner("/../other")), ("", "/a/b", ""));
        assert_eq!(v2.inner("/a (deleted)"), "/a");
    }

    /// A host's files: its `mountinfo` with the real mount points replaced by directories of `dir`, and what is in them.
    struct Layout {
        what: &'static str,
        mountinfo: &'static str,
        /// Of a thread in the group `/work`.
        cgroup: &'static str,
        files: &'static [(&'static str, &'static str)],
        /// What is to be found of it: the version and the group.
        found: Option<(Version, Group)>,
    }

    const WORK: Group = Group { parent: 0, weight: 2048, idle: false, quota_cpus: Some(1.5) };
    const LAYOUTS: [Layout; 6] = [
        Layout {
            what: "version 1, controllers together as systemd mounts them",
            mountinfo: "32 31 0:29 / DIR/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                33 31 0:30 / DIR/cpuset rw - cgroup cgroup rw,cpuset\n",
            cgroup: "5:cpuset:/\n3:cpu,cpuacct:/work\n1:name=systemd:/user.slice\n",
            files: &[
                ("cpu,cpuacct/work/cpu.shares", "2048\n"),
                ("cpu,cpuacct/work/cpu.cfs_quota_us", "150000\n"),
                ("cpu,cpuacct/work/cpu.cfs_period_us", "100000\n"),
            ],
            found: Some((Version::V1, WORK)),
        },
        Layout {
            what: "hybrid, where version 1 has the controller",
            mountinfo: "31 23 0:28 / DIR/unified rw - cgroup2 cgroup2 rw\n\
                32 31 0:29 / DIR/cpu rw - cgroup cgroup rw,cpu\n",
            cgroup: "1:cpu:/work\n0::/user.slice/a.scope\n",
            files: &[
                ("unified/cgroup.controllers", "\n"),
                ("cpu/work/cpu.shares", "2048\n"),
                ("cpu/work/cpu.cfs_quota_us", "150000\n"),
                ("cpu/work/cpu.cfs_period_us", "100000\n"),
            ],
            found: Some((Version::V1, WORK)),
        },
        Layout {
            what: "hybrid, where version 2 has the controller",
            mountinfo: "32 31 0:29 / DIR/memory rw - cgroup cgroup rw,memory\n\
                31 23 0:28 / DIR/unified rw - cgroup2 cgroup2 rw\n",
            cgroup: "1:memory:/elsewhere\n0::/work\n",
            files: &[
                ("unified/cgroup.controllers", "cpu io\n"),
                ("unified/work/cpu.weight", "200\n"),
                ("unified/work/cpu.max", "150000 100000\n"),
            ],
            found: Some((Version::V2, WORK)),
        },
        Layout {
            what: "version 2",
            mountinfo: "41 31 0:38 / DIR rw,nosuid,nodev - cgroup2 cgroup2 rw,nsdelegate\n",
            cgroup: "0::/work\n",
            files: &[
                ("cgroup.controllers", "cpuset cpu io memory pids\n"),
                ("work/cpu.weight", "200\n"),
                ("work/cpu.max", "150000 100000\n"),
                ("work/cpu.idle", "0\n"),
            ],
            found: Some((Version::V2, WORK)),
        },
        Layout {
            what: "a container of version 2 that sees its own group as the root, with the limits of the whole",
            mountinfo: "41 31 0:38 / DIR ro - cgroup2 cgroup rw\n",
            cgroup: "0::/\n",
            files: &[("cgroup.controllers", "cpu\n"), ("cpu.max", "150000 100000\n")],
            found: Some((Version::V2, Group { quota_cpus: Some(1.5), ..Group::ROOT })),
        },
        Layout {
            what: "no cpu controller at all",
            mountinfo: "41 31 0:38 / DIR rw - cgroup2 cgroup2 rw\n33 31 0:30 / DIR/x rw - cgroup cgroup rw,cpuset\n",
            cgroup: "2:cpuset:/\n0::/work\n",
            files: &[("cgroup.controllers", "io memory\n")],
            found: None,
        },
    ];

    #[test]
    fn a_group_of_every_layout_is_found_with_what_it_says() {
        for Layout { what, mountinfo, cgroup, files, found } in LAYOUTS {
            let dir = tempfile::tempdir().unwrap();
            for (file, text) in files {
                let file = dir.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            let mounts = mountinfo.replace("DIR", dir.path().to_str().unwrap());
            let hierarchy = Hierarchy::find(&mounts);
            let read = hierarchy.as_ref().map(|hierarchy| {
                let path = hierarchy.path(cgroup).unwrap();
                (hierarchy.version, hierarchy.read(hierarchy.inner(path)))
            });
            assert_eq!(read, found.map(|(version, group)| (version, Read::Group(group))), "{what}");
        }
    }

    #[test]
    fn files_that_make_no_sense_are_as_by_default() {
        let dir = tempfile::tempdir().unwrap();
        for (version, weights, limits) in [
            (Version::V1, ("cpu.shares", "-7"), [("cpu.cfs_quota_us", "-1"), ("cpu.cfs_period_us", "0")]),
            (Version::V1, ("cpu.shares", ""), [("cpu.cfs_quota_us", "x"), ("cpu.cfs_period_us", "100000")]),
            (Version::V2, ("cpu.weight", "heavy"), [("cpu.max", "max"), ("cpu.idle", "2")]),
            (Version::V2, ("cpu.weight", "99999999999999999999"), [("cpu.max", "-5 0"), ("cpu.idle", "")]),
        ] {
            for (file, text) in [weights].iter().chain(&limits) {
                fs::create_dir_all(dir.path().join("a")).unwrap();
                fs::write(dir.path().join("a").join(file), text).unwrap();
            }
            let hierarchy = Hierarchy { version, mount: dir.path().to_owned(), root: "/".to_owned() };
            assert_eq!(hierarchy.read("/a"), Read::Group(Group::ROOT), "{weights:?}");
        }
    }
}
