//! A case: an application with its resources, the classes of its tasks, and when what disturbs it begins.

use plimsoll_cancellation::Kind;
use plimsoll_core::Nanos;

use super::program::Program;

/// An application under load.
#[derive(Clone, Debug)]
pub struct Case {
    /// As Table 2 numbers it.
    pub id: String,
    /// What happens in it.
    pub title: String,
    /// When it ends.
    pub length: Nanos,
    /// Nothing that comes before is measured.
    pub warmup: Nanos,
    /// Requests that are inside at once.
    pub connections: u32,
    /// Requests that wait outside for a connection, where the application does not see them; what comes beyond is refused.
    pub backlog: u32,
    /// In the order of the scene.
    pub resources: Vec<ResourceSpec>,
    /// In the order of the file.
    pub classes: Vec<Class>,
}

/// A resource.
#[derive(Clone, Debug)]
pub struct ResourceSpec {
    /// Its name.
    pub name: String,
    /// What it is.
    pub is: Is,
}

/// What a resource is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Is {
    /// Processors, shared equally by all that run.
    Cpu {
        /// How many.
        cores: f64,
    },
    /// A device, shared equally by all requests that are under way.
    Device {
        /// Bytes a second in all.
        bytes_per_s: f64,
        /// Bytes a second that a single request gets at most: what makes its latency.
        stream_bytes_per_s: f64,
    },
    /// A lock, first come first served: who wants it to itself waits for all that share it, and lets nobody pass.
    Lock,
    /// Permits, first come first served.
    Pool {
        /// How many.
        permits: u32,
    },
    /// A cache of pages or entries; the least recently used one goes (LRU).
    Pages {
        /// How many there is room for.
        pages: u32,
        /// What one costs that is not there.
        miss: Miss,
    },
    /// Memory that is collected when it is full, for which everything that runs on `cpu` stands still.
    Heap {
        /// Units there are.
        units: u64,
        /// How long a collection takes, and how much longer for each unit that is in use.
        pause: Nanos,
        /// The latter.
        pause_per_unit: Nanos,
        /// What stands still.
        cpu: u32,
    },
}

/// What it costs to fetch a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Miss {
    /// It is read.
    Read {
        /// From where.
        device: u32,
        /// Bytes.
        bytes: f64,
        /// Bytes that are written first to make room, if there is none.
        evict: f64,
    },
    /// It is computed.
    Compute {
        /// On which processors.
        cpu: u32,
        /// Nanoseconds of work.
        work: f64,
    },
}

impl Is {
    /// What a controller is told that it is.
    pub fn kind(self) -> Kind {
        match self {
            Is::Cpu { .. } => Kind::Cpu,
            Is::Device { .. } => Kind::Io,
            Is::Lock => Kind::Lock,
            Is::Pool { .. } => Kind::Queue,
            Is::Pages { .. } | Is::Heap { .. } => Kind::Memory,
        }
    }

    /// Units there are at once, as a ledger says it.
    pub fn capacity(self) -> u64 {
        match self {
            Is::Cpu { cores } => cores as u64,
            Is::Device { .. } => 0,
            Is::Lock => 1,
            Is::Pool { permits } => u64::from(permits),
            Is::Pages { pages, .. } => u64::from(pages),
            Is::Heap { units, .. } => units,
        }
    }
}

/// Tasks of one sort.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// When they come.
    pub comes: Comes,
    /// Whether they are what disturbs the application: an undisturbed run has none.
    pub trigger: bool,
    /// Whether nobody waits for them.
    pub background: bool,
    /// Whether the application offers to cancel them.
    pub cancellable: bool,
    /// Whether it can run them again.
    pub rerunnable: bool,
    /// How long after its beginning one is of no use any more.
    pub deadline: Option<Nanos>,
    /// How long it takes from the order to cancel one to the cancel point's effect.
    pub cancel_after: Nanos,
    /// What they do.
    pub program: Program,
}

/// When tasks come.
#[derive(Clone, Debug, PartialEq)]
pub enum Comes {
    /// By chance.
    Rate {
        /// So many a second.
        per_s: f64,
        /// From here.
        from: Nanos,
        /// To here.
        until: Nanos,
    },
    /// At these times, so many each time.
    At {
        /// In rising order.
        times: Vec<Nanos>,
        /// Each time.
        count: u32,
    },
}

impl Case {
    /// The class of this name.
    pub fn class(&self, name: &str) -> Option<u32> {
        self.classes.iter().position(|class| class.name == name).map(|i| i as u32)
    }
}
