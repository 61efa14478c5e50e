//! Which worker runs, which one drains and what follows when one dies: everything that the parent decides,
//! without a process, a signal or a clock in sight. `supervisor` feeds it events and carries out its orders.
//!
//! At most one worker starts and at most one serves at a time; the rest drain. A worker that starts while
//! another one serves is an upgrade: it takes over when it reports ready, and if it never does, nothing changes.

use plimsoll_core::Nanos;
use serde::{Deserialize, Serialize};

/// Workers of all generations that may be alive at once. More upgrades than that, while the old workers still
/// drain, are refused.
pub const SEATS: usize = 8;

/// A worker that has not reported ready by then has failed to start.
const START_LIMIT: Nanos = Nanos::from_secs(10);

/// A worker that dies younger than this counts as an early death.
const EARLY: Nanos = Nanos::from_secs(1);

/// Early deaths in a row that are still followed by an immediate restart; each further one waits, doubling.
const IMMEDIATE_RESTARTS: u32 = 3;
const FIRST_PAUSE: Nanos = Nanos::from_millis(100);
const LONGEST_PAUSE: Nanos = Nanos::from_secs(5);

/// What the parent is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Start a worker in this seat, then report [`Lifecycle::spawned`] or [`Lifecycle::spawn_failed`].
    Spawn {
        /// The column of the slots page that it writes.
        seat: usize,
    },
    /// Tell the worker to read its config again.
    Reload(u32),
    /// Tell the worker to drain and end.
    Drain(u32),
    /// End the worker now.
    Kill(u32),
    /// Let the binary on disk check the config; then report [`Lifecycle::trial_started`] if
    /// that could be started.
    Trial,
    /// Become the binary on disk, keeping the sockets and the workers.
    Exec,
    /// Nobody will serve new connections: close the listening sockets.
    CloseSockets,
    /// End the parent.
    Exit {
        /// Whether everything ended as asked.
        clean: bool,
    },
}

/// What an operator can ask for by signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SIGHUP.
    Reload,
    /// SIGTERM or SIGINT: drain, then end; the second one ends at once.
    Stop,
    /// SIGUSR2.
    Upgrade,
}

/// Where a worker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Not yet ready.
    Starting,
    /// Accepts connections.
    Serving,
    /// Finishes what it has.
    Draining,
    /// Was killed and has not been reaped yet.
    Killed,
}

/// One worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Worker {
    /// Its process id.
    pub pid: u32,
    /// Its column of the slots page.
    pub seat: usize,
    /// Where it is in its life.
    pub phase: Phase,
    /// Whether it was ever ready.
    pub served: bool,
    /// When it was started, and when it entered its phase. Points in time do not survive an upgrade of the
    /// parent, whose clock starts anew.
    #[serde(skip)]
    started: Nanos,
    #[serde(skip)]
    since: Nanos,
}

/// The binary on disk, at work on the config.
#[derive(Clone, Copy, Debug)]
struct Trial {
    pid: u32,
    /// When it is killed; nothing once it has been.
    limit: Option<Nanos>,
}

/// The parent's state. Every method takes the time and returns what to do, in order.
#[derive(Debug)]
pub struct Lifecycle {
    workers: Vec<Worker>,
    drain_limit: Nanos,
    early_deaths: u32,
    /// Until a worker has been ready once, a config or a machine that cannot work is the operator's to know.
    ever_ready: bool,
    respawn_at: Option<Nanos>,
    trial: Option<Trial>,
    stopping: bool,
    /// When to stop, where it is settled that this comes.
    stop_at: Option<Nanos>,
}

impl Lifecycle {
    /// A parent without workers. A worker that still drains after `drain_limit` is killed.
    pub fn new(drain_limit: Nanos) -> Lifecycle {
        Lifecycle {
            workers: Vec::new(),
            drain_limit,
            early_deaths: 0,
            ever_ready: false,
            respawn_at: None,
            trial: None,
            stopping: false,
            stop_at: None,
        }
    }

