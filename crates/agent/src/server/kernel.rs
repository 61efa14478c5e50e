//! What the kernel of this host knows of a server's processes, asked as seldom as will do.

use std::collections::HashMap;

use plimsoll_core::Nanos;

use crate::host::{Did, Host, Process};

use super::Glance;
use super::backend::{Backend, State};
use super::stamp::Stamp;

/// How often the kernel is asked about processes in calm.
const SELDOM: Nanos = Nanos::from_secs(5);
/// How often about all processes while something is wrong; about those that do something it is asked at every look then.
const OFTEN: Nanos = Nanos::from_millis(500);

/// The kernel, and when it was last asked about all processes: by our time, and by the server's.
pub struct Kernel {
    host: Host,
    /// Since when we look: at first it is asked often, to learn what is usual.
    since: Nanos,
    read: Nanos,
    read_at: Stamp,
}

impl Kernel {
    /// One that was never asked.
    pub fn new(now: Nanos) -> Kernel {
        Kernel { host: Host::default(), since: now, read: Nanos::ZERO, read_at: Stamp::EARLIEST }
    }

    /// Whether it is time to ask about all processes, also of sessions that are idle.
    pub fn is_due(&self, glance: Glance) -> bool {
        let is_new = glance.now.since(self.since) < SELDOM;
        let pace = if glance.suspicious || is_new { OFTEN } else { SELDOM };
        glance.now.since(self.read) >= pace
    }

    /// In calm, what the kernel knows of 200 processes would cost more than all the rest; so it is asked seldom then, and never about those
    /// that have been idle since. `server` is the server's time, `full` whether these are all of its backends.
    pub fn read(
        &mut self,
        glance: Glance,
        server: Stamp,
        full: bool,
        backends: &[Backend],
    ) -> HashMap<Process, Did> {
        if !full && !glance.suspicious {
            return HashMap::new();
        }
        let before = self.read_at;
        if full {
            (self.read, self.read_at) = (glance.now, server);
            self.host.keep_recent(glance.now);
        }
        let did = |b: &&Backend| b.state != State::Idle || b.changed.is_none_or(|changed| changed >= before);
        self.host.read(glance.now, backends.iter().filter(did).filter_map(|backend| backend.process))
    }
}
