//! A sentry, servers behind it and clients in front of it, all on loopback and in this process.
#![allow(dead_code)] // Each test file uses a part.

pub mod client;
pub mod server;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_core::config::{self, Config};
use plimsoll_sentry::clock;
use plimsoll_sentry::pool::Pool;
use plimsoll_sentry::state::Shared;
use plimsoll_sentry::worker::{self, WorkerSetup};

/// How long a test waits for what must happen before it gives up. Far more than it takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

const THREADS: usize = 2;

/// A running worker.
pub struct Sentry {
    pub address: SocketAddr,
    pub shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Sentry {
    /// Serves by this config, on a port of its own.
    pub fn start(text: &str) -> Sentry {
        let shared = Arc::new(Shared::new(parse(text), THREADS, None).unwrap());
        let first = listener("127.0.0.1:0".parse().unwrap());
        let address = first.local_addr().unwrap();
        let rest = (1..THREADS).map(|_| listener(address));
        let listeners: Vec<_> = std::iter::once(first).chain(rest).map(|l| vec![l]).collect();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            worker::run(WorkerSetup { listeners, shared: of_thread, seed: 1, ready: Box::new(|| {}) })
        });
        Sentry { address, shared, thread: Some(thread) }
    }

    /// In front of these servers, with what else the pool is told.
    pub fn before(servers: &[SocketAddr], pool: &str) -> Sentry {
        Sentry::start(&config("", servers, pool))
    }

    /// The pool in a config of one.
    pub fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.shared.routing().load().pools[0])
    }

    /// The sum over all threads of a counter by its name.
    pub fn count(&self, name: &str) -> u64 {
        let totals = plimsoll_sentry::stats::ThreadStats::totals(&self.shared.stats.threads);
        totals.into_iter().find(|(n, ..)| *n == name).unwrap_or_else(|| panic!("no counter {name}")).2
    }

    /// What is counted of the class `default`.
    pub fn default_class(&self) -> plimsoll_sentry::stats::ClassSnapshot {
        self.shared.routing().load().classes.last().unwrap().stats.snapshot()
    }

    /// Waits until nothing is in progress: no request, no slot taken, nobody in the queue, nor for the gate.
    pub async fn settled(&self) {
        let pool = self.pool();
        let left = || {
            let leases: u32 = pool.servers.all().iter().map(|s| s.in_flight()).sum();
            let of_pool = [pool.slots.taken(), pool.slots.waiting(), pool.gate.queued(), leases];
            (self.shared.in_flight(), of_pool)
        };
        eventually(
            || left() == (0, [0; 4]),
            || format!("in flight, [slots, waiting, queued, leases]: {:?}", left()),
        )
        .await;
    }

    /// Whether the worker has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        self.shared.begin_drain();
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().unwrap().unwrap();
        }
    }
}

fn listener(address: SocketAddr) -> TcpListener {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(1024).unwrap();
    socket.into()
}

/// A config of one pool, and one class that has it all.
pub fn config(sentry: &str, servers: &[SocketAddr], pool: &str) -> String {
    let servers: Vec<String> = servers.iter().map(|s| format!("\"{s}\"")).collect();
    let servers = servers.join(", ");
    // Tests end sentries all the time, some with requests in flight.
    let drain = if sentry.contains("drain_timeout") { "" } else { "drain_timeout = \"200ms\"" };
    format!("[sentry]\n{drain}\n{sentry}\n[pool.p]\nservers = [{servers}]\n{pool}\n[class.default]\n")
}

pub fn parse(text: &str) -> Config {
    config::parse::<Config>(text, "test").unwrap_or_else(|e| panic!("{e}")).0
}

/// Waits until something is so.
pub async fn eventually(is_so: impl Fn() -> bool, what: impl Fn() -> String) {
    let end = clock::now() + PATIENCE.into();
    while !is_so() {
        assert!(clock::now() < end, "still not: {}", what());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for something that must come.
pub async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("it takes too long")
}
