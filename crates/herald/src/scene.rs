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

/// The threads of the host, and what they share.
#[derive(Clone, Debug)]
pub struct Scene {
    /// When it was read.
    pub now: Nanos,
    /// CPUs, groups and sets of CPUs.
    pub host: Host,
    /// Every thread that lives.
    pub tasks: Vec<TaskSample>,
    /// Who they are.
    pub described: HashMap<TaskId, Described>,
}
