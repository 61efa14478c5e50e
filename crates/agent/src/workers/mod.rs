//! Servers with a fixed number of workers, each of which has one request to itself: php-fpm, and Apache httpd with our module.
//!
//! | file | does |
//! | --- | --- |
//! | `status`, `fastcgi` | asks a server what its workers do |
//! | `page` | the answer |
//! | `listen` | how many wait for a worker, as this host's kernel says |
//! | `lives`, `line` | when requests came, got their worker and ended |
//!
//! What is contended for is the workers. A script cannot be told to end from outside; its process can, as php-fpm does it itself after
//! `request_terminate_timeout`, and the server starts another.

mod fastcgi;
mod line;
mod listen;
mod lives;
mod page;
mod status;

use std::collections::HashMap;

use plimsoll_core::Nanos;
use plimsoll_core::config::Database;
use rustix::io::Errno;
use rustix::process::{Pid as Number, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, test_kill_process};

use crate::clock;
use crate::host::{self, Did, Process};
use crate::server::backend::{Backend, State};
use crate::server::chains::Pid;
use crate::server::kernel::Kernel;
use crate::server::latency::Pauses;
use crate::server::slots::{self, What};
use crate::server::stamp::Stamp;
use crate::server::{Adapter, Glance, Seen, Told};

use self::line::Waiting;
use self::listen::Listen;
use self::lives::Lives;
use self::page::{Page, Worker};
use self::status::{Fpm, Httpd, Status, Target};

/// php-fpm.
pub type PhpFpm = Workers<Fpm>;
/// Apache httpd with our module.
pub type Apache = Workers<Httpd>;

/// A connection to a server's status.
pub struct Workers<S> {
    status: S,
    began: Stamp,
    lives: Lives,
    /// Whether a worker has been seen, by which it is known what can be seen and done.
    met: bool,
    kernel: Option<Kernel>,
    /// The socket at which they accept, as long as there is a worker to find it by; nothing where it is not to be seen at all.
    listen: Option<Option<Listen>>,
    requests: HashMap<Pid, String>,
    /// Why nobody can be ended, if so.
    powerless: Option<String>,
    /// What has not been told yet, and whether it is worth telling only where somebody is to be ended.
    untold: Vec<(String, bool)>,
}

impl<S: Status> Adapter for Workers<S> {
    type Target = Target;
    const SOURCE: &'static str = S::SOURCE;

    fn target(settings: &Database) -> Result<Target, String> {
        Ok(Target::of(settings))
    }

    async fn connect(target: &Target, _: Nanos) -> Result<Workers<S>, String> {
        let mut status = S::connect(target).await?;
        let began = status.page().await?.began();
        Ok(Workers {
            status,
            began,
            lives: Lives::default(),
            met: false,
            kernel: None,
            listen: None,
            requests: HashMap::new(),
            powerless: None,
            untold: Vec::new(),
        })
    }

    fn warnings(&mut self, enforce: bool) -> Vec<String> {
        let told = self.untold.drain(..).filter(|(_, only_to_enforce)| enforce || !only_to_enforce);
        told.map(|(why, _)| why).collect()
    }

    async fn look(&mut self, glance: Glance) -> Result<Seen, String> {
        let page = self.status.page().await?;
        let at = Stamp((clock::wall_s() * 1e6) as i64);
        if let (false, Some(worker)) = (self.met, page.workers.first()) {
            self.meet(&page, worker, glance.now);
        }
        let waiting = if S::KNOWS_QUEUE { page.listen_queue } else { self.waiting(&page) };
        if page.began() != self.began {
            (self.began, self.lives) = (page.began(), Lives::default());
        }
        let work = self.lives.look(&page, at, waiting);
        let workers = page.workers.iter().map(|worker| self.backend(worker));
        let backends: Vec<Backend> = workers.chain(work.waiting.iter().map(waits)).collect();
        let requests = page.workers.iter().filter(|worker| worker.is_busy());
        self.requests = requests.filter_map(|worker| Some((worker.id(), worker.request()?))).collect();
        // The first look is the first of which anything is known.
        let elapsed_ns = if glance.since == Stamp::EARLIEST { 0 } else { at.since_ns(glance.since) };
        Ok(Seen {
            at,
            began: page.began(),
            requests: page.accepted,
            moved: work.moved,
            locks: Vec::new(),
            progress: HashMap::new(),
            did: self.did(glance, at, &backends),
            measured: vec![work.measured(at, elapsed_ns)],
            paused: Pauses::default(),
            mean_ns: None,
            backends,
        })
    }

    fn on_host(&self) -> bool {
        self.kernel.is_some()
    }

    fn untouchable(&self, backend: &Backend) -> Option<String> {
        let waits = || (backend.pid < 0).then(|| "no worker has it yet".to_owned());
        self.powerless.clone().or_else(waits)
    }

