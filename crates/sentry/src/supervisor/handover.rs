//! What passes from the parent to a worker, and from the parent to the binary that it becomes: descriptors by
//! number, the rest by value, as JSON in an environment variable. Before the JSON stands the process id of the
//! parent, so that nobody else's child takes numbers for its own descriptors.
//!
//! Two releases speak through it: later ones only add fields, and give them a default.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::descriptors;
use super::lifecycle::Worker;
use super::sockets::Sockets;

/// Names the worker's share. Absent in any other process.
pub const WORKER_VAR: &str = "PLIMSOLL_SENTRY_WORKER";
/// Names the state of a parent that has become another binary.
pub const PARENT_VAR: &str = "PLIMSOLL_SENTRY_PARENT";

/// What the parent holds for all workers, of all generations.
#[derive(Debug, Serialize, Deserialize)]
pub struct Held {
    /// The listening sockets.
    pub sockets: Sockets,
    /// The memory of the [slots page](super::slots_page::SlotsPage).
    #[serde(with = "descriptors::one")]
    pub slots_page: OwnedFd,
    /// The memory of the [last good config](super::kept_text::KeptText).
    #[serde(with = "descriptors::one")]
    pub last_good: OwnedFd,
    /// The memory of what was [put](crate::put), the same way.
    #[serde(default, with = "descriptors::optional")]
    pub put: Option<OwnedFd>,
}

impl Held {
    /// Every descriptor.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> + Clone {
        let memory = [self.slots_page.as_fd(), self.last_good.as_fd()];
        self.sockets.descriptors().chain(memory).chain(self.put.as_ref().map(AsFd::as_fd))
    }
}

/// What a worker gets. `H` is [`Held`], or a reference to it on the side that keeps it.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerShare<H> {
    /// The sockets and the memory.
    pub held: H,
    /// The worker's column of the slots page.
    pub seat: usize,
    /// How often a worker of this sentry had to be restarted.
    pub restarts: u64,
    /// The worker's end of the channel on which it reports that it is ready, and which ends with the parent.
    #[serde(with = "descriptors::one")]
    pub channel: OwnedFd,
}

/// What the parent keeps when it becomes another binary. `H` as in [`WorkerShare`].
#[derive(Debug, Serialize, Deserialize)]
pub struct ParentState<H> {
    /// The path of the binary, as found at the first start.
    pub binary: PathBuf,
    /// The sockets and the memory.
    pub held: H,
    /// The workers.
    pub workers: Vec<Worker>,
    /// The parent's ends of their channels, in the same order.
    #[serde(with = "descriptors")]
    pub channels: Vec<OwnedFd>,
    /// How long they may drain, in nanoseconds, unless the config now says otherwise.
    pub drain_limit_ns: u64,
    /// How often a worker had to be restarted.
    pub restarts: u64,
}

impl WorkerShare<Held> {
    /// The share of this process.
    ///
    /// # Errors
    /// Where it was not started by a sentry's parent.
    pub fn take() -> Result<WorkerShare<Held>, String> {
        take(WORKER_VAR, std::os::unix::process::parent_id())?
            .ok_or_else(|| "this is the inside of `plimsoll sentry`; start that instead".into())
    }
}

impl ParentState<Held> {
    /// The state that the former binary left to this process, if any.
    ///
    /// # Errors
    /// Where it left something that this binary does not understand.
    pub fn take() -> Result<Option<ParentState<Held>>, String> {
        take(PARENT_VAR, std::process::id())
    }
}

/// The value of a variable: what `parent`, this process itself or its parent, hands over.
///
/// # Errors
/// Never for the types here, which have nothing that JSON cannot say.
pub fn encode(parent: u32, what: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(format!("{parent} {}", serde_json::to_string(what)?))
}

fn take<T: DeserializeOwned>(name: &str, parent: u32) -> Result<Option<T>, String> {
    let Ok(value) = std::env::var(name) else { return Ok(None) };
    let Some((from, json)) = value.split_once(' ') else { return Ok(None) };
    if from != parent.to_string() {
        return Ok(None);
    }
    serde_json::from_str(json).map(Some).map_err(|e| format!("{name}: {e}"))
}
