//! The thread that watches an application from within it, and the guard that ends it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, park_timeout};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::thread;

/// How often, and how many times, the end looks whether the thread has ended: a callback that does not return is waited for for five seconds.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS: u32 = 5_000;

/// An application that is watched from within. Dropping this ends the watch and waits until its threads have ended; the application and its
/// ledger stay open, and nobody looks any more.
///
/// The application never depends on it: whatever goes wrong here, [`problem`](Running::problem) says what, the log does, and the application's
/// tasks go on.
#[must_use = "dropping it ends the watch"]
pub struct Running {
    problem: Arc<OnceLock<String>>,
    thread: Option<Thread>,
    /// Who started it: a forked child has no such thread.
    pid: u32,
}

struct Thread {
    stop: oneshot::Sender<()>,
    handle: JoinHandle<()>,
}

impl Running {
    /// Nobody watches, as was wished.
    pub(crate) fn nothing() -> Running {
        Running { problem: Arc::default(), thread: None, pid: std::process::id() }
    }

    /// Nobody can watch.
    pub(crate) fn not(why: String) -> Running {
        let running = Running::nothing();
        tell(&running.problem, why);
        running
    }

    /// Runs `watch` on a thread of its own, which is to end when what it is given says so, and otherwise says why it did.
    pub(crate) fn start(
        watch: impl FnOnce(oneshot::Receiver<()>) -> Result<(), String> + Send + 'static,
    ) -> Running {
        let mut running = Running::nothing();
        let (stop, stopped) = oneshot::channel();
        let problem = Arc::clone(&running.problem);
        let handle = thread::spawn("plimsoll-engine", move || {
            let watched = catch_unwind(AssertUnwindSafe(|| watch(stopped)));
            if let Err(why) = watched.unwrap_or_else(|panic| Err(format!("it panicked: {}", said(&*panic)))) {
                tell(&problem, why);
            }
        });
        match handle {
            Ok(handle) => running.thread = Some(Thread { stop, handle }),
            Err(error) => tell(&running.problem, format!("cannot start a thread: {error}")),
        }
        running
    }

    /// Why nobody watches; `None` while somebody does, or if the mode is off.
    pub fn problem(&self) -> Option<&str> {
        self.problem.get().map(String::as_str)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(Thread { stop, handle }) = self.thread.take() else { return };
        if self.pid != std::process::id() {
            // The parent's thread, and what it is told with, are none of a child's business, and may be in any state.
            return std::mem::forget((stop, handle));
        }
        // One that has ended already need not be told.
        let _ = stop.send(());
        for _ in 0..LOOKS {
            if handle.is_finished() {
                // It caught its panics.
                return drop(handle.join());
            }
            park_timeout(LOOK);
        }
        log::warn!("the engine is left behind: a callback has not returned");
    }
}

/// Says once what is wrong.
fn tell(problem: &OnceLock<String>, why: String) {
    log::warn!(why:%; "the application is not watched from within");
    // The first reason is the one that counts.
    let _ = problem.set(why);
}

/// What somebody said who panicked.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_watch_that_panics_harms_nobody() {
        let running = Running::start(|_| panic!("nonsense in, nonsense out"));
        while !running.thread.as_ref().unwrap().handle.is_finished() {
            park_timeout(LOOK);
        }
        assert_eq!(running.problem(), Some("it panicked: nonsense in, nonsense out"));
        drop(running);
    }

    #[test]
    fn it_ends_when_it_is_dropped() {
        let (ended, has_ended) = channel();
        let running = Running::start(move |stop| {
            ended.send(stop.blocking_recv()).unwrap();
            Ok(())
        });
        assert_eq!(running.problem(), None);
        drop(running);
        assert_eq!(has_ended.try_recv(), Ok(Ok(())), "the thread had ended when the guard was gone");
    }

    #[test]
    fn it_can_be_kept_anywhere() {
        fn anywhere<T: Send + Sync + 'static>() {}
        anywhere::<Running>();
    }
}