    /// A parent that has just become a new binary and keeps the workers of the old one.
    pub fn resumed(workers: Vec<Worker>, drain_limit: Nanos, now: Nanos) -> Lifecycle {
        let workers = workers.into_iter().map(|w| Worker { started: now, since: now, ..w }).collect();
        Lifecycle { workers, ever_ready: true, ..Lifecycle::new(drain_limit) }
    }

    /// Every worker that has not been reaped.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// Every child process that has not been reaped: the workers, and the binary on trial.
    pub fn children(&self) -> Vec<u32> {
        self.workers.iter().map(|w| w.pid).chain(self.trial.map(|t| t.pid)).collect()
    }

    /// How long a worker may drain.
    pub fn drain_limit(&self) -> Nanos {
        self.drain_limit
    }

    /// Changes how long a worker may drain, those that already do included.
    pub fn set_drain_limit(&mut self, limit: Nanos) {
        self.drain_limit = limit;
    }

    /// Starts a worker: the first one, or the one that is to take over from the one that serves.
    pub fn start(&mut self) -> Vec<Order> {
        self.respawn_at = None;
        let free = (0..SEATS).find(|seat| self.workers.iter().all(|w| w.seat != *seat));
        free.map(|seat| Order::Spawn { seat }).into_iter().collect()
    }

    /// The worker exists.
    pub fn spawned(&mut self, pid: u32, seat: usize, now: Nanos) {
        assert!(seat < SEATS && self.workers.iter().all(|w| w.seat != seat && w.pid != pid));
        self.workers.push(Worker {
            pid,
            seat,
            phase: Phase::Starting,
            served: false,
            started: now,
            since: now,
        });
    }

    /// The worker could not even be started.
    pub fn spawn_failed(&mut self, now: Nanos) -> Vec<Order> {
        self.early_deaths += 1;
        self.replace(now)
    }

    /// The worker accepts connections: whoever served before it drains.
    pub fn ready(&mut self, pid: u32, now: Nanos) -> Vec<Order> {
        if !self.workers.iter().any(|w| w.pid == pid && w.phase == Phase::Starting) {
            return Vec::new();
        }
        self.ever_ready = true;
        let mut orders = Vec::new();
        for worker in &mut self.workers {
            if worker.pid == pid {
                worker.served = true;
                worker.enter(Phase::Serving, now);
            } else if worker.phase == Phase::Serving {
                worker.enter(Phase::Draining, now);
                orders.push(Order::Drain(worker.pid));
            }
        }
        orders
    }

    /// A worker, or the trial, is gone; `good` if it ended of its own accord and was content.
    pub fn exited(&mut self, pid: u32, good: bool, now: Nanos) -> Vec<Order> {
        if self.trial.is_some_and(|t| t.pid == pid) {
            self.trial = None;
            return if good && !self.stopping { vec![Order::Exec] } else { Vec::new() };
        }
        let Some(index) = self.workers.iter().position(|w| w.pid == pid) else { return Vec::new() };
        let worker = self.workers.swap_remove(index);
        if self.stopping {
            return if self.workers.is_empty() { vec![Order::Exit { clean: true }] } else { Vec::new() };
        }
        if !worker.served || (worker.phase == Phase::Serving && now.since(worker.started) < EARLY) {
            self.early_deaths += 1;
        } else if worker.phase == Phase::Serving {
            self.early_deaths = 0;
        }
        self.replace(now)
    }

    /// The operator asks for something.
    pub fn requested(&mut self, request: Request, now: Nanos) -> Vec<Order> {
        match request {
            // The second time.
            Request::Stop if self.stopping || self.stop_at.is_some() => {
                let kills = self.workers.iter().map(|w| Order::Kill(w.pid));
                kills.chain([Order::Exit { clean: false }]).collect()
            }
            Request::Stop => self.stop(now),
            _ if self.stopping || self.stop_at.is_some() => Vec::new(),
            Request::Reload => {
                let takes = |w: &&Worker| matches!(w.phase, Phase::Starting | Phase::Serving);
                self.workers.iter().filter(takes).map(|w| Order::Reload(w.pid)).collect()
            }
            Request::Upgrade if self.upgrade_obstacle().is_some() => Vec::new(),
            Request::Upgrade => vec![Order::Trial],
        }
    }

