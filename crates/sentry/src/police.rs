//! Policing in front of the gate: which classes pass, and which of their requests ([`plimsoll_policing`]).
//!
//! A request that has to wait until its class is processed does so in the [`Line`] of its pool and thread. While somebody is in it a
//! task looks after it; an empty line costs nothing.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::config::Mode;
use plimsoll_core::{Grant, Nanos, Verdict};
use plimsoll_policing::batch::Load;
use plimsoll_policing::police::Answer;
use tokio::sync::oneshot;

use crate::admit::{Arrival, guarded, passed};
use crate::clock;
use crate::decisions::Stage;
use crate::pool::Pool;
use crate::record::{Batch, Police};
use crate::thread::{Thread, View};

/// How often a line is looked at: a server may have become idle on another thread. The timer's own grain.
const LOOK: Duration = Duration::from_millis(1);
/// Most requests that wait in one line. Over HTTP/1 each holds its connection, so the limit on those is reached long before; a stream
/// that its client resets keeps its place until its class is processed.
const MOST_IN_LINE: usize = 1 << 16;

/// What policing makes of a request.
pub enum Policed {
    /// It may ask the gate, or pass it untested.
    Pass {
        /// Within the rate that its class was promised.
        promised: bool,
    },
    /// It may not.
    Refused(plimsoll_core::Refusal),
    /// Nobody waits for it any more.
    ClientGone,
}

const PASS: Policed = Policed::Pass { promised: false };

/// Asks the police of the pool and waits for as long as it says. Passes where the police knows too little to be asked.
pub async fn ask(
    police: &Police,
    thread: &Thread,
    view: &Rc<View>,
    arrival: &Arrival,
    gone: impl Future<Output = ()>,
) -> Policed {
    let (pool, class) = (view.pool(arrival.class), view.class(arrival.class).in_pool);
    let mode = pool.config.policing.mode;
    if !pool.judges(arrival.at) {
        return PASS;
    }
    let (size, mut load) = (pool.size_of(arrival.kind, class), pool.load());
    let line = view.line(arrival.class);
    // A server that has nothing to do is theirs who wait for one.
    load.idle &= !line.is_some_and(|line| line.goes_first(view, pool, &load, arrival.at));
    let offer = || thread.with_rng(|rng| police.offer(class, size, &load, arrival.at, rng));
    let (rank, delay) = match guarded(view, offer) {
        None => return PASS,
        Some(Answer::Now(verdict)) => return settle(view, arrival, mode, verdict),
        // Only said, never acted upon: nobody waits for it.
        Some(Answer::Waits { rank, .. }) if mode == Mode::Shadow => {
            let judged = guarded(view, || police.judge(rank, size, &load));
            return judged.map_or(PASS, |verdict| settle(view, arrival, mode, verdict));
        }
        Some(Answer::Waits { rank, delay }) => (rank, delay),
    };
    let (answer, mut answered) = oneshot::channel();
    if let Some(line) = line {
        line.push(view, pool, Waiting { rank, size, delay, since: arrival.at, answer });
    }
    tokio::select! {
        biased;
        // A line that is gone, which a panic of the policer makes it, lets everybody in.
        told = &mut answered => told.map_or(PASS, |told| settle(view, arrival, mode, told.verdict)),
        () = gone => Policed::ClientGone,
        () = passed(arrival.deadline) => {
            Policed::Refused(view.expired(arrival, true, clock::refresh()))
        }
    }
}

fn settle(view: &Rc<View>, arrival: &Arrival, mode: Mode, verdict: Verdict) -> Policed {
    match verdict {
        Verdict::Admit(grant) => Policed::Pass { promised: grant == Grant::Promise && mode == Mode::Enforce },
        Verdict::Refuse(refusal) => {
            let enforced = mode == Mode::Enforce;
            view.log_as(arrival.class, arrival.at, Stage::Gate, verdict, enforced);
            if enforced { Policed::Refused(refusal) } else { PASS }
        }
    }
}

