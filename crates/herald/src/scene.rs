//! What is known of the host after a reading. Readers fill it.

use std::collections::HashMap;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Host, Policy, TaskId, TaskSample};

/// Who a thread is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name, 15 bytes at most. That of a process is its first thread's.
    pub comm: String,
    /// The cgroup whose share of the CPUs it has part in, as `/proc` writes it; empty where there is no cpu controller.
    pub cgroup: String,
    /// How it is scheduled.
    pub policy: Policy,
    /// -20 to 19.
    pub nice: i8,
}

/// What a reading brought.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// All threads are to be taken as they are in [`Scene::tasks`]; what is below says nothing then.
    pub all: bool,
    /// Those that are not as they were at the reading before, or are new.
    pub changed: Vec<TaskSample>,
    /// Those that ended since.
    pub gone: Vec<TaskId>,
}

impl News {
    /// A reading begins.
    pub fn begin(&mut self, all: bool) {
        self.all = all;
        self.changed.clear();
        self.gone.clear();
    }
}

/// The threads of the host, and what they share.
#[derive(Clone, Debug)]
pub struct Scene {
    /// When it was read.
    pub now: Nanos,
    /// CPUs, groups and sets of CPUs.
    pub host: Host,
    /// Every thread that lives, in no order.
    pub tasks: Vec<TaskSample>,
    /// What of them is new.
    pub news: News,
    /// Who they are.
    pub described: HashMap<TaskId, Described>,
}

impl Scene {
    /// Of a host of which nothing was read yet.
    pub fn new(now: Nanos) -> Scene {
        Scene {
            now,
            host: Host::plain(1),
            tasks: Vec::new(),
            news: News::default(),
            described: HashMap::new(),
        }
    }
}