    /// It stops at this time, and until then goes on for those who have come already.
    pub fn stop_later(&mut self, at: Nanos) {
        self.stop_at = Some(at);
    }

    /// Whether it has begun to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Why an upgrade cannot begin now, if it cannot.
    pub fn upgrade_obstacle(&self) -> Option<&'static str> {
        if self.stopping || self.stop_at.is_some() {
            Some("the sentry is stopping")
        } else if self.trial.is_some() || self.workers.iter().any(|w| w.phase == Phase::Starting) {
            Some("a worker is just starting")
        } else if self.workers.len() >= SEATS {
            Some("too many workers are still draining")
        } else {
            None
        }
    }

    /// The binary on disk is checking the config.
    pub fn trial_started(&mut self, pid: u32, now: Nanos) {
        self.trial = Some(Trial { pid, limit: Some(now + START_LIMIT) });
    }

    /// When [`Lifecycle::tick`] next has something to do.
    pub fn next_tick(&self) -> Option<Nanos> {
        let workers = self.workers.iter().filter_map(|w| w.limit(self.drain_limit));
        workers.chain(self.trial.and_then(|t| t.limit)).chain(self.respawn_at).chain(self.stop_at).min()
    }

    /// Time passes.
    pub fn tick(&mut self, now: Nanos) -> Vec<Order> {
        let mut orders = Vec::new();
        for worker in &mut self.workers {
            if worker.limit(self.drain_limit).is_some_and(|limit| limit <= now) {
                worker.enter(Phase::Killed, now);
                orders.push(Order::Kill(worker.pid));
            }
        }
        if let Some(trial) = self.trial.as_mut().filter(|t| t.limit.is_some_and(|l| l <= now)) {
            trial.limit = None;
            orders.push(Order::Kill(trial.pid));
        }
        if self.respawn_at.is_some_and(|at| at <= now) {
            orders.extend(self.start());
        }
        if self.stop_at.is_some_and(|at| at <= now) {
            orders.extend(self.stop(now));
        }
        orders
    }

    fn stop(&mut self, now: Nanos) -> Vec<Order> {
        self.stopping = true;
        (self.respawn_at, self.stop_at) = (None, None);
        let mut orders = vec![Order::CloseSockets];
        for worker in &mut self.workers {
            if worker.phase != Phase::Draining {
                worker.enter(Phase::Draining, now);
                orders.push(Order::Drain(worker.pid));
            }
        }
        if self.workers.is_empty() {
            orders.push(Order::Exit { clean: true });
        }
        orders
    }

    /// Sees to it that somebody serves, or soon will.
    fn replace(&mut self, now: Nanos) -> Vec<Order> {
        let served = self.workers.iter().any(|w| matches!(w.phase, Phase::Starting | Phase::Serving));
        if served || self.respawn_at.is_some() {
            return Vec::new();
        }
        if self.early_deaths <= IMMEDIATE_RESTARTS {
            return self.start();
        }
        if !self.ever_ready {
            return vec![Order::CloseSockets, Order::Exit { clean: false }];
        }
        let doublings = (self.early_deaths - IMMEDIATE_RESTARTS - 1).min(16);
        let pause = Nanos((FIRST_PAUSE.0 << doublings).min(LONGEST_PAUSE.0));
        self.respawn_at = Some(now + pause);
        Vec::new()
    }
}

impl Worker {
    fn enter(&mut self, phase: Phase, now: Nanos) {
        self.phase = phase;
        self.since = now;
    }

    /// When the parent loses patience with it.
    fn limit(&self, drain_limit: Nanos) -> Option<Nanos> {
        match self.phase {
            Phase::Starting => Some(self.since + START_LIMIT),
            Phase::Draining => Some(self.since + drain_limit),
            Phase::Serving | Phase::Killed => None,
        }
    }
}

#[cfg(test)]
mod tests;
