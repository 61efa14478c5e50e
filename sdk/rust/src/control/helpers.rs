//! The threads that call what the application gave us: cancel actions, one after the other, and what runs work again. They are
//! started when there is first something to call, and end with the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{Note, Notes};
use crate::cancel::{Cancellation, Rerun, Second, State};
use crate::quiet;

/// A cancel action to be called.
pub(super) struct Act {
    pub serial: u64,
    pub state: Arc<State>,
    pub cancellation: Cancellation,
}

/// Work to be run again, or to be told that it is not.
pub(super) struct Redo {
    pub id: Option<u64>,
    pub rerun: Rerun,
    pub second: Second,
}

/// A thread that does one thing after the other.
pub(super) struct Helper<T> {
    name: &'static str,
    sender: Option<Sender<T>>,
}

impl<T: Send + 'static> Helper<T> {
    pub fn new(name: &'static str) -> Helper<T> {
        Helper { name, sender: None }
    }

    /// Gives it something to do; says why that cannot be.
    pub fn give(
        &mut self,
        job: T,
        notes: &Arc<Notes>,
        work: fn(Receiver<T>, Arc<Notes>),
    ) -> Result<(), String> {
        if self.sender.is_none() {
            let (sender, receiver) = channel();
            let notes = Arc::clone(notes);
            let started = crate::thread::spawn(self.name, move || work(receiver, notes));
            started.map_err(|why| format!("no thread for it: {why}"))?;
            self.sender = Some(sender);
        }
        let sent = self.sender.as_ref().map(|sender| sender.send(job));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => {
                self.sender = None;
                Err("its thread has ended".to_owned())
            }
        }
    }
}

/// Calls cancel actions.
pub(super) fn act(jobs: Receiver<Act>, notes: Arc<Notes>) {
    for Act { serial, state, cancellation } in jobs {
        let called = catch_unwind(AssertUnwindSafe(|| state.cancel(cancellation)));
        let failed = called.err().map(|panic| format!("the cancel action panicked: {}", said(&*panic)));
        notes.leave(Note::Acted { serial, failed });
    }
}

/// Runs work again.
pub(super) fn redo(jobs: Receiver<Redo>, notes: Arc<Notes>) {
    for Redo { id, rerun, second } in jobs {
        let again = matches!(second, Second::Again(_));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| rerun(second))) {
            quiet::once(format!("what runs cancelled work again panicked: {}", said(&*panic)));
        }
        if again {
            notes.leave(Note::Reran { id });
        }
    }
}

/// What somebody said who panicked.
fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
