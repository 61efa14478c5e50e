//! From a look into a ledger to a scene: pure.

use std::collections::HashMap;

use plimsoll_cancellation::scene::{self, Scene};
use plimsoll_core::Nanos;
use plimsoll_ledger::layout::{BINS, Kind, bin_begins_ns};
use plimsoll_ledger::{Look, Task};

use crate::host::{Counters, Did, Process};

/// The processor, as the kernel sees it, for tasks that name their thread.
pub const CPU: u32 = 0;
/// Disk and network, likewise.
pub const IO: u32 = 1;
/// The first of the ledger's own resources; each has the number of its record above that, so that numbers never change.
pub const FIRST: u32 = 2;

/// More than this can not have happened between two looks, nor be true of a task, whatever a ledger says; and many such numbers can
/// still be added up.
const MOST: u64 = 1 << 40;
const MOST_NS: u64 = 1 << 55;

/// The resource of a ledger that is a heap with a collector.
const HEAP: &str = "heap";

/// About how long a collector takes to go through all that it has to, in ns; only how that is shared matters.
const COLLECTION_NS: f64 = 1e8;

/// What marks the number of a request that has no record; of one that has, it is the highest bit of the turn, which only grows from zero.
const UNREAD: u64 = 1 << 63;

/// The heap among the scene's resources, if the ledger has one.
pub fn heap(look: &Look) -> Option<u32> {
    let is_heap = |resource: &&plimsoll_ledger::Resource| {
        kind(resource.kind) == scene::Kind::Memory && resource.name.show() == HEAP
    };
    look.resources.iter().find(is_heap).map(|resource| FIRST + u32::from(resource.index))
}

/// How a process stood still since the last look, to collect garbage.
pub struct Stopped<'a> {
    /// When that is known of.
    pub now: Nanos,
    /// For how long.
    pub stood_ns: u64,
    /// The requests that have come while it does and that it has not read: a number that no other has, and when each came.
    pub came: &'a [(u64, Nanos)],
    /// For how long those together had waited that it has read since the last look, in ns.
    pub waited_ns: u64,
}

/// What is allocated has to be collected sooner or later, and all who are there wait for that; those who have come meanwhile, too.
pub fn stopped(scene: &mut Scene, heap: u32, stopped: &Stopped<'_>) {
    let there = (scene.tasks.len() + stopped.came.len()) as u64;
    // Nobody allocates meanwhile. What is held is gone through, so those take the collector's work who hold most.
    let mut collected = 0_u64;
    for used in scene.uses.iter_mut().filter(|used| used.resource == heap) {
        let part = (used.held as f64 * stopped.stood_ns as f64 / COLLECTION_NS) as u64;
        used.recent = used.recent.saturating_add(part).min(MOST_NS);
        collected = collected.saturating_add(part);
    }
    let resource = &mut scene.resources[heap as usize];
    resource.gets = resource.gets.saturating_add(collected).max(u64::from(stopped.stood_ns > 0)).min(MOST_NS);
    resource.slows = resource.gets;
    resource.delay_ns = resource.delay_ns.saturating_add(stopped.stood_ns.saturating_mul(there)).min(MOST_NS);
    scene.finished_ns = scene.finished_ns.saturating_add(stopped.waited_ns).min(MOST_NS);
    for &(number, at) in stopped.came {
        let task = scene.tasks.len() as u32;
        scene.tasks.push(scene::Task {
            id: UNREAD | number,
            class: 0,
            started_ns: at.0,
            deadline_ns: 0,
            done: 0,
            total: 0,
            request: true,
            cancellable: false,
            rerunnable: false,
        });
        let waiting_ns = stopped.now.since(at).0.max(1);
        scene.uses.push(scene::Use { task, resource: heap, waiting_ns, ..scene::Use::default() });
    }
}

/// The number of a task, from its record and its turn: never used twice, since turns only grow.
pub fn id(index: u32, turn: u64) -> u64 {
    turn << 17 | u64::from(index)
}

