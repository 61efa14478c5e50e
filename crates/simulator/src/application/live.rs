//! A task that runs, and how those that run are kept.

use plimsoll_core::{Nanos, Rng};

use super::account::Account;
use super::fluid::Job;
use super::program::DEPTH;

/// What a task does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It is about to go on.
    Ready,
    /// It works on a shared resource.
    Working(u32),
    /// It waits in the queue of a resource.
    Queued(u32),
    /// It does nothing until a timer.
    Asleep,
}

/// Where a task stands with being cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelling {
    /// Nobody asked.
    No,
    /// It was asked for, and the next point at which it can be has not been reached.
    Ordered,
    /// It ends where it can.
    Due,
    /// It puts back what it did.
    Undoing,
}

/// A task that runs.
#[derive(Clone, Debug)]
pub struct Live {
    /// Never used twice.
    pub id: u64,
    /// Of which class.
    pub class: u32,
    /// Which record of the run is its.
    pub record: u32,
    /// When it got inside.
    pub started: Nanos,
    /// Operations that it has begun, so that what was meant for an earlier one is known as such.
    pub token: u32,
    /// What it does.
    pub doing: Doing,
    /// The operation that it is at.
    pub pc: u32,
    /// How far it is in that operation; 0 when it has not begun it.
    pub phase: u32,
    /// How much of the operation is left, where that is counted.
    pub left: u32,
    /// How many rounds are left of the loops that it is in.
    pub loops: [u64; DEPTH],
    /// How many loops it is in.
    pub depth: usize,
    /// Pages that it has read in order.
    pub cursor: u32,
    /// Whether the page that it waits for pushed another out.
    pub evicting: bool,
    /// While it works: its weight, and the clock of the resource and the time up to which that is written down.
    pub burst: Burst,
    /// Progress.
    pub done: u64,
    /// Whether it may be cancelled: the application offers it, and it is not a second run.
    pub cancellable: bool,
    /// Whether it could be run again.
    pub rerunnable: bool,
    /// Whether it is to be.
    pub cancelling: Cancelling,
    /// How long it is to pause before its next operation.
    pub pause: Nanos,
    /// What it draws.
    pub rng: Rng,
    /// What it did with each resource that it used.
    pub accounts: Vec<Account>,
}

/// Work on a shared resource that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Burst {
    /// Shares that it has.
    pub weight: f64,
    /// The clock when it was last written down.
    pub clock: f64,
    /// For how long what is shared had been stopped by then.
    pub stopped: Nanos,
    /// When that was.
    pub since: Nanos,
    /// When it began.
    pub began: Nanos,
}

impl Live {
    /// What it does with a resource.
    pub fn account(&mut self, resource: u32) -> &mut Account {
        // In the order of the resources, as they are shown.
        let at = self.accounts.partition_point(|account| account.resource < resource);
        if self.accounts.get(at).is_none_or(|account| account.resource != resource) {
            self.accounts.insert(at, Account::new(resource));
        }
        &mut self.accounts[at]
    }

    /// Whether it holds some of a resource that is such a one.
    pub fn holds_any(&self, such: impl Fn(u32) -> bool) -> bool {
        self.accounts.iter().any(|account| account.held > 0 && such(account.resource))
    }

    /// Goes on to another operation.
    pub fn jump(&mut self, pc: u32) {
        self.pc = pc;
        self.phase = 0;
        self.left = 0;
    }
}

/// Those that run, each at a place that is its own as long as it lives.
#[derive(Debug, Default)]
pub struct Tasks {
    places: Vec<Option<Live>>,
    free: Vec<u32>,
    /// Tokens go on where those of the last task at the place ended.
    tokens: Vec<u32>,
    /// Kept for their memory.
    spare: Vec<Vec<Account>>,
}

impl Tasks {
    /// One begins; its place. Its token and its accounts are given to it here.
    pub fn insert(&mut self, mut task: Live) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.tokens.push(0);
            self.places.len() as u32 - 1
        });
        task.token = self.tokens[place as usize];
        task.accounts = self.spare.pop().unwrap_or_default();
        self.places[place as usize] = Some(task);
        place
    }

    /// One ends.
    pub fn remove(&mut self, place: u32) {
        if let Some(mut task) = self.places[place as usize].take() {
            self.tokens[place as usize] = task.token.wrapping_add(1);
            task.accounts.clear();
            self.spare.push(task.accounts);
            self.free.push(place);
        }
    }

    /// The one at a place where there is one.
    #[inline]
    pub fn at(&mut self, place: u32) -> &mut Live {
        self.places[place as usize].as_mut().expect("whoever is in a queue or at work is alive")
    }

    /// The same, to look at.
    #[inline]
    pub fn peek(&self, place: u32) -> &Live {
        self.places[place as usize].as_ref().expect("whoever is in a queue or at work is alive")
    }

    /// The one that a job is of, if it is still at it.
    #[inline]
    pub fn of(&self, job: Job) -> Option<&Live> {
        self.places[job.task as usize].as_ref().filter(|task| task.token == job.token)
    }

    /// Where the one with this number is.
    pub fn find(&self, id: u64) -> Option<u32> {
        self.iter().find(|(_, task)| task.id == id).map(|(place, _)| place)
    }

    /// All, by place.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Live)> {
        (0..).zip(&self.places).filter_map(|(place, task)| Some((place, task.as_ref()?)))
    }

    /// All, by place.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Live> {
        self.places.iter_mut().flatten()
    }
}
