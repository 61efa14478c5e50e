//! The only file of the engine and of the agent that reads clocks: everything else is given the time.
#![allow(clippy::disallowed_methods)] // Somebody has to, and it is here.

use plimsoll_core::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: what ledgers are stamped with. Never zero.
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(Nanos(1))
}

/// The time of day, seconds since 1970. For events; may jump.
pub fn wall_s() -> f64 {
    // To the microsecond: more is noise, and would print as such.
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec as f64 + (time.tv_nsec as f64 / 1e3).round() / 1e6
}
