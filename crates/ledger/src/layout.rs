//! Where everything is in a ledger: offsets, sizes, counts and their limits, kinds, flags, bins.

use std::fmt;
use std::str::FromStr;

use crate::refusal::Refusal;

/// The first eight bytes of a ledger that is complete.
pub const MAGIC: [u8; 8] = *b"PLIMSOLL";
/// The version of the format.
pub const VERSION: u32 = 1;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of the record of a resource.
pub const RESOURCE_BYTES: usize = 64;
/// Bytes of a lane.
pub const LANE_BYTES: usize = 2048;
/// Bytes of the record of a task.
pub const TASK_BYTES: usize = 128;
/// Bytes of an account.
pub const ACCOUNT_BYTES: usize = 64;

/// Bytes of the application's name in the header.
pub const APP_BYTES: usize = 64;
/// Bytes of a resource's name.
pub const NAME_BYTES: usize = 48;
/// Bytes of a task's label.
pub const LABEL_BYTES: usize = 64;
/// Bins of a lane.
pub const BINS: usize = 248;

/// Most resources of a ledger.
pub const MOST_RESOURCES: u32 = 256;
/// Most lanes of a ledger.
pub const MOST_LANES: u32 = 64;
/// Most tasks of a ledger.
pub const MOST_TASKS: u32 = 131_072;
/// Most accounts of a ledger.
pub const MOST_ACCOUNTS: u32 = 1_048_576;

/// Offsets of the header's fields.
pub mod at {
    /// The magic.
    pub const MAGIC: usize = 0x000;
    /// The version.
    pub const VERSION: usize = 0x008;
    /// How many resources.
    pub const RESOURCES: usize = 0x00c;
    /// How many lanes.
    pub const LANES: usize = 0x010;
    /// How many tasks.
    pub const TASKS: usize = 0x014;
    /// How many accounts.
    pub const ACCOUNTS: usize = 0x018;
    /// The process that writes.
    pub const PID: usize = 0x020;
    /// When that process began, in the kernel's ticks.
    pub const PID_STARTED: usize = 0x028;
    /// When the ledger was made.
    pub const CREATED_NS: usize = 0x030;
    /// The application's name.
    pub const APP: usize = 0x040;
    /// The application's heartbeat.
    pub const APP_BEAT_NS: usize = 0x080;
    /// Tasks that found no record.
    pub const TASKS_REFUSED: usize = 0x088;
    /// Uses that found no account.
    pub const ACCOUNTS_REFUSED: usize = 0x090;
    /// Resources that found no record.
    pub const RESOURCES_REFUSED: usize = 0x098;
    /// No task record from here on was ever used.
    pub const TASKS_USED: usize = 0x0a0;
    /// No account from here on was ever used.
    pub const ACCOUNTS_USED: usize = 0x0a4;
    /// The agent's heartbeat.
    pub const AGENT_BEAT_NS: usize = 0x0c0;
    /// What the agent asks for.
    pub const FLAGS: usize = 0x0c8;
    /// The agent's process.
    pub const AGENT_PID: usize = 0x0d0;
    /// The coarse time.
    pub const CLOCK_NS: usize = 0x100;
}

/// The agent's flag: stamp every event with an exact time.
pub const EXACT: u64 = 1;

/// A task's flag: it can be cancelled.
pub const CANCELLABLE: u32 = 1;
/// A task's flag: it is no request, and counts in no lane.
pub const BACKGROUND: u32 = 2;
/// A task's flag: the application can run it again.
pub const RERUNNABLE: u32 = 4;
/// A task's flag: it is such a second run, and never cancellable.
pub const RERUN: u32 = 8;

/// How many records of each kind a ledger has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Resources: 1 to 256.
    pub resources: u32,
    /// Lanes: 1 to 64.
    pub lanes: u32,
    /// Tasks: 1 to 131,072.
    pub tasks: u32,
    /// Accounts: 1 to 1,048,576.
    pub accounts: u32,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { resources: 64, lanes: 8, tasks: 4096, accounts: 16384 }
    }
}

impl Shape {
    /// Refuses counts outside their limits.
    pub fn check(&self) -> Result<(), Refusal> {
        let limits = [
            ("resources", self.resources, MOST_RESOURCES),
            ("lanes", self.lanes, MOST_LANES),
            ("tasks", self.tasks, MOST_TASKS),
            ("accounts", self.accounts, MOST_ACCOUNTS),
        ];
        match limits.into_iter().find(|&(_, count, most)| count == 0 || count > most) {
            Some((what, count, most)) => Err(Refusal::Counts { what, count, most }),
            None => Ok(()),
        }
    }

