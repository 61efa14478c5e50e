//! The groups in which threads share the CPUs: cgroups of the cpu controller, of either version, and autogroups.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Group, weights};

use crate::cgroup::{Hierarchy, Read};
use crate::parse;
use crate::proc::Proc;

/// The most groups. The threads of those beyond count as threads of their parents.
const MOST: usize = 4_096;
/// The depth of a group at most.
const DEEPEST: usize = 64;
/// A group that no thread was seen in for so long gives its place to another one.
const UNUSED: Nanos = Nanos::from_secs(60);
/// All groups are read anew in so many readings.
const READINGS: usize = 20;

/// The groups of this host.
pub struct Groups {
    /// Where the cpu controller's files are, if anywhere.
    hierarchy: Option<Hierarchy>,
    autogroups: bool,
    groups: Vec<Group>,
    /// The same, as they are known, and when a thread was last seen in them.
    names: Vec<(Name, Nanos)>,
    known: HashMap<Name, u32>,
    next_read: usize,
    /// Readings of a group that are due, in parts of one by [`READINGS`].
    due: usize,
}

/// What a group is known by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    /// Below the place where the controller's files are; empty for the root.
    Cgroup(String),
    /// By the number of the autogroup.
    Autogroup(u64),
}

impl Groups {
    /// Finds out how threads are grouped here.
    pub fn find() -> Groups {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Groups::of_hierarchy(Hierarchy::find(&mounts), autogroups())
    }

    fn of_hierarchy(hierarchy: Option<Hierarchy>, autogroups: bool) -> Groups {
        let mut root = Group::ROOT;
        if let Some(Read::Group(group)) = hierarchy.as_ref().map(|hierarchy| hierarchy.read("")) {
            // In a container the root may have a quota. Its weight is beside nobody that is seen here.
            root.quota_cpus = group.quota_cpus;
        }
        let name = Name::Cgroup(String::new());
        Groups {
            hierarchy,
            autogroups,
            groups: vec![root],
            names: vec![(name.clone(), Nanos::ZERO)],
            known: HashMap::from([(name, 0)]),
            next_read: 0,
            due: 0,
        }
    }

    /// All of them, parents before children.
    pub fn list(&self) -> &[Group] {
        &self.groups
    }

    /// The group of a thread, and its cgroup as `/proc` writes it.
    ///
    /// # Errors
    /// Where the thread is gone.
    pub fn of(&mut self, now: Nanos, proc: &mut Proc, pid: u32, tid: u32) -> io::Result<(u32, String)> {
        let mut cgroup = String::new();
        let mut group = 0;
        if let Some(hierarchy) = &self.hierarchy {
            let text = String::from_utf8_lossy(proc.text(format_args!("{pid}/task/{tid}/cgroup"))?);
            if let Some(path) = hierarchy.path(&text) {
                cgroup = path.to_owned();
                let inner = hierarchy.inner(path).to_owned();
                group = self.of_cgroup(now, &inner, 0);
            }
        }
        if group == 0 && self.autogroups {
            // A kernel without autogroups has no such file, a thread of the kernel nothing in it.
            if let Some((number, nice)) =
                proc.text(format_args!("{pid}/autogroup")).ok().and_then(parse::autogroup)
            {
                group = self.of_autogroup(now, number, nice);
            }
        }
        Ok((group, cgroup))
    }

    /// A thread was seen in this group.
    pub fn keep(&mut self, now: Nanos, mut group: u32) {
        while group != 0 {
            let Some((_, seen)) = self.names.get_mut(group as usize) else { return };
            *seen = now;
            group = self.groups[group as usize].parent;
        }
    }