/// A request that waits to be processed.
struct Waiting {
    rank: usize,
    size: Nanos,
    /// For how long at most, and since when.
    delay: Nanos,
    since: Nanos,
    answer: oneshot::Sender<Told>,
}

/// What somebody who waited is told.
struct Told {
    verdict: Verdict,
    /// Held until it is heard.
    _coming: Option<Coming>,
}

/// Somebody was let in and does not know it yet, so that whoever looks at the servers sees neither a request nor a slot taken.
struct Coming(Rc<Line>);

impl Coming {
    fn new(line: &Rc<Line>) -> Coming {
        line.coming.update(|n| n + 1);
        Coming(Rc::clone(line))
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.coming.update(|n| n - 1);
    }
}

/// Who waits to be processed, of one pool on one thread.
pub struct Line {
    batch: RefCell<Batch<oneshot::Sender<Told>>>,
    coming: Cell<usize>,
    /// Whether its task runs.
    looked_after: Cell<bool>,
}

impl Line {
    /// An empty one.
    pub fn new(pool: &Pool, thread: usize) -> Rc<Line> {
        let batch = RefCell::new(Batch::new(pool.gate.recorded(), thread, pool.ranks(), MOST_IN_LINE));
        Rc::new(Line { batch, coming: Cell::new(0), looked_after: Cell::new(false) })
    }

    fn push(self: &Rc<Self>, view: &Rc<View>, pool: &Arc<Pool>, waiting: Waiting) {
        let Some(police) = &pool.police else { return };
        let Waiting { rank, size, delay, since, answer } = waiting;
        let displaced = self.batch.borrow_mut().push(rank, size, delay, since, answer);
        if let Some((rank, answer)) = displaced {
            let _ = answer.send(Told { verdict: police.displaced(rank, &pool.load()), _coming: None });
        }
        if !self.looked_after.replace(true) {
            tokio::task::spawn_local(look_after(Rc::clone(self), Rc::clone(view), Arc::clone(pool)));
        }
    }

    /// Whether the idle server is somebody else's who waits, or is on the way to it: processes all who wait.
    fn goes_first(self: &Rc<Self>, view: &View, pool: &Pool, load: &Load, now: Nanos) -> bool {
        load.idle
            && (self.coming.get() > 0
                || self.batch.borrow().waiting() > 0 && {
                    self.process(view, pool, now);
                    true
                })
    }

    /// Processes whoever is due. Returns whether somebody still waits.
    fn process(self: &Rc<Self>, view: &View, pool: &Pool, now: Nanos) -> bool {
        let Some(police) = &pool.police else { return false };
        let load = pool.load();
        let mut batch = self.batch.borrow_mut();
        // What is begun goes on by its own account of who was let in. To begin anew, all of them have to be seen.
        let begun = batch.due() == Nanos::ZERO;
        if begun || (self.coming.get() == 0 && (batch.due() <= now || load.idle)) {
            let processed = guarded(view, || {
                batch.process(police, now, &load, |answer, outcome| {
                    let coming = outcome.is_ok().then(|| Coming::new(self));
                    let _ = answer.send(Told { verdict: police.processed(outcome), _coming: coming });
                });
            });
            if processed.is_none() {
                // Whoever is still in it is let in.
                *batch = Batch::new(pool.gate.recorded(), batch.thread(), pool.ranks(), MOST_IN_LINE);
            }
        }
        batch.waiting() > 0
    }
}

async fn look_after(line: Rc<Line>, view: Rc<View>, pool: Arc<Pool>) {
    loop {
        let due = line.batch.borrow().due();
        // Zero where it has not answered everybody whom it has decided about.
        if due > Nanos::ZERO {
            tokio::time::sleep(LOOK).await;
        }
        if !line.process(&view, &pool, clock::refresh()) {
            break;
        }
        tokio::task::yield_now().await;
    }
    line.looked_after.set(false);
}

#[cfg(test)]
mod tests;