/// The record of a task's number.
pub fn record(id: u64) -> u32 {
    (id & 0x1_ffff) as u32
}

/// What is remembered from look to look.
#[derive(Debug, Default)]
pub struct Books {
    /// By resource: for how long it was held by those who have given it back, since the ledger was opened, in ns.
    ended_ns: Vec<u64>,
    /// By resource: for how long those who hold it now have been holding it, all together, in ns.
    going_on_ns: Vec<u64>,
    /// By task: what its thread did for it.
    threads: HashMap<u64, Counters>,
}

/// What the kernel said of a process's threads, where it was asked at this look.
pub struct Threads<'a> {
    /// The process.
    pub pid: u32,
    /// What each did.
    pub did: &'a HashMap<Process, Did>,
    /// Processors that there are.
    pub cpus: u64,
}

impl Books {
    /// Fills in the scene.
    pub fn scene(&mut self, look: &Look, threads: &Threads<'_>, scene: &mut Scene) {
        scene.clear();
        scene.resources.push(scene::Resource::quiet(scene::Kind::Cpu, threads.cpus));
        scene.resources.push(scene::Resource::quiet(scene::Kind::Io, 0));
        let records = look.resources.last().map_or(0, |last| usize::from(last.index) + 1);
        // One that has no record yet is quiet.
        scene.resources.resize(FIRST as usize + records, scene::Resource::quiet(scene::Kind::Lock, 0));
        self.ended_ns.resize(self.ended_ns.len().max(records), 0);
        self.going_on_ns.clear();
        self.going_on_ns.resize(records, 0);
        for used in look.uses.iter().filter(|used| used.holding_since_ns > 0) {
            if let Some(sum_ns) = self.going_on_ns.get_mut(usize::from(used.resource)) {
                *sum_ns = sum_ns.saturating_add(look.now_ns.saturating_sub(used.holding_since_ns));
            }
        }
        for resource in &look.resources {
            scene.resources[FIRST as usize + usize::from(resource.index)] = self.resource(resource);
        }
        let mut lived = HashMap::new();
        for (index, task) in look.tasks.iter().enumerate() {
            scene.tasks.push(of_task(task));
            self.thread(look, threads, index as u32, task, &mut lived, scene);
            scene.uses.extend(look.uses_of(task).iter().map(|used| of_use(look, index as u32, used)));
        }
        self.threads = lived;
        let of_others = threads.did.iter().filter(|(process, _)| {
            look.tasks.iter().all(|task| process.tid != Some(task.tid)) && process.pid == threads.pid
        });
        // Tasks that wander from thread to thread wait for a processor where their threads do.
        let wander = look.tasks.iter().any(|task| task.tid == 0);
        for (_, did) in of_others {
            let queued_ns = did.counters.queued_ns as f64 * part_of(look, did);
            charge(scene, did.counters, if wander { queued_ns as u64 } else { 0 });
        }
        scene.finished = (0..BINS)
            .filter(|&bin| look.window.bins[bin] > 0)
            .map(|bin| (middle_ns(bin), look.window.bins[bin].min(MOST)))
            .collect();
        scene.finished_ns = look.window.sum_ns.min(MOST_NS);
    }

    fn resource(&mut self, resource: &plimsoll_ledger::Resource) -> scene::Resource {
        let index = usize::from(resource.index);
        // What is still going on is in the total, too.
        let ended_ns =
            resource.total.hold_ns.saturating_sub(self.going_on_ns[index]).max(self.ended_ns[index]);
        let ended = ended_ns - std::mem::replace(&mut self.ended_ns[index], ended_ns);
        let kind = kind(resource.kind);
        let window = &resource.window;
        scene::Resource {
            kind,
            capacity: resource.capacity.min(MOST),
            gets: window.gets.min(MOST),
            slows: window.slows.min(MOST),
            delay_ns: window.wait_ns.min(MOST_NS),
            use_ns: if kind == scene::Kind::Cpu { window.gets } else { window.hold_ns }.min(MOST_NS),
            ended: window.frees.min(MOST),
            ended_ns: ended.min(MOST_NS),
        }
    }

