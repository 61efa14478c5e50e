//! The reader by BPF: programs that the kernel runs over its threads. They tell a wait while it goes on, to the tick, and how each
//! thread is scheduled for nothing more. It wants CAP_BPF and CAP_PERFMON, or root, a kernel with type information (BTF) since 5.11, and
//! the outermost pid namespace, whose numbers it tells.
//!
//! One program tells of all threads, the other, since Linux 6.7, of those alone that ran in the last seconds. Whoever sleeps costs a glance then, in the
//! kernel, and nothing here. That somebody was born or ended unseen shows in the count of all; that a sleeper has another name or priority, when it runs or
//! at the next reading of all.

mod programs;
mod record;

use std::collections::HashMap;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{TaskId, TaskSample};

use self::programs::{Programs, Tally};
use self::record::{Like, Record};
use crate::clock;
use crate::describe::{Describer, Scheduling};
use crate::parse;
use crate::scene::{Described, Scene};

/// From one description to the next, should nothing change that the iterator tells: a thread may have been moved to a group below.
const BETWEEN_DESCRIPTIONS: Nanos = Nanos::from_secs(30);
/// From one reading of all threads to the next, and where the count of those who are there is another than it should be.
const BETWEEN_ALL: Nanos = Nanos::from_secs(10);
const BETWEEN_ALL_IF_MISSED: Nanos = Nanos::from_secs(1);
/// Whoever did anything up to a reading is told of by the next one, if that comes so soon: less than half of what `bpf/tasks.bpf.c` takes for lately.
const SOON: Nanos = Nanos::from_secs(1);

/// Reads by programs in the kernel.
pub struct Bpf {
    describer: Describer,
    programs: Programs,
    buffer: Vec<u8>,
    /// Threads, in the order of the scene's, and where they are by number.
    known: Vec<Known>,
    places: HashMap<u32, usize>,
    /// The sum of these numbers.
    numbers: u64,
    /// The numbers of those of whom the next reading must tell, unless they end.
    lively: Vec<u32>,
    round: u64,
    read_at: Nanos,
    /// The same by the clock by which threads are born.
    read_at_since_boot_ns: u64,
    all_read_at: Nanos,
    /// There are others than those that are known.
    has_missed: bool,
}

/// A thread, as it was last described.
struct Known {
    id: TaskId,
    like: Like,
    born: Nanos,
    scheduling: Scheduling,
    describe_at: Nanos,
    /// The last round that told of it.
    seen: u64,
}

impl Known {
    /// As the model wants it.
    fn sample(&self, record: &Record) -> TaskSample {
        let Scheduling { policy, nice, group, cpus } = self.scheduling;
        let &Record { run_ns, wait_ns, .. } = record;
        TaskSample { id: self.id, run_ns, wait_ns, born: Some(self.born), policy, nice, group, cpus }
    }
}

impl Bpf {
    /// Loads the program.
    ///
    /// # Errors
    /// Why it cannot be, and what would help.
    pub fn new() -> Result<Bpf, String> {
        Ok(Bpf {
            programs: Programs::load()?,
            describer: Describer::new()?,
            buffer: Vec::new(),
            known: Vec::new(),
            places: HashMap::new(),
            numbers: 0,
            lively: Vec::new(),
            round: 0,
            read_at: Nanos::ZERO,
            read_at_since_boot_ns: 0,
            all_read_at: Nanos::ZERO,
            has_missed: false,
        })
    }

    /// Reads all threads, or what is new of them.
    ///
    /// # Errors
    /// Where the kernel does not run the iterator any more.
    pub fn read(&mut self, now: Nanos, scene: &mut Scene) -> Result<(), String> {
        let is_soon = self.round > 0 && now.since(self.read_at) <= SOON;
        let between = if self.has_missed { BETWEEN_ALL_IF_MISSED } else { BETWEEN_ALL };
        let since_boot_ns = clock::since_boot().0;
        self.buffer.clear();
        let lately = if is_soon && now.since(self.all_read_at) < between {
            self.programs.lately(&mut self.buffer)?
        } else {
            None
        };
        let all = lately.is_none();
        if all {
            self.programs.all(&mut self.buffer)?;
            self.all_read_at = now;
        }
        scene.now = now;
        scene.news.begin(all);
        self.round += 1;
        let told_before = std::mem::take(&mut self.lively);
        let buffer = std::mem::take(&mut self.buffer);
        for bytes in buffer.as_chunks::<{ Record::SIZE }>().0 {
            self.note(&Record::parse(bytes), is_soon, now, scene);
        }
        self.buffer = buffer;
        if all {
            let mut at = 0;
            while let Some(known) = self.known.get(at) {
                if known.seen == self.round { at += 1 } else { self.forget(at, scene) }
            }
        } else {
            for tid in told_before {
                let place = self.places.get(&tid).copied();
                if let Some(at) = place.filter(|&at| self.known[at].seen != self.round) {
                    self.forget(at, scene);
                }
            }
        }
        self.has_missed =
            lately.is_some_and(|lately| lately != Tally { tasks: self.known.len(), numbers: self.numbers });
        (self.read_at, self.read_at_since_boot_ns) = (now, since_boot_ns);
        scene.host = self.describer.host(now);
        Ok(())
    }

    fn id(&self, record: &Record) -> TaskId {
        TaskId { pid: record.pid, tid: record.tid, started: self.describer.started(Nanos(record.started_ns)) }
    }

    /// Takes note of a thread, which may have the number of one that ended.
    fn note(&mut self, record: &Record, is_soon: bool, now: Nanos, scene: &mut Scene) {
        let place = self.places.get(&record.tid).copied();
        let is_as_described = |known: &Known| {
            known.id == self.id(record) && known.like == record.like && now < known.describe_at
        };
        let at = match place.filter(|&at| is_as_described(&self.known[at])) {
            Some(at) => at,
            None => {
                // One that has ended meanwhile is not seen, or not any more.
                let Some(known) = self.describe(record, now, scene) else { return };
                let (id, sample) = (known.id, known.sample(record));
                let at = place.unwrap_or(self.known.len());
                if at < self.known.len() {
                    let before = std::mem::replace(&mut self.known[at], known).id;
                    if before != id {
                        scene.described.remove(&before);
                        scene.news.gone.push(before);
                    }
                } else {
                    self.places.insert(record.tid, at);
                    self.known.push(known);
                    self.numbers += u64::from(record.tid);
                    scene.tasks.push(sample);
                    scene.news.changed.push(sample);
                }
                at
            }
        };
        self.known[at].seen = self.round;
        let sample = self.known[at].sample(record);
        let before = std::mem::replace(&mut scene.tasks[at], sample);
        if sample != before {
            scene.news.changed.push(sample);
        }
        let did_anything = (sample.run_ns, sample.wait_ns) != (before.run_ns, before.wait_ns)
            || record.started_ns >= self.read_at_since_boot_ns;
        if record.is_ready || is_soon && did_anything {
            self.lively.push(record.tid);
        }
    }

    /// A thread has ended.
    fn forget(&mut self, at: usize, scene: &mut Scene) {
        let Known { id, .. } = self.known.swap_remove(at);
        self.numbers -= u64::from(id.tid);
        scene.tasks.swap_remove(at);
        scene.described.remove(&id);
        scene.news.gone.push(id);
        self.places.remove(&id.tid);
        if let Some(moved) = self.known.get(at) {
            self.places.insert(moved.id.tid, at);
        }
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
        let born = clock::after_boot(Nanos(record.started_ns));
        Some(Known { id, like, born, scheduling, describe_at, seen: self.round })
    }
}
