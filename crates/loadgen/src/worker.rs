//! One sending thread: takes the arrivals that are due and carries each to the target and back.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::iter::Peekable;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::{Nanos, Rng, rng};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::spawn_local;
use tokio::time::MissedTickBehavior;

use crate::clock::{Alarm, Clock};
use crate::connection::{Failure, Sender};
use crate::log::Entry;
use crate::pool::{Lease, Pool, Ride};
use crate::schedule::Arrival;
use crate::stats::{ErrorKind, Outcome, Tally};
use crate::target::Target;
use crate::template::Template;

/// How often a thread hands over what it has counted.
const PUBLISH: Duration = Duration::from_millis(200);

/// What all threads of a run share.
pub(crate) struct Job {
    pub(crate) clock: Clock,
    pub(crate) target: Target,
    pub(crate) templates: Vec<Template>,
    /// After this time from its intended sending a request is given up.
    pub(crate) timeout: Nanos,
    /// How often it is tried again before that, at most,
    pub(crate) retries: u32,
    /// and how long the first wait before it is at the longest.
    pub(crate) backoff: Nanos,
    /// The most connections of one thread.
    pub(crate) connections: usize,
    /// The most requests at a time on one connection.
    pub(crate) streams: usize,
    /// Whether every single request is kept.
    pub(crate) log: bool,
}

/// The ends of the channels to whoever collects the counts.
pub(crate) struct Reporting {
    /// Counts of an interval, one tally a name of the mix.
    pub(crate) tallies: mpsc::Sender<Vec<Tally>>,
    /// Any change, or the end of the sender: stop now, whatever is in flight.
    pub(crate) stop: watch::Receiver<()>,
}

/// One try of a request; in the order in which they are due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Try {
    due: Nanos,
    arrival: Arrival,
    /// How many were before it.
    before: u32,
}

struct Worker<A: Iterator<Item = Arrival>> {
    job: Arc<Job>,
    arrivals: RefCell<Peekable<A>>,
    /// What is to be tried again.
    again: RefCell<BinaryHeap<Reverse<Try>>>,
    /// Of how long clients wait before it.
    rng: RefCell<Rng>,
    pool: RefCell<Pool>,
    tallies: RefCell<Vec<Tally>>,
    in_flight: Cell<usize>,
    alarm: Alarm,
    finished: Notify,
}

/// Sends all of `arrivals` and returns when the last has ended, or sooner if told to stop. Runs on a tokio
/// `LocalRuntime`. The first random stream chooses connections, the other says when clients try again.
pub(crate) async fn run<A>(
    job: Arc<Job>,
    arrivals: A,
    [of_pool, of_clients]: [Rng; 2],
    mut reporting: Reporting,
) -> io::Result<()>
where
    A: Iterator<Item = Arrival> + 'static,
{
    let names = job.templates.len();
    let worker = Rc::new(Worker {
        arrivals: RefCell::new(arrivals.peekable()),
        again: RefCell::default(),
        rng: RefCell::new(of_clients),
        pool: RefCell::new(Pool::new(job.connections, job.streams, of_pool)),
        tallies: RefCell::new(vec![Tally::new(); names]),
        in_flight: Cell::new(0),
        alarm: Alarm::new(job.clock)?,
        finished: Notify::new(),
        job,
    });
    let dispatcher = async {
        loop {
            worker.dispatch();
            if let Err(broken) = worker.alarm.rung().await {
                return broken;
            }
        }
    };
    let publisher = async {
        let mut tick = tokio::time::interval(PUBLISH);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            // A collector that lags gets longer intervals, not more of them.
            if let Ok(slot) = reporting.tallies.try_reserve() {
                slot.send(worker.tallies.replace(vec![Tally::new(); names]));
            }
        }
    };
    tokio::select! {
        broken = dispatcher => return Err(broken),
        () = publisher => unreachable!("it never ends"),
        () = worker.finished.notified() => {}
        _ = reporting.stop.changed() => {}
    }
    // Fails if nobody collects any more, who then needs no counts.
    let _ = reporting.tallies.send(worker.tallies.take()).await;
    Ok(())
}

