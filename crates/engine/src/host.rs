//! What the kernel knows of processes and threads of this host: CPU and bytes, from `/proc/PID` and `/proc/PID/task/TID`.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use plimsoll_core::Nanos;

/// Counters of a process. They only grow while it lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Time on a processor, in ns.
    pub ran_ns: u64,
    /// Time that it could have run and did not, in ns.
    pub queued_ns: u64,
    /// Bytes that it asked the kernel for: pages that were in no shared buffer.
    pub read: u64,
    /// Bytes that it gave to the kernel.
    pub written: u64,
}

impl Counters {
    /// What came on top since `earlier`; nothing where a counter went back.
    pub fn since(self, earlier: Counters) -> Counters {
        Counters {
            ran_ns: self.ran_ns.saturating_sub(earlier.ran_ns),
            queued_ns: self.queued_ns.saturating_sub(earlier.queued_ns),
            read: self.read.saturating_sub(earlier.read),
            written: self.written.saturating_sub(earlier.written),
        }
    }

    /// So much of it, in 0..=1.
    pub fn part(self, part: f64) -> Counters {
        let of = |n: u64| (n as f64 * part) as u64;
        Counters {
            ran_ns: of(self.ran_ns),
            queued_ns: of(self.queued_ns),
            read: of(self.read),
            written: of(self.written),
        }
    }

    /// Both together.
    pub fn plus(self, other: Counters) -> Counters {
        Counters {
            ran_ns: self.ran_ns.saturating_add(other.ran_ns),
            queued_ns: self.queued_ns.saturating_add(other.queued_ns),
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
        }
    }
}

/// A process, or one thread of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The thread's; nothing for all of them.
    pub tid: Option<u32>,
}

impl Process {
    /// All of a process.
    pub fn whole(pid: u32) -> Process {
        Process { pid, tid: None }
    }

    /// For how long it has been there, to a tick of the kernel's.
    fn age(self) -> Option<Nanos> {
        let up_s: f64 = text("/proc/uptime")?.split(' ').next()?.parse().ok()?;
        Some(Nanos::from_secs_f64((up_s - self.began_s()?).max(0.0)))
    }

    /// When it began, in seconds since this host booted.
    fn began_s(self) -> Option<f64> {
        let stat = self.file("stat")?;
        // The second field is the program's name in parentheses, which may hold anything.
        let ticks: u64 = stat.get(stat.rfind(')')? + 2..)?.split(' ').nth(19)?.parse().ok()?;
        Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    fn file(self, name: &str) -> Option<String> {
        let Process { pid, tid } = self;
        text(&match tid {
            None => format!("/proc/{pid}/{name}"),
            Some(tid) => format!("/proc/{pid}/task/{tid}/{name}"),
        })
    }
}

/// Counters as they were last read.
#[derive(Debug, Default)]
pub struct Host {
    last: HashMap<Process, (Counters, Nanos)>,
}

/// All that a process did which is no older is taken for new when it is seen for the first time. Of an older one nobody knows when it did that.
const YOUNG: Nanos = Nanos::from_secs(10);

/// What a process did since it was last read, and how long that is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Did {
    /// What.
    pub counters: Counters,
    /// In how long.
    pub over: Nanos,
}

impl Host {
    /// Reads these processes. One that is seen for the first time did what it did since it began, or, unless it began just now, nothing yet.
    pub fn read(&mut self, now: Nanos, processes: impl Iterator<Item = Process>) -> HashMap<Process, Did> {
        let mut did = HashMap::new();
        for process in processes {
            let Some(counters) = counters(process) else {
                self.last.remove(&process);
                continue;
            };
            let new = match self.last.insert(process, (counters, now)) {
                Some((before, at)) => Some(Did { counters: counters.since(before), over: now.since(at) }),
                None => process.age().filter(|&age| age < YOUNG).map(|over| Did { counters, over }),
            };
            did.extend(new.map(|new| (process, new)));
        }
        did
    }

    /// Forgets processes that nobody asked for in the last minute: they are gone, or idle.
    pub fn keep_recent(&mut self, now: Nanos) {
        self.last.retain(|_, (_, at)| now.since(*at) < Nanos::from_secs(60));
    }
}

/// Whether this process is one of this host that began at that time of day (seconds since 1970), and may be read.
pub fn is_here(pid: u32, began_s: f64) -> bool {
    let process = Process::whole(pid);
    began(process, began_s) && counters(process).is_some()
}

