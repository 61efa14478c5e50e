//! Files of `/proc` and `/sys`, taken apart. Nothing here trusts what it reads: a kernel of another version, another file system in the
//! place of `/proc` (as containers have), or half a line give nothing, and never a panic. `fuzz/fuzz_targets/proc.rs` holds it to that.

use std::path::PathBuf;

use plimsoll_cpufutures::task::MAX_CPUS;
use plimsoll_cpufutures::{CpuSet, Policy};

/// `schedstat` of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// For how long it has run, in nanoseconds; for one that runs now, as of the last tick.
    pub run_ns: u64,
    /// For how long it had waited before it ran, in nanoseconds. Stands still while it waits, and jumps when that is over.
    pub delay_ns: u64,
    /// How many times it was given a CPU.
    pub turns: u64,
}

impl Times {
    /// Reads the text of `schedstat`. By hand: this is read more often than all else together.
    pub fn parse(text: &[u8]) -> Option<Times> {
        let mut numbers = [0_u64; 3];
        let mut words = text.trim_ascii_end().split(|&byte| byte == b' ');
        for number in &mut numbers {
            *number =
                words.next().filter(|word| !word.is_empty())?.iter().try_fold(0_u64, |sum, &digit| {
                    let digit = digit.wrapping_sub(b'0');
                    (digit < 10).then(|| sum.wrapping_mul(10).wrapping_add(u64::from(digit)))
                })?;
        }
        let [run_ns, delay_ns, turns] = numbers;
        Some(Times { run_ns, delay_ns, turns })
    }
}

/// What is needed of `stat` of a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R` where it runs or waits for a CPU; `S`, `D`, `T`, `Z`, ...
    pub state: u8,
    /// The process that started it, or that adopted it; 0 where that is in an outer pid namespace.
    pub parent: i32,
    /// Its session.
    pub session: i32,
    /// -20 to 19.
    pub nice: i8,
    /// How many threads the process has; a first one that has ended while others go on is one of them.
    pub threads: u32,
    /// When it started, in ticks of `USER_HZ` since the host booted. A number is given to another one once its owner is gone; this
    /// tells the two apart.
    pub started: u64,
    /// How it is scheduled.
    pub policy: Policy,
}

impl Stat {
    /// Reads the text of `stat`: the name, which has 15 bytes at most and may hold any, and all else.
    pub fn parse(text: &[u8]) -> Option<(&[u8], Stat)> {
        // The name is in parentheses and may hold those too.
        let (open, close) = (text.iter().position(|&b| b == b'(')?, text.iter().rposition(|&b| b == b')')?);
        let name = text.get(open + 1..close)?;
        let rest = std::str::from_utf8(text.get(close + 2..)?).ok()?;
        // As proc(5) numbers them, of which the state is the third.
        let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3);
        let stat = Stat {
            state: *field(3)?.as_bytes().first()?,
            parent: field(4)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            nice: field(19)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
            started: field(22)?.parse().ok()?,
            policy: policy(field(41)?.parse().ok()?),
        };
        Some((name, stat))
    }

    /// Whether nothing is left of a process but its exit code. Where its first thread alone has ended, the others go on.
    pub fn has_ended(&self) -> bool {
        self.is_over() && self.threads <= 1
    }

    /// Whether the thread itself has ended.
    pub fn is_over(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// A policy of the kernel's by its number.
pub fn policy(number: u32) -> Policy {
    match number {
        3 => Policy::Batch,
        5 => Policy::Idle,
        1 | 2 | 6 => Policy::RealTime,
        // SCHED_OTHER, and SCHED_EXT, of which nothing else is known.
        _ => Policy::Normal,
    }
}

/// The value of a line of `status`, as `4711` of `Tgid:\t4711`.
pub fn status<'a>(text: &'a [u8], key: &str) -> Option<&'a str> {
    let value = |line: &'a [u8]| line.strip_prefix(key.as_bytes())?.strip_prefix(b":");
    let value = text.split(|&byte| byte == b'\n').find_map(value)?;
    Some(std::str::from_utf8(value).ok()?.trim())
}

/// What is needed of `loadavg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Threads of the whole host that run or wait for a CPU, except those of groups that have used up their quota.
    pub runnable: u64,
    /// The number that the last thread that was started in this pid namespace was given.
    pub last: u32,
}

impl Load {
    /// Reads the text of `loadavg`.
    pub fn parse(text: &[u8]) -> Option<Load> {
        let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace().skip(3);
        let runnable = words.next()?.split('/').next()?.parse().ok()?;
        Some(Load { runnable, last: words.next()?.parse().ok()? })
    }
}

/// The number and the nice value of an autogroup, of `/autogroup-15272 nice 0`.
pub fn autogroup(text: &[u8]) -> Option<(u64, i8)> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let number = words.next()?.strip_prefix("/autogroup-")?.parse().ok()?;
    let nice = words.nth(1)?.parse().ok()?;
    (-20..=19).contains(&nice).then_some((number, nice))
}

/// A line of `mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// What of the file system is seen there: `/`, or a part of it.
    pub root: String,
    /// Where.
    pub at: PathBuf,
    /// The file system.
    pub kind: &'a str,
    /// Its own options, as opposed to those of the mount: the controllers of a hierarchy of version 1 are among them.
    pub options: &'a str,
}

