//! Load that comes whether or not the database keeps up: Poisson arrivals, some connections, and a bounded queue before them. A request's
//! latency counts from when it was to be sent, so a database that stands still shows in all who would have come meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use plimsoll_core::Nanos;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};
use tokio::time::sleep;

use super::load::{Arrival, Load};
use super::request::{Outcome, Request};
use super::{Client, Database};
use crate::clock::{Clock, sleep_precisely};

/// After the last arrival, how long answers are waited for.
const GRACE: Nanos = Nanos::from_secs(5);
/// How long a lost connection waits before it tries again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A load that runs, on threads of its own. Dropped, it ends.
pub struct Loading {
    clock: Clock,
    requests: Arc<Mutex<Vec<Request>>>,
    stopped: Arc<AtomicBool>,
    ended: oneshot::Receiver<()>,
}

impl Loading {
    /// Time since the beginning of the load.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// The clock of the load.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The requests that have ended, without the first so many, in the order in which they ended.
    pub fn ended_after(&self, first: usize) -> Vec<Request> {
        self.requests.lock().get(first..).unwrap_or_default().to_vec()
    }

    /// Lets no more requests come.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Returns when all requests have ended, in the order in which they were to be sent.
    pub async fn finished(mut self) -> Vec<Request> {
        // Whether it ends by a word or by going away is the same.
        let _ = (&mut self.ended).await;
        let mut requests = std::mem::take(&mut *self.requests.lock());
        requests.sort_by_key(|request| request.at);
        requests
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Load {
    /// Connects, prepares the statements and begins.
    ///
    /// # Errors
    /// Where the load makes no sense, or the database does not take it.
    pub async fn start<D: Database>(self, database: D) -> Result<Loading, String> {
        self.check()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (began, is_running) = oneshot::channel();
        let (over, ended) = oneshot::channel();
        let stopped = Arc::new(AtomicBool::new(false));
        let (kept, stop, load) = (Arc::clone(&requests), Arc::clone(&stopped), Arc::new(self));
        // A runtime of its own: what else the caller does must not delay a request.
        let run = move || {
            let begun = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let begun = begun.map_err(|e| e.to_string()).and_then(|runtime| {
                let connections = runtime.block_on(Connection::open_all(&load, &database))?;
                Ok((runtime, connections))
            });
            match begun {
                Err(error) => drop(began.send(Err(error))),
                Ok((runtime, connections)) => {
                    let run = Run { load, clock: Clock::start(), requests: kept, stopped: stop };
                    drop(began.send(Ok(run.clock)));
                    run.run(&runtime, connections);
                }
            }
            drop(over);
        };
        thread::Builder::new()
            .name("load".to_owned())
            .spawn(run)
            .map_err(|e| format!("cannot start a thread: {e}"))?;
        let clock = is_running.await.map_err(|_| "the load ended before it began")??;
        Ok(Loading { clock, requests, stopped, ended })
    }
}

/// What the threads of a load share.
struct Run {
    load: Arc<Load>,
    clock: Clock,
    requests: Arc<Mutex<Vec<Request>>>,
    stopped: Arc<AtomicBool>,
}

impl Run {
    fn run<D: Database>(&self, runtime: &Runtime, connections: Vec<Connection<D>>) {
        let (arrivals, mut waiting) = mpsc::channel(self.load.queue);
        // That it is over is said by letting it go.
        let (coming, over) = watch::channel(());
        thread::scope(|scope| {
            scope.spawn(move || self.send_all(arrivals, coming));
            let shared = AsyncMutex::new(&mut waiting);
            let work = connections.into_iter().map(|connection| self.work(connection, &shared, over.clone()));
            runtime.block_on(join_all(work));
        });
        // Whom no connection has taken: nobody waits for an answer any more.
        while let Ok(arrival) = waiting.try_recv() {
            self.end(arrival.at, Outcome::Unanswered);
        }
    }

    /// On a thread of its own: a timer of the runtime would round to whole milliseconds.
    fn send_all(&self, arrivals: mpsc::Sender<Arrival>, _coming: watch::Sender<()>) {
        sleep_precisely();
        for arrival in self.load.arrivals() {
            let at = arrival.at;
            self.clock.sleep_until(at);
            if self.stopped.load(Relaxed) {
                break;
            }
            if arrivals.try_send(arrival).is_err() {
                self.end(at, Outcome::Refused);
            }
        }
    }

    async fn work<D: Database>(
        &self,
        mut connection: Connection<D>,
        waiting: &AsyncMutex<&mut mpsc::Receiver<Arrival>>,
        mut over: watch::Receiver<()>,
    ) {
        let mut give_up = pin!(async move {
            while over.changed().await.is_ok() {}
            sleep(GRACE.into()).await;
        });
        loop {
            tokio::select! {
                () = connection.reopen() => {}
                () = &mut give_up => return,
            }
            let Some(arrival) = waiting.lock().await.recv().await else { return };
            tokio::select! {
                outcome = connection.ask(&arrival) => self.end(arrival.at, outcome),
                () = &mut give_up => return self.end(arrival.at, Outcome::Unanswered),
            }
        }
    }

    fn end(&self, at: Nanos, outcome: Outcome) {
        self.requests.lock().push(Request { at, latency: self.clock.now().since(at), outcome });
    }
}

/// A connection that is made again when it breaks.
struct Connection<D: Database> {
    load: Arc<Load>,
    database: D,
    client: Option<D::Client>,
}

impl<D: Database> Connection<D> {
    async fn open_all(load: &Arc<Load>, database: &D) -> Result<Vec<Connection<D>>, String> {
        let mut connections = Vec::new();
        for _ in 0..load.connections {
            let mut connection =
                Connection { load: Arc::clone(load), database: database.clone(), client: None };
            connection.open().await.map_err(|why| format!("the load cannot begin: {why}"))?;
            connections.push(connection);
        }
        Ok(connections)
    }

    async fn open(&mut self) -> Result<(), String> {
        self.client = Some(self.database.open(&self.load.kinds).await?);
        Ok(())
    }

    /// Tries until it is there.
    async fn reopen(&mut self) {
        let mut pause = FIRST_PAUSE;
        while self.client.as_ref().is_none_or(D::Client::is_closed) {
            if self.open().await.is_err() {
                sleep(pause).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }

    async fn ask(&mut self, arrival: &Arrival) -> Outcome {
        let Some(client) = &mut self.client else { return Outcome::Lost };
        let wanted = self.load.kinds[arrival.kind].parameters.len();
        client.ask(arrival.kind, &arrival.parameters[..wanted]).await
    }
}
