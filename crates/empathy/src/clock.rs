//! The only file of this crate that reads a clock: everything else is given the time.
#![allow(clippy::disallowed_methods)] // Somebody has to, and it is here.

pub use plimsoll_herald::clock::now;
use rustix::time::{ClockId, clock_gettime};

/// The CPU time that this process has used, in seconds.
pub fn own_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
