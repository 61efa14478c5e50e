//! Shares by weight, in the manner of Linux since 6.6 (EEVDF: earliest eligible virtual deadline first).
//!
//! On every CPU, every group has a queue of what is ready in it: tasks and the groups below it. Of those that are not ahead of their
//! share, the one runs that is to have its slice first. Who sleeps keeps what it is owed, and what it owes. A group counts as much on a CPU as its
//! weight times the part of its ready tasks that is there.
//!
//! Parameters: weights by nice value as the kernel has them ([`weights`]); a slice of 0.7 ms times 1 + log2 of the CPUs, of which 8 count at most
//! (`sysctl_sched_base_slice`, Linux 6.18); nobody who wakes up shortens a slice that has begun (`RUN_TO_PARITY`), unless it is that of a task
//! that is to run when nobody else wants to. The algorithm: Stoica and Abdel-Wahab, 1995.
//!
//! **Where it is simpler**: slices end when they end and not at the next tick, what a group has on a CPU is of this moment and not a decayed average,
//! and who sleeps leaves at once even if it owes time. Quotas are not simulated.

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Group, Policy, weights};

use super::entity::{Entity, EntityId, EntityQueue};
use super::machine::{Attributes, Left, Scheduler, Sleep, Task};

/// The slice on one CPU.
const BASE_SLICE: Nanos = Nanos::from_micros(700);
/// Between two looks of a busy CPU at the others' loads (16 times the CPUs of the domain in Linux, in milliseconds; here of two).
const BALANCE: Nanos = Nanos::from_millis(32);
/// How much busier another CPU must be for a task to be taken from it, in per cent (`imbalance_pct`).
const IMBALANCE_PCT: f64 = 117.0;

