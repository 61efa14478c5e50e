//! A small machine whose scheduler works as EEVDF does: the independent checker of what is predicted. It shares no code with the
//! models and knows nothing of speeds: it hands out slices by virtual deadlines on every CPU, group by group, and balances CPUs.

use plimsoll_core::{Nanos, Rng, rng};
use plimsoll_cpufutures::{CpuSet, Host, Policy, TaskId, TaskSample, weights};
use rand::RngExt;

/// What time comes in.
const TICK_US: u64 = 250;
/// How long one runs before another is looked at.
const SLICE_US: f64 = 3_000.0;
/// How often CPUs are balanced, in ticks.
const BALANCE: u64 = 16;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Habit {
    /// Runs for ever.
    Hog,
    /// Runs for so long and then sleeps for so long, give or take a fifth; in us.
    Duty(f64, f64),
    /// Sleeps until another habit is given to it.
    Asleep,
}

struct Thread {
    sample: TaskSample,
    habit: Habit,
    alive: bool,
    /// What is left of the run, or of the sleep.
    left_us: f64,
    eligible: bool,
    cpu: usize,
    v: f64,
    deadline: f64,
    lag: f64,
}

/// A group on one CPU.
#[derive(Clone, Copy, Default)]
struct Entity {
    v: f64,
    deadline: f64,
    lag: f64,
    eligible: bool,
}

pub struct Machine {
    pub host: Host,
    cpus: usize,
    threads: Vec<Thread>,
    /// By group and CPU.
    entities: Vec<Vec<Entity>>,
    running: Vec<Option<usize>>,
    ticks: u64,
    rng: Rng,
}

impl Machine {
    pub fn new(host: Host, seed: u64) -> Machine {
        let cpus = host.online.len();
        Machine {
            entities: vec![vec![Entity::default(); cpus]; host.groups.len()],
            running: vec![None; cpus],
            cpus,
            host,
            threads: Vec::new(),
            ticks: 0,
            rng: rng::seeded(seed, 1),
        }
    }

    pub fn now(&self) -> Nanos {
        Nanos::from_micros(self.ticks * TICK_US)
    }

    /// A new thread, by its number.
    pub fn start(&mut self, habit: Habit, nice: i8, group: u32, cpus: u32) -> TaskId {
        let tid = self.threads.len() as u32 + 1;
        let id = TaskId { pid: tid, tid, started: self.ticks };
        let sample =
            TaskSample { id, run_ns: 0, wait_ns: 0, born: None, policy: Policy::Normal, nice, group, cpus };
        self.threads.push(Thread {
            sample,
            habit,
            alive: true,
            left_us: 0.0,
            eligible: false,
            cpu: 0,
            v: 0.0,
            deadline: 0.0,
            lag: 0.0,
        });
        self.change(id, habit);
        id
    }

    pub fn change(&mut self, id: TaskId, habit: Habit) {
        let thread = &mut self.threads[id.tid as usize - 1];
        thread.habit = habit;
        if !thread.eligible {
            thread.left_us = match habit {
                Habit::Hog => 0.0,
                Habit::Duty(run, sleep) => self.rng.random::<f64>() * (run + sleep),
                Habit::Asleep => f64::INFINITY,
            };
        } else {
            thread.left_us = if habit == Habit::Hog { f64::INFINITY } else { 0.0 };
        }
    }

    pub fn stop(&mut self, id: TaskId) {
        self.sleep(id.tid as usize - 1, f64::INFINITY);
        self.threads[id.tid as usize - 1].alive = false;
    }

    pub fn renice(&mut self, id: TaskId, policy: Policy, nice: i8) {
        let sample = &mut self.threads[id.tid as usize - 1].sample;
        (sample.policy, sample.nice) = (policy, nice);
    }

    pub fn samples(&self) -> Vec<TaskSample> {
        self.threads.iter().filter(|thread| thread.alive).map(|thread| thread.sample).collect()
    }