/// Whether this process or thread is one of this host that began at that time of day.
pub fn began(process: Process, began_s: f64) -> bool {
    // Another with this number would have begun at another time; the server stamps a backend a little after its fork.
    began_at(process).is_some_and(|at_s| (at_s - began_s).abs() < 2.0)
}

/// At what time of day a process or thread of this host began, in seconds since 1970; nothing where there is none.
pub fn began_at(process: Process) -> Option<f64> {
    Some(booted_s()? + process.began_s()?)
}

/// Threads of a process, so many at most.
pub fn threads(pid: u32, most: usize) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(most).collect()
}

/// The first of the threads of a process, among so many, that goes by this name, of which the kernel keeps 15 bytes.
pub fn thread_named(pid: u32, name: &str, most: usize) -> Option<Process> {
    let mut all = threads(pid, most).into_iter().map(|tid| Process { pid, tid: Some(tid) });
    all.find(|thread| thread.file("comm").is_some_and(|comm| comm.trim_end() == name))
}

/// How long a process or thread has had a processor, and how long it could have run and had none, in ns; nothing where it is gone. Anybody may ask.
pub fn ran_and_queued_ns(process: Process) -> Option<(u64, u64)> {
    let schedstat = process.file("schedstat")?;
    let mut times = schedstat.split_ascii_whitespace().map(|word| word.parse().unwrap_or(0));
    Some((times.next()?, times.next()?))
}

/// Whether a process or thread sleeps so that nothing but a disk can wake it.
pub fn waits_for_disk(process: Process) -> bool {
    let state = process.file("stat").and_then(|stat| stat.get(stat.rfind(')')? + 2..)?.chars().next());
    state == Some('D')
}

/// Processors that this process may use.
pub fn cpus() -> u64 {
    // It reads files of control groups.
    static CPUS: OnceLock<u64> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u64))
}

/// What a small file of the kernel's holds, in one call: they are many.
fn text(path: &str) -> Option<String> {
    let mut bytes = [0; 4_096];
    let read = File::open(path).ok()?.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..read]).into_owned())
}

fn booted_s() -> Option<f64> {
    let mut stat = String::new();
    File::open("/proc/stat").ok()?.take(1 << 20).read_to_string(&mut stat).ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn counters(process: Process) -> Option<Counters> {
    let (ran_ns, queued_ns) = ran_and_queued_ns(process)?;
    let io = process.file("io")?;
    let field = |name: &str| -> u64 {
        let line = io.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok()).unwrap_or(0)
    };
    Some(Counters { ran_ns, queued_ns, read: field("rchar"), written: field("wchar") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_reads() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let this = Process { pid: std::process::id(), tid: Some(tid) };
        let mut host = Host::default();
        let mut read = |s| host.read(Nanos::from_secs(s), [this].into_iter());
        let work = || {
            std::hint::black_box((0..20_000_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n)));
            std::fs::read("/proc/self/maps").unwrap().len() as u64
        };
        let bytes = work();
        let first = read(1)[&this];
        assert!(first.counters.read >= bytes && first.over < YOUNG, "all that a young one did: {first:?}");
        let old = Host::default().read(Nanos::from_secs(1), [Process::whole(1)].into_iter());
        assert!(old.is_empty(), "a first look at an old one shows nothing yet");
        let bytes = work();
        let did = read(2)[&this];
        assert_eq!(did.over, Nanos::from_secs(1));
        assert!(did.counters.read >= bytes, "{did:?}");
        assert!(threads(this.pid, 1_000).contains(&tid) && threads(this.pid, 1).len() == 1);
        assert!(!waits_for_disk(this), "it runs");
        host.keep_recent(Nanos::from_secs(63));
        let again = host.read(Nanos::from_secs(64), [this].into_iter())[&this];
        assert!(again.over < YOUNG, "it was forgotten: {again:?}");
    }

    #[test]
    fn a_process_is_known_by_when_it_began() {
        let pid = std::process::id();
        assert!(!is_here(pid, 0.0));
        assert!(!is_here(u32::MAX, 0.0));
        assert!(is_here(pid, began_at(Process::whole(pid)).unwrap()));
    }

    #[test]
    fn parts_and_differences_never_wrap() {
        let (few, many) =
            (Counters { read: 1, ..Counters::default() }, Counters { read: 9, ..Counters::default() });
        assert_eq!((many.since(few).read, few.since(many).read), (8, 0));
        assert_eq!((many.part(0.5).read, many.plus(few).read), (4, 10));
    }
}