#[derive(Clone, Copy, Debug)]
struct Thread {
    entity: EntityId,
    group: usize,
    cpu: usize,
    /// Whether it is in a queue, as the ready and the running are.
    ready: bool,
    /// Whether it runs only when nobody else wants to.
    idle: bool,
    policy: Policy,
    /// Whether it was never ready before.
    new: bool,
    /// When it last came to its CPU from another.
    moved: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Cpu {
    running: Option<Task>,
    /// Until when its run is counted.
    counted: Nanos,
    /// When its slice ends.
    slice_ends: Nanos,
    next_balance: Nanos,
    /// How often in a row a look at the others found no task that was small enough to be taken.
    failed: u32,
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Fair {
    /// In nanoseconds.
    slice: f64,
    cpus: Vec<Cpu>,
    groups: Vec<Group>,
    /// First one a group and CPU, in that order, then the tasks'.
    entities: Vec<Entity>,
    /// The tasks of the entities after the groups'.
    owners: Vec<Task>,
    /// One a group and CPU, in that order.
    queues: Vec<EntityQueue>,
    threads: Vec<Option<Thread>>,
}

impl Fair {
    /// With so many CPUs, at least one, that tasks share in `groups`, the root first.
    ///
    /// # Errors
    /// Without a root, where a group comes before its parent, or has a quota.
    pub fn new(cpus: usize, groups: &[Group]) -> Result<Fair, String> {
        let cpus = cpus.max(1);
        if groups.first().is_none_or(|root| root.parent != 0) {
            return Err("the first group is to be the root, which is its own parent".to_owned());
        }
        for (i, group) in groups.iter().enumerate().skip(1) {
            if group.parent as usize >= i {
                return Err(format!(
                    "group {i} comes before its parent {}; parents come first",
                    group.parent
                ));
            }
            if group.quota_cpus.is_some() {
                return Err(format!("group {i} has a quota, which is not simulated; leave it out"));
            }
        }
        let of_group = |group: &Group| Entity::new(f64::from(weights::of_group(group)));
        let cpu = |i: usize| Cpu {
            running: None,
            counted: Nanos::ZERO,
            slice_ends: Nanos::MAX,
            // Not all at once.
            next_balance: Nanos(BALANCE.0 * (i as u64 + 1) / cpus as u64),
            failed: 0,
        };
        Ok(Fair {
            slice: (BASE_SLICE.0 * u64::from(1 + cpus.min(8).ilog2())) as f64,
            cpus: (0..cpus).map(cpu).collect(),
            groups: groups.to_vec(),
            entities: groups.iter().flat_map(|group| vec![of_group(group); cpus]).collect(),
            owners: Vec::new(),
            queues: vec![EntityQueue::default(); groups.len() * cpus],
            threads: Vec::new(),
        })
    }

    /// How long a task runs at a time while others want to, in nanoseconds.
    pub fn slice_ns(&self) -> f64 {
        self.slice
    }

    fn thread(&self, task: Task) -> Thread {
        self.threads[task].expect("the machine knows which tasks are here")
    }

    fn thread_mut(&mut self, task: Task) -> &mut Thread {
        self.threads[task].as_mut().expect("the machine knows which tasks are here")
    }

    /// The queue of a group on a CPU, which is also the entity that the group is there.
    fn at(&self, group: usize, cpu: usize) -> usize {
        group * self.cpus.len() + cpu
    }

    /// The entities that run when a task does, with the queues that they are in: itself, its group, and so on up to the root.
    fn chain(&self, thread: Thread) -> Vec<(EntityId, usize)> {
        let mut chain = vec![(thread.entity, self.at(thread.group, thread.cpu))];
        let mut group = thread.group;
        while group != 0 {
            let parent = self.groups[group].parent as usize;
            chain.push((self.at(group, thread.cpu), self.at(parent, thread.cpu)));
            group = parent;
        }
        chain
    }

    /// Counts what runs on `cpu` up to `now`. Whether a slice ended.
    fn count(&mut self, cpu: usize, now: Nanos) -> bool {
        let Some(task) = self.cpus[cpu].running else { return false };
        let ran = now.since(self.cpus[cpu].counted).0 as f64;
        self.cpus[cpu].counted = now;
        let mut ended = false;
        for (entity, _) in self.chain(self.thread(task)) {
            let slice = self.slice;
            let entity = &mut self.entities[entity];
            entity.vruntime += entity.virtually(ran);
            if entity.vruntime >= entity.deadline {
                entity.deadline = entity.vruntime + entity.virtually(slice);
                ended = true;
            }
        }
        ended
    }

    /// Puts a task into the queue of its group on its CPU, and the group into its parent's.
    fn enter(&mut self, task: Task, now: Nanos) {
        let thread = self.thread_mut(task);
        let new = std::mem::take(&mut thread.new);
        thread.ready = true;
        let thread = *thread;
        self.count(thread.cpu, now);
        for (entity, queue) in self.chain(thread) {
            if !self.queues[queue].members.contains(&entity) {
                self.queues[queue].enter(entity, self.slice, new, &mut self.entities);
            }
            self.reweigh_group(queue / self.cpus.len(), now);
        }
    }

    /// Takes a task out, and every group that has nobody left on that CPU.
    fn leave(&mut self, task: Task, now: Nanos) {
        let thread = self.thread_mut(task);
        thread.ready = false;
        let thread = *thread;
        self.count(thread.cpu, now);
        let mut last = true;
        for (entity, queue) in self.chain(thread) {
            if last {
                self.queues[queue].leave(entity, self.slice, &mut self.entities);
                last = self.queues[queue].members.is_empty();
            }
            self.reweigh_group(queue / self.cpus.len(), now);
        }
    }

    /// Gives a group on each CPU the part of its weight that is there of its tasks.
    fn reweigh_group(&mut self, group: usize, now: Nanos) {
        if group == 0 {
            return;
        }
        let loads: Vec<f64> =
            (0..self.cpus.len()).map(|cpu| self.queues[self.at(group, cpu)].load(&self.entities)).collect();
        let sum: f64 = loads.iter().sum();
        let weight = f64::from(weights::of_group(&self.groups[group]));
        let parent = self.groups[group].parent as usize;
        for (cpu, load) in loads.into_iter().enumerate().filter(|(_, load)| *load > 0.0) {
            let (entity, queue) = (self.at(group, cpu), self.at(parent, cpu));
            let weight = (weight * load / sum).max(2.0);
            if self.queues[queue].members.contains(&entity) {
                self.count(cpu, now);
                self.queues[queue].reweigh(entity, weight, &mut self.entities);
            } else {
                let entity = &mut self.entities[entity];
                entity.lag *= entity.weight / weight;
                entity.weight = weight;
            }
        }
    }

    /// What a CPU has to do, in weights.
    fn load(&self, cpu: usize) -> f64 {
        self.queues[self.at(0, cpu)].load(&self.entities)
    }

    /// The part of it that is a task's.
    fn load_of(&self, task: Task) -> f64 {
        let chain = self.chain(self.thread(task));
        let part = |&(entity, queue): &(EntityId, usize)| {
            self.entities[entity].weight / self.queues[queue].load(&self.entities)
        };
        chain.iter().map(part).product::<f64>() * self.load(self.thread(task).cpu)
    }

    /// The ready tasks of `cpu` that do not run, first those who have been there for longest.
    fn waiting(&self, cpu: usize) -> Vec<Task> {
        let here = |(task, thread): (Task, &Option<Thread>)| {
            let thread = thread.filter(|thread| thread.cpu == cpu && thread.ready)?;
            (self.cpus[cpu].running != Some(task)).then_some((thread.moved, task))
        };
        let mut waiting: Vec<_> = self.threads.iter().enumerate().filter_map(here).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, task)| task).collect()
    }

