//! A service: instances, each with workers and a bounded queue.

use std::collections::VecDeque;

use plimsoll_core::rng::seeded;
use plimsoll_core::{Nanos, Rng};
use plimsoll_ratecontrol::baselines::{Breakwater, Dagor, Priority};
use rand::RngExt;

use super::plan::ServicePlan;

/// What the instances of all services decide for themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Guards {
    /// Nothing: a queue that is full refuses.
    #[default]
    None,
    /// By priority and waiting time.
    Dagor(plimsoll_ratecontrol::baselines::dagor::Settings),
    /// By credits and waiting time.
    Breakwater(plimsoll_ratecontrol::baselines::breakwater::Settings),
}

#[derive(Clone)]
enum Guard {
    None,
    Dagor(Box<Dagor>),
    Breakwater(Breakwater),
}

/// A call of the service on behalf of a request.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The request's place.
    pub request: u32,
    /// How much work it is, as a multiple of the usual.
    pub cost: f32,
    /// How important the request is.
    pub priority: Priority,
}

/// What became of a call as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// A worker began at once, and ends then.
    Began(Began),
    /// It waits.
    Waits,
    /// Its instance refused it.
    Refused,
}

/// A worker that began with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Began {
    /// For which request,
    pub request: u32,
    /// of which instance,
    pub instance: u32,
    /// in which of its lives,
    pub life: u32,
    /// which worker,
    pub worker: u32,
    /// and when it is done.
    pub done_at: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    call: Call,
    since: Nanos,
}

#[derive(Clone)]
struct Instance {
    /// How often its place was used.
    life: u32,
    /// By worker, the request it works on.
    at_work: Vec<Option<u32>>,
    idle: Vec<u32>,
    queue: VecDeque<Waiting>,
    guard: Guard,
}

impl Instance {
    fn busy(&self) -> usize {
        self.at_work.len() - self.idle.len()
    }
    fn outstanding(&self) -> usize {
        self.busy() + self.queue.len()
    }
}

/// What a service did, from the start on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Did {
    /// Time that workers were at work, in nanoseconds.
    pub busy_ns: f64,
    /// Time that there were workers, in nanoseconds.
    pub worker_ns: f64,
    /// Calls that were served.
    pub served: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Work that was asked for, as multiples of the usual call.
    pub asked: f64,
}

/// A service that is running.
#[derive(Clone)]
pub struct ServiceState {
    plan: ServicePlan,
    guards: Guards,
    instances: Vec<Instance>,
    /// Places of instances that take calls.
    up: Vec<u32>,
    /// Places that are free.
    down: Vec<u32>,
    /// Workers at work, those of instances that finish and end among them.
    busy: u32,
    waiting: u32,
    did: Did,
    /// Up to when `did` counts time.
    counted_to: Nanos,
    rng: Rng,
}

impl ServiceState {
    /// With its first instances, all idle. What it draws depends on the seed and its number.
    pub fn new(plan: ServicePlan, number: u64, guards: Guards, seed: u64) -> ServiceState {
        let mut service = ServiceState {
            guards,
            instances: Vec::new(),
            up: Vec::new(),
            down: Vec::new(),
            busy: 0,
            waiting: 0,
            did: Did::default(),
            counted_to: Nanos::ZERO,
            rng: seeded(seed, 2 * number + 1),
            plan,
        };
        (0..service.plan.instances).for_each(|_| service.start(Nanos::ZERO));
        service
    }

    /// As the plan has it.
    pub fn plan(&self) -> &ServicePlan {
        &self.plan
    }

    /// Instances that take calls.
    pub fn instances(&self) -> u32 {
        self.up.len() as u32
    }

    /// Calls that wait.
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Workers of instances that take calls.
    pub fn workers(&self) -> u32 {
        self.instances() * self.plan.workers
    }

    /// What it did up to now.
    pub fn did(&mut self, now: Nanos) -> Did {
        self.count_time(now);
        self.did
    }

    fn count_time(&mut self, now: Nanos) {
        let elapsed = now.since(self.counted_to).0 as f64;
        self.counted_to = now;
        self.did.busy_ns += elapsed * f64::from(self.busy);
        self.did.worker_ns += elapsed * f64::from(self.workers().max(self.busy));
    }

    /// One more instance.
    pub fn start(&mut self, now: Nanos) {
        self.count_time(now);
        let guard = match self.guards {
            Guards::None => Guard::None,
            Guards::Dagor(settings) => Guard::Dagor(Box::new(Dagor::new(settings, now))),
            Guards::Breakwater(settings) => {
                Guard::Breakwater(Breakwater::new(settings, self.plan.workers, now))
            }
        };
        let place = self.down.pop().unwrap_or(self.instances.len() as u32);
        let instance = Instance {
            life: self.instances.get(place as usize).map_or(0, |before| before.life + 1),
            at_work: vec![None; self.plan.workers as usize],
            idle: (0..self.plan.workers).rev().collect(),
            queue: VecDeque::new(),
            guard,
        };
        match self.instances.get_mut(place as usize) {
            Some(before) => *before = instance,
            None => self.instances.push(instance),
        }
        self.up.push(place);
    }

