//! A task that is cancelled: how it learns of it, what is called, and what runs it again.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use crate::app::{Action, App, Lock, lock};
use crate::task::TaskBuilder;

/// Wakers that are kept: more futures than that wait for one task's cancellation only where something is wrong, and poll again.
const MOST_WAKERS: usize = 1024;

/// A cancellation: what the cancel action is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancellation {
    pub(crate) key: u64,
    pub(crate) resource: u16,
    pub(crate) resource_name: String,
    pub(crate) reason: String,
}

impl Cancellation {
    /// The task's key.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The [index](crate::Resource::index) of the resource that the task holds up. Processors, disk and network have none of the application's:
    /// then it is one that no resource has.
    pub fn resource(&self) -> u16 {
        self.resource
    }

    /// That resource's name; empty if it is not known.
    pub fn resource_name(&self) -> &str {
        &self.resource_name
    }

    /// Why, for people.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// The reason.
impl std::fmt::Display for Cancellation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

/// What becomes of work that was cancelled.
#[derive(Debug)]
pub enum Second {
    /// There is room for it: run it once more.
    Again(Again),
    /// It is not run again; for this reason.
    Dropped(String),
}

/// What is needed to run something again.
#[derive(Debug)]
pub struct Again {
    pub(crate) app: App,
    pub(crate) label: String,
    pub(crate) key: u64,
    pub(crate) background: bool,
    /// When it is of no use any more; 0 if never.
    pub(crate) deadline_ns: u64,
}

impl Again {
    /// The task once more, with its label, key and deadline, as a second run, which nobody cancels.
    pub fn task(&self) -> TaskBuilder<'_> {
        let task = self.app.task(&self.label).key(self.key).deadline_ns(self.deadline_ns).again();
        if self.background { task.background() } else { task }
    }

    /// Whether it is of no use any more.
    pub(crate) fn is_late(&self, now_ns: u64) -> bool {
        self.deadline_ns != 0 && self.deadline_ns <= now_ns
    }
}

pub(crate) type Rerun = Box<dyn FnOnce(Second) + Send>;

/// What a cancellable task shares with who cancels it.
pub(crate) struct State {
    pub turn: u64,
    pub key: u64,
    pub action: Option<Arc<Action>>,
    /// What runs it again.
    pub rerun: Lock<Option<(Again, Rerun)>>,
    cancelled: AtomicBool,
    cancellation: OnceLock<Cancellation>,
    wakers: Lock<Vec<Waker>>,
    /// The number of the cancellation that was accepted; 0 is none.
    pub accepted: AtomicU64,
}

impl State {
    pub fn new(turn: u64, key: u64, action: Option<Arc<Action>>, rerun: Option<(Again, Rerun)>) -> State {
        State {
            turn,
            key,
            action,
            rerun: Lock::new(rerun),
            cancelled: AtomicBool::new(false),
            cancellation: OnceLock::new(),
            wakers: Lock::default(),
            accepted: AtomicU64::new(0),
        }
    }

    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub fn cancellation(&self) -> Option<&Cancellation> {
        self.cancellation.get().filter(|_| self.is_cancelled())
    }

    /// Tells the task, wakes who waits for it, and calls the action. Panics where the action or a waker does.
    pub fn cancel(&self, cancellation: Cancellation) {
        let cancellation = self.cancellation.get_or_init(|| cancellation);
        self.cancelled.store(true, Ordering::Release);
        let wakers = std::mem::take(&mut *lock(&self.wakers));
        for waker in wakers {
            waker.wake();
        }
        if let Some(action) = &self.action {
            action(cancellation);
        }
    }
}

/// Tells whether a task is cancelled; for other threads and futures that work for it.
#[derive(Clone)]
pub struct Token(pub(crate) Option<Arc<State>>);

impl Token {
    /// Whether the task is cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|state| state.is_cancelled())
    }

    /// Why it is cancelled; `None` if it is not.
    pub fn reason(&self) -> Option<String> {
        self.cancellation().map(|cancellation| cancellation.reason.clone())
    }

    /// Why it is cancelled, and what it holds up; `None` if it is not.
    pub fn cancellation(&self) -> Option<&Cancellation> {
        self.0.as_ref()?.cancellation()
    }

    /// Ends when the task is cancelled, with the reason; never, if it never is.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled(self.clone())
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("cancelled", &self.is_cancelled()).finish()
    }
}

/// Waits for a cancellation: see [`Token::cancelled`].
#[derive(Clone, Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Cancelled(pub(crate) Token);

impl Future for Cancelled {
    type Output = String;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<String> {
        let Some(state) = &self.0.0 else { return Poll::Pending };
        if !state.is_cancelled() {
            let mut wakers = lock(&state.wakers);
            if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                if wakers.len() >= MOST_WAKERS {
                    wakers.remove(0).wake();
                }
                wakers.push(context.waker().clone());
            }
        }
        // Whoever cancels takes the wakers after it has said so: either it took ours, or we see it here.
        self.0.reason().map_or(Poll::Pending, Poll::Ready)
    }
}
