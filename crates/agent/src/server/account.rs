//! From looks at a server to scenes: pure. What a process was seen doing counts for the time since the last look.

mod held;
mod known;

use std::collections::{HashMap, HashSet};

use plimsoll_cancellation::scene::{Resource, Scene, Task, Use};
use plimsoll_core::Nanos;

use crate::host::{Counters, Did, Process};

use super::backend::{Backend, State, Waits};
use super::chains::{Blame, Pid};
use super::latency::{Ended, Latency, Pauses, Session};
use super::measured::Measured;
use super::slots::{self, Slots};
use super::stamp::Stamp;

use self::held::Held;
pub use self::known::Known;

/// Tasks of a scene at most; the oldest go first into it.
const MOST_TASKS: usize = 4_096;
/// From one look to the next at most.
const LONGEST: Nanos = Nanos::from_secs(3_600);

/// Looks after which it is known what is usual of what is not held: before, nobody is blamed for it. What has been counted for a while is
/// known sooner than what is only seen now and then.
const KNOWN: u64 = 50;
const KNOWN_BY_COUNT: u64 = 15;
/// So long is a while, where looks are rare.
const A_WHILE: Nanos = Nanos::from_secs(5);

/// What a look showed.
pub struct Look<'a> {
    /// The scene's time.
    pub now: Nanos,
    /// The server's.
    pub server: Stamp,
    /// The processes, without our own.
    pub backends: &'a [Backend],
    /// Who waits for locks, and because of whom.
    pub blames: &'a [Blame],
    /// Transactions that the server has counted.
    pub transactions: u64,
    /// Sessions in which a statement has begun since the last look.
    pub moved: u64,
    /// How it stood still of late, where it tells.
    pub paused: Pauses,
    /// What statements take on average, in ns, where that is known.
    pub mean_ns: Option<f64>,
    /// How far commands are: done, of how much.
    pub progress: &'a HashMap<Pid, (u64, u64)>,
    /// For how long the statement of a process is expected to run, in ns, where anybody knows.
    pub expected_ns: &'a dyn Fn(&Backend) -> Option<u64>,
    /// What processes did, where this host's kernel says so; nothing where it was not asked now.
    pub did: &'a HashMap<Process, Did>,
    /// What the server measures itself.
    pub measured: &'a [Measured],
    /// Whether the kernel is ever asked: units of CPU are counted, and those of reading are bytes.
    pub on_host: bool,
    /// Whether a process can be cancelled, as far as that does not depend on its state.
    pub may_signal: &'a dyn Fn(&Backend) -> bool,
    /// Whether a session that is idle in a transaction can be ended.
    pub may_terminate: bool,
}

/// All that is remembered from look to look.
#[derive(Debug, Default)]
pub struct Account {
    known: HashMap<Pid, Known>,
    slots: Slots,
    latency: Latency,
    held: HashMap<u32, (Pid, u64)>,
    next_id: u64,
    ages_ns: u64,
    look: u64,
    looked_for: Nanos,
}

impl Account {
    /// Fills in the scene.
    pub fn look(&mut self, look: &Look<'_>, scene: &mut Scene) {
        scene.clear();
        self.look += 1;
        // Only a server that lies says that more has passed; or nobody has looked for as long.
        let elapsed = self.latency.elapsed(look.server).min(LONGEST);
        self.looked_for += elapsed;
        let culprits = held::by_culprit(look, &mut self.slots);
        let measured = look.measured.iter();
        let measured: Vec<(u32, &Measured)> =
            measured.map(|it| (self.slots.measured(it.resource.kind, it.name), it)).collect();
        let workers = workers(look);
        scene.resources.extend(self.resources(look));
        let mut tasks: Vec<&Backend> =
            look.backends.iter().filter(|b| b.leader.is_none() && is_task(b, &culprits)).collect();
        tasks.sort_by_key(|backend| backend.since());
        tasks.truncate(MOST_TASKS);
        let mut counted = HashSet::new();
        for backend in tasks {
            let did = did(look, backend, workers.get(&backend.pid));
            counted.insert(backend.pid);
            self.task(look, backend, &culprits, did, elapsed, scene);
        }
        self.others_did(look, &counted, scene);
        self.measured(&measured, scene);
        self.waits(look, elapsed, scene);
        self.holds(look, &culprits, elapsed, scene);
        self.ended(look, elapsed, scene);
        scene.bound();
        let now = self.look;
        self.known.retain(|_, known| known.look == now);
    }

