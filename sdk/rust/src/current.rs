//! The current task: for whom tracked locks account, and to whom what is said here is said.
//!
//! It is a thread's, set for as long as [`Task::run`] runs or the future of [`Task::scope`] is polled; so it works with any executor, and with
//! none. Where there is no current task, nothing is done. A future that is to be sent between threads cannot keep a `&Task` while it waits, and does it this way.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::app::Resource;
use crate::cancel::Token;
use crate::events::Use;
use crate::handle::Handle;
use crate::held::{Held, Waiting};
use crate::task::Task;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Handle>>> = const { RefCell::new(None) };
}

/// What a thread's current task is replaced by, until this is dropped.
struct Before(Option<Arc<Handle>>);

impl Drop for Before {
    fn drop(&mut self) {
        let before = self.0.take();
        // What ends here may end a task, which must not find the place borrowed.
        let ended = CURRENT.try_with(|current| current.replace(before));
        drop(ended);
    }
}

pub(crate) fn with<R>(handle: Option<Arc<Handle>>, work: impl FnOnce() -> R) -> R {
    let before = CURRENT.try_with(|current| current.replace(handle));
    let _before = Before(before.ok().flatten());
    work()
}

/// The current task's, if there is one. What is called must not set another.
#[inline]
pub(crate) fn handle<R>(what: impl FnOnce(Option<&Handle>) -> R) -> R {
    let mut what = Some(what);
    let done = CURRENT.try_with(|current| {
        let current = current.borrow();
        what.take().map(|what| what(current.as_deref()))
    });
    match (done, what) {
        (Ok(Some(done)), _) => done,
        // A thread that is ending has no current task any more.
        (_, Some(what)) => what(None),
        (_, None) => unreachable!("it was either called or not"),
    }
}

/// Whether the current task is cancelled; `false` if there is none.
pub fn is_cancelled() -> bool {
    handle(|handle| handle.and_then(|h| h.shared.cancel.as_ref()).is_some_and(|state| state.is_cancelled()))
}

/// Tells whether the current task is cancelled. If there is none it never says so.
pub fn token() -> Token {
    handle(|handle| Token(handle.and_then(|h| h.shared.cancel.clone())))
}

/// Takes `n` units of a resource: see [`Task::get`].
#[inline]
pub fn get(resource: Resource, n: u64) {
    at(resource, |at| at.get(n));
}

/// Gives `n` units back: see [`Task::free`].
#[inline]
pub fn free(resource: Resource, n: u64) {
    at(resource, |at| at.free(n));
}

/// Units that had to be evicted, or waits that were measured elsewhere: see [`Task::slow`].
pub fn slow(resource: Resource, n: u64, delay: Duration) {
    at(resource, |at| at.slow(n, delay));
}

/// Takes `n` units until the guard is dropped.
pub fn hold(resource: Resource, n: u64) -> Held {
    Held::now(resource, n)
}

/// Waits until the guard is dropped, or [gets](Waiting::got) what it waits for.
pub fn waiting(resource: Resource) -> Waiting {
    Waiting::now(resource)
}

/// How far it is: see [`Task::progress`].
pub fn progress(done: u64, total: u64) {
    handle(|handle| handle.map(|handle| handle.progress(done, total)));
}

#[inline]
fn at(resource: Resource, event: impl FnOnce(Use<'_>)) {
    handle(|handle| handle.map(|handle| event(handle.at(resource))));
}

/// One more who works for the current task, for another thread; nobody's if there is none.
pub fn branch() -> Task {
    handle(|handle| handle.map_or_else(Task::unaccounted, Task::branch_of))
}

/// A future that works for a task: see [`Task::scope`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Scope<F> {
    /// Dropped before the task ends, with all that it holds.
    work: Option<Pin<Box<F>>>,
    handle: Option<Arc<Handle>>,
}

impl<F: Future> Scope<F> {
    pub(crate) fn new(task: Task, work: F) -> Scope<F> {
        Scope { work: Some(Box::pin(work)), handle: task.handle().cloned() }
    }

    /// Drops the work, as what its task does.
    fn end(&mut self) {
        let work = self.work.take();
        if work.is_some() {
            with(self.handle.clone(), || drop(work));
        }
    }
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let Some(work) = &mut this.work else { return Poll::Pending };
        let polled = with(this.handle.clone(), || work.as_mut().poll(context));
        if polled.is_ready() {
            this.end();
            this.handle = None;
        }
        polled
    }
}

impl<F> Drop for Scope<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            with(self.handle.clone(), || drop(work));
        }
    }
}

impl<F> std::fmt::Debug for Scope<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}
