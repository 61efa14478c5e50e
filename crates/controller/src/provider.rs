//! What brings servers about. There is one of them a pool, and [`actuator`](crate::actuator) drives it.

use std::collections::HashSet;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_core::config::Server;

/// What there is of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reality {
    /// Servers that take requests, the oldest first.
    pub ready: Vec<Server>,
    /// Servers that are not ready yet.
    pub starting: u32,
    /// Servers that finish what they have, or have been told to end.
    pub leaving: u32,
    /// Whether one more would be started, were it known which share it begins with. Only sentries have shares.
    pub waits: bool,
    /// What went wrong last, while it lasts.
    pub trouble: Option<String>,
    /// Attempts that failed since the controller started.
    pub failures: u64,
}

/// What the sentries know of servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Where some request still is, or might be sent.
    pub in_use: HashSet<Server>,
    /// What every sentry has held to be down for a while.
    pub down: HashSet<Server>,
}

/// Brings servers about. Whoever drives it bounds how long a step may take and how often one that fails is repeated.
pub trait Provider {
    /// From one step to the next.
    const EVERY: Duration;

    /// How many servers there are, before the first step.
    ///
    /// # Errors
    /// What kept it from finding out.
    fn present(&mut self) -> impl Future<Output = Result<u32, String>>;

    /// One step towards so many servers, and what there is now.
    ///
    /// # Errors
    /// What kept it from acting; what there was stays as it was.
    fn step(
        &mut self,
        wanted: u32,
        traffic: &Traffic,
        now: Nanos,
    ) -> impl Future<Output = Result<Reality, String>>;
}
