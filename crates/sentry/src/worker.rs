//! A worker process's data path: so many threads, each with its own event loop and its own listening sockets.

use std::net;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use plimsoll_core::{Nanos, config};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinSet;

use crate::state::Shared;
use crate::thread::Thread;
use crate::{clock, etcd, health, listener};

/// How often each thread looks after what waits. With the coarseness of its clock, this is how late the timeouts are
/// that clients are held to.
const SWEEP: Duration = Duration::from_nanos(clock::COARSENESS.0);
/// Gates say when they want to be ticked; a new pool is noticed at least this often.
const LONGEST_TICK: Nanos = Nanos::from_millis(100);
const SHORTEST_TICK: Nanos = Nanos::from_millis(1);

/// What a worker is given.
pub struct WorkerSetup {
    /// One list of bound, listening sockets a thread. The sockets of one address share it by `SO_REUSEPORT`.
    pub listeners: Vec<Vec<net::TcpListener>>,
    /// The state, made for as many threads as there are lists.
    pub shared: Arc<Shared>,
    /// Of all randomness.
    pub seed: u64,
    /// Called once connections are accepted.
    pub ready: Box<dyn FnOnce()>,
}

/// How many threads a worker has by this config.
pub fn threads(config: &config::Sentry) -> usize {
    match config.threads {
        0 => available_parallelism().map_or(1, usize::from),
        n => n as usize,
    }
}

/// Serves until the worker has drained. The calling thread is one of those that serve. If one of them ends before that
/// it takes the process with it: the parent holds its sockets open, so the system would go on giving it connections that nobody
/// accepts, and only the parent can start another.
///
/// # Errors
/// Where a thread cannot be had.
pub fn run(setup: WorkerSetup) -> Result<(), String> {
    let WorkerSetup { listeners, shared, seed, ready } = setup;
    assert_eq!(listeners.len(), shared.stats.threads.len(), "one list of listeners a thread");
    let mut lists = listeners.into_iter().enumerate();
    let Some((_, first)) = lists.next() else { return Ok(()) };
    let mut others = Vec::new();
    for (id, listeners) in lists {
        let shared = Arc::clone(&shared);
        let spawned = std::thread::Builder::new()
            .name(format!("sentry-{id}"))
            .spawn(move || to_the_end(id, || serve(id, listeners, shared, seed, Box::new(|| {}))));
        others.push(spawned.map_err(|e| format!("cannot start a thread: {e}"))?);
    }
    to_the_end(0, || serve(0, first, shared, seed, ready));
    for thread in others {
        // It has no other way to end than to return.
        let _ = thread.join();
    }
    Ok(())
}

fn to_the_end(id: usize, serve: impl FnOnce() -> Result<(), String>) {
    let error = match catch_unwind(AssertUnwindSafe(serve)) {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        // The panic's own message is out already.
        Err(_) => "it panicked".to_owned(),
    };
    log::error!(thread = id, error:%; "a thread cannot serve, so the worker ends");
    std::process::abort();
}

fn serve(
    id: usize,
    listeners: Vec<net::TcpListener>,
    shared: Arc<Shared>,
    seed: u64,
    ready: Box<dyn FnOnce()>,
) -> Result<(), String> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|e| format!("cannot start an event loop: {e}"))?;
    runtime.block_on(async {
        clock::refresh();
        let thread = Thread::new(id, shared, seed);
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let prepared = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
            let listener = prepared.map_err(|e| format!("cannot listen: {e}"))?;
            tasks.spawn_local(listener::accept(Rc::clone(&thread), listener));
        }
        if id == 0 {
            tasks.spawn_local(tick(Rc::clone(&thread)));
            tasks.spawn_local(health::check_all(Rc::clone(&thread)));
            tasks.spawn_local(etcd::watch_all(Rc::clone(&thread)));
        }
        ready();
        tokio::select! {
            () = sweep(&thread) => Ok(()),
            error = first_panic(tasks) => Err(error),
        }
    })
}

/// Resolves when one of the tasks has panicked, which its thread would otherwise survive.
async fn first_panic(mut tasks: JoinSet<()>) -> String {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            return error.to_string();
        }
    }
    std::future::pending().await
}

/// Looks after what waits, until the worker has drained.
async fn sweep(thread: &Thread) {
    let mut drain_limit = None;
    loop {
        tokio::time::sleep(SWEEP).await;
        thread.sweep();
        if thread.shared.is_draining() {
            let limit = thread.view().routing.config.sentry.drain_timeout;
            let ends = *drain_limit.get_or_insert_with(|| clock::coarse() + limit);
            // Upgraded connections keep their place, so this covers all that is in flight.
            if thread.shared.connections() == 0 || clock::coarse() >= ends {
                return;
            }
        }
    }
}

/// Ticks the gates of all pools. One thread does that for all.
async fn tick(thread: Rc<Thread>) {
    loop {
        let now = clock::refresh();
        let pools = &thread.view().routing.pools;
        let busy = thread.shared.busy();
        let next = pools.iter().map(|pool| pool.tick(busy, now)).min().unwrap_or(Nanos::MAX);
        let pause = next.since(clock::now()).clamp(SHORTEST_TICK, LONGEST_TICK);
        tokio::time::sleep(pause.into()).await;
    }
}