    /// Where the lanes begin.
    pub fn lanes_at(&self) -> usize {
        HEADER_BYTES + RESOURCE_BYTES * self.resources as usize
    }

    /// Where the tasks begin.
    pub fn tasks_at(&self) -> usize {
        self.lanes_at() + LANE_BYTES * self.lanes as usize
    }

    /// Where the accounts begin.
    pub fn accounts_at(&self) -> usize {
        self.tasks_at() + TASK_BYTES * self.tasks as usize
    }

    /// How long the file is.
    pub fn bytes(&self) -> usize {
        self.accounts_at() + ACCOUNT_BYTES * self.accounts as usize
    }
}

/// What kind of resource it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Kind {
    /// Whoever has it keeps others out.
    Lock = 1,
    /// Pages, entries, bytes, of which there are so many.
    Memory = 2,
    /// Workers, permits, connections of a pool.
    Queue = 3,
    /// The processor.
    Cpu = 4,
    /// Reading and writing.
    Io = 5,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::Lock, Kind::Memory, Kind::Queue, Kind::Cpu, Kind::Io];

    /// The kind of this number; `None` for 0 and for what this version does not know.
    pub fn of(number: u32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Its name in dumps and events: `LOCK`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lock => "LOCK",
            Kind::Memory => "MEMORY",
            Kind::Queue => "QUEUE",
            Kind::Cpu => "CPU",
            Kind::Io => "IO",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Kind, String> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == word);
        kind.ok_or_else(|| format!("{word} is no kind of resource: LOCK, MEMORY, QUEUE, CPU or IO"))
    }
}

/// The bin of a latency: bins no wider than an eighth of their values, from a microsecond to two hours.
pub fn bin(latency_ns: u64) -> usize {
    let v = latency_ns >> 10;
    let shift = v.checked_ilog2().unwrap_or(0).saturating_sub(3);
    (((shift as usize) << 3) + (v >> shift) as usize).min(BINS - 1)
}

/// The least latency of a bin, in nanoseconds: what [`bin`] turns back into it. 0 and up to 15 are microseconds (of 1,024 ns).
pub fn bin_begins_ns(bin: usize) -> u64 {
    let bin = bin.min(BINS - 1) as u64;
    let shift = (bin >> 3).saturating_sub(1);
    (bin - (shift << 3)) << shift << 10
}

/// The owner of an account: nobody, or a task by its record and the low 16 bits of its turn. The resource stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The index of the task's record.
    pub task: Option<u32>,
    /// The index of the resource's record.
    pub resource: u16,
    /// The low 16 bits of the task's turn.
    pub turn: u16,
}

impl Owner {
    /// As it is in the file.
    pub fn to_word(self) -> u64 {
        let task = self.task.map_or(0, |task| u64::from(task) + 1);
        task | u64::from(self.resource) << 32 | u64::from(self.turn) << 48
    }

    /// From the file.
    pub fn of_word(word: u64) -> Owner {
        Owner { task: (word as u32).checked_sub(1), resource: (word >> 32) as u16, turn: (word >> 48) as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_contiguous_and_no_wider_than_an_eighth() {
        for b in 0..BINS {
            assert_eq!(bin(bin_begins_ns(b)), b);
            if b > 0 {
                assert_eq!(bin(bin_begins_ns(b) - 1), b - 1);
            }
            if b >= 8 && b + 1 < BINS {
                let (from, to) = (bin_begins_ns(b), bin_begins_ns(b + 1));
                assert!((to - from) * 8 <= from, "{b}: {from} to {to}");
            }
        }
        assert_eq!(bin(u64::MAX), BINS - 1);
        assert_eq!(bin(5_000_000), 81);
    }

    #[test]
    fn parts_follow_one_another() {
        let shape = Shape::default();
        assert_eq!(shape.lanes_at(), 8192);
        assert_eq!(shape.tasks_at(), 24_576);
        assert_eq!(shape.accounts_at(), 548_864);
        assert_eq!(shape.bytes(), 1_597_440);
        assert!(Shape { resources: 257, ..shape }.check().is_err());
        assert!(Shape { accounts: 0, ..shape }.check().is_err());
        let most = Shape { resources: 256, lanes: 64, tasks: MOST_TASKS, accounts: MOST_ACCOUNTS };
        assert!(most.check().is_ok());
        assert_eq!(most.tasks_at() % 64, 0);
    }

    #[test]
    fn an_owner_is_read_as_written() {
        for owner in [
            Owner { task: None, resource: 255, turn: 0 },
            Owner { task: Some(0), resource: 0, turn: 1 },
            Owner { task: Some(131_071), resource: 7, turn: 65_535 },
        ] {
            assert_eq!(Owner::of_word(owner.to_word()), owner);
        }
    }
}
