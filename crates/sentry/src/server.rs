//! One server: what it works on, and whether it takes part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use plimsoll_core::Nanos;
use plimsoll_core::config::{self, Eject};

use crate::nucleus::load::Load;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// One server.
#[derive(Debug)]
pub struct Server {
    /// Unlike any other of this process, those of earlier configs included.
    pub id: u64,
    /// Where it is.
    pub origin: config::Server,
    /// What it says about itself.
    pub load: Load,
    /// A [`Work`].
    work: AtomicU64,
    /// Failed requests in a row.
    failures: AtomicU32,
    /// Left out until then; zero if it is not.
    ejected_until: AtomicU64,
    /// The active checks find it ill.
    ill: AtomicBool,
}

impl Server {
    /// One that has had nothing yet.
    pub fn new(origin: config::Server) -> Server {
        Server {
            id: NEXT_ID.fetch_add(1, Relaxed),
            origin,
            load: Load::default(),
            work: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            ill: AtomicBool::new(false),
        }
    }

    /// Requests that it works on.
    pub fn in_flight(&self) -> u32 {
        self.work().in_flight()
    }

    /// What it has and had.
    pub fn work(&self) -> Work {
        Work(self.work.load(Relaxed))
    }

    /// Gives it one more request, unless it has got another since `seen`.
    pub fn take(self: &Arc<Server>, seen: Work) -> Option<Lease> {
        let work = Work(seen.0.wrapping_add(ONE_MORE));
        let taken = self.work.compare_exchange(seen.0, work.0, Relaxed, Relaxed);
        taken.is_ok().then(|| Lease { server: Arc::clone(self), work })
    }

    /// Whether it takes part.
    pub fn is_up(&self, now: Nanos) -> bool {
        !self.ill.load(Relaxed) && self.ejected_until.load(Relaxed) <= now.0
    }

    /// What the active checks found.
    pub fn set_ill(&self, ill: bool) {
        self.ill.store(ill, Relaxed);
        if !ill {
            self.ejected_until.store(0, Relaxed);
            self.failures.store(0, Relaxed);
        }
    }

    /// It answered, to the end.
    pub fn answered(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
    }

    /// It refused a connection, broke off or took too long. True if that makes it one to leave out.
    pub fn failed(&self, eject: &Eject, now: Nanos) -> bool {
        let failures = self.failures.fetch_add(1, Relaxed) + 1;
        let out = failures >= eject.failures && self.is_up(now);
        if out {
            // When its time is over, a single further failure is enough.
            self.failures.store(eject.failures - 1, Relaxed);
            self.ejected_until.store((now + eject.time).0, Relaxed);
        }
        out
    }
}

/// One more request, in flight and ever got.
const ONE_MORE: u64 = 1 << 32 | 1;

/// Requests that a server works on, in the lower half of the word. In the upper half, how many it ever got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work(u64);

impl Work {
    /// Requests that it works on.
    pub fn in_flight(self) -> u32 {
        self.0 as u32
    }
}

/// A server that works on a request, until this is dropped.
#[derive(Debug)]
pub struct Lease {
    server: Arc<Server>,
    /// The server's work, this request included, when it got it.
    work: Work,
}

impl Lease {
    /// Which one.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Whether the server has had nothing else from here ever since.
    pub fn is_alone(&self) -> bool {
        self.work.in_flight() == 1 && self.server.work() == self.work
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.server.work.fetch_sub(1, Relaxed);
    }
}