impl<A: Iterator<Item = Arrival> + 'static> Worker<A> {
    /// Sends every request that is due, as far as there are connections, and sets the alarm for the next. What is
    /// not taken from the schedule waits there: whoever gives a connection back calls this again.
    fn dispatch(self: &Rc<Self>) {
        let now = self.job.clock.now();
        while let Some(next) = self.next() {
            let expires = next.arrival.at + self.job.timeout;
            if next.due > now {
                return self.alarm.set(next.due);
            }
            if expires <= now {
                self.sent(next, now);
                self.ended(&next.arrival, Outcome::Error(ErrorKind::TimeoutUnsent), now);
            } else {
                let Some(ride) = self.pool.borrow_mut().acquire() else {
                    return self.alarm.set(expires);
                };
                self.in_flight.set(self.in_flight.get() + 1);
                spawn_local(self.clone().carry(next, ride));
            }
            match next.before {
                0 => drop(self.arrivals.borrow_mut().next()),
                _ => drop(self.again.borrow_mut().pop()),
            }
        }
        if self.in_flight.get() == 0 {
            self.finished.notify_one();
        }
    }

    /// The try that is due next, of the schedule or another time; it stays where it is.
    fn next(&self) -> Option<Try> {
        let first =
            self.arrivals.borrow_mut().peek().map(|&arrival| Try { due: arrival.at, arrival, before: 0 });
        let again = self.again.borrow().peek().map(|Reverse(again)| *again);
        first.into_iter().chain(again).min()
    }

    /// One try, from now until its connection is free again.
    async fn carry(self: Rc<Self>, this: Try, ride: Ride) {
        let arrival = this.arrival;
        let now = self.job.clock.now();
        self.sent(this, now);
        let left = (arrival.at + self.job.timeout).since(now);
        let mut lease = None;
        let result = tokio::time::timeout(left.into(), self.attempt(&arrival, ride, &mut lease)).await;
        let answered = matches!(result, Ok(Ok(_)));
        let outcome = match result {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(kind)) => Outcome::Error(kind),
            Err(_elapsed) => Outcome::Error(ErrorKind::Timeout),
        };
        let now = self.job.clock.now();
        match self.another(this, outcome, now) {
            Some(another) => self.again.borrow_mut().push(Reverse(another)),
            None => self.ended(&arrival, outcome, now),
        }
        if let Some(mut lease) = lease
            && lease.sender.settle(answered).await
        {
            self.pool.borrow_mut().release(lease);
        }
        self.in_flight.set(self.in_flight.get() - 1);
        self.dispatch();
    }

    /// The next try of a request whose last one ended so, if its client has the patience.
    fn another(&self, last: Try, outcome: Outcome, now: Nanos) -> Option<Try> {
        if !outcome.may_pass() || last.before >= self.job.retries {
            return None;
        }
        let wait = rng::backoff(&mut self.rng.borrow_mut(), self.job.backoff, last.before);
        let another = Try { due: now + wait, before: last.before + 1, ..last };
        (another.due < last.arrival.at + self.job.timeout).then_some(another)
    }

    /// Leaves in `lease` the connection used, whatever comes of it.
    async fn attempt(
        &self,
        arrival: &Arrival,
        mut ride: Ride,
        lease: &mut Option<Lease>,
    ) -> Result<Outcome, ErrorKind> {
        let template = &self.job.templates[arrival.request];
        loop {
            let (fresh, found) = match ride {
                Ride::Idle(idle) => (false, idle),
                Ride::Open(permit) => {
                    let sender = Sender::connect(&self.job.target).await?;
                    (true, self.pool.borrow_mut().opened(sender, permit))
                }
            };
            let request = template.request(self.job.clock.now().since(arrival.at));
            match lease.insert(found).sender.exchange(request).await {
                Ok(outcome) => return Ok(outcome),
                Err(Failure::Error(kind)) => return Err(kind),
                Err(Failure::Unsent) if fresh => return Err(ErrorKind::Closed),
                Err(Failure::Unsent) => {
                    *lease = None;
                    ride = self.pool.borrow_mut().acquire().ok_or(ErrorKind::Closed)?;
                }
            }
        }
    }

    fn sent(&self, this: Try, now: Nanos) {
        let tally = &mut self.tallies.borrow_mut()[this.arrival.request];
        match this.before {
            0 => tally.sent(now.since(this.due)),
            _ => tally.retries += 1,
        }
    }

    fn ended(&self, arrival: &Arrival, outcome: Outcome, now: Nanos) {
        let deadline = self.job.templates[arrival.request].deadline;
        let latency = now.since(arrival.at);
        let tally = &mut self.tallies.borrow_mut()[arrival.request];
        tally.ended(outcome, latency, deadline);
        if self.job.log {
            tally.log.push(Entry { at: arrival.at, outcome, latency });
        }
    }
}
