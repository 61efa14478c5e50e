//! The only file of the herald that reads clocks, and the clock of those who use the herald: everything else is given the time.
#![allow(clippy::disallowed_methods)] // Somebody has to, and it is here.

use plimsoll_core::Nanos;
use rustix::time::{ClockId, Timespec, clock_gettime};

fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Nanoseconds of `CLOCK_MONOTONIC`: nobody sets it, and it stands still while the host is suspended, as the times of threads do.
pub fn now() -> Nanos {
    read(ClockId::Monotonic)
}

/// Nanoseconds since the host was started, by which the kernel tells when threads were born.
pub fn since_boot() -> Nanos {
    read(ClockId::Boottime)
}

/// By the clock of [`now`], the time that is so long after the host was started, unless it was suspended since.
pub fn after_boot(time: Nanos) -> Nanos {
    now().since(since_boot().since(time))
}

/// The CPU time that the calling thread has used.
pub fn own_cpu() -> Nanos {
    read(ClockId::ThreadCPUTime)
}

/// Blocks the calling thread until [`now`] is `at`. The herald has a thread of its own.
pub fn sleep_until(at: Nanos) {
    let time = Timespec { tv_sec: (at.0 / 1_000_000_000) as i64, tv_nsec: (at.0 % 1_000_000_000) as i64 };
    // A signal may end it early.
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &time).is_err() && now() < at {}
}