    /// Reads some of them anew: all in [`READINGS`] readings.
    pub fn refresh(&mut self) {
        self.due += self.groups.len();
        while self.due >= READINGS {
            self.due -= READINGS;
            self.next_read = (self.next_read + 1) % self.groups.len();
            if self.next_read == 0 {
                self.autogroups = autogroups();
            }
            let (Some(hierarchy), (Name::Cgroup(path), _)) = (&self.hierarchy, &self.names[self.next_read])
            else {
                continue;
            };
            let group = &mut self.groups[self.next_read];
            if let Read::Group(read) = hierarchy.read(path) {
                group.quota_cpus = read.quota_cpus;
                if self.next_read != 0 {
                    *group = Group { parent: group.parent, ..read };
                }
            }
        }
    }

    fn of_cgroup(&mut self, now: Nanos, path: &str, depth: usize) -> u32 {
        let name = Name::Cgroup(path.to_owned());
        if let Some(&group) = self.known.get(&name) {
            self.keep(now, group);
            return group;
        }
        let Some(hierarchy) = self.hierarchy.as_ref().filter(|_| depth < DEEPEST) else { return 0 };
        let read = hierarchy.read(path);
        let parent = path.rfind('/').map_or("", |slash| &path[..slash]);
        let parent = self.of_cgroup(now, parent, depth + 1);
        match read {
            // Its parent does not pass the controller on: its threads are threads of its parent to the scheduler.
            Read::NoController => parent,
            Read::Group(group) => self.add(now, name, Group { parent, ..group }),
        }
    }

    fn of_autogroup(&mut self, now: Nanos, number: u64, nice: i8) -> u32 {
        let group = Group { weight: weights::of_nice(nice), ..Group::ROOT };
        let name = Name::Autogroup(number);
        match self.known.get(&name) {
            Some(&known) => {
                self.groups[known as usize] = group;
                self.keep(now, known);
                known
            }
            None => self.add(now, name, group),
        }
    }

    fn add(&mut self, now: Nanos, name: Name, group: Group) -> u32 {
        // Who takes the place of one that is gone stays behind its parent, and does not become the parent of what was below that one: they are
        // known by their names, and may come to be used again.
        let first = group.parent as usize + 1;
        let mut has_children = vec![false; self.groups.len()];
        self.groups.iter().for_each(|group| has_children[group.parent as usize] = true);
        let gone = |&at: &usize| !has_children[at] && now.since(self.names[at].1) > UNUSED;
        let gone = (first..self.names.len()).find(gone);
        let at = match gone {
            Some(at) => {
                let before = std::mem::replace(&mut self.names[at], (name.clone(), now)).0;
                self.known.remove(&before);
                self.groups[at] = group;
                at
            }
            None if self.groups.len() < MOST => {
                self.names.push((name.clone(), now));
                self.groups.push(group);
                self.groups.len() - 1
            }
            None => return group.parent,
        };
        self.known.insert(name, at as u32);
        at as u32
    }
}