    /// The busiest other CPU on which somebody waits.
    fn busiest(&self, cpu: usize) -> Option<usize> {
        let waits = |&other: &usize| other != cpu && !self.waiting(other).is_empty();
        let by_load = |a: &usize, b: &usize| self.load(*a).total_cmp(&self.load(*b)).then(b.cmp(a));
        (0..self.cpus.len()).filter(waits).max_by(by_load)
    }

    fn move_to(&mut self, task: Task, cpu: usize, now: Nanos) {
        self.leave(task, now);
        let thread = self.thread_mut(task);
        (thread.cpu, thread.moved) = (cpu, now);
        self.enter(task, now);
    }

    /// An idle CPU takes a task from the busiest other one.
    fn pull(&mut self, cpu: usize, now: Nanos) {
        let Some(busiest) = self.busiest(cpu) else { return };
        if let Some(&task) = self.waiting(busiest).first() {
            self.move_to(task, cpu, now);
        }
    }

    /// A busy CPU takes tasks from the busiest other one while that is much busier: such as are no more than half of what is between
    /// them, or a bit more each time that there was none.
    fn balance(&mut self, cpu: usize, now: Nanos) {
        let Some(busiest) = self.busiest(cpu) else { return };
        let mut moved = false;
        let mut uneven = false;
        for task in self.waiting(busiest) {
            let (most, own) = (self.load(busiest), self.load(cpu));
            if most * 100.0 <= own * IMBALANCE_PCT {
                break;
            }
            uneven = true;
            if self.load_of(task) / f64::from(1 << self.cpus[cpu].failed.min(8)) <= (most - own) / 2.0 {
                self.move_to(task, cpu, now);
                moved = true;
            }
        }
        let failed = &mut self.cpus[cpu].failed;
        *failed = if uneven && !moved { *failed + 1 } else { 0 };
    }
}

impl Scheduler for Fair {
    fn cpus(&self) -> usize {
        self.cpus.len()
    }