    /// The page is read once more, so that no worker is ended which has gone on to another request.
    async fn end(&mut self, backend: &Backend, _: bool) -> Result<Option<bool>, String> {
        let Some((process, life)) = backend.process.zip(self.lives.of(backend.pid)) else { return Ok(None) };
        let number = i32::try_from(process.pid).ok().and_then(Number::from_raw);
        // Opened before the page is read: a worker that comes after it may have the same number.
        let Some(Ok(pidfd)) = number.map(|number| pidfd_open(number, PidfdFlags::empty())) else {
            return Ok(None);
        };
        let page = self.status.page().await?;
        let now = page.worker(backend.pid).filter(|now| now.began() == backend.began);
        if !now.is_some_and(|now| now.is_busy() && now.requests == life.number) {
            return Ok(None);
        }
        match pidfd_send_signal(&pidfd, Signal::TERM) {
            Ok(()) => Ok(Some(true)),
            Err(Errno::SRCH) => Ok(None),
            Err(_) => Ok(Some(false)),
        }
    }

    fn name(pid: Pid) -> String {
        format!("worker {pid}")
    }

    fn resource(&self, index: u32, what: Option<&What>) -> String {
        match (index, what) {
            (slots::CPU, _) => "processors".to_owned(),
            (slots::DATA, _) => "files".to_owned(),
            (_, Some(&What::Measured(_, name))) => name.to_owned(),
            _ => "a lock".to_owned(),
        }
    }

    async fn told(&mut self, backends: &[&Backend]) -> HashMap<Pid, Told> {
        let told = |backend: &&Backend| {
            let statement = self.requests.get(&backend.pid).cloned();
            (backend.pid, Told { statement, ..Told::default() })
        };
        backends.iter().map(told).collect()
    }
}

impl<S: Status> Workers<S> {
    /// Finds out what can be seen of workers, and done. There may be none at first: some pools begin them when they are wanted.
    fn meet(&mut self, page: &Page, worker: &Worker, now: Nanos) {
        self.met = true;
        self.kernel = host::is_here(worker.pid, began_s(worker)).then(|| Kernel::new(now));
        self.powerless = powerless(page.threaded, worker);
        self.untold.extend(self.powerless.iter().map(|why| (why.clone(), true)));
        if !S::KNOWS_QUEUE {
            self.listen = find(page).map(Some);
            let why = "who waits for a worker is not seen, so an overload is noticed late or not at all; run the agent on the same host, as root";
            self.untold.extend(self.listen.is_none().then(|| (why.to_owned(), false)));
        }
        log::info!(pool:% = page.pool, kernel_knows_them = self.kernel.is_some(); "workers");
    }

    fn backend(&self, worker: &Worker) -> Backend {
        let life = self.lives.of(worker.id());
        let seen = life.filter(|life| life.busy || life.changed > life.began);
        Backend {
            pid: worker.id(),
            process: Some(worker.process()),
            database: 0,
            user: 0,
            state: if worker.is_busy() { State::Active } else { State::Idle },
            waits: None,
            xact: None,
            query: seen.map(|life| life.came),
            began: worker.began(),
            changed: seen.map(|life| life.changed),
            kind: None,
            replays: false,
            writes: false,
            keeps: false,
            leader: None,
        }
    }

    /// How many wait for a worker.
    fn waiting(&mut self, page: &Page) -> usize {
        let Some(listen) = &mut self.listen else { return page.listen_queue };
        let waiting = |listen: &Option<Listen>| listen.as_ref()?.waiting().ok();
        waiting(listen).unwrap_or_else(|| {
            // The worker by which it was found has ended.
            *listen = find(page);
            waiting(listen).unwrap_or(page.listen_queue)
        })
    }

    fn did(&mut self, glance: Glance, at: Stamp, backends: &[Backend]) -> HashMap<Process, Did> {
        let Some(kernel) = &mut self.kernel else { return HashMap::new() };
        let is_full = kernel.is_due(glance) || glance.since == Stamp::EARLIEST;
        kernel.read(glance, at, is_full, backends)
    }
}

/// Who waits for a worker: a request without a process.
fn waits(waiting: &Waiting) -> Backend {
    Backend {
        pid: waiting.id(),
        process: None,
        database: 0,
        user: 0,
        state: State::Active,
        waits: None,
        xact: None,
        query: Some(waiting.since),
        began: waiting.since,
        // What it took is known of the worker that gets it.
        changed: None,
        kind: None,
        replays: false,
        writes: false,
        keeps: false,
        leader: None,
    }
}

/// The socket at which a pool's workers accept.
fn find(page: &Page) -> Option<Listen> {
    page.workers.iter().find_map(|worker| Listen::of_worker(worker.pid))
}

fn began_s(worker: &Worker) -> f64 {
    worker.began().0 as f64 / 1e6
}

/// Why nobody can be ended, if so.
fn powerless(threaded: bool, worker: &Worker) -> Option<String> {
    if threaded {
        return Some("its workers are threads of processes that have others, and none can be ended alone; only the MPM prefork has workers that can".to_owned());
    }
    let number = i32::try_from(worker.pid).ok().and_then(Number::from_raw)?;
    match test_kill_process(number) {
        Ok(()) if host::began(Process::whole(worker.pid), began_s(worker)) => None,
        Err(Errno::PERM) => {
            Some("its workers are another user's; run the agent as root, or as their user".to_owned())
        }
        _ => Some("its workers are no processes of this host; run the agent where they are".to_owned()),
    }
}

#[cfg(test)]
mod tests;
