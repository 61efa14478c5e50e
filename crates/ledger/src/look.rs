//! What one look into a ledger finds: what is held and waited for now, and what happened since the look before.

use std::ops::Range;

use crate::layout::{BACKGROUND, BINS, CANCELLABLE, Kind, LABEL_BYTES, NAME_BYTES, RERUN, RERUNNABLE};
use crate::records::Text;

/// One look. Its buffers are used again by the next one into the same value.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// When it was.
    pub now_ns: u64,
    /// How long after the look before; 0 if it is the first.
    pub since_ns: u64,
    /// When the application last gave a sign of life.
    pub app_beat_ns: u64,
    /// How many tasks found no record, since the ledger was made.
    pub tasks_refused: u64,
    /// How many uses of a resource found no account.
    pub accounts_refused: u64,
    /// How many resources found no record.
    pub resources_refused: u64,
    /// The resources, in the order of their records.
    pub resources: Vec<Resource>,
    /// The tasks that live, in the order of their records.
    pub tasks: Vec<Task>,
    /// What the tasks do with resources: those of a task together, by resource, each resource once.
    pub uses: Vec<Use>,
    /// The requests that ended since the look before.
    pub window: Lanes,
    /// The requests that ended since the ledger was opened.
    pub total: Lanes,
}

impl Look {
    /// What a task of this look does with resources.
    pub fn uses_of(&self, task: &Task) -> &[Use] {
        self.uses.get(task.uses.start as usize..task.uses.end as usize).unwrap_or_default()
    }

    /// The resource of this record.
    pub fn resource(&self, index: u16) -> Option<&Resource> {
        let at = self.resources.binary_search_by_key(&index, |resource| resource.index).ok()?;
        self.resources.get(at)
    }
}

/// What happened: over a window of time or in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Units that were taken.
    pub gets: u64,
    /// Units that were given back.
    pub frees: u64,
    /// Waits that began; for MEMORY, units that were evicted.
    pub slows: u64,
    /// Time waited, as far as it has passed: waits that go on count up to the look.
    pub wait_ns: u64,
    /// Time during which anything was held, likewise.
    pub hold_ns: u64,
}

impl Activity {
    pub(crate) fn add(&mut self, more: &Activity) {
        self.gets = self.gets.saturating_add(more.gets);
        self.frees = self.frees.saturating_add(more.frees);
        self.slows = self.slows.saturating_add(more.slows);
        self.wait_ns = self.wait_ns.saturating_add(more.wait_ns);
        self.hold_ns = self.hold_ns.saturating_add(more.hold_ns);
    }

    /// Keeps of the counts what fits into `lives_ns` of the window, but no less than what is `held` and `waiting` now.
    pub(crate) fn keep_part(&mut self, lives_ns: u64, since_ns: u64, held: u64, waiting: u64) {
        if lives_ns >= since_ns {
            return;
        }
        let part = |count: u64| (u128::from(count) * u128::from(lives_ns) / u128::from(since_ns)) as u64;
        self.gets = part(self.gets).max(held).min(self.gets);
        self.frees = self.frees.min(self.gets.saturating_sub(held));
        self.slows = part(self.slows).max(waiting).min(self.slows);
    }
}

/// A resource, and what all tasks did with it, those that have ended included.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// Its record.
    pub index: u16,
    /// Of what kind.
    pub kind: Kind,
    /// Units that can be held at once; 0 if nobody knows.
    pub capacity: u64,
    /// Its name.
    pub name: Text<NAME_BYTES>,
    /// Units that living tasks hold now.
    pub held: u64,
    /// Accounts of living tasks that wait now.
    pub waiting: u32,
    /// Since the look before.
    pub window: Activity,
    /// Since the ledger was opened.
    pub total: Activity,
}

/// A task that lives.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its record.
    pub index: u32,
    /// The turn of its record, in full.
    pub turn: u64,
    /// The application's number for it.
    pub key: u64,
    /// When it began; never in the future.
    pub started_ns: u64,
    /// Progress; never above `total`, where that is known.
    pub done: u64,
    /// 0 while nobody knows.
    pub total: u64,
    /// When it is of no use any more; 0 if never.
    pub deadline_ns: u64,
    /// See `layout`.
    pub flags: u32,
    /// The thread that runs it, 0 if that is not one.
    pub tid: u32,
    /// What it is, for people.
    pub label: Text<LABEL_BYTES>,
    pub(crate) uses: Range<u32>,
}

impl Task {
    /// Whether it can be cancelled. What is run again cannot.
    pub fn cancellable(&self) -> bool {
        self.flags & CANCELLABLE != 0 && !self.rerun()
    }

    /// Whether it is no request.
    pub fn background(&self) -> bool {
        self.flags & BACKGROUND != 0
    }

    /// Whether the application can run it again.
    pub fn rerunnable(&self) -> bool {
        self.flags & RERUNNABLE != 0
    }

    /// Whether it is such a second run.
    pub fn rerun(&self) -> bool {
        self.flags & RERUN != 0
    }
}

/// What a task does with a resource: all its accounts there together.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// The place of the task in [`Look::tasks`].
    pub task: u32,
    /// The record of the resource.
    pub resource: u16,
    /// Units held now.
    pub held: u64,
    /// Since when: of its accounts that hold anything, the earliest; 0 if none does.
    pub holding_since_ns: u64,
    /// How many of its accounts wait now.
    pub waiting: u32,
    /// Since when: the earliest; 0 if none waits.
    pub waiting_since_ns: u64,
    /// Since the look before.
    pub window: Activity,
    /// Since the task was first seen with these accounts.
    pub total: Activity,
}

impl Use {
    /// Another account of the same task and resource.
    pub(crate) fn add(&mut self, more: &Use) {
        self.held = self.held.saturating_add(more.held);
        self.waiting += more.waiting;
        self.holding_since_ns = earlier(self.holding_since_ns, more.holding_since_ns);
        self.waiting_since_ns = earlier(self.waiting_since_ns, more.waiting_since_ns);
        self.window.add(&more.window);
        self.total.add(&more.total);
    }
}

/// Of two times, of which 0 is none.
fn earlier(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, time) | (time, 0) => time,
        (a, b) => a.min(b),
    }
}

/// What became of requests: all lanes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Requests that ended, however they ended.
    pub completed: u64,
    /// Those of them that were cancelled.
    pub cancelled: u64,
    /// How long all of them took.
    pub sum_ns: u64,
    /// How many took how long, without the cancelled ones: see [`bin`](crate::layout::bin).
    pub bins: [u64; BINS],
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes { completed: 0, cancelled: 0, sum_ns: 0, bins: [0; BINS] }
    }
}
