//! The only file of `plimsoll top` that reads clocks: everything else is given the time.
#![allow(clippy::disallowed_methods)] // Somebody has to, and it is here.

pub use plimsoll_herald::clock::now;
use rustix::time::{ClockId, clock_gettime};

/// The time of day, seconds since 1970, to the millisecond. May jump.
pub fn wall_s() -> f64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec as f64 + (time.tv_nsec / 1_000_000) as f64 / 1e3
}

/// Blocks the calling thread, a signal ends it early.
pub fn sleep(time: std::time::Duration) {
    let _ = rustix::thread::nanosleep(&rustix::thread::Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    });
}