    /// Takes an instance out: it finishes what it has and ends. Not the last one.
    pub fn retire(&mut self, now: Nanos) {
        if self.up.len() > 1 {
            self.count_time(now);
            let place = self.up.pop().expect("there is more than one");
            self.end_if_idle(place);
        }
    }

    /// An instance ends in the middle of what it does. Adds what it had to `lost`.
    pub fn fail(&mut self, now: Nanos, lost: &mut Vec<u32>) {
        self.count_time(now);
        let Some(place) = self.up.pop() else { return };
        let instance = &mut self.instances[place as usize];
        self.busy -= instance.busy() as u32;
        self.waiting -= instance.queue.len() as u32;
        lost.extend(instance.at_work.drain(..).flatten());
        lost.extend(instance.queue.drain(..).map(|waiting| waiting.call.request));
        instance.idle.clear();
        instance.life += 1;
        self.down.push(place);
    }

    /// A retired instance that has nothing left frees its place.
    fn end_if_idle(&mut self, place: u32) {
        let instance = &mut self.instances[place as usize];
        if instance.outstanding() == 0 {
            instance.life += 1;
            self.down.push(place);
        }
    }

    /// A call comes: to the one with the shorter queue of two instances that are drawn.
    #[inline]
    pub fn call(&mut self, call: Call, clients: u32, now: Nanos) -> Came {
        self.did.asked += f64::from(call.cost);
        let Some(place) = self.pick() else {
            self.did.refused += 1;
            return Came::Refused;
        };
        let mean_ns = self.plan.time.mean_ns();
        let instance = &mut self.instances[place as usize];
        let fits = !instance.idle.is_empty() || instance.queue.len() < self.plan.max_queue;
        let admits = fits
            && match &mut instance.guard {
                Guard::None => true,
                Guard::Dagor(dagor) => dagor.admits(call.priority, now),
                Guard::Breakwater(breakwater) => {
                    let ahead = instance.queue.len() as f64 / f64::from(self.plan.workers);
                    let outstanding =
                        (instance.at_work.len() - instance.idle.len() + instance.queue.len()) as u32;
                    breakwater.admits(outstanding, Nanos((ahead * mean_ns) as u64), clients, now)
                }
            };
        if !admits {
            self.did.refused += 1;
            return Came::Refused;
        }
        if instance.idle.is_empty() {
            instance.queue.push_back(Waiting { call, since: now });
            self.waiting += 1;
            return Came::Waits;
        }
        Came::Began(self.begin(place, Waiting { call, since: now }, now))
    }

    #[inline]
    fn pick(&mut self) -> Option<u32> {
        match self.up.len() {
            0 => None,
            1 => Some(self.up[0]),
            n => {
                let first = self.rng.random_range(0..n);
                let second = (first + self.rng.random_range(1..n)) % n;
                let (first, second) = (self.up[first], self.up[second]);
                let queue = |place: u32| self.instances[place as usize].outstanding();
                Some(if queue(second) < queue(first) { second } else { first })
            }
        }
    }

    /// An idle worker of an instance begins.
    fn begin(&mut self, place: u32, waiting: Waiting, now: Nanos) -> Began {
        self.count_time(now);
        let instance = &mut self.instances[place as usize];
        let worker = instance.idle.pop().expect("a worker is idle");
        instance.at_work[worker as usize] = Some(waiting.call.request);
        if let Guard::Dagor(dagor) = &mut instance.guard {
            dagor.started(now - waiting.since);
        }
        self.busy += 1;
        let time = self.plan.time.sample(&mut self.rng);
        let takes = if waiting.call.cost == 1.0 {
            time
        } else {
            Nanos((time.0 as f64 * f64::from(waiting.call.cost)) as u64)
        };
        let (request, life) = (waiting.call.request, instance.life);
        Began { request, instance: place, life, worker, done_at: now + takes.max(Nanos(1)) }
    }

    /// A worker is done: the request it worked on, and the worker again where it began with the next one. Nothing where the instance has
    /// ended in the meantime.
    #[inline]
    pub fn done(&mut self, place: u32, life: u32, worker: u32, now: Nanos) -> Option<(u32, Option<Began>)> {
        let instance = &mut self.instances[place as usize];
        if instance.life != life {
            return None;
        }
        let request = instance.at_work[worker as usize].take()?;
        instance.idle.push(worker);
        let next = instance.queue.pop_front();
        self.count_time(now);
        self.busy -= 1;
        self.did.served += 1;
        let began = match next {
            Some(waiting) => {
                self.waiting -= 1;
                Some(self.begin(place, waiting, now))
            }
            None => {
                if !self.up.contains(&place) {
                    self.end_if_idle(place);
                }
                None
            }
        };
        Some((request, began))
    }
}
