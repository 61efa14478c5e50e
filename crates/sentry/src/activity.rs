//! What happens on a client's connection, noted where it happens and watched by the thread's sweep: how long its client
//! has already taken for whatever it is to do next.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use plimsoll_core::Nanos;

use crate::clock;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Its client has begun a request, or has yet to begin the first one.
    Head,
    /// Its client may begin a request.
    Idle,
    /// Requests are in progress.
    Busy,
}

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a request's head.
    pub head: Nanos,
    /// Between requests.
    pub idle: Nanos,
    /// Between two parts of a body, in either direction.
    pub body: Nanos,
}

/// What happens on a connection, noted by its IO and by its requests, watched by the thread's sweep.
#[derive(Debug)]
pub struct Activity {
    phase: AtomicU8,
    /// When the phase has lasted for too long; [`Nanos::MAX`] is never.
    phase_ends: AtomicU64,
    /// When writing has been blocked for too long.
    write_ends: AtomicU64,
    http2: AtomicBool,
    /// Its client is, or will be, sending what nobody will read.
    still_sending: AtomicBool,
    limits: Limits,
}

impl Activity {
    /// A connection that has just been opened.
    pub fn new(limits: Limits) -> Activity {
        let activity = Activity {
            phase: AtomicU8::new(Phase::Head as u8),
            phase_ends: AtomicU64::new(0),
            write_ends: AtomicU64::new(Nanos::MAX.0),
            http2: AtomicBool::new(false),
            still_sending: AtomicBool::new(false),
            limits,
        };
        activity.enter(Phase::Head);
        activity
    }

    /// What the connection is doing.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Head,
            1 => Phase::Idle,
            _ => Phase::Busy,
        }
    }

    /// It does something else from now on.
    #[inline]
    pub fn enter(&self, phase: Phase) {
        let limit = match phase {
            Phase::Head => self.limits.head,
            Phase::Idle => self.limits.idle,
            Phase::Busy => Nanos::MAX,
        };
        self.phase.store(phase as u8, Relaxed);
        self.phase_ends.store((clock::coarse() + limit).0, Relaxed);
    }

    /// It speaks HTTP/2: what is read between requests need not be a request.
    pub fn is_http2(&self) {
        self.http2.store(true, Relaxed);
        self.enter(Phase::Idle);
    }

    /// A request was answered without its body having been read.
    pub fn leaves_body_unread(&self) {
        self.still_sending.store(true, Relaxed);
    }

    /// When its client will have taken too long for whatever it does.
    pub fn expires(&self) -> Nanos {
        Nanos(self.phase_ends.load(Relaxed).min(self.write_ends.load(Relaxed)))
    }

    /// Whether its client has not read for too long what was written to it.
    pub fn is_stalled(&self, now: Nanos) -> bool {
        self.write_ends.load(Relaxed) <= now.0
    }

    /// How long the client may take.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Its client has sent something.
    pub fn has_read(&self) {
        if self.phase() == Phase::Idle && !self.http2.load(Relaxed) {
            self.enter(Phase::Head);
        }
    }

    /// What is written to it has to wait for its client.
    pub fn write_blocked(&self) {
        if self.write_ends.load(Relaxed) == Nanos::MAX.0 {
            self.write_ends.store((clock::coarse() + self.limits.body).0, Relaxed);
        }
    }

    /// Its client takes what is written.
    pub fn has_written(&self) {
        self.write_ends.store(Nanos::MAX.0, Relaxed);
    }

    /// Whether its client is, or will be, sending what nobody will read.
    pub fn is_still_sending(&self) -> bool {
        self.still_sending.load(Relaxed)
    }
}
