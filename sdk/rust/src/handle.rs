//! What a task is made of: its record, its accounts, and how it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use plimsoll_ledger::layout::{BACKGROUND, MOST_RESOURCES};
use plimsoll_ledger::{Account, Stamps, TaskRef, Writer};

use crate::app::{Open, Resource, lane};
use crate::cancel::State;
use crate::clock;
use crate::events::Use;

/// Resources whose accounts are found at once: those whose indices differ in their last bits. A power of two.
const FEW: usize = 8;

/// An account by its resource's key; without one where none was to be had, which is not tried again.
type Slot = OnceLock<(u32, Option<Account<'static>>)>;

/// A task, from its beginning until the last who works for it is done.
pub(crate) struct Shared {
    pub open: &'static Open,
    pub task: Option<TaskRef>,
    pub flags: u32,
    pub started_ns: u64,
    pub cancel: Option<Arc<State>>,
    /// It says that it did what it should, whatever was asked of it.
    pub finished: AtomicBool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let finished = self.finished.load(Ordering::Relaxed);
        let cancelled = !finished && self.cancel.as_ref().is_some_and(|state| state.is_cancelled());
        let writer = &self.open.writer;
        if let Some(task) = self.task {
            writer.end(task);
        }
        if self.flags & BACKGROUND == 0 {
            writer.complete(lane(), clock::exact_ns().saturating_sub(self.started_ns), cancelled);
        }
        if let (Some(task), Some(state)) = (self.task, &self.cancel) {
            self.open.control.ended(task.index(), state, cancelled);
        }
    }
}

/// One who works for a task: with accounts of its own, as one thread at a time writes an account.
pub(crate) struct Handle {
    pub shared: Arc<Shared>,
    stamps: Stamps<'static>,
    /// By the last bits of the resource's index; who comes first has the place.
    few: [Slot; FEW],
    /// By the resource's index: those whose place was taken.
    more: OnceLock<Box<[Slot]>>,
}

impl Handle {
    pub fn new(shared: Arc<Shared>) -> Handle {
        let stamps = shared.open.writer.stamps();
        Handle { shared, stamps, few: Default::default(), more: OnceLock::new() }
    }

    #[inline]
    pub fn writer(&self) -> &'static Writer {
        &self.shared.open.writer
    }

    /// The account of a resource, which is taken when it is first asked for.
    #[inline(always)]
    pub fn account(&self, resource: Resource) -> Option<&Account<'static>> {
        match self.few[resource.key as usize % FEW].get() {
            Some((key, account)) if *key == resource.key => account.as_ref(),
            _ => self.find(resource),
        }
    }

    #[inline(never)]
    fn find(&self, resource: Resource) -> Option<&Account<'static>> {
        let index = resource.index().filter(|_| resource.is_of(self.shared.open))?;
        let take = || {
            let account = self.shared.task.and_then(|task| self.writer().account(task, index));
            (resource.key, account)
        };
        let (key, account) = self.few[resource.key as usize % FEW].get_or_init(take);
        if *key == resource.key {
            return account.as_ref();
        }
        let many = || (0..MOST_RESOURCES).map(|_| Slot::new()).collect();
        self.more.get_or_init(many).get(usize::from(index))?.get_or_init(take).1.as_ref()
    }

    /// What it does with a resource.
    #[inline(always)]
    pub fn at(&self, resource: Resource) -> Use<'_> {
        Use::new(self.account(resource), self.stamps)
    }

    /// How far the task is.
    #[inline]
    pub fn progress(&self, done: u64, total: u64) {
        if let Some(task) = self.shared.task {
            self.writer().progress(task, done, total);
        }
    }

    pub fn stamps(&self) -> Stamps<'static> {
        self.stamps
    }

    /// What an event is stamped with.
    pub fn stamp(&self) -> u64 {
        self.stamps.now(clock::exact_ns)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut now = 0;
        let slots = self.few.iter().chain(self.more.get().into_iter().flatten());
        for account in slots.filter_map(|slot| slot.get()?.1) {
            if now == 0 {
                now = self.stamp();
            }
            account.end(now);
        }
    }
}
