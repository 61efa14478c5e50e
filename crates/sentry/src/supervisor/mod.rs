//! The parent: holds the listening sockets, keeps a worker serving them and passes them on.
//!
//! It is one thread that waits for signals and for workers, and does nothing that could fail because of load: it
//! accepts no connection and reads no request. All decisions are [`lifecycle`]'s; here they are carried out.
//!
//! - A worker that dies is replaced at once. Connections that arrive meanwhile wait in the sockets.
//! - SIGHUP is passed on: the worker reloads its config.
//! - SIGTERM and SIGINT drain and end; the second one ends at once. Where other sentries listen on the port too, it is
//!   [left to them](group) first.
//! - SIGUSR2 upgrades: the parent lets the binary on disk check the config, becomes that binary, and starts a new
//!   worker; when that one serves, the old one drains. If any step fails, the old worker goes on.
//! - A parent that is killed takes its worker along, which drains first. Serving on without a parent would save
//!   little (whatever restarts services restarts the parent) and leave a process behind that nobody can restart,
//!   upgrade or find, on sockets that the next sentry needs.

pub mod group;
pub mod handover;
pub mod kept_text;
pub mod lifecycle;
pub mod signals;
pub mod slots_page;
pub mod sockets;

mod bpf;
mod descriptors;
mod spawn;

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use plimsoll_core::{Nanos, config};

use self::handover::{Held, ParentState};
use self::kept_text::KeptText;
use self::lifecycle::{Lifecycle, Order, Phase, Request};
use self::signals::{Event, Signals};
use self::slots_page::SlotsPage;
use self::sockets::{Leaving, Sockets};
use crate::config_file::LoadError;
use crate::put::Put;
use crate::share::Share;
use crate::{clock, config_file};

/// A worker ends its drain by itself; this much later the parent does.
const DRAIN_MARGIN: Nanos = Nanos::from_secs(5);

/// How to start workers.
#[derive(Clone, Debug)]
pub struct Options {
    /// The config file.
    pub config: PathBuf,
    /// Where to record the gate's events, if anywhere.
    pub record: Option<PathBuf>,
    /// The admin address, where it is not the config's.
    pub admin: Option<SocketAddr>,
    /// What of the servers is this sentry's, until it is told otherwise.
    pub share: Share,
}

impl Options {
    /// Whether other sentries may listen on the same port: who has an admin address of its own was not started twice by
    /// mistake.
    fn is_one_of_several(&self) -> bool {
        self.admin.is_some()
    }

    /// What the config says by now of the sentry itself.
    fn load(&self) -> Result<config::Sentry, LoadError> {
        let mut sentry = config_file::load(&self.config)?.config.sentry;
        sentry.admin = self.admin.unwrap_or(sentry.admin);
        Ok(sentry)
    }
}

struct Parent {
    options: Options,
    binary: PathBuf,
    signals: Signals,
    held: Held,
    slots: SlotsPage,
    lifecycle: Lifecycle,
    /// The parent's ends of the workers' channels, by process id.
    channels: HashMap<u32, UnixStream>,
    restarts: u64,
    /// Since when nobody serves, where that is so.
    unserved_since: Option<Nanos>,
    /// What is being left to other sentries.
    leaving: Option<Leaving>,
}

