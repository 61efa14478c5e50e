//! How much processor time the calling thread has used: the one clock of this crate, for speeds alone.

use plimsoll_core::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// Since the thread began.
pub fn thread_cpu_time() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Nanos::from_secs(time.tv_sec as u64) + Nanos(time.tv_nsec as u64)
}
