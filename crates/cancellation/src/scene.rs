//! What a controller sees of an application when it looks: its tasks, its resources, and who does what with which.
//!
//! A host fills a [`Scene`] from whatever it has (a ledger, a database's views, the simulator's state) and hands it over with the
//! time. Amounts are those *since the last look*, unless they say otherwise, so a controller needs no memory of who was there.
//! What is a unit of a resource, and what its delay, is in `docs/ledger.md`.

/// What kind of thing is contended for (section 3.2; CPU and IO are the system's, the others the application's).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Kind {
    /// Held by one task, or shared; others wait.
    Lock,
    /// Pages or entries of a pool; what is taken when none is free is evicted from others.
    Memory,
    /// Workers, permits, connections: a task waits until one is free and then has it to itself.
    Queue,
    /// Time on a processor, in nanoseconds.
    Cpu,
    /// Bytes to and from a disk or a network.
    Io,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 5] = [Kind::Lock, Kind::Memory, Kind::Queue, Kind::Cpu, Kind::Io];

    /// The name in the ledger, in events and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Lock => "LOCK",
            Kind::Memory => "MEMORY",
            Kind::Queue => "QUEUE",
            Kind::Cpu => "CPU",
            Kind::Io => "IO",
        }
    }

    /// Whether a task has units of it for a time and gives them back, so that the time is what counts.
    pub const fn is_held(self) -> bool {
        matches!(self, Kind::Lock | Kind::Queue)
    }
}

/// A unit of work that runs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Task {
    /// The host's number for it, never used twice.
    pub id: u64,
    /// What sort of task it is: an index into a table of the host's.
    pub class: u32,
    /// When it began, in ns.
    pub started_ns: u64,
    /// When it is of no use any more, in ns; 0 if never.
    pub deadline_ns: u64,
    /// So much of `total` is done: rows, bytes, steps.
    pub done: u64,
    /// How much there is to do; 0 while nobody knows.
    pub total: u64,
    /// Whether somebody waits for its answer: requests make up the latency, background tasks do not.
    pub request: bool,
    /// Whether the application offers to cancel it.
    pub cancellable: bool,
    /// Whether the application can run it again.
    pub rerunnable: bool,
}

/// A resource, and what happened to it since the last look, all tasks together, those that ended included.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Resource {
    /// What kind of thing it is.
    pub kind: Kind,
    /// Units there are at once; 0 if nobody knows.
    pub capacity: u64,
    /// Units that were taken.
    pub gets: u64,
    /// Waits that began; of MEMORY, units that had to be evicted.
    pub slows: u64,
    /// Time that tasks lost waiting, waits that are still going on included, in ns. Of MEMORY, the time that evictions took.
    pub delay_ns: u64,
    /// Time for which tasks held it, holds that are still going on included, in ns; of CPU, time used.
    pub use_ns: u64,
    /// Holds that ended.
    pub ended: u64,
    /// How long those holds had lasted, in ns.
    pub ended_ns: u64,
}

impl Resource {
    /// One to which nothing happened.
    pub const fn quiet(kind: Kind, capacity: u64) -> Resource {
        Resource { kind, capacity, gets: 0, slows: 0, delay_ns: 0, use_ns: 0, ended: 0, ended_ns: 0 }
    }
}

/// What one task does with one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Use {
    /// Which of the scene's tasks.
    pub task: u32,
    /// Which of the scene's resources.
    pub resource: u32,
    /// Units that it holds now.
    pub held: u64,
    /// For how long it has been holding some, in ns; 0 if it holds none.
    pub held_ns: u64,
    /// What it took since it began: of LOCK and QUEUE the time for which it held some, in ns; otherwise units (pages, bytes,
    /// nanoseconds of CPU).
    pub used: u64,
    /// What of that it took since the last look.
    pub recent: u64,
    /// For how long it has been waiting by now, in ns; 0 if it does not wait.
    pub waiting_ns: u64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Scene {
    /// The tasks that run now.
    pub tasks: Vec<Task>,
    /// The resources, always in the same order; there may be more at a later look.
    pub resources: Vec<Resource>,
    /// Who does what with which, in the order of `tasks` and, of one task, of `resources`; the two meet at most once.
    pub uses: Vec<Use>,
    /// Requests that ended since the last look: how long they took, in ns, and how many took so long. Cancelled ones are not
    /// among them.
    pub finished: Vec<(u64, u64)>,
    /// Likewise, of requests that no look can have shown while they ran, so that they have not been called late yet.
    #[cfg_attr(feature = "serde", serde(default))]
    pub unseen: Vec<(u64, u64)>,
    /// The sum of what all requests that ended took, also the cancelled ones, in ns.
    pub finished_ns: u64,
}

/// What a number in a scene is at most.
const MOST: u64 = 1 << 50;

impl Scene {
    /// Empties it, to be filled anew; memory is kept.
    pub fn clear(&mut self) {
        self.tasks.clear();
        self.resources.clear();
        self.uses.clear();
        self.finished.clear();
        self.unseen.clear();
        self.finished_ns = 0;
    }

    /// Cuts off what cannot be, as whoever is watched may lie: sums of what is in a scene stay far from the end of their numbers. Of times it is 13
    /// days, and whatever has been held for so long has been held for long enough.
    pub fn bound(&mut self) {
        let cut = |numbers: &mut [&mut u64]| {
            numbers.iter_mut().for_each(|number| **number = (**number).min(MOST));
        };
        for Resource { capacity, gets, slows, delay_ns, use_ns, ended, ended_ns, kind: _ } in
            &mut self.resources
        {
            cut(&mut [capacity, gets, slows, delay_ns, use_ns, ended, ended_ns]);
        }
        for Use { held, held_ns, used, recent, waiting_ns, task: _, resource: _ } in &mut self.uses {
            cut(&mut [held, held_ns, used, recent, waiting_ns]);
        }
        for (took_ns, count) in self.finished.iter_mut().chain(&mut self.unseen) {
            cut(&mut [took_ns, count]);
        }
        cut(&mut [&mut self.finished_ns]);
    }

    /// How many requests ended since the last look.
    pub fn completions(&self) -> u64 {
        self.ended().map(|(_, count)| count).sum()
    }

    /// All of them: how long they took, in ns, and how many took so long.
    pub fn ended(&self) -> impl Iterator<Item = (u64, u64)> {
        self.finished.iter().chain(&self.unseen).copied()
    }
}
