//! The clocks of this crate, for speeds alone: simulated time never looks at them.
#![allow(clippy::disallowed_methods)] // Somebody has to measure speeds, and it is here.

use plimsoll_core::Nanos;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// How much processor time the calling thread has used.
pub fn thread_cpu_time() -> Nanos {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// Since some moment.
pub fn monotonic() -> Nanos {
    nanos(clock_gettime(ClockId::Monotonic))
}

fn nanos(time: Timespec) -> Nanos {
    Nanos::from_secs(time.tv_sec as u64) + Nanos(time.tv_nsec as u64)
}
