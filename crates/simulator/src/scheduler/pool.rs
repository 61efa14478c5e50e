//! A server whose workers take requests one at a time, and clients who wait for an answer before they ask again.

use std::collections::VecDeque;

use plimsoll_core::rng::seeded;
use plimsoll_core::{Nanos, Rng};
use rand::RngExt;

use super::machine::{Attributes, Machine, Scheduler, Sleep, Step, Task, Wakes, Workload};

/// What requests of a kind need: CPU time in equal parts, with a sleep after each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// CPU time in all, on average.
    pub cpu: Nanos,
    /// In how many parts; at least one.
    pub parts: u32,
    /// How long the sleep after each is, on average.
    pub io: Nanos,
    /// What that waits for.
    pub sleep: Sleep,
    /// How far requests and sleeps may be from their mean, as a share of it, from 0 to 1: evenly spread.
    pub spread: f64,
}

/// An answered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// An index into the kinds.
    pub kind: usize,
    /// Who answered.
    pub worker: Task,
    /// When the client sent it.
    pub sent: Nanos,
    /// When it had the answer.
    pub answered: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    client: Task,
    kind: usize,
    sent: Nanos,
    /// CPU time of each part.
    part: Nanos,
    /// Steps to go: a part and a sleep each are two.
    steps: u32,
}

#[derive(Clone, Copy, Debug)]
enum Role {
    /// The process that makes the others: it looks after them once a second.
    Master {
        computes: bool,
    },
    Client {
        kind: usize,
        begun: bool,
    },
    Worker {
        request: Option<Request>,
    },
}

/// What all of them do.
pub struct Pool {
    kinds: Vec<Kind>,
    rng: Rng,
    /// By task.
    roles: Vec<Role>,
    queue: VecDeque<Request>,
    /// Workers without a request, first those who have been so for longest: who comes first is given the next.
    idle: VecDeque<Task>,
    alive: usize,
    limit: usize,
    answered: Vec<Answered>,
}

/// The master looks after its workers so often,
const MASTER_SLEEPS: Nanos = Nanos::from_secs(1);
/// and that needs so much CPU time.
const MASTER_COMPUTES: Nanos = Nanos::from_micros(100);
/// Within such a time of each other the clients begin.
const CLIENTS_BEGIN: Nanos = Nanos::from_secs(1);

impl Pool {
    /// Nobody as yet.
    fn new(kinds: &[Kind], seed: u64) -> Pool {
        Pool {
            kinds: kinds.to_vec(),
            rng: seeded(seed, 0),
            roles: Vec::new(),
            queue: VecDeque::new(),
            idle: VecDeque::new(),
            alive: 0,
            limit: 0,
            answered: Vec::new(),
        }
    }

    /// All answered requests, in the order of their answers.
    pub fn answered(&self) -> &[Answered] {
        &self.answered
    }

    /// When those were sent that have no answer yet.
    pub fn unanswered(&self) -> impl Iterator<Item = Nanos> + '_ {
        let served = self.roles.iter().filter_map(|role| match role {
            Role::Worker { request } => request.as_ref(),
            _ => None,
        });
        served.chain(&self.queue).map(|request| request.sent)
    }

    /// Whether `task` is a worker that serves a request.
    pub fn serves(&self, task: Task) -> bool {
        matches!(self.roles.get(task), Some(Role::Worker { request: Some(_) }))
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.alive
    }

    fn about(&mut self, mean: Nanos, spread: f64) -> Nanos {
        let by = spread * self.rng.random_range(-1.0..=1.0);
        Nanos((mean.0 as f64 * (1.0 + by)) as u64)
    }

    /// A worker with this request to serve, or none: the step that it takes.
    fn work(&mut self, task: Task, request: Option<Request>, now: Nanos, wakes: &mut Wakes) -> Step {
        let mut serving = request;
        if let Some(request) = serving.filter(|request| request.steps == 0) {
            let Request { client, kind, sent, .. } = request;
            self.answered.push(Answered { kind, worker: task, sent, answered: now });
            wakes.push(client);
            serving = None;
        }
        if serving.is_none() && self.alive > self.limit {
            self.alive -= 1;
            self.roles[task] = Role::Worker { request: None };
            return Step::End;
        }
        let mut request = serving.or_else(|| self.queue.pop_front());
        let step = match &mut request {
            None => {
                self.idle.push_back(task);
                Step::Wait
            }
            Some(request) => {
                request.steps -= 1;
                let Kind { io, sleep, spread, .. } = self.kinds[request.kind];
                if request.steps % 2 == 1 {
                    Step::Compute(request.part)
                } else {
                    Step::Sleep(self.about(io, spread), sleep)
                }
            }
        };
        self.roles[task] = Role::Worker { request };
        step
    }

    fn send(&mut self, client: Task, kind: usize, now: Nanos, wakes: &mut Wakes) {
        let Kind { cpu, parts, spread, .. } = self.kinds[kind];
        let parts = parts.max(1);
        let part = Nanos(self.about(cpu, spread).0 / u64::from(parts));
        self.queue.push_back(Request { client, kind, sent: now, part, steps: 2 * parts });
        wakes.extend(self.idle.pop_front());
    }
}

impl Workload for Pool {
    fn next(&mut self, task: Task, now: Nanos, wakes: &mut Wakes) -> Step {
        match self.roles[task] {
            Role::Master { computes } => {
                self.roles[task] = Role::Master { computes: !computes };
                if computes {
                    Step::Compute(MASTER_COMPUTES)
                } else {
                    Step::Sleep(MASTER_SLEEPS, Sleep::Interruptible)
                }
            }
            Role::Client { kind, begun: false } => {
                self.roles[task] = Role::Client { kind, begun: true };
                Step::Sleep(Nanos(self.rng.random_range(1..=CLIENTS_BEGIN.0)), Sleep::Interruptible)
            }
            // It has its answer, if it asked before, and asks again.
            Role::Client { kind, begun: true } => {
                self.send(task, kind, now, wakes);
                Step::Wait
            }
            Role::Worker { request } => self.work(task, request, now, wakes),
        }
    }
}

/// A machine with such a server on it.
pub type Server<S> = Machine<S, Pool>;

impl<S: Scheduler> Machine<S, Pool> {
    /// With `workers` workers, and so many clients of each kind.
    pub fn serving(scheduler: S, kinds: &[(Kind, usize)], workers: usize, seed: u64) -> Server<S> {
        let of: Vec<Kind> = kinds.iter().map(|&(kind, _)| kind).collect();
        let mut server = Machine::new(scheduler, Pool::new(&of, seed));
        server.workload.roles.push(Role::Master { computes: false });
        server.spawn(Attributes::default(), None);
        server.resize(workers);
        for (kind, &(_, clients)) in kinds.iter().enumerate() {
            for _ in 0..clients {
                server.workload.roles.push(Role::Client { kind, begun: false });
                server.spawn_remote();
            }
        }
        server
    }

    /// Another number of workers. New ones begin at once; those that are too many end when they have answered what they serve.
    pub fn resize(&mut self, workers: usize) {
        self.workload.limit = workers;
        let too_many = self.workload.alive.saturating_sub(workers);
        for _ in 0..too_many {
            let Some(idle) = self.workload.idle.pop_front() else { break };
            self.wake(idle);
        }
        while self.workload.alive < workers {
            self.workload.alive += 1;
            self.workload.roles.push(Role::Worker { request: None });
            self.spawn(Attributes::default(), Some(0));
        }
    }
}