    fn resources(&self, look: &Look<'_>) -> impl Iterator<Item = Resource> {
        let cpus = look.on_host.then(crate::host::cpus).unwrap_or(0);
        (0..self.slots.count() as u32).map(move |index| {
            let capacity = match index {
                slots::CPU => cpus,
                slots::DATA | slots::WAL => 0,
                _ => 1,
            };
            Resource::quiet(self.slots.kind(index), capacity)
        })
    }

    fn task(
        &mut self,
        look: &Look<'_>,
        backend: &Backend,
        culprits: &HashMap<Pid, Vec<Held>>,
        did: Option<Did>,
        elapsed: Nanos,
        scene: &mut Scene,
    ) {
        let held = culprits.get(&backend.pid).map_or(&[][..], Vec::as_slice);
        // Who waits for a lock is a victim, whatever it did before.
        let blamable = backend.waits != Some(Waits::Lock) && self.knows_usual();
        let known = self.know(look, backend, held, elapsed);
        let age_ns = look.server.since_ns(backend.since());
        let active = backend.state == State::Active;
        let index = scene.tasks.len() as u32;
        let (done, total) = known.progress.unwrap_or((0, 0));
        scene.tasks.push(Task {
            id: known.id,
            class: 0,
            started_ns: look.now.0.saturating_sub(age_ns),
            deadline_ns: 0,
            done,
            total,
            request: active && backend.is_client(),
            cancellable: (look.may_signal)(backend) && (active || look.may_terminate),
            rerunnable: false,
        });
        let mut used = |resource: u32, used: u64, recent: u64| {
            scene.resources[resource as usize].gets += recent;
            if blamable && (used > 0 || recent > 0) {
                scene.uses.push(Use { task: index, resource, used, recent, ..Use::default() });
            }
        };
        if look.on_host {
            // Of what a process did since it was last read, a task that is younger did its part.
            let own = did.map_or(Counters::default(), |did| {
                did.counters.part(part(&did, look.server.since_ns(known.started)))
            });
            known.used = known.used.plus(own);
            // Bytes that a process writes are anybody's: who commits writes the log of all, who needs a page writes the one that it evicts.
            // What it puts into the log costs it time on the processor.
            let logged_ns = if backend.writes { own.ran_ns } else { 0 };
            known.wal_ns += logged_ns;
            used(slots::CPU, known.used.ran_ns, own.ran_ns);
            used(slots::DATA, known.used.read, own.read);
            used(slots::WAL, known.wal_ns, logged_ns);
            if let Some(did) = did {
                // Long ago is not now: of what came together over a longer time, the part of this look.
                let recent = (elapsed.0 as f64 / did.over.0.max(1) as f64).min(1.0);
                let cpu = &mut scene.resources[slots::CPU as usize];
                cpu.use_ns += own.ran_ns;
                cpu.delay_ns += (own.queued_ns as f64 * recent) as u64;
            }
        } else {
            let (data, wal) = match &backend.waits {
                Some(Waits::DataFiles) => (elapsed.0, 0),
                None if active && backend.writes => (0, elapsed.0),
                _ => (0, 0),
            };
            known.data_ns = known.data_ns.saturating_add(data);
            known.wal_ns = known.wal_ns.saturating_add(wal);
            used(slots::DATA, known.data_ns, data);
            used(slots::WAL, known.wal_ns, wal);
        }
        let waited_ns = known.waited_ns;
        for held in held {
            let held_ns = held.since_ns(look, backend, waited_ns);
            let task = Use {
                task: index,
                resource: held.resource,
                held: 1,
                held_ns,
                used: held_ns,
                ..Use::default()
            };
            scene.uses.push(Use { recent: elapsed.0.min(held_ns), ..task });
        }
    }

    /// Whether there was enough to see to tell who takes more than is usual.
    fn knows_usual(&self) -> bool {
        self.look > KNOWN || (self.look > KNOWN_BY_COUNT && self.looked_for >= A_WHILE)
    }

    /// The same task as before, or a new one.
    fn know(&mut self, look: &Look<'_>, backend: &Backend, held: &[Held], elapsed: Nanos) -> &mut Known {
        if !self.known.get(&backend.pid).is_some_and(|known| known.is(backend)) {
            self.next_id += 1;
            self.known.insert(backend.pid, Known::new(self.next_id, backend, look.server));
        }
        let number = self.look;
        let known = self.known.get_mut(&backend.pid).expect("it was just put in");
        known.look = number;
        known.seen(look, backend, held, elapsed);
        known
    }