    pub fn run(&mut self, time: Nanos) {
        for _ in 0..time.0 / (TICK_US * 1_000) {
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.ticks += 1;
        for at in 0..self.threads.len() {
            let thread = &mut self.threads[at];
            if thread.alive && !thread.eligible {
                thread.left_us -= TICK_US as f64;
                if thread.left_us <= 0.0 {
                    self.wake(at);
                }
            }
        }
        if self.ticks.is_multiple_of(BALANCE) {
            self.balance();
        }
        for cpu in 0..self.cpus {
            if (0..self.threads.len()).all(|at| !self.on(at, cpu)) {
                self.pull(cpu);
            }
            self.running[cpu] = self.pick(cpu);
        }
        let tick_ns = TICK_US * 1_000;
        for at in 0..self.threads.len() {
            let thread = &mut self.threads[at];
            if !thread.eligible {
                continue;
            }
            if self.running[thread.cpu] != Some(at) {
                thread.sample.wait_ns += tick_ns;
                continue;
            }
            thread.sample.run_ns += tick_ns;
            thread.left_us -= TICK_US as f64;
            self.charge(at);
            let thread = &self.threads[at];
            if let (Habit::Duty(_, sleep), true) = (thread.habit, thread.left_us <= 0.0) {
                let sleep = self.jitter(sleep);
                self.sleep(at, sleep);
            } else if thread.habit == Habit::Asleep {
                self.sleep(at, f64::INFINITY);
            }
        }
    }

    fn jitter(&mut self, us: f64) -> f64 {
        us * (0.8 + 0.4 * self.rng.random::<f64>())
    }

    fn on(&self, at: usize, cpu: usize) -> bool {
        self.threads[at].eligible && self.threads[at].cpu == cpu
    }

    fn weight(&self, at: usize) -> f64 {
        let sample = &self.threads[at].sample;
        f64::from(weights::of_thread(sample.policy, sample.nice))
    }

    /// A group's weight on a CPU: its part of the weight of all its eligible threads.
    fn group_weight(&self, group: usize, cpu: usize) -> f64 {
        let inside = |at: &usize| self.within(self.threads[*at].sample.group as usize, group);
        let eligible = (0..self.threads.len()).filter(|&at| self.threads[at].eligible).filter(inside);
        let (mut here, mut all) = (0.0, 0.0);
        for at in eligible {
            let weight = self.weight(at);
            all += weight;
            here += if self.threads[at].cpu == cpu { weight } else { 0.0 };
        }
        let weight = f64::from(weights::of_group(&self.host.groups[group]));
        if all > 0.0 { (weight * here / all).max(2.0) } else { weight }
    }

    fn within(&self, mut group: usize, ancestor: usize) -> bool {
        while group != ancestor && group != 0 {
            group = self.host.groups[group].parent as usize;
        }
        group == ancestor
    }

    /// What competes in a group on a CPU: threads by number, groups by negative number less one.
    fn queue(&self, group: usize, cpu: usize) -> Vec<(Result<usize, usize>, f64, f64, f64)> {
        let mut queue = Vec::new();
        for (at, thread) in self.threads.iter().enumerate() {
            if self.on(at, cpu) && thread.sample.group as usize == group {
                queue.push((Ok(at), self.weight(at), thread.v, thread.deadline));
            }
        }
        for child in 1..self.host.groups.len() {
            let entity = &self.entities[child][cpu];
            if entity.eligible && self.host.groups[child].parent as usize == group {
                queue.push((Err(child), self.group_weight(child, cpu), entity.v, entity.deadline));
            }
        }
        queue
    }

    fn average(&self, group: usize, cpu: usize) -> f64 {
        let queue = self.queue(group, cpu);
        let all: f64 = queue.iter().map(|one| one.1).sum();
        if all > 0.0 { queue.iter().map(|one| one.1 * one.2).sum::<f64>() / all } else { 0.0 }
    }

    /// The eligible one with the earliest virtual deadline, group by group; one that runs keeps running until its slice is used.
    fn pick(&self, cpu: usize) -> Option<usize> {
        let mut group = 0;
        loop {
            let queue = self.queue(group, cpu);
            let average = self.average(group, cpu);
            let current = self.running[cpu].filter(|&at| self.on(at, cpu));
            let runs = |one: &Result<usize, usize>| match (one, current) {
                (Ok(at), Some(current)) => *at == current,
                (Err(child), Some(current)) => {
                    self.within(self.threads[current].sample.group as usize, *child)
                }
                _ => false,
            };
            let keeps = queue.iter().find(|one| runs(&one.0) && one.2 < one.3 - 1e-9);
            let best = queue
                .iter()
                .filter(|one| one.2 <= average + 1e-6)
                .min_by(|a, b| a.3.total_cmp(&b.3))
                .or_else(|| queue.iter().min_by(|a, b| a.2.total_cmp(&b.2)));
            match keeps.or(best)?.0 {
                Ok(at) => return Some(at),
                Err(child) => group = child,
            }
        }
    }

    fn charge(&mut self, at: usize) {
        let (cpu, mut group) = (self.threads[at].cpu, self.threads[at].sample.group as usize);
        let tick = TICK_US as f64;
        let weight = self.weight(at);
        let thread = &mut self.threads[at];
        thread.v += tick * 1024.0 / weight;
        if thread.v >= thread.deadline - 1e-9 {
            thread.deadline = thread.v + SLICE_US * 1024.0 / weight;
            self.running[cpu] = None; // its slice is used
        }
        while group != 0 {
            let weight = self.group_weight(group, cpu);
            let entity = &mut self.entities[group][cpu];
            entity.v += tick * 1024.0 / weight;
            if entity.v >= entity.deadline - 1e-9 {
                entity.deadline = entity.v + SLICE_US * 1024.0 / weight;
                self.running[cpu] = None;
            }
            group = self.host.groups[group].parent as usize;
        }
    }

    fn enqueue(&mut self, at: usize, cpu: usize) {
        let group = self.threads[at].sample.group as usize;
        let (average, weight) = (self.average(group, cpu), self.weight(at));
        let thread = &mut self.threads[at];
        thread.v = average - thread.lag;
        thread.deadline = thread.v + SLICE_US * 1024.0 / weight;
        (thread.eligible, thread.cpu) = (true, cpu);
        let mut child = group;
        while child != 0 && !self.entities[child][cpu].eligible {
            let parent = self.host.groups[child].parent as usize;
            let (average, weight) = (self.average(parent, cpu), self.group_weight(child, cpu));
            let entity = &mut self.entities[child][cpu];
            entity.v = average - entity.lag;
            entity.deadline = entity.v + SLICE_US * 1024.0 / weight;
            entity.eligible = true;
            child = parent;
        }
    }

    fn dequeue(&mut self, at: usize) {
        let (cpu, group) = (self.threads[at].cpu, self.threads[at].sample.group as usize);
        let (average, weight) = (self.average(group, cpu), self.weight(at));
        let most = SLICE_US * 1024.0 / weight;
        let thread = &mut self.threads[at];
        thread.lag = (average - thread.v).clamp(-most, most);
        thread.eligible = false;
        let mut child = group;
        while child != 0 && self.queue(child, cpu).is_empty() {
            let parent = self.host.groups[child].parent as usize;
            let average = self.average(parent, cpu);
            let entity = &mut self.entities[child][cpu];
            entity.lag = (average - entity.v).clamp(-SLICE_US, SLICE_US);
            entity.eligible = false;
            child = parent;
        }
    }

    fn allowed(&self, at: usize) -> &CpuSet {
        &self.host.sets[self.threads[at].sample.cpus as usize]
    }

    /// What a CPU has to do, as the kernel's load: weights as they count at the root.
    fn load(&self, cpu: usize) -> f64 {
        (0..self.threads.len()).filter(|&at| self.on(at, cpu)).map(|at| self.root_weight(at)).sum()
    }

    fn root_weight(&self, at: usize) -> f64 {
        let (mut weight, mut group) = (self.weight(at), self.threads[at].sample.group as usize);
        while group != 0 {
            let all: f64 = (0..self.threads.len())
                .filter(|&other| self.threads[other].eligible)
                .filter(|&other| self.within(self.threads[other].sample.group as usize, group))
                .map(|other| self.weight(other))
                .sum();
            weight *= f64::from(weights::of_group(&self.host.groups[group])) / all.max(1.0);
            group = self.host.groups[group].parent as usize;
        }
        weight
    }

    fn wake(&mut self, at: usize) {
        let cpu = (0..self.cpus)
            .filter(|&cpu| self.allowed(at).contains(cpu))
            .min_by(|&a, &b| self.load(a).total_cmp(&self.load(b)))
            .expect("a CPU that is allowed");
        self.threads[at].left_us = match self.threads[at].habit {
            Habit::Duty(run, _) => self.jitter(run),
            _ => f64::INFINITY,
        };
        self.enqueue(at, cpu);
    }

    fn sleep(&mut self, at: usize, us: f64) {
        if self.threads[at].eligible {
            self.dequeue(at);
        }
        self.threads[at].left_us = us;
    }

    /// An idle CPU takes what waits on another one.
    fn pull(&mut self, cpu: usize) {
        let waits = |at: &usize| {
            let thread = &self.threads[*at];
            thread.eligible && self.running[thread.cpu] != Some(*at) && self.allowed(*at).contains(cpu)
        };
        let most = (0..self.threads.len())
            .filter(waits)
            .max_by(|&a, &b| self.load(self.threads[a].cpu).total_cmp(&self.load(self.threads[b].cpu)));
        if let Some(at) = most {
            self.dequeue(at);
            self.enqueue(at, cpu);
        }
    }

    /// Moves one that waits from the CPU with most to that with least, when both are nearer to each other afterwards, or as near:
    /// then those that are one too many change places in turn.
    fn balance(&mut self) {
        let loads: Vec<f64> = (0..self.cpus).map(|cpu| self.load(cpu)).collect();
        let candidates: Vec<(usize, usize)> = (0..self.threads.len())
            .filter(|&at| self.threads[at].eligible && self.running[self.threads[at].cpu] != Some(at))
            .flat_map(|at| (0..self.cpus).map(move |cpu| (at, cpu)))
            .filter(|&(at, cpu)| {
                let from = self.threads[at].cpu;
                cpu != from
                    && self.allowed(at).contains(cpu)
                    && loads[from] - loads[cpu] >= self.root_weight(at) * 0.999
            })
            .collect();
        if !candidates.is_empty() {
            let (at, cpu) = candidates[self.rng.random_range(0..candidates.len())];
            self.dequeue(at);
            self.enqueue(at, cpu);
        }
    }
}