    /// What a task's thread did for it.
    fn thread(
        &mut self,
        look: &Look,
        threads: &Threads<'_>,
        index: u32,
        task: &Task,
        lived: &mut HashMap<u64, Counters>,
        scene: &mut Scene,
    ) {
        if task.tid == 0 {
            return;
        }
        let id = id(task.index, task.turn);
        let did = threads.did.get(&Process { pid: threads.pid, tid: Some(task.tid) });
        // Of what a thread did since it was last asked about, a task that is younger did its part.
        let recent = did.map_or(Counters::default(), |did| {
            let lived = look.now_ns.saturating_sub(task.started_ns) as f64;
            did.counters.part((lived / did.over.0.max(1) as f64).min(1.0))
        });
        let used = self.threads.get(&id).copied().unwrap_or_default().plus(recent);
        lived.insert(id, used);
        let waited = did.map_or(0.0, |did| recent.queued_ns as f64 * part_of(look, did));
        charge(scene, recent, waited as u64);
        let bytes = |of: Counters| of.read.saturating_add(of.written);
        for (resource, used, recent) in [(CPU, used.ran_ns, recent.ran_ns), (IO, bytes(used), bytes(recent))]
        {
            if used > 0 {
                scene.uses.push(scene::Use { task: index, resource, used, recent, ..scene::Use::default() });
            }
        }
    }
}

/// The time since the last look, of that in which a thread did what it did.
fn part_of(look: &Look, did: &Did) -> f64 {
    (look.since_ns as f64 / did.over.0.max(1) as f64).min(1.0)
}

fn charge(scene: &mut Scene, did: Counters, queued_ns: u64) {
    let cpu = &mut scene.resources[CPU as usize];
    cpu.gets += did.ran_ns;
    cpu.use_ns += did.ran_ns;
    cpu.delay_ns += queued_ns;
    scene.resources[IO as usize].gets += did.read.saturating_add(did.written);
}

fn kind(kind: Kind) -> scene::Kind {
    match kind {
        Kind::Lock => scene::Kind::Lock,
        Kind::Memory => scene::Kind::Memory,
        Kind::Queue => scene::Kind::Queue,
        Kind::Cpu => scene::Kind::Cpu,
        Kind::Io => scene::Kind::Io,
    }
}

fn of_task(task: &Task) -> scene::Task {
    scene::Task {
        id: id(task.index, task.turn),
        class: 0,
        started_ns: task.started_ns,
        deadline_ns: task.deadline_ns,
        done: task.done,
        total: task.total,
        request: !task.background(),
        cancellable: task.cancellable(),
        rerunnable: task.rerunnable(),
    }
}

fn of_use(look: &Look, task: u32, used: &plimsoll_ledger::Use) -> scene::Use {
    let is_held = look.resource(used.resource).is_some_and(|resource| kind(resource.kind).is_held());
    let age = |since: u64| if since == 0 { 0 } else { look.now_ns.saturating_sub(since).max(1) };
    scene::Use {
        task,
        resource: FIRST + u32::from(used.resource),
        held: used.held.min(MOST),
        held_ns: if used.held > 0 { age(used.holding_since_ns) } else { 0 },
        used: if is_held { used.total.hold_ns } else { used.total.gets }.min(MOST_NS),
        recent: if is_held { used.window.hold_ns } else { used.window.gets }.min(MOST_NS),
        waiting_ns: age(used.waiting_since_ns),
    }
}

/// In the middle of what a bin counts.
fn middle_ns(bin: usize) -> u64 {
    let from = bin_begins_ns(bin);
    let to = if bin + 1 < BINS { bin_begins_ns(bin + 1) } else { from };
    from + (to - from) / 2
}

#[cfg(test)]
mod tests;
