//! How much of the CPU time that the worker may have it uses: one number, sampled once a second.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use parking_lot::Mutex;
use plimsoll_core::Nanos;

/// What was used of what may be had, over the last second.
#[derive(Debug, Default)]
pub struct Busy {
    /// The bits of the share.
    share: AtomicU64,
    last: Mutex<Option<(Nanos, f64)>>,
}

impl Busy {
    /// In 0..1, or a little more where the kernel's accounts and the clock disagree; 0 before the second sample.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.share.load(Relaxed))
    }

    /// Takes note of the CPU time that the process has used until now, of so many cores that it may use at once.
    pub fn sample(&self, now: Nanos, used_s: f64, cores: f64) {
        let last = self.last.lock().replace((now, used_s));
        let Some((before, used_before_s)) = last.filter(|(before, _)| *before < now) else { return };
        let may_s = now.since(before).as_secs_f64() * cores;
        self.share.store(((used_s - used_before_s) / may_s).to_bits(), Relaxed);
    }
}

/// The cores that a process with so many threads may use at once: one a thread, or fewer where it has fewer processors or the
/// quotas of its control groups allow less.
pub fn cores(threads: usize) -> f64 {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let groups = groups(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    (threads.min(processors()) as f64).min(quota(&groups))
}

/// The processors that this thread may run on; any number where that cannot be told.
fn processors() -> usize {
    let count = |set: CpuSet| (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu) == Ok(true)).count();
    sched_getaffinity(Pid::from_raw(0)).map_or(usize::MAX, count)
}

/// A control group, as the directory that describes it.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    /// Where its hierarchy is mounted; no group above this one is to be seen.
    mount: PathBuf,
    path: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// `cpu.cfs_quota_us` and `cpu.cfs_period_us`.
    One,
    /// `cpu.max`.
    Two,
}

/// The groups that account for CPU time, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn groups(cgroup: &str, mountinfo: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in cgroup.lines() {
        // Number, controllers, path; by version 2 the number is 0 and there are no controllers.
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let version = match controllers {
            "" => Version::Two,
            list if list.split(',').any(|controller| controller == "cpu") => Version::One,
            _ => continue,
        };
        let found = mountinfo.lines().find_map(|mount| {
            // 36 35 98:0 /root /mount/point options - type source super-options
            let (before, after) = mount.split_once(" - ")?;
            let mut before = before.split(' ').skip(3);
            let (root, point) = (before.next()?, before.next()?);
            let mut after = after.split(' ');
            let (kind, options) = (after.next()?, after.nth(1)?);
            let fits = match version {
                Version::Two => kind == "cgroup2",
                Version::One => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
            };
            let below = Path::new(path).strip_prefix(root).ok().filter(|_| fits)?;
            Some(Group { mount: point.into(), path: Path::new(point).join(below), version })
        });
        groups.extend(found);
    }
    groups
}

/// The least number of cores that these groups and those above them allow; infinite where they allow all.
fn quota(groups: &[Group]) -> f64 {
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<f64>().ok();
    let of_group = |directory: &Path, version| match version {
        Version::Two => of_max(&fs::read_to_string(directory.join("cpu.max")).ok()?),
        Version::One => {
            let quota = number(directory.join("cpu.cfs_quota_us"))?;
            cores_of(quota, number(directory.join("cpu.cfs_period_us"))?)
        }
    };
    let all = groups.iter().flat_map(|group| {
        let above = group.path.ancestors().take_while(|path| path.starts_with(&group.mount));
        above.filter_map(move |directory| of_group(directory, group.version))
    });
    all.fold(f64::INFINITY, f64::min)
}

/// `cpu.max`: the quota, or `max`, and the period.
fn of_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    cores_of(quota.parse().ok()?, period.parse().ok()?)
}

/// Of a quota and its period, both in us. A quota that is not above zero is none.
fn cores_of(quota: f64, period: f64) -> Option<f64> {
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_what_may_be_had() {
        let busy = Busy::default();
        assert_eq!(busy.get(), 0.0);
        busy.sample(Nanos::from_secs(1), 10.0, 2.0);
        assert_eq!(busy.get(), 0.0, "nothing is known of the time before");
        busy.sample(Nanos::from_secs(3), 11.0, 2.0);
        assert_eq!(busy.get(), 0.25);
        busy.sample(Nanos::from_secs(3), 11.0, 2.0);
        assert_eq!(busy.get(), 0.25, "no time has passed");
        busy.sample(Nanos::from_secs(4), 11.1, 0.2);
        assert!((busy.get() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn more_threads_than_processors_are_not_more_cores() {
        assert!(cores(1) <= 1.0);
        let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::count()).find(|&cpu| all.is_set(cpu) == Ok(true)).unwrap()).unwrap();
        nix::sched::sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        assert!(cores(8) <= 1.0);
    }

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
    const V1: &str = "31 23 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                      32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct";
    const OF_A_CONTAINER: &str =
        "32 23 0:28 /docker/abc /sys/fs/cgroup/cpu ro master:9 - cgroup cgroup rw,cpu";

    #[test]
    fn the_groups_of_both_versions_are_found() {
        let group =
            |mount: &str, path: &str, version| Group { mount: mount.into(), path: path.into(), version };
        for (cgroup, mountinfo, expected) in [
            (
                "0::/app.slice/a:b",
                V2,
                vec![group("/sys/fs/cgroup", "/sys/fs/cgroup/app.slice/a:b", Version::Two)],
            ),
            (
                "4:cpuset:/x\n3:cpu,cpuacct:/y\n0::/",
                V1,
                vec![group("/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/y", Version::One)],
            ),
            (
                "3:cpu:/docker/abc/sub",
                OF_A_CONTAINER,
                vec![group("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu/sub", Version::One)],
            ),
            ("3:cpu:/elsewhere", OF_A_CONTAINER, vec![]),
            ("3:cpuset:/x\nnonsense\n", V1, vec![]),
            ("", "", vec![]),
        ] {
            assert_eq!(groups(cgroup, mountinfo), expected, "{cgroup}");
        }
    }

    #[test]
    fn the_tightest_quota_up_to_the_mount_counts() {
        let mount = tempfile::tempdir().unwrap();
        let path = mount.path().join("a/b");
        fs::create_dir_all(&path).unwrap();
        let group = |version| [Group { mount: mount.path().into(), path: path.clone(), version }];
        assert_eq!(
            (quota(&group(Version::One)), quota(&group(Version::Two))),
            (f64::INFINITY, f64::INFINITY)
        );

        fs::write(path.join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(quota(&group(Version::Two)), f64::INFINITY);
        fs::write(path.join("cpu.max"), "150000 100000\n").unwrap();
        assert_eq!(quota(&group(Version::Two)), 1.5);
        fs::write(mount.path().join("a/cpu.max"), "20000 100000\n").unwrap();
        assert_eq!(quota(&group(Version::Two)), 0.2, "the group above allows less");

        fs::write(path.join("cpu.cfs_quota_us"), "-1\n").unwrap();
        fs::write(path.join("cpu.cfs_period_us"), "100000\n").unwrap();
        assert_eq!(quota(&group(Version::One)), f64::INFINITY);
        fs::write(path.join("cpu.cfs_quota_us"), "25000\n").unwrap();
        assert_eq!(quota(&group(Version::One)), 0.25);
        fs::write(path.join("cpu.cfs_quota_us"), "nonsense\n").unwrap();
        assert_eq!(quota(&group(Version::One)), f64::INFINITY, "what cannot be read limits nothing");
    }
}