    /// What processes did that are no tasks now: those whose statements came and went between two looks.
    fn others_did(&self, look: &Look<'_>, counted: &HashSet<Pid>, scene: &mut Scene) {
        if !look.on_host {
            return;
        }
        let uncounted = look.backends.iter().filter(|b| !counted.contains(&b.leader.unwrap_or(b.pid)));
        for backend in uncounted {
            if let Some(did) = backend.process.and_then(|process| look.did.get(&process)) {
                let Counters { ran_ns, read, .. } = did.counters;
                scene.resources[slots::CPU as usize].gets += ran_ns;
                scene.resources[slots::CPU as usize].use_ns += ran_ns;
                scene.resources[slots::DATA as usize].gets += read;
                scene.resources[slots::WAL as usize].gets += ran_ns;
            }
        }
    }

    /// What the server says of its own.
    fn measured(&self, measured: &[(u32, &Measured)], scene: &mut Scene) {
        let tasks: HashMap<u64, u32> = scene.tasks.iter().map(|task| task.id).zip(0..).collect();
        for &(index, Measured { resource, uses, .. }) in measured {
            scene.resources[index as usize] = *resource;
            // It takes time to know what is usual, also of workers: of a server that has just begun everything is slow.
            let blamable = self.look > KNOWN_BY_COUNT;
            for (pid, used) in uses {
                let task = self.known.get(pid).and_then(|known| tasks.get(&known.id));
                if let Some(&task) = task.filter(|_| blamable) {
                    scene.uses.push(Use { task, resource: index, ..*used });
                }
            }
        }
    }

    /// What requests wait for.
    fn waits(&mut self, look: &Look<'_>, elapsed: Nanos, scene: &mut Scene) {
        let by_victim: HashMap<Pid, &Blame> = look.blames.iter().map(|blame| (blame.victim, blame)).collect();
        let ids: HashMap<u64, Pid> = self.known.iter().map(|(&pid, known)| (known.id, pid)).collect();
        let backends: HashMap<Pid, &Backend> = look.backends.iter().map(|b| (b.pid, b)).collect();
        for (index, task) in scene.tasks.iter().enumerate().filter(|(_, task)| task.request) {
            let Some(backend) = ids.get(&task.id).and_then(|pid| backends.get(pid)) else { continue };
            let (resource, since) = match &backend.waits {
                None => continue,
                Some(Waits::DataFiles) => (slots::DATA, None),
                Some(Waits::Wal) => (slots::WAL, None),
                Some(Waits::BufferPin) => (slots::PIN, None),
                Some(Waits::Latch(name)) => (self.slots.latch(name), None),
                Some(Waits::Lock) => match by_victim.get(&backend.pid) {
                    Some(blame) => {
                        let has = backends.get(&blame.culprit);
                        // Who commits gives it back as soon as the disk has the log, so what is waited for is that.
                        let resource = if has.is_some_and(|has| has.waits == Some(Waits::Wal)) {
                            slots::WAL
                        } else {
                            self.slots.lock(blame.object, blame.queues.is_some(), blame.culprit)
                        };
                        (resource, Some(blame.since.unwrap_or(look.server)))
                    }
                    None => continue,
                },
            };
            let of = &mut scene.resources[resource as usize];
            of.delay_ns += elapsed.0;
            let waiting_ns = since.map_or(elapsed.0, |since| look.server.since_ns(since)).max(1);
            of.slows += u64::from(waiting_ns <= elapsed.0);
            // A task and a resource meet once.
            let mut uses = scene.uses.iter_mut();
            match uses.find(|used| used.task as usize == index && used.resource == resource) {
                Some(used) => used.waiting_ns = waiting_ns,
                None => {
                    scene.uses.push(Use { task: index as u32, resource, waiting_ns, ..Use::default() });
                }
            }
        }
        scene.uses.sort_by_key(|used| (used.task, used.resource));
    }