/// Whether sessions are groups of their own.
fn autogroups() -> bool {
    let file = Path::new("/proc/sys/kernel/sched_autogroup_enabled");
    fs::read_to_string(file).is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Version;

    fn at(dir: &Path, version: Version) -> Groups {
        let hierarchy = Hierarchy { version, mount: dir.to_owned(), root: "/".to_owned() };
        Groups::of_hierarchy(Some(hierarchy), false)
    }

    fn write(dir: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(dir).unwrap();
        for (name, text) in files {
            fs::write(dir.join(name), text).unwrap();
        }
    }

    #[test]
    fn groups_of_version_2_are_read_with_those_above_them() {
        let dir = tempfile::tempdir().unwrap();
        let pod = dir.path().join("pods/a");
        write(
            &dir.path().join("pods"),
            &[("cpu.weight", "200\n"), ("cpu.max", "150000 100000\n"), ("cpu.idle", "0\n")],
        );
        write(&pod, &[("cpu.weight", "50\n"), ("cpu.max", "max 100000\n"), ("cpu.idle", "1\n")]);
        // The controller is not passed on to those below.
        write(&pod.join("leaf/deep"), &[("cgroup.procs", "")]);
        let mut groups = at(dir.path(), Version::V2);
        let leaf = groups.of_cgroup(Nanos::ZERO, "/pods/a/leaf/deep", 0);
        assert_eq!(leaf, groups.of_cgroup(Nanos::ZERO, "/pods/a", 0));
        let pods = Group { parent: 0, weight: 2048, idle: false, quota_cpus: Some(1.5) };
        let a = Group { parent: 1, weight: 512, idle: true, quota_cpus: None };
        assert_eq!(groups.list(), [Group::ROOT, pods, a]);
        write(&pod, &[("cpu.weight", "100\n"), ("cpu.idle", "0\n")]);
        for _ in 0..READINGS {
            groups.refresh();
        }
        assert_eq!(groups.list()[leaf as usize], Group { weight: 1024, idle: false, ..a });
    }

    #[test]
    fn groups_of_version_1_are_read() {
        let dir = tempfile::tempdir().unwrap();
        write(
            &dir.path().join("a"),
            &[("cpu.shares", "2048\n"), ("cpu.cfs_quota_us", "50000\n"), ("cpu.cfs_period_us", "100000\n")],
        );
        write(
            dir.path(),
            &[("cpu.shares", "1024\n"), ("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")],
        );
        let mut groups = at(dir.path(), Version::V1);
        groups.of_cgroup(Nanos::ZERO, "/a", 0);
        let a = Group { parent: 0, weight: 2048, idle: false, quota_cpus: Some(0.5) };
        assert_eq!(groups.list(), [Group::ROOT, a]);
    }

    #[test]
    fn a_group_that_is_gone_gives_its_place_to_another() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "a/b", "c"] {
            write(&dir.path().join(name), &[("cpu.weight", "100\n"), ("cpu.max", "max 100000\n")]);
        }
        let mut groups = at(dir.path(), Version::V2);
        assert_eq!(groups.of_cgroup(Nanos::ZERO, "/a/b", 0), 2);
        // Whoever is in b is in a too.
        let later = Nanos::from_secs(61);
        groups.keep(later, 2);
        assert_eq!(groups.of_cgroup(later, "/c", 0), 3);
        let much_later = Nanos::from_secs(130);
        groups.keep(much_later, 2);
        assert_eq!(groups.of_cgroup(much_later, "/d", 0), 0, "there is no such group");
        assert_eq!(groups.of_autogroup(much_later, 5, 0), 3);
        assert_eq!(groups.list().len(), 4);
        assert!(groups.list().iter().enumerate().skip(1).all(|(at, group)| (group.parent as usize) < at));
    }

    #[test]
    fn whoever_takes_a_place_is_not_the_parent_of_what_was_below_the_one_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "a/b", "c"] {
            write(&dir.path().join(name), &[("cpu.weight", "100\n"), ("cpu.max", "max 100000\n")]);
        }
        let mut groups = at(dir.path(), Version::V2);
        groups.of_cgroup(Nanos::ZERO, "/a/b", 0);
        let later = Nanos::from_secs(61);
        let c = groups.of_cgroup(later, "/c", 0);
        let b = groups.of_cgroup(later, "/a/b", 0);
        let a = groups.of_cgroup(later, "/a", 0);
        assert_eq!(groups.list()[b as usize].parent, a);
        assert!(a != c && b != c && groups.list()[c as usize].parent == 0, "{a} {b} {c}");
    }

    #[test]
    fn autogroups_have_the_weights_of_their_nice_values() {
        let mut groups = Groups::of_hierarchy(None, true);
        let group = groups.of_autogroup(Nanos::ZERO, 7, 19);
        assert_eq!(groups.list()[group as usize].weight, 15);
        assert_eq!(groups.of_autogroup(Nanos::ZERO, 7, 0), group);
        assert_eq!(groups.list()[group as usize].weight, 1024);
    }
}
