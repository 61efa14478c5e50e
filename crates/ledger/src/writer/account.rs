//! Accounts: the events of one task at one resource, each a few stores.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Stamps, Writer, words};
use crate::layout::Owner;

/// What one task does with one resource. One thread at a time writes it.
///
/// Times are stamps, see [`Writer::stamp`]: nanoseconds, never 0. Where the time is needed only sometimes it is a function.
#[derive(Clone, Copy)]
pub struct Account<'w> {
    writer: &'w Writer,
    words: &'w words::Account,
    index: u32,
    /// Whose it is for ever. Remembered, as anybody may write to the file.
    resource: u16,
}

/// One writer: what was read last is what is there.
#[inline]
fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// In the order in which the stores are written here, for whoever reads.
#[inline]
fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}

#[inline]
fn add(word: &AtomicU64, more: u64) {
    store(word, load(word).wrapping_add(more));
}

fn held(words: &words::Account) -> u64 {
    load(&words.gets).wrapping_sub(load(&words.frees))
}

fn unwait(words: &words::Account, now_ns: impl FnOnce() -> u64) {
    let since = load(&words.waiting_since_ns);
    if since != 0 {
        let now = now_ns();
        store(&words.waiting_since_ns, 0);
        add(&words.wait_ns, now.saturating_sub(since));
    }
}

fn get(words: &words::Account, n: u64, now_ns: impl Fn() -> u64) {
    unwait(words, &now_ns);
    if n > 0 {
        let held = held(words);
        add(&words.gets, n);
        if held == 0 {
            store(&words.holding_since_ns, now_ns());
        }
    }
}

fn free(words: &words::Account, n: u64, now_ns: impl FnOnce() -> u64) {
    let held = held(words);
    if n < held {
        add(&words.frees, n);
    } else if held > 0 {
        let now = now_ns();
        let since = load(&words.holding_since_ns);
        store(&words.holding_since_ns, 0);
        add(&words.hold_ns, now.saturating_sub(since));
        add(&words.frees, held);
    }
}

// What is not usual in calm, out of the way of what is.

#[inline(never)]
fn get_rarely(words: &words::Account, n: u64, stamps: Stamps<'_>, exact_ns: impl Fn() -> u64) {
    get(words, n, || stamps.now(&exact_ns));
}

#[inline(never)]
fn free_rarely(words: &words::Account, n: u64, stamps: Stamps<'_>, exact_ns: impl Fn() -> u64) {
    free(words, n, || stamps.now(&exact_ns));
}

impl<'w> Account<'w> {
    pub(super) fn take(
        writer: &'w Writer,
        words: &'w words::Account,
        index: u32,
        owner: Owner,
    ) -> Account<'w> {
        store(&words.owner, owner.to_word());
        Account { writer, words, index, resource: owner.resource }
    }

    /// Its index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The word that says whose it is: another as soon as it is another task's, or nobody's.
    #[inline]
    pub fn owner(&self) -> u64 {
        load(&self.words.owner)
    }

    /// How many units are held.
    #[inline]
    pub fn held(&self) -> u64 {
        held(self.words)
    }

    /// Whether a wait has begun and not ended.
    #[inline]
    pub fn waits(&self) -> bool {
        load(&self.words.waiting_since_ns) != 0
    }

    /// A wait begins. One that has begun goes on.
    #[inline]
    pub fn wait(&self, now_ns: impl FnOnce() -> u64) {
        if !self.waits() {
            add(&self.words.slows, 1);
            store(&self.words.waiting_since_ns, now_ns());
        }
    }

    /// The wait ends, if there is one.
    #[inline]
    pub fn unwait(&self, now_ns: impl FnOnce() -> u64) {
        unwait(self.words, now_ns);
    }

    /// Takes `n` units, which ends a wait. Taking none is nothing.
    pub fn get(&self, n: u64, now_ns: impl Fn() -> u64) {
        get(self.words, n, now_ns);
    }

    /// Gives `n` units back, or all where fewer are held.
    pub fn free(&self, n: u64, now_ns: impl FnOnce() -> u64) {
        free(self.words, n, now_ns);
    }

    /// As [`get`](Account::get), stamped: what is usual in calm in as few instructions as possible, with one test for whatever is not.
    #[inline(always)]
    pub fn get_stamped(&self, n: u64, stamps: Stamps<'_>, exact_ns: impl Fn() -> u64) {
        let now = stamps.coarse_ns();
        let waits_or_holds = load(&self.words.waiting_since_ns) | load(&self.words.holding_since_ns);
        if waits_or_holds | stamps.flags() == 0 && n > 0 && now > 0 {
            add(&self.words.gets, n);
            store(&self.words.holding_since_ns, now);
        } else {
            get_rarely(self.words, n, stamps, exact_ns);
        }
    }

    /// As [`free`](Account::free), stamped. A hold over which the clock has not ticked takes no time.
    #[inline(always)]
    pub fn free_stamped(&self, n: u64, stamps: Stamps<'_>, exact_ns: impl Fn() -> u64) {
        // Never 0 where something is held, so a clock that was never set is nothing usual.
        let now = stamps.coarse_ns();
        let frees = load(&self.words.frees);
        let others = load(&self.words.gets).wrapping_sub(frees) ^ n;
        if others | (now ^ load(&self.words.holding_since_ns)) | stamps.flags() == 0 {
            store(&self.words.holding_since_ns, 0);
            store(&self.words.frees, frees.wrapping_add(n));
        } else {
            free_rarely(self.words, n, stamps, exact_ns);
        }
    }

    /// Units that were evicted, or waits that were measured elsewhere, and how long that took.
    #[inline]
    pub fn slow(&self, n: u64, delay_ns: u64) {
        add(&self.words.slows, n);
        add(&self.words.wait_ns, delay_ns);
    }

    /// The task ends: its wait ends, what it holds is given back, and the account waits for another task.
    pub fn end(self, now_ns: u64) {
        self.unwait(|| now_ns);
        self.free(u64::MAX, || now_ns);
        let nobody = Owner { task: None, resource: self.resource, turn: 0 };
        store(&self.words.owner, nobody.to_word());
        self.writer.give_back(self.index, self.resource);
    }
}
