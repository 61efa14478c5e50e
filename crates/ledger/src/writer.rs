//! The application's side: what makes a ledger and writes into it.
//!
//! Nothing here waits, allocates or makes a system call once the file is made, but for asking for a resource, which is done once
//! each. What the writer must remember, it remembers in memory of its own: of what others can write to it
//! reads back only its own counters, and no index.

mod account;
mod create;
mod free;
mod map;
mod tasks;
mod words;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub use account::Account;
pub use create::Create;
pub use tasks::{Begin, TaskRef};

use crate::layout::{self, EXACT, Kind, NAME_BYTES, Shape};
use crate::records::Text;
use crate::refusal::Refusal;
use free::{Links, Top};
use map::Map;

/// Asked for once a resource, when the application starts: it may wait.
#[expect(clippy::disallowed_types, reason = "guards the asking for resources, never an event")]
type Names = std::sync::Mutex<Vec<Text<NAME_BYTES>>>;

/// A ledger that this process writes.
///
/// ```
/// use plimsoll_ledger::{Begin, Create, Writer, layout::Kind};
/// # let dir = tempfile::tempdir().unwrap();
///
/// let ledger = Writer::create(&Create { app: "shop", ..Create::in_directory(dir.path(), 1_000) })?;
/// let table = ledger.resource(Kind::Lock, 1, "table").unwrap();
/// let task = ledger.begin(&Begin { label: "GET /report", started_ns: 2_000, ..Begin::default() }).unwrap();
/// let account = ledger.account(task, table).unwrap();
/// account.get(1, || 2_100);
/// account.free(1, || 2_500);
/// account.end(2_500);
/// ledger.end(task);
/// ledger.complete(0, 500, false);
/// # Ok::<(), plimsoll_ledger::Refusal>(())
/// ```
pub struct Writer {
    map: Map,
    path: PathBuf,
    pid: u64,
    names: Names,
    /// Records of tasks that were used and are free.
    free_tasks: Top,
    task_links: Links,
    /// Task records below this were used.
    tasks_used: AtomicU32,
    /// Accounts that were used and are free, by resource.
    free_accounts: Box<[Top]>,
    account_links: Links,
    /// Accounts below this were used.
    accounts_used: AtomicU32,
}

impl Writer {
    /// Makes the ledger of this process, whole or not at all.
    pub fn create(create: &Create<'_>) -> Result<Writer, Refusal> {
        let (map, path) = create.make()?;
        let shape = create.shape;
        Ok(Writer {
            map,
            path,
            pid: create.pid,
            names: Names::default(),
            free_tasks: Top::default(),
            task_links: Links::new(shape.tasks),
            tasks_used: AtomicU32::new(0),
            free_accounts: (0..shape.resources).map(|_| Top::default()).collect(),
            account_links: Links::new(shape.accounts),
            accounts_used: AtomicU32::new(0),
        })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many records of each kind there are.
    pub fn shape(&self) -> Shape {
        self.map.shape()
    }

    /// Where the mapping is, and how many bytes long: for who must replace it in a forked child.
    pub fn mapping(&self) -> (*mut u8, usize) {
        self.map.range()
    }

    /// Removes the file. Who goes on writing writes for nobody. Does nothing in a forked child, whose file it is not.
    pub fn remove(&self) {
        if self.pid == u64::from(std::process::id()) {
            create::remove(&self.path);
        }
    }

    /// The record of a resource; that of the first who asked, where the name is known. `None` if all records are taken, which is counted,
    /// or if there is no name. `capacity` is how many units can be held at once, 0 if nobody knows.
    pub fn resource(&self, kind: Kind, capacity: u64, name: &str) -> Option<u16> {
        let name = Text::cut(name);
        if name.is_empty() {
            return None;
        }
        let mut names = self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(known) = names.iter().position(|n| *n == name) {
            return u16::try_from(known).ok();
        }
        let index = names.len();
        let Some(words) = self.map.resources().get(index) else {
            self.map.header().resources_refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        names.push(name);
        words.capacity.store(capacity, Ordering::Relaxed);
        words::write_text(&words.name, name.bytes());
        words.kind.store(kind as u32, Ordering::Release);
        u16::try_from(index).ok()
    }

    /// The name of the resource in a record; `None` if there is none.
    pub fn resource_name(&self, index: u16) -> Option<String> {
        let names = self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        names.get(usize::from(index)).map(|name| name.show().into_owned())
    }

    /// What an event is stamped with: see [`Stamps::now`].
    #[inline]
    pub fn stamp(&self, exact_ns: impl FnOnce() -> u64) -> u64 {
        self.stamps().now(exact_ns)
    }

    /// What events are stamped with, for who has many.
    #[inline]
    pub fn stamps(&self) -> Stamps<'_> {
        Stamps(self.map.header())
    }

    /// Adds a request that ended to a lane: how long it took, and whether it ended because it was cancelled.
    pub fn complete(&self, lane: u32, latency_ns: u64, cancelled: bool) {
        let lanes = self.map.lanes();
        let Some(lane) = lanes.get(lane as usize % lanes.len().max(1)) else { return };
        match cancelled {
            true => lane.cancelled.fetch_add(1, Ordering::Relaxed),
            false => lane.bins[layout::bin(latency_ns)].fetch_add(1, Ordering::Relaxed),
        };
        lane.sum_ns.fetch_add(latency_ns, Ordering::Relaxed);
        lane.completed.fetch_add(1, Ordering::Release);
    }

    /// The application's sign of life.
    pub fn beat(&self, now_ns: u64) {
        self.map.header().app_beat_ns.store(now_ns, Ordering::Relaxed);
    }

    /// When the agent last gave a sign of life; 0 if there never was one.
    pub fn agent_beat_ns(&self) -> u64 {
        self.map.header().agent_beat_ns.load(Ordering::Relaxed)
    }

    /// Sets the coarse time. The agent's, and the SDK's while there is none.
    pub fn tick(&self, now_ns: u64) {
        self.map.header().clock_ns.store(now_ns, Ordering::Relaxed);
    }

    /// What the agent asks for. The agent's; the SDK clears it when the agent is gone.
    pub fn set_flags(&self, flags: u64) {
        self.map.header().flags.store(flags, Ordering::Relaxed);
    }

    /// How many tasks, uses and resources found no record.
    pub fn refused(&self) -> (u64, u64, u64) {
        let header = self.map.header();
        let read = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        (read(&header.tasks_refused), read(&header.accounts_refused), read(&header.resources_refused))
    }
}

/// What events are stamped with.
#[derive(Clone, Copy)]
pub struct Stamps<'w>(&'w words::Header);

impl Stamps<'_> {
    /// The coarse time or, while the agent asks for it, the exact one. Never 0.
    #[inline]
    pub fn now(&self, exact_ns: impl FnOnce() -> u64) -> u64 {
        let now = match self.flags() & EXACT {
            0 => self.coarse_ns(),
            _ => exact_ns(),
        };
        now.max(1)
    }

    /// The coarse time; 0 if it was never set.
    #[inline(always)]
    fn coarse_ns(&self) -> u64 {
        self.0.clock_ns.load(Ordering::Relaxed)
    }

    /// What the agent asks for.
    #[inline(always)]
    fn flags(&self) -> u64 {
        self.0.flags.load(Ordering::Relaxed)
    }
}
