//! Tasks: taking a record, saying how far it is, giving it back.

use std::sync::atomic::Ordering;

use super::account::Account;
use super::{Writer, free, words};
use crate::layout::{LABEL_BYTES, Owner};
use crate::records::Text;

/// What a task is, when it begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Begin<'a> {
    /// The application's number for it.
    pub key: u64,
    /// [`CANCELLABLE`](crate::layout::CANCELLABLE) and the others.
    pub flags: u32,
    /// The thread that runs it, 0 if that is not one.
    pub tid: u32,
    /// When it begins: an exact time.
    pub started_ns: u64,
    /// When it is of no use any more; 0 if never.
    pub deadline_ns: u64,
    /// What it is, for people.
    pub label: &'a str,
}

/// A task that has a record, from [`Writer::begin`] to [`Writer::end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRef {
    index: u32,
    turn: u64,
}

impl TaskRef {
    /// The index of its record.
    pub fn index(self) -> u32 {
        self.index
    }

    /// The turn of its record: odd.
    pub fn turn(self) -> u64 {
        self.turn
    }
}

impl Writer {
    /// Takes a record for a task; `None` if all are taken, which is counted.
    pub fn begin(&self, begin: &Begin<'_>) -> Option<TaskRef> {
        let header = self.map.header();
        let index = match self.free_tasks.pop(&self.task_links) {
            Some(index) => index,
            None => match free::fresh(&self.tasks_used, self.shape().tasks) {
                Some(index) => {
                    header.tasks_used.fetch_max(index + 1, Ordering::Relaxed);
                    index
                }
                None => {
                    header.tasks_refused.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
            },
        };
        let task = self.map.tasks().get(index as usize)?;
        let set = |word: &std::sync::atomic::AtomicU64, value| word.store(value, Ordering::Relaxed);
        set(&task.key, begin.key);
        set(&task.started_ns, begin.started_ns);
        set(&task.done, 0);
        set(&task.total, 0);
        set(&task.deadline_ns, begin.deadline_ns);
        task.flags.store(begin.flags, Ordering::Relaxed);
        task.tid.store(begin.tid, Ordering::Relaxed);
        words::write_text(&task.label, Text::<LABEL_BYTES>::cut(begin.label).bytes());
        // Odd, whatever was there: who has the record decides.
        let turn = task.turn.load(Ordering::Relaxed).wrapping_add(1) | 1;
        task.turn.store(turn, Ordering::Release);
        Some(TaskRef { index, turn })
    }

    /// How far a task is: so much of `total`, which is 0 while nobody knows.
    #[inline]
    pub fn progress(&self, task: TaskRef, done: u64, total: u64) {
        if let Some(words) = self.map.tasks().get(task.index as usize) {
            words.total.store(total, Ordering::Relaxed);
            words.done.store(done, Ordering::Relaxed);
        }
    }

    /// The task's turn as it is now: another than its own once it has ended.
    pub fn turn(&self, index: u32) -> Option<u64> {
        self.map.tasks().get(index as usize).map(|words| words.turn.load(Ordering::Acquire))
    }

    /// Ends a task and gives its record back. Its accounts were ended before; a request is added to a [lane](Writer::complete) after. Done once a task.
    pub fn end(&self, task: TaskRef) {
        if let Some(words) = self.map.tasks().get(task.index as usize) {
            words.turn.store(task.turn.wrapping_add(1), Ordering::Release);
            self.free_tasks.push(&self.task_links, task.index);
        }
    }

    /// Takes an account for what a task does with a resource; `None` if none is left, which is counted.
    pub fn account(&self, task: TaskRef, resource: u16) -> Option<Account<'_>> {
        let header = self.map.header();
        let index = match self.free_accounts.get(usize::from(resource))?.pop(&self.account_links) {
            Some(index) => index,
            None => match free::fresh(&self.accounts_used, self.shape().accounts) {
                Some(index) => {
                    header.accounts_used.fetch_max(index + 1, Ordering::Relaxed);
                    index
                }
                None => {
                    header.accounts_refused.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
            },
        };
        let words = self.map.accounts().get(index as usize)?;
        let owner = Owner { task: Some(task.index), resource, turn: task.turn as u16 };
        Some(Account::take(self, words, index, owner))
    }

    /// Gives an account back to its resource's free ones.
    pub(super) fn give_back(&self, index: u32, resource: u16) {
        if let Some(top) = self.free_accounts.get(usize::from(resource)) {
            top.push(&self.account_links, index);
        }
    }
}
