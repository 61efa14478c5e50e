//! The reader by BPF: an iterator that the kernel runs over all its threads. It tells a wait while it goes on, to the tick, and how each
//! thread is scheduled for nothing more. It wants CAP_BPF and CAP_PERFMON, or root, a kernel with type information (BTF) since 5.11, and
//! the outermost pid namespace, whose numbers it tells.

use std::fs;
use std::io::Read;
use std::os::linux::fs::MetadataExt;

use libbpf_rs::{Iter, Link, Object, ObjectBuilder, PrintLevel, set_print};
use plimsoll_core::Nanos;
use plimsoll_cpufutures::{TaskId, TaskSample};
use rustix::param::clock_ticks_per_second;

use crate::describe::{Describer, Scheduling};
use crate::parse;
use crate::scene::{Described, Scene};

/// Made of `bpf/tasks.bpf.c` by `ci/bpf.sh build`.
const OBJECT: &[u8] = include_bytes!("../bpf/tasks.bpf.o");
/// The number of the outermost pid namespace, which is the same on all kernels.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// More threads than that are not read, as a limit on memory.
const MOST: usize = 131_072;
/// From one description to the next, should nothing change that the iterator tells: a thread may have been moved to a group below.
const BETWEEN_DESCRIPTIONS: Nanos = Nanos::from_secs(30);

/// Reads by an iterator.
pub struct Bpf {
    describer: Describer,
    link: Link,
    /// The program, which lives as long as the link does.
    _object: Object,
    buffer: Vec<u8>,
    /// By number, as the iterator goes.
    known: Vec<Known>,
    ns_per_tick: u64,
}

/// A thread, as it was last described.
struct Known {
    id: TaskId,
    like: Like,
    scheduling: Scheduling,
    describe_at: Nanos,
}

/// What the iterator tells beside the counters. A thread of which it is the same is described rarely.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Like {
    group: u64,
    cpus: u64,
    cpus_allowed: u32,
    policy: u32,
    nice: i32,
    comm: [u8; 16],
}

/// One thread, as `struct record` of `bpf/tasks.bpf.c` has it.
struct Record {
    pid: u32,
    tid: u32,
    started_ns: u64,
    run_ns: u64,
    wait_ns: u64,
    like: Like,
}

impl Record {
    const SIZE: usize = 80;

    fn parse(bytes: &[u8; Record::SIZE]) -> Record {
        let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let u32_at = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Record {
            pid: u32_at(0),
            tid: u32_at(4),
            started_ns: u64_at(8),
            run_ns: u64_at(16),
            wait_ns: u64_at(24),
            like: Like {
                group: u64_at(32),
                cpus: u64_at(40),
                cpus_allowed: u32_at(48),
                policy: u32_at(52),
                nice: u32_at(56) as i32,
                comm: std::array::from_fn(|byte| bytes[64 + byte]),
            },
        }
    }

    /// As the model wants it.
    fn sample(&self, known: &Known) -> TaskSample {
        let Scheduling { policy, nice, group, cpus } = known.scheduling;
        TaskSample { id: known.id, run_ns: self.run_ns, wait_ns: self.wait_ns, policy, nice, group, cpus }
    }
}

impl Bpf {
    /// Loads the program.
    ///
    /// # Errors
    /// Why it cannot be, and what would help.
    pub fn new() -> Result<Bpf, String> {
        let namespace = fs::metadata("/proc/self/ns/pid").map(|file| file.st_ino());
        if namespace.ok() != Some(FIRST_PID_NAMESPACE) {
            return Err(
                "this is a container with a pid namespace of its own, whose numbers BPF does not tell"
                    .to_owned(),
            );
        }
        if fs::metadata("/sys/kernel/btf/vmlinux").is_err() {
            return Err("the kernel has no type information (CONFIG_DEBUG_INFO_BTF)".to_owned());
        }
        // What libbpf would print is in the error that is told.
        set_print(None::<(PrintLevel, fn(PrintLevel, String))>);
        let wrong = |what: &str, error: libbpf_rs::Error| {
            let right = match error.kind() {
                libbpf_rs::ErrorKind::PermissionDenied => {
                    "; CAP_BPF and CAP_PERFMON are missing: run as root"
                }
                _ => "",
            };
            format!("the BPF program cannot be {what}: {error}{right}")
        };
        let open = ObjectBuilder::default().open_memory(OBJECT).map_err(|error| wrong("opened", error))?;
        let object = open.load().map_err(|error| wrong("loaded", error))?;
        let program = object.progs_mut().find(|program| program.name() == "tasks");
        let program = program.ok_or("the BPF object holds no program `tasks`")?;
        let link = program.attach().map_err(|error| wrong("attached", error))?;
        Ok(Bpf {
            describer: Describer::new()?,
            link,
            _object: object,
            buffer: Vec::new(),
            known: Vec::new(),
            ns_per_tick: 1_000_000_000 / clock_ticks_per_second(),
        })
    }