/// The lines of `mountinfo`, those left out that make no sense.
pub fn mounts(text: &str) -> impl Iterator<Item = Mount<'_>> {
    text.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, at) = (unescaped(place.next()?), PathBuf::from(unescaped(place.next()?)));
        let mut kind = kind.split(' ');
        Some(Mount { root, at, kind: kind.next()?, options: kind.nth(1)? })
    })
}

/// Blanks are written as `\040` there, and so are tabs, newlines and backslashes.
fn unescaped(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

/// A line of `cgroup`: the group of a thread in one hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership<'a> {
    /// The controllers of the hierarchy; empty for that of version 2.
    pub controllers: &'a str,
    /// The group.
    pub path: &'a str,
}

impl Membership<'_> {
    /// Whether this is a hierarchy of version 1 with this controller.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.split(',').any(|one| one == controller)
    }

    /// Whether this is the hierarchy of version 2.
    pub fn is_unified(&self) -> bool {
        self.controllers.is_empty()
    }
}

/// The lines of `cgroup` of a thread.
pub fn memberships(text: &str) -> impl Iterator<Item = Membership<'_>> {
    text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        Some(Membership { controllers, path })
    })
}

/// Reads a list of CPUs as the kernel writes it, `0-3,8,10-11`; those from [`MAX_CPUS`] on are left out.
pub fn cpu_list(text: &str) -> Option<CpuSet> {
    let mut listed = vec![false; MAX_CPUS];
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        let end = last.saturating_add(1).min(MAX_CPUS);
        listed.get_mut(first..end).unwrap_or_default().fill(true);
    }
    Some((0..MAX_CPUS).filter(|&cpu| listed[cpu]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_taken_apart() {
        let text = b"31117 (a) R (b) S 31100 31100 25875 0 -1 4194304 106 0 0 0 0 0 0 0 20 -5 1 0 1391121 3133440 390 1 2 3 4 5 6 0 0 0 0 0 0 0 17 1 0 3 0 0 0\n";
        let (name, stat) = Stat::parse(text).unwrap();
        let expected = Stat {
            state: b'S',
            parent: 31_100,
            session: 25_875,
            nice: -5,
            threads: 1,
            started: 1_391_121,
            policy: Policy::Batch,
        };
        assert_eq!((name, stat), (&b"a) R (b"[..], expected));
        let first_has_ended = |threads| Stat { state: b'Z', threads, ..stat }.has_ended();
        assert_eq!([0, 1, 2].map(first_has_ended), [true, true, false]);
        assert!(!stat.has_ended());
        let times = Times { run_ns: 373_164, delay_ns: 70_414, turns: 1 };
        assert_eq!(Times::parse(b"373164 70414 1\n"), Some(times));
        assert_eq!(Load::parse(b"10.48 5.99 3.44 13/186 8526\n"), Some(Load { runnable: 13, last: 8526 }));
        for cut in [&b""[..], b"1", b"1 2", b"1  2", b"1 (a) ", b"1 (a", b")(", b"x y z\n", b"1 2 -3"] {
            assert_eq!((Times::parse(cut), Stat::parse(cut), Load::parse(cut)), (None, None, None));
        }
        let status = |key| status(b"Name:\tTgid:7\nTgid:\t4711\nCapEff:\t000001ffffffffff\nSeccomp:", key);
        assert_eq!((status("Tgid"), status("CapEff")), (Some("4711"), Some("000001ffffffffff")));
        assert_eq!((status("Seccomp"), status("Tg"), status("")), (Some(""), None, None));
    }

    #[test]
    fn autogroups_are_read() {
        assert_eq!(autogroup(b"/autogroup-15272 nice -5\n"), Some((15_272, -5)));
        for wrong in [&b""[..], b"/autogroup-x nice 0\n", b"/autogroup-1 nice 20\n", b"/autogroup-1 nice"] {
            assert_eq!(autogroup(wrong), None);
        }
    }

    #[test]
    fn mounts_and_memberships_are_read_line_by_line() {
        let text = "32 31 0:29 /docker/a\\134b /sys/fs/cgroup/cpu\\040x rw,relatime shared:9 - cgroup none rw,cpu\n\
            nonsense\n1 2 0:3 / / rw - tmpfs tmpfs\n";
        let found: Vec<Mount<'_>> = mounts(text).collect();
        let cpu = Mount {
            root: "/docker/a\\b".into(),
            at: "/sys/fs/cgroup/cpu x".into(),
            kind: "cgroup",
            options: "rw,cpu",
        };
        assert_eq!(found, [cpu]);
        let text = "9:name=systemd:/\n4:cpu,cpuacct:/a:b\n0::/system.slice\nnonsense\n";
        let found: Vec<Membership<'_>> = memberships(text).collect();
        assert_eq!(found.len(), 3);
        assert!(found[1].has("cpu") && !found[0].has("cpu") && !found[1].is_unified());
        assert!(found[2].is_unified() && !found[2].has("cpu"));
        assert_eq!((found[1].path, found[2].path), ("/a:b", "/system.slice"));
    }

    #[test]
    fn lists_of_cpus_are_read() {
        let cpus = |text| cpu_list(text).map(|set| set.iter().collect::<Vec<_>>());
        assert_eq!(cpus("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!((cpus("0"), cpus("5-2")), (Some(vec![0]), Some(vec![])));
        assert_eq!((cpus(""), cpus("a"), cpus("1-")), (None, None, None));
        assert_eq!(cpus("0-18446744073709551615").unwrap().len(), MAX_CPUS);
        assert_eq!(cpus("18446744073709551615"), Some(vec![]));
    }
}