    fn add(&mut self, task: Task, attributes: Attributes, _: Option<Task>, now: Nanos) {
        let Attributes { nice, policy, group } = attributes;
        let group = (group as usize).min(self.groups.len() - 1);
        let entity = self.entities.len();
        self.entities.push(Entity::new(f64::from(weights::of_thread(policy, nice))));
        self.owners.push(task);
        let cpu = task % self.cpus.len();
        let mut idle = policy == Policy::Idle;
        let mut above = group;
        while above != 0 {
            idle |= self.groups[above].idle;
            above = self.groups[above].parent as usize;
        }
        if self.threads.len() <= task {
            self.threads.resize(task + 1, None);
        }
        self.threads[task] =
            Some(Thread { entity, group, cpu, ready: false, idle, policy, new: true, moved: now });
    }

    fn wake(&mut self, task: Task, _: Sleep, now: Nanos) -> Option<usize> {
        let before = self.thread(task).cpu;
        let free = |&cpu: &usize| self.cpus[cpu].running.is_none();
        let cpu = [before].into_iter().chain(0..self.cpus.len()).find(free);
        let thread = self.thread_mut(task);
        thread.cpu = cpu.unwrap_or(before);
        let Thread { cpu, idle, .. } = *thread;
        self.enter(task, now);
        let gives_way = |running: Task| self.thread(running).idle && !idle;
        self.cpus[cpu].running.is_none_or(gives_way).then_some(cpu)
    }

    fn pick(&mut self, cpu: usize, now: Nanos) -> Option<Task> {
        if self.queues[self.at(0, cpu)].members.is_empty() {
            self.pull(cpu, now);
        }
        let mut queue = self.at(0, cpu);
        let task = loop {
            let best = self.queues[queue].best(&self.entities)?;
            match best.checked_sub(self.queues.len()) {
                Some(own) => break self.owners[own],
                None => queue = best,
            }
        };
        let to_go = |&(entity, _): &(EntityId, usize)| {
            let entity = &self.entities[entity];
            (entity.deadline - entity.vruntime) * entity.weight / f64::from(weights::NORMAL)
        };
        let first = self.chain(self.thread(task)).iter().map(to_go).fold(f64::INFINITY, f64::min);
        let state = &mut self.cpus[cpu];
        // A nanosecond more, so that rounding does not end it before its end.
        state.slice_ends = now + Nanos(first.max(0.0).ceil() as u64 + 1);
        (state.running, state.counted) = (Some(task), now);
        Some(task)
    }

    fn put(&mut self, cpu: usize, left: Left, now: Nanos) {
        let Some(task) = self.cpus[cpu].running else { return };
        self.count(cpu, now);
        if left != Left::Ready {
            self.leave(task, now);
        }
        (self.cpus[cpu].running, self.cpus[cpu].slice_ends) = (None, Nanos::MAX);
        if left == Left::Ended {
            self.threads[task] = None;
        }
    }

    fn next_look(&self, cpu: usize) -> Nanos {
        self.cpus[cpu].slice_ends.min(self.cpus[cpu].next_balance)
    }

    fn look(&mut self, cpu: usize, now: Nanos) -> bool {
        if now >= self.cpus[cpu].next_balance {
            self.cpus[cpu].next_balance = now + BALANCE;
            self.balance(cpu, now);
        }
        self.count(cpu, now);
        now >= self.cpus[cpu].slice_ends || self.cpus[cpu].running.is_none()
    }

    fn renice(&mut self, task: Task, nice: i8, now: Nanos) -> Option<usize> {
        let thread = self.thread(task);
        let weight = f64::from(weights::of_thread(thread.policy, nice));
        self.count(thread.cpu, now);
        let queue = self.at(thread.group, thread.cpu);
        if thread.ready {
            self.queues[queue].reweigh(thread.entity, weight, &mut self.entities);
        } else {
            let entity = &mut self.entities[thread.entity];
            entity.lag *= entity.weight / weight;
            entity.weight = weight;
        }
        for (_, queue) in self.chain(thread) {
            self.reweigh_group(queue / self.cpus.len(), now);
        }
        thread.ready.then_some(thread.cpu)
    }
}
