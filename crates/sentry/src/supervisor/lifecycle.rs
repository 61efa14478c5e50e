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
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);
    const DRAIN: Nanos = Nanos::from_secs(30);

    /// A parent whose worker 1 in seat 0 serves since the origin.
    fn serving() -> Lifecycle {
        let mut parent = Lifecycle::new(DRAIN);
        assert_eq!(parent.start(), [Order::Spawn { seat: 0 }]);
        parent.spawned(1, 0, Nanos::ZERO);
        assert_eq!(parent.ready(1, Nanos::ZERO), []);
        parent
    }

    #[test]
    fn a_dead_worker_is_replaced_at_once() {
        let mut parent = serving();
        assert_eq!(parent.exited(1, false, SECOND), [Order::Spawn { seat: 0 }]);
    }

    #[test]
    fn instant_deaths_are_restarted_ever_more_slowly_and_recover() {
        let mut parent = serving();
        let (mut now, mut pauses) = (SECOND, Vec::new());
        assert_eq!(parent.exited(1, false, now), [Order::Spawn { seat: 0 }]);
        for pid in 2..14 {
            parent.spawned(pid, 0, now);
            let died = now;
            if parent.exited(pid, false, now).is_empty() {
                now = parent.next_tick().unwrap();
                assert_eq!(parent.tick(now), [Order::Spawn { seat: 0 }]);
            }
            pauses.push(now.since(died).0 / 1_000_000);
        }
        assert_eq!(pauses, [0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
        parent.spawned(20, 0, now);
        parent.ready(20, now);
        assert_eq!(
            parent.exited(20, false, now + SECOND),
            [Order::Spawn { seat: 0 }],
            "a good life clears the count"
        );
    }

    #[test]
    fn what_never_worked_is_given_up() {
        let mut parent = Lifecycle::new(DRAIN);
        parent.start();
        for pid in 1..4 {
            parent.spawned(pid, 0, Nanos::ZERO);
            assert_eq!(parent.exited(pid, false, Nanos::ZERO), [Order::Spawn { seat: 0 }]);
        }
        parent.spawned(4, 0, Nanos::ZERO);
        assert_eq!(parent.exited(4, false, Nanos::ZERO), [Order::CloseSockets, Order::Exit { clean: false }]);
    }

    /// Through the trial and the exec, as far as the start of worker 2.
    fn upgrading() -> Lifecycle {
        let mut parent = serving();
        assert_eq!(parent.requested(Request::Upgrade, SECOND), [Order::Trial]);
        parent.trial_started(99, SECOND);
        assert_eq!(parent.exited(99, true, SECOND), [Order::Exec]);
        let mut parent = Lifecycle::resumed(parent.workers().to_vec(), DRAIN, Nanos::ZERO);
        assert_eq!(parent.start(), [Order::Spawn { seat: 1 }]);
        parent.spawned(2, 1, Nanos::ZERO);
        parent
    }

    #[test]
    fn the_old_worker_drains_once_the_new_one_is_ready() {
        let mut parent = upgrading();
        assert_eq!(parent.ready(2, SECOND), [Order::Drain(1)]);
        assert_eq!(parent.exited(1, false, SECOND + SECOND), []);
        assert_eq!(parent.workers().len(), 1);
        assert_eq!(parent.requested(Request::Reload, SECOND), [Order::Reload(2)]);
    }

    #[test]
    fn an_upgrade_that_does_not_start_changes_nothing() {
        let mut parent = upgrading();
        assert_eq!(parent.exited(2, false, SECOND), [], "worker 1 still serves");
        assert_eq!(parent.workers()[0].phase, Phase::Serving);

        let mut parent = upgrading();
        assert_eq!(parent.next_tick(), Some(START_LIMIT), "a worker that hangs is not waited for longer");
        assert_eq!(parent.tick(START_LIMIT), [Order::Kill(2)]);
        assert_eq!(parent.exited(2, false, START_LIMIT), []);

        let mut parent = serving();
        parent.requested(Request::Upgrade, SECOND);
        parent.trial_started(99, SECOND);
        assert_eq!(parent.next_tick(), Some(SECOND + START_LIMIT), "a binary that hangs is ended");
        assert_eq!(parent.tick(SECOND + START_LIMIT), [Order::Kill(99)]);
        assert_eq!((parent.next_tick(), parent.upgrade_obstacle().is_some()), (None, true));
        assert_eq!(parent.exited(99, false, SECOND), []);
        assert_eq!(parent.upgrade_obstacle(), None, "the next one may try again");
    }

    #[test]
    fn a_worker_that_dies_during_its_upgrade_is_replaced_by_the_new_one() {
        let mut parent = upgrading();
        assert_eq!(parent.exited(1, false, SECOND), [], "worker 2 is on its way");
        assert_eq!(parent.exited(2, false, SECOND), [Order::Spawn { seat: 0 }]);
    }

    #[test]
    fn upgrades_do_not_pile_up() {
        let mut parent = serving();
        parent.requested(Request::Upgrade, SECOND);
        parent.trial_started(99, SECOND);
        assert_eq!(parent.requested(Request::Upgrade, SECOND), []);
        let mut parent = upgrading();
        assert_eq!(parent.requested(Request::Upgrade, SECOND), []);
        for pid in 2..10 {
            parent.ready(pid, SECOND);
            let Some(Order::Spawn { seat }) = parent.start().first().copied() else { break };
            parent.spawned(pid + 1, seat, SECOND);
        }
        assert_eq!(parent.workers().len(), SEATS);
        assert_eq!(parent.upgrade_obstacle(), Some("too many workers are still draining"));
    }

    #[test]
    fn stopping_drains_and_a_second_signal_ends_at_once() {
        let mut parent = serving();
        assert_eq!(parent.requested(Request::Stop, SECOND), [Order::CloseSockets, Order::Drain(1)]);
        assert_eq!(parent.requested(Request::Reload, SECOND), []);
        assert_eq!(parent.exited(1, false, SECOND), [Order::Exit { clean: true }]);

        let mut parent = serving();
        parent.requested(Request::Stop, SECOND);
        assert_eq!(parent.requested(Request::Stop, SECOND), [Order::Kill(1), Order::Exit { clean: false }]);
    }

    #[test]
    fn stopping_later_serves_until_then() {
        let mut parent = serving();
        parent.stop_later(SECOND);
        assert_eq!(
            (parent.next_tick(), parent.upgrade_obstacle()),
            (Some(SECOND), Some("the sentry is stopping"))
        );
        assert_eq!(parent.requested(Request::Reload, Nanos::ZERO), []);
        assert_eq!(
            parent.exited(1, false, Nanos::ZERO),
            [Order::Spawn { seat: 0 }],
            "somebody has to accept"
        );
        parent.spawned(2, 0, Nanos::ZERO);
        parent.ready(2, Nanos::ZERO);
        assert_eq!(parent.tick(SECOND), [Order::CloseSockets, Order::Drain(2)]);
        assert_eq!(parent.next_tick(), Some(SECOND + DRAIN));
        assert_eq!(parent.exited(2, true, SECOND), [Order::Exit { clean: true }]);

        let mut parent = serving();
        parent.stop_later(SECOND);
        assert_eq!(
            parent.requested(Request::Stop, Nanos::ZERO),
            [Order::Kill(1), Order::Exit { clean: false }]
        );
    }

    #[test]
    fn a_worker_that_will_not_drain_is_killed() {
        let mut parent = serving();
        parent.requested(Request::Stop, SECOND);
        assert_eq!(parent.next_tick(), Some(SECOND + DRAIN));
        assert_eq!(parent.tick(SECOND + DRAIN), [Order::Kill(1)]);
        assert_eq!(parent.next_tick(), None, "once");
        assert_eq!(parent.exited(1, false, SECOND + DRAIN), [Order::Exit { clean: true }]);
    }
}
