//! The only file of this crate that reads a clock or sleeps.
#![allow(clippy::disallowed_methods)] // a host has to know the time; everything else is handed a `Clock`

use std::num::NonZeroU64;
use std::time::Instant;

use plimsoll_core::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// Monotonic time since this clock was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that reads zero now.
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// Time since [`Clock::start`].
    pub fn now(&self) -> Nanos {
        self.origin.elapsed().into()
    }

    /// Blocks this thread until the clock reads `until`; returns at once where that has passed.
    pub fn sleep_until(&self, until: Nanos) {
        let left = until.since(self.now());
        if left > Nanos::ZERO {
            std::thread::sleep(left.into());
        }
    }
}

/// Lets this thread's sleeps end within microseconds of what was asked. The kernel's default of 50 us would
/// add a tenth to a service time of half a millisecond.
pub fn sleep_precisely() {
    // A kernel that refuses leaves the default slack: less exact, still right.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
}

/// CPU time that this thread has used so far.
pub fn thread_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Nanos::from_secs(time.tv_sec as u64) + Nanos(time.tv_nsec as u64)
}