    /// Reads all threads.
    ///
    /// # Errors
    /// Where the kernel does not run the iterator any more.
    pub fn read(&mut self, now: Nanos, scene: &mut Scene) -> Result<(), String> {
        self.buffer.clear();
        let iter =
            Iter::new(&self.link).map_err(|error| format!("the BPF iterator cannot be run: {error}"))?;
        let most = (MOST * Record::SIZE) as u64;
        iter.take(most)
            .read_to_end(&mut self.buffer)
            .map_err(|error| format!("the BPF iterator cannot be read: {error}"))?;
        scene.now = now;
        scene.tasks.clear();
        // Both are in the order of the threads' numbers, so that each has its like where the last one ended. Mostly all are there that were.
        let buffer = std::mem::take(&mut self.buffer);
        let records = buffer.as_chunks::<{ Record::SIZE }>().0;
        let mut same = 0;
        while let (Some(bytes), Some(known)) = (records.get(same), self.known.get(same)) {
            let record = Record::parse(bytes);
            if self.id(&record) != known.id || record.like != known.like {
                break;
            }
            if now >= known.describe_at {
                let Some(again) = self.describe(&record, now, scene) else { break };
                self.known[same] = again;
            }
            scene.tasks.push(record.sample(&self.known[same]));
            same += 1;
        }
        if same < records.len().max(self.known.len()) {
            let mut before = self.known.split_off(same).into_iter().peekable();
            for bytes in &records[same..] {
                let record = Record::parse(bytes);
                while let Some(known) = before.next_if(|known| known.id.tid < record.tid) {
                    scene.described.remove(&known.id);
                }
                let known = before.next_if(|known| known.id.tid == record.tid);
                self.note(&record, known, now, scene);
            }
            for known in before {
                scene.described.remove(&known.id);
            }
        }
        self.buffer = buffer;
        scene.host = self.describer.host(now);
        Ok(())
    }

    fn id(&self, record: &Record) -> TaskId {
        TaskId { pid: record.pid, tid: record.tid, started: record.started_ns / self.ns_per_tick }
    }

    /// Takes note of a thread, of which `before` is known, or of another one that had its number.
    fn note(&mut self, record: &Record, before: Option<Known>, now: Nanos, scene: &mut Scene) {
        let same = |known: &Known| known.id == self.id(record) && known.like == record.like;
        let known = match before {
            Some(known) if same(&known) && now < known.describe_at => known,
            before => {
                if let Some(before) = before {
                    scene.described.remove(&before.id);
                }
                let Some(known) = self.describe(record, now, scene) else { return };
                known
            }
        };
        scene.tasks.push(record.sample(&known));
        self.known.push(known);
    }

    /// All about a thread; nothing of one that ended since the iterator saw it, which is gone at the next reading anyway.
    fn describe(&mut self, record: &Record, now: Nanos, scene: &mut Scene) -> Option<Known> {
        let &Record { pid, tid, like, .. } = record;
        let id = self.id(record);
        let (_, scheduling, described) = self.describer.describe(now, pid, tid).ok()?;
        let spread = Nanos(BETWEEN_DESCRIPTIONS.0 / 16 * u64::from(tid % 16));
        let describe_at = now + BETWEEN_DESCRIPTIONS + spread;
        // The name, policy and nice value of the same moment as the counters, so that they do not seem to change.
        let comm = like.comm.split(|&byte| byte == 0).next().unwrap_or_default();
        let comm = String::from_utf8_lossy(comm).into_owned();
        let policy = parse::policy(like.policy);
        let nice = like.nice.clamp(-20, 19) as i8;
        let scheduling = Scheduling { policy, nice, ..scheduling };
        scene.described.insert(id, Described { comm, policy, nice, ..described });
        Some(Known { id, like, scheduling, describe_at })
    }
}
