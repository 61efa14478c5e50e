//! Tasks: begun, accounted for, cancelled, ended.

use std::cell::Cell;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_ledger::Begin;
use plimsoll_ledger::layout::{BACKGROUND, CANCELLABLE, RERUN, RERUNNABLE};

use crate::app::{Action, App, Resource};
use crate::cancel::{Again, Cancellation, Rerun, Second, State, Token};
use crate::clock;
use crate::current;
use crate::events::Use;
use crate::handle::{Handle, Shared};
use crate::held::{Held, Waiting};

/// A task that is about to begin: see [`App::task`].
#[must_use = "a task begins with `begin`"]
pub struct TaskBuilder<'a> {
    app: App,
    label: &'a str,
    key: u64,
    flags: u32,
    tid: u32,
    deadline: Option<Duration>,
    deadline_ns: u64,
    action: Option<Arc<Action>>,
    rerun: Option<Rerun>,
}

impl<'a> TaskBuilder<'a> {
    pub(crate) fn new(app: App, label: &'a str) -> TaskBuilder<'a> {
        TaskBuilder {
            app,
            label,
            key: 0,
            flags: 0,
            tid: 0,
            deadline: None,
            deadline_ns: 0,
            action: None,
            rerun: None,
        }
    }

    /// The application's number for it: whatever helps to find it again.
    pub fn key(mut self, key: u64) -> Self {
        self.key = key;
        self
    }

    /// It is no request: how long it takes is nobody's latency.
    pub fn background(mut self) -> Self {
        self.flags |= BACKGROUND;
        self
    }

    /// It is of no use any more after this time from now.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// The deadline of the task that it was before, if no other is asked for; 0 if there was none.
    pub(crate) fn deadline_ns(mut self, at_ns: u64) -> Self {
        self.deadline_ns = at_ns;
        self
    }

    /// This thread runs it, and no other does: so the agent can see from outside how much CPU and IO it takes.
    pub fn on_this_thread(mut self) -> Self {
        self.tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        self
    }

    /// It can be cancelled, and finds out itself: by [`Task::is_cancelled`] or a [`Token`].
    pub fn cancellable(mut self) -> Self {
        self.flags |= CANCELLABLE;
        self
    }

    /// It can be cancelled by calling this, on a thread that runs cancel actions and nothing else; in place of the
    /// [application's](crate::Options::on_cancel). The task is over when the [`Task`] is dropped, as always.
    pub fn on_cancel(mut self, action: impl Fn(&Cancellation) + Send + Sync + 'static) -> Self {
        self.action = Some(Arc::new(action));
        self.cancellable()
    }

    /// It can be run again if it is cancelled: by calling this when there is room again. It should begin a task by
    /// [`Again::task`] and hand the work to wherever the application does such work: all calls come one after the other.
    pub fn rerunnable(mut self, rerun: impl FnOnce(Second) + Send + 'static) -> Self {
        self.flags |= RERUNNABLE;
        self.rerun = Some(Box::new(rerun));
        self
    }

    /// It is work that was cancelled before and is here again, such as a request that a gateway sends a second time: it is never cancelled, and
    /// not run again.
    pub fn again(mut self) -> Self {
        self.flags |= RERUN;
        self
    }

    /// Begins it.
    pub fn begin(self) -> Task {
        let Some(open) = self.app.open else { return Task::unaccounted() };
        let flags =
            if self.flags & RERUN != 0 { self.flags & !(CANCELLABLE | RERUNNABLE) } else { self.flags };
        let started_ns = clock::exact_ns();
        let after = self.deadline.map(|after| u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        let deadline_ns = after.map_or(self.deadline_ns, |after| started_ns.saturating_add(after));
        let task = open.writer.begin(&Begin {
            key: self.key,
            flags,
            tid: self.tid,
            started_ns,
            deadline_ns,
            label: self.label,
        });
        let state = task.filter(|_| flags & CANCELLABLE != 0).map(|task| {
            let action = self.action.or_else(|| open.action.clone());
            let rerun = self.rerun.filter(|_| flags & RERUNNABLE != 0);
            let rerun = rerun.map(|rerun| {
                let (label, background) = (self.label.to_owned(), flags & BACKGROUND != 0);
                (Again { app: self.app, label, key: self.key, background, deadline_ns }, rerun)
            });
            let state = Arc::new(State::new(task.turn(), self.key, action, rerun));
            open.control.begun(task.index(), &state);
            state
        });
        Task::new(Arc::new(Shared { open, task, flags, started_ns, cancel: state, finished: false.into() }))
    }
}

/// A task that runs. It ends when it is dropped, with all that it holds; it was cancelled if it was asked to and
/// does not say that it [finished](Task::finish).
///
/// One thread at a time works with it, which may be another every time. Who works for it beside that is given a [`branch`](Task::branch).
#[must_use = "a task ends when it is dropped"]
pub struct Task {
    handle: Option<Arc<Handle>>,
    /// Not to be shared among threads: see above.
    one_thread: PhantomData<Cell<()>>,
}

impl Task {
    fn new(shared: Arc<Shared>) -> Task {
        Task { handle: Some(Arc::new(Handle::new(shared))), one_thread: PhantomData }
    }

    /// One that nobody accounts for: it cannot be cancelled, and costs nothing.
    pub fn unaccounted() -> Task {
        Task { handle: None, one_thread: PhantomData }
    }

    pub(crate) fn handle(&self) -> Option<&Arc<Handle>> {
        self.handle.as_ref()
    }

    pub(crate) fn branch_of(handle: &Handle) -> Task {
        Task::new(Arc::clone(&handle.shared))
    }

    /// Another who works for the same task, on a thread of its own. The task ends when all are dropped.
    pub fn branch(&self) -> Task {
        self.handle.as_deref().map_or_else(Task::unaccounted, Task::branch_of)
    }

    /// What it does with a resource, from which many events can come one after the other.
    #[inline(always)]
    pub fn at(&self, resource: Resource) -> Use<'_> {
        match &self.handle {
            Some(handle) => handle.at(resource),
            None => Use::none(),
        }
    }

    /// Takes `n` units of a resource, which ends the wait for it.
    #[inline(always)]
    pub fn get(&self, resource: Resource, n: u64) {
        self.at(resource).get(n);
    }

    /// Gives `n` units back, or all where fewer are held.
    #[inline(always)]
    pub fn free(&self, resource: Resource, n: u64) {
        self.at(resource).free(n);
    }

    /// Begins to wait for a resource.
    #[inline]
    pub fn wait(&self, resource: Resource) {
        self.at(resource).wait();
    }

    /// Ends the wait without success.
    #[inline]
    pub fn unwait(&self, resource: Resource) {
        self.at(resource).unwait();
    }

    /// `n` units had to be evicted, or `n` waits were measured elsewhere: that took so long.
    #[inline]
    pub fn slow(&self, resource: Resource, n: u64, delay: Duration) {
        self.at(resource).slow(n, delay);
    }

    /// Takes `n` units until the guard is dropped.
    pub fn hold(&self, resource: Resource, n: u64) -> Held {
        Held::of(self.handle.as_deref(), resource, n)
    }

    /// Waits until the guard is dropped, or [gets](Waiting::got) what it waits for.
    pub fn waiting(&self, resource: Resource) -> Waiting {
        Waiting::of(self.handle.as_deref(), resource)
    }

    /// How far it is: so much of `total`, which is 0 while nobody knows.
    #[inline]
    pub fn progress(&self, done: u64, total: u64) {
        if let Some(handle) = &self.handle {
            handle.progress(done, total);
        }
    }

    /// Whether it is cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.state().is_some_and(|state| state.is_cancelled())
    }

    /// Why it is cancelled; `None` if it is not.
    pub fn reason(&self) -> Option<String> {
        self.token().reason()
    }

    fn state(&self) -> Option<&Arc<State>> {
        self.handle.as_ref()?.shared.cancel.as_ref()
    }

    /// What tells others whether it is cancelled.
    pub fn token(&self) -> Token {
        Token(self.state().cloned())
    }

    /// Makes it the current task of this thread for as long as this runs: the one that tracked locks account for.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        current::with(self.handle.clone(), work)
    }

    /// Makes it the current task of a future, wherever that is polled, and ends it with it.
    pub fn scope<F: Future>(self, work: F) -> current::Scope<F> {
        current::Scope::new(self, work)
    }

    /// Ends it as one that did what it should, even if it was cancelled meanwhile.
    pub fn finish(self) {
        if let Some(handle) = &self.handle {
            handle.shared.finished.store(true, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let record = self.handle.as_ref().and_then(|handle| handle.shared.task);
        f.debug_struct("Task").field("record", &record).field("cancelled", &self.is_cancelled()).finish()
    }
}
