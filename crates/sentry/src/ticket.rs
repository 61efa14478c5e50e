//! What a request that was let in holds, and what is said to the gate when it gives that back: exactly once, however
//! the request ends.

use std::rc::Rc;

use plimsoll_admission::Outcome;
use plimsoll_core::estimator::Wait;
use plimsoll_core::{ClassId, Nanos};
use tokio::sync::oneshot;

use crate::admit::guarded;
use crate::clock;
use crate::nucleus::lesson::Lesson;
use crate::pool::Pool;
use crate::server::Server;
use crate::stats::Failure;
use crate::thread::View;

/// A response that takes longer than this from its head to its end, or a request from its slot to the end of its
/// body, is a stream: its time says what it had to say, or how fast its client is, and nothing about the server.
pub const STREAM: Nanos = Nanos::from_secs(1);

/// A request on its way to a server and back.
#[must_use]
pub struct Ticket {
    view: Rc<View>,
    class: ClassId,
    hold: Hold,
    arrived: Nanos,
    started: Nanos,
    head: Nanos,
    typical: bool,
    open: bool,
}

/// What it holds of its pool.
pub enum Hold {
    /// Nothing: the pool is not limited, or would have refused it.
    Nothing,
    /// A slot.
    Slot {
        /// How long the gate expected the request to wait for it, if the gate knows about the request.
        expected_wait: Option<Nanos>,
        /// How long it waited in the queue.
        waited: Nanos,
    },
    /// A slot or a place in the queue for one, neither of which limits it.
    Shadow(oneshot::Sender<End>),
}

/// How a request ended, for its shadow.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// How long it took.
    pub served: Nanos,
    /// What that says.
    pub outcome: Outcome,
}

impl Ticket {
    /// A request that `arrived` then and goes on now.
    pub fn new(view: Rc<View>, class: ClassId, hold: Hold, arrived: Nanos, started: Nanos) -> Ticket {
        Ticket { view, class, hold, arrived, started, head: started, typical: true, open: true }
    }

    /// When the request left the queue.
    pub fn started(&self) -> Nanos {
        self.started
    }

    /// Its server did not do what it should.
    pub fn blame(&self, server: &Server) {
        self.view.server_failed(self.class, server);
    }

    /// The response has begun. `typical` is false where the time that it takes says nothing about its class.
    pub fn answered(&mut self, now: Nanos, typical: bool) {
        self.head = now;
        self.typical &= typical;
    }

    /// The pool that serves it.
    pub fn pool(&self) -> &Pool {
        self.view.pool(self.class)
    }

    /// Whether its time says something about its class, if it ends now.
    fn is_typical(&self, now: Nanos) -> bool {
        self.typical && now.since(self.head) <= STREAM
    }

    /// The response ends now, as it should, and its time says something about its kind; unless it is none to learn from.
    pub fn teach(&self, lesson: &Lesson, alone: bool, now: Nanos) {
        if self.is_typical(now) {
            let (pool, served) = (self.pool(), now.since(self.started));
            guarded(&self.view, || lesson.learn(&pool.inherent, &pool.stretch, &pool.reports, served, alone));
        }
    }

    /// The response has ended as it should.
    pub fn complete(mut self, now: Nanos) {
        let stats = self.view.stats(self.class);
        stats.served.bump();
        let typical = self.is_typical(now);
        if typical {
            stats.response.record(now.since(self.arrived));
        }
        self.end(now, if typical { Outcome::Measured } else { Outcome::Unmeasured });
    }

    /// There will be no response, or not all of it.
    pub fn fail(mut self, failure: Failure) {
        self.failed(failure);
    }

    fn failed(&mut self, failure: Failure) {
        self.view.stats(self.class).failed(failure).bump();
        self.end(clock::refresh(), failure.outcome());
    }

    fn end(&mut self, now: Nanos, outcome: Outcome) {
        self.open = false;
        let served = now.since(self.started);
        match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Nothing => {}
            Hold::Slot { expected_wait, waited } => {
                self.view.leave_slot(self.class, expected_wait, waited, End { served, outcome });
            }
            // Its shadow may have ended on its own account.
            Hold::Shadow(end) => drop(end.send(End { served, outcome })),
        }
    }
}

impl Failure {
    /// What a gate learns from it.
    fn outcome(self) -> Outcome {
        match self {
            Failure::Connect | Failure::Upstream | Failure::Timeout | Failure::Truncated => Outcome::Failed,
            // A client leaves when it likes, and sets its deadline as short as it likes.
            Failure::Deadline | Failure::ClientGone | Failure::Malformed => Outcome::Unmeasured,
            // It was cancelled for what it held, not for how long it took.
            Failure::Cancelled => Outcome::Unmeasured,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open {
            self.failed(Failure::ClientGone);
        }
    }
}

impl View {
    /// A request gives its slot back.
    pub fn leave_slot(&self, class: ClassId, expected_wait: Option<Nanos>, waited: Nanos, end: End) {
        let pool = self.pool(class);
        if let Some(expected) = expected_wait {
            let (in_pool, wait) = (self.class(class).in_pool, Wait { expected, actual: waited });
            guarded(self, || pool.gate.finish(in_pool, wait, end.served, end.outcome));
        }
        pool.release();
    }
}
