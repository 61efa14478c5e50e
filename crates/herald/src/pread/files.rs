//! How many files may be kept open.

use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::proc::Proc;

/// The most that are kept open. Each costs the kernel 5 KB.
const MOST: u64 = 10_000;
/// Descriptors that are left to the rest of the process.
const SPARED: u64 = 256;

/// The files that are kept open. Beyond their number a thread's is opened at each reading, which takes four times as long.
#[derive(Default)]
pub struct Files {
    open: u64,
    /// As far as is known.
    room: u64,
}

impl Files {
    /// The counters of a thread, where there is room for another file.
    pub fn open(&mut self, pid: u32, tid: u32, proc: &Proc) -> Option<OwnedFd> {
        if self.open >= self.room {
            self.room = room(self.open + 1);
        }
        if self.open >= self.room {
            return None;
        }
        let file = proc.file(format_args!("{pid}/task/{tid}/schedstat")).ok()?;
        self.open += 1;
        Some(file)
    }

    /// Closes one.
    pub fn give_back(&mut self, file: Option<OwnedFd>) {
        self.open -= u64::from(file.is_some());
    }
}

/// How many files may be open, `wanted` if that can be. The limit is raised no further than is needed: children inherit it.
fn room(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let needed = (2 * wanted).clamp(1_024, MOST) + SPARED;
    if now < needed && now < most {
        let raised = Rlimit { current: Some(needed.min(most)), maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return needed.min(most).saturating_sub(SPARED).min(MOST);
        }
    }
    now.saturating_sub(SPARED).min(MOST)
}