    /// What was held, and which holds ended.
    fn holds(
        &mut self,
        look: &Look<'_>,
        culprits: &HashMap<Pid, Vec<Held>>,
        elapsed: Nanos,
        scene: &mut Scene,
    ) {
        let mut now = HashMap::new();
        let backends: HashMap<Pid, &Backend> = look.backends.iter().map(|b| (b.pid, b)).collect();
        for (&pid, held) in culprits {
            let Some(backend) = backends.get(&pid) else { continue };
            let waited_ns = self.known.get(&pid).map_or(0, |known| known.waited_ns);
            for held in held {
                let held_ns = held.since_ns(look, backend, waited_ns);
                let resource = &mut scene.resources[held.resource as usize];
                resource.use_ns += elapsed.0.min(held_ns);
                let is_new = self.held.get(&held.resource).is_none_or(|&(before, _)| before != pid);
                resource.gets += u64::from(is_new);
                now.insert(held.resource, (pid, held_ns));
            }
        }
        for (resource, (pid, held_ns)) in std::mem::replace(&mut self.held, now) {
            let still = self.held.get(&resource).is_some_and(|&(who, _)| who == pid);
            // Nobody may wait for it now, and it has it still: a lock is held until its transaction ends.
            let goes_on = backends
                .get(&pid)
                .is_some_and(|b| held_ns <= look.server.since_ns(b.xact.unwrap_or(look.server)));
            if let (false, false, Some(resource)) =
                (still, goes_on, scene.resources.get_mut(resource as usize))
            {
                resource.ended += 1;
                resource.ended_ns = resource.ended_ns.saturating_add(held_ns);
            }
        }
    }

    /// What ended, and for how long requests ran: as many as were seen, for the time since the last look.
    fn ended(&mut self, look: &Look<'_>, elapsed: Nanos, scene: &mut Scene) {
        let sessions: Vec<Session> = look.backends.iter().filter_map(session).collect();
        let Look { server, moved, transactions, paused, mean_ns, .. } = *look;
        let Ended { latencies, delayed } =
            self.latency.look(server, &sessions, moved, transactions, paused, mean_ns);
        (scene.finished, scene.unseen) = (latencies, delayed);
        let requests = scene.tasks.iter().filter(|task| task.request);
        let (count, ages_ns) = requests.fold((0, 0), |(count, sum): (u64, u64), task| {
            (count + 1, sum.saturating_add(look.now.0.saturating_sub(task.started_ns)))
        });
        // The engine adds by how much the ages of those that run have grown.
        let ran_ns = count.saturating_mul(elapsed.0).saturating_add(self.ages_ns);
        scene.finished_ns = ran_ns.saturating_sub(ages_ns);
        self.ages_ns = ages_ns;
    }

    /// A task that was in the last scene.
    pub fn known(&self, id: u64) -> Option<&Known> {
        self.known.values().find(|known| known.id == id)
    }

    /// What a number stands for, if it is one of those that come and go.
    pub fn what(&self, resource: u32) -> Option<&slots::What> {
        self.slots.what(resource)
    }

    /// There is another connection: what it takes for ours among the server's requests are its own alone.
    pub fn reconnected(&mut self) {
        self.latency.count_anew();
    }

    /// The server began anew: counters start from nothing, processes are others. Numbers go on, none is used twice.
    pub fn forget(&mut self) {
        self.latency.forget();
        self.known.clear();
        self.held.clear();
        self.ages_ns = 0;
    }
}

/// Whether it runs something, or holds up somebody.
fn is_task(backend: &Backend, culprits: &HashMap<Pid, Vec<Held>>) -> bool {
    backend.state == State::Active || culprits.contains_key(&backend.pid)
}

/// The parallel workers of each leader.
fn workers(look: &Look<'_>) -> HashMap<Pid, Vec<Process>> {
    let mut workers: HashMap<Pid, Vec<Process>> = HashMap::new();
    for backend in look.backends {
        if let (Some(leader), Some(process)) = (backend.leader, backend.process) {
            workers.entry(leader).or_default().push(process);
        }
    }
    workers
}

/// The part of what a process did since it was last read that is that of the last `age_ns`.
fn part(did: &Did, age_ns: u64) -> f64 {
    (age_ns as f64 / did.over.0.max(1) as f64).min(1.0)
}

/// What a process and its parallel workers did.
fn did(look: &Look<'_>, backend: &Backend, workers: Option<&Vec<Process>>) -> Option<Did> {
    let all = backend.process.iter().chain(workers.into_iter().flatten());
    all.filter_map(|process| look.did.get(process).copied())
        .reduce(|a, b| Did { counters: a.counters.plus(b.counters), over: a.over.max(b.over) })
}

fn session(backend: &Backend) -> Option<Session> {
    let known = backend.is_client() && backend.state != State::None;
    Some(Session {
        pid: backend.pid,
        active: backend.state == State::Active,
        began: backend.query.filter(|_| known)?,
        changed: backend.changed?,
    })
}

#[cfg(test)]
mod tests;
