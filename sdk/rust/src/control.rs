//! The connection to the agent, and what comes of it: one thread that beats, listens and answers, one that calls cancel
//! actions, one that runs again what was cancelled. None of them is waited for by a task.

mod cancels;
mod connection;
mod helpers;
mod thread;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_ledger::Writer;
use rustix::event::EventfdFlags;

pub(crate) use connection::Connection;

use crate::app::{Lock, lock};
use crate::cancel::State;

/// How long is waited for whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For a cancel action, until it has failed.
    pub action: Duration,
    /// For room to run again what was cancelled, until it is run anyway.
    pub rerun: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { action: Duration::from_secs(5), rerun: Duration::from_secs(30) }
    }
}

/// What the control thread is told.
pub(crate) enum Note {
    /// A cancel action has returned, or panicked with this.
    Acted { serial: u64, failed: Option<String> },
    /// A task that was to be cancelled has ended, for that or by itself.
    Ended { serial: u64, cancelled: bool },
    /// What was cancelled was run again.
    Reran { id: Option<u64> },
}

/// Notes, and the bell that wakes who reads them.
pub(crate) struct Notes {
    notes: Lock<Vec<Note>>,
    bell: OwnedFd,
}

impl Notes {
    fn new() -> io::Result<Notes> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Notes { notes: Lock::default(), bell })
    }

    /// Never blocks.
    pub fn leave(&self, note: Note) {
        lock(&self.notes).push(note);
        self.ring();
    }

    fn ring(&self) {
        // A bell that rings already is heard.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn take(&self) -> Vec<Note> {
        let mut rung = [0; 8];
        // Where it has not rung there is nothing to read.
        let _ = rustix::io::read(&self.bell, &mut rung);
        std::mem::take(&mut *lock(&self.notes))
    }
}

/// What tasks and the control thread share.
pub(crate) struct Control {
    /// By record: the cancellable task that lives there.
    tasks: Box<[Lock<Option<Arc<State>>>]>,
    notes: Arc<Notes>,
    stopped: AtomicBool,
    limits: Limits,
}

/// Why a task is not to be cancelled.
enum Absent {
    /// It is there, but not to be cancelled.
    Not(&'static str),
    /// It ended by itself.
    Finished,
    /// There never was one.
    Gone,
}

impl Control {
    pub fn new(tasks: u32, limits: Limits) -> io::Result<Control> {
        let tasks = (0..tasks).map(|_| Lock::default()).collect();
        Ok(Control { tasks, notes: Arc::new(Notes::new()?), stopped: AtomicBool::new(false), limits })
    }

    /// Starts the thread.
    pub fn start(&'static self, writer: &'static Writer, connection: Connection) -> io::Result<()> {
        let thread = thread::Thread::new(self, writer, connection);
        crate::thread::spawn("plimsoll", move || thread.run())
    }

    /// Ends it.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.notes.ring();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// A cancellable task has begun in this record.
    pub fn begun(&self, record: u32, state: &Arc<State>) {
        if let Some(slot) = self.tasks.get(record as usize) {
            *lock(slot) = Some(Arc::clone(state));
        }
    }

    /// The task that was in this record has ended; where its record is somebody else's already, that one stays.
    pub fn ended(&self, record: u32, state: &Arc<State>, cancelled: bool) {
        if let Some(slot) = self.tasks.get(record as usize) {
            let mut there = lock(slot);
            if there.as_ref().is_some_and(|there| Arc::ptr_eq(there, state)) {
                *there = None;
            }
        }
        // After that, nobody accepts a cancellation of it.
        let serial = state.accepted.load(Ordering::Acquire);
        if serial != 0 {
            self.notes.leave(Note::Ended { serial, cancelled });
        }
    }

    /// Accepts a cancellation, under this number, of the task in this record if its turn is still this.
    fn accept(&self, writer: &Writer, record: u32, turn: u64, serial: u64) -> Result<Arc<State>, Absent> {
        let slot = self.tasks.get(record as usize).ok_or(Absent::Gone)?;
        let there = lock(slot);
        if let Some(state) = there.as_ref().filter(|state| state.turn == turn) {
            let accepted = state.accepted.compare_exchange(0, serial, Ordering::AcqRel, Ordering::Relaxed);
            return accepted.map(|_| Arc::clone(state)).map_err(|_| Absent::Not("it was cancelled before"));
        }
        match writer.turn(record) {
            Some(now) if now == turn => Err(Absent::Not("it cannot be cancelled")),
            Some(now) if now > turn && turn % 2 == 1 => Err(Absent::Finished),
            _ => Err(Absent::Gone),
        }
    }
}