/// Runs the parent until it is told to stop.
pub fn run(options: Options) -> ExitCode {
    match Parent::new(options).and_then(Parent::run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

impl Parent {
    fn new(options: Options) -> Result<Parent, String> {
        let signals = Signals::block().map_err(|e| format!("cannot receive signals: {e}"))?;
        match ParentState::take()? {
            Some(state) => Parent::resume(options, signals, state),
            None => Parent::begin(options, signals),
        }
    }

    fn begin(options: Options, signals: Signals) -> Result<Parent, String> {
        let config = options.load().map_err(|e| e.to_string())?;
        let mut sockets = Sockets::default();
        sockets.bind(&config, options.is_one_of_several())?;
        if let Some(record) = options.record.as_deref().filter(|path| path.exists()) {
            // A worker only ever begins a record; this is where an old one ends.
            std::fs::remove_file(record).map_err(|e| format!("{}: {e}", record.display()))?;
        }
        let memory = |e| format!("cannot reserve shared memory: {e}");
        let (slots_page, last_good) =
            (SlotsPage::create().map_err(memory)?, KeptText::create().map_err(memory)?);
        let put = put_at_start(options.share).map_err(memory)?;
        let held = Held { sockets, slots_page, last_good, put: Some(put) };
        Ok(Parent {
            slots: SlotsPage::map(&held.slots_page).map_err(memory)?,
            binary: std::env::current_exe().map_err(|e| format!("cannot tell which binary this is: {e}"))?,
            lifecycle: Lifecycle::new(drain_limit(&config)),
            channels: HashMap::new(),
            restarts: 0,
            unserved_since: None,
            leaving: None,
            options,
            signals,
            held,
        })
    }

    /// This process was another binary before.
    fn resume(options: Options, signals: Signals, state: ParentState<Held>) -> Result<Parent, String> {
        let ParentState { binary, mut held, workers, channels, drain_limit_ns, restarts } = state;
        // The binary before may have been one that kept none.
        held.put = held.put.or_else(|| KeptText::create().ok());
        let channels =
            workers.iter().map(|w| w.pid).zip(channels.into_iter().map(UnixStream::from)).collect();
        Ok(Parent {
            slots: SlotsPage::map(&held.slots_page).map_err(|e| e.to_string())?,
            lifecycle: Lifecycle::resumed(workers, Nanos(drain_limit_ns), clock::now()),
            unserved_since: None,
            leaving: None,
            binary,
            channels,
            restarts,
            options,
            signals,
            held,
        })
    }

    /// Binds what the config asks for by now, before a worker starts that reads it. A config that cannot be used
    /// stops nothing: the worker then goes on with the last good one.
    fn follow_config(&mut self) {
        match self.options.load() {
            Ok(config) => {
                self.lifecycle.set_drain_limit(drain_limit(&config));
                if let Err(error) = self.held.sockets.bind(&config, self.options.is_one_of_several()) {
                    log::error!(error:%; "an address of the config is not served");
                }
            }
            Err(error) => error.log(),
        }
    }

    /// True if everything ended as asked.
    fn run(mut self) -> Result<bool, String> {
        // A worker may have ended while this process was becoming another binary.
        let mut orders = self.reap();
        orders.extend(self.lifecycle.start());
        loop {
            if let Some(clean) = self.carry_out(orders) {
                return Ok(clean);
            }
            orders = self.wait()?;
        }
    }

    /// Waits for whatever happens next and asks what to do about it.
    fn wait(&mut self) -> Result<Vec<Order>, String> {
        let timeout = match self.lifecycle.next_tick() {
            // Rounded up, so as not to wake a moment too early and spin.
            Some(at) => {
                let millis = at.since(clock::now()).0.div_ceil(1_000_000);
                PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        let starting: Vec<u32> =
            self.lifecycle.workers().iter().filter(|w| w.phase == Phase::Starting).map(|w| w.pid).collect();
        let ready = {
            let channels = starting.iter().map(|pid| self.channels[pid].as_fd());
            let mut fds: Vec<PollFd<'_>> = std::iter::once(self.signals.as_fd())
                .chain(channels)
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
                .collect();
            match poll(&mut fds, timeout) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(format!("cannot wait for workers: {e}")),
            }
            fds.iter().map(|fd| fd.any().unwrap_or(false)).collect::<Vec<_>>()
        };
        let mut orders = Vec::new();
        for (pid, _) in starting.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            orders.extend(self.hear(pid));
        }
        while let Some(event) = self.signals.next() {
            orders.extend(match event {
                Event::ChildEnded => self.reap(),
                Event::Asked(request) => self.asked(request),
            });
        }
        orders.extend(self.lifecycle.tick(clock::now()));
        Ok(orders)
    }

    /// A starting worker has said something on its channel, or has closed it.
    fn hear(&mut self, pid: u32) -> Vec<Order> {
        let Some(channel) = self.channels.get_mut(&pid) else { return Vec::new() };
        match channel.read(&mut [0]) {
            Ok(1) => self.worker_ready(pid),
            // A worker that ends also closes its channel; the signal that follows says how it ended.
            _ => {
                let orders = self.reap();
                if self.lifecycle.workers().iter().any(|w| w.pid == pid) {
                    send(pid, Signal::SIGKILL);
                }
                orders
            }
        }
    }

    fn worker_ready(&mut self, pid: u32) -> Vec<Order> {
        let now = clock::now();
        let orders = self.lifecycle.ready(pid, now);
        if let Ok(config) = self.options.load() {
            self.held.sockets.release(&config);
        }
        for listener in &self.held.sockets.traffic {
            log::info!(address:% = listener.bound, sockets = listener.sockets.len(); "listening");
        }
        if let Some(admin) = &self.held.sockets.admin {
            log::info!(address:% = admin.bound; "admin listening");
        }
        match self.unserved_since.take() {
            Some(since) => {
                log::info!(worker = pid, unserved_ms = now.since(since).as_millis_f64(); "worker ready")
            }
            None => log::info!(worker = pid; "worker ready"),
        }
        orders
    }

    fn asked(&mut self, request: Request) -> Vec<Order> {
        match (request, self.lifecycle.upgrade_obstacle()) {
            (Request::Upgrade, Some(obstacle)) => log::warn!(obstacle; "no upgrade now"),
            (Request::Upgrade, None) => log::info!(binary:% = self.binary.display(); "upgrading"),
            (Request::Stop, _) => log::info!("stopping"),
            (Request::Reload, _) => {}
        }
        if request == Request::Stop && self.leaving.is_none() && !self.lifecycle.is_stopping() {
            self.leaving = self.held.sockets.leave();
            if self.leaving.is_some() {
                self.lifecycle.stop_later(clock::now() + group::HANDSHAKE);
                return Vec::new();
            }
        }
        self.lifecycle.requested(request, clock::now())
    }

    /// Takes note of every child that has ended.
    fn reap(&mut self) -> Vec<Order> {
        let mut orders = Vec::new();
        for pid in self.lifecycle.children() {
            let status = match waitpid(Pid::from_raw(pid as i32), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => continue,
                // No longer our child to wait for means that it is gone as well.
                Ok(status) => Some(status),
                Err(_) => None,
            };
            orders.extend(self.child_ended(pid, status));
        }
        orders
    }

    fn child_ended(&mut self, pid: u32, status: Option<WaitStatus>) -> Vec<Order> {
        let now = clock::now();
        let good = matches!(status, Some(WaitStatus::Exited(_, 0)));
        let worker = self.lifecycle.workers().iter().find(|w| w.pid == pid).cloned();
        if let Some(worker) = worker {
            self.channels.remove(&pid);
            self.slots.clear(worker.seat);
            let status = status.map_or_else(|| "unknown".into(), describe);
            match worker.phase {
                Phase::Draining => log::info!(worker = pid, status:% = status; "worker has drained"),
                Phase::Starting => log::error!(worker = pid, status:% = status; "worker did not start"),
                Phase::Serving | Phase::Killed => {
                    log::error!(worker = pid, status:% = status; "worker died");
                    self.restarts += 1;
                    self.unserved_since.get_or_insert(now);
                }
            }
        } else if !good {
            log::error!("the binary on disk does not accept the config; no upgrade");
        }
        self.lifecycle.exited(pid, good, now)
    }

    /// Carries the orders out, and what follows from them. Whether everything ended as asked, if it ended.
    fn carry_out(&mut self, orders: Vec<Order>) -> Option<bool> {
        let mut orders = std::collections::VecDeque::from(orders);
        while let Some(order) = orders.pop_front() {
            match order {
                Order::Spawn { seat } => orders.extend(self.spawn(seat)),
                Order::Reload(pid) => send(pid, Signal::SIGHUP),
                Order::Drain(pid) => send(pid, Signal::SIGTERM),
                Order::Kill(pid) => send(pid, Signal::SIGKILL),
                Order::Trial => self.try_binary(),
                Order::Exec => self.become_binary(),
                Order::CloseSockets => {
                    let sockets = std::mem::take(&mut self.held.sockets);
                    // Whoever joins or leaves next may.
                    if let Some(leaving) = self.leaving.take() {
                        sockets.gone(&leaving);
                    }
                }
                Order::Exit { clean } => return Some(clean),
            }
        }
        None
    }
}

/// What the first worker finds put.
fn put_at_start(share: Share) -> std::io::Result<OwnedFd> {
    let memory = KeptText::create()?;
    KeptText::new(memory.try_clone()?).store(&Put::of_share(share).to_text())?;
    Ok(memory)
}

fn drain_limit(config: &config::Sentry) -> Nanos {
    config.drain_timeout + DRAIN_MARGIN
}

fn send(pid: u32, signal: Signal) {
    if let Err(error) = kill(Pid::from_raw(pid as i32), signal) {
        log::warn!(pid, signal = signal.as_str(), error:%; "cannot signal");
    }
}

fn describe(status: WaitStatus) -> String {
    match status {
        WaitStatus::Exited(_, code) => format!("exit code {code}"),
        WaitStatus::Signaled(_, signal, _) => signal.as_str().to_owned(),
        other => format!("{other:?}"),
    }
}
