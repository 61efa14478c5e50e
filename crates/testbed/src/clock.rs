//! The only file of this crate that reads a clock or sleeps.
#![allow(clippy::disallowed_methods)] // a host has to know the time; everything else is handed a `Clock`

use std::future::poll_fn;
use std::num::NonZeroU64;
use std::pin::pin;
use std::time::{Instant, SystemTime};

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

    /// The time of day when the clock read zero, in seconds since 1970: what others log can be held beside it.
    pub fn began_s(&self) -> f64 {
        let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        day.as_secs_f64() - self.now().as_secs_f64()
    }

    /// Blocks this thread until the clock reads `until`; returns at once where that has passed.
    pub fn sleep_until(&self, until: Nanos) {
        let left = until.since(self.now());
        if left > Nanos::ZERO {
            std::thread::sleep(left.into());
        }
    }
}

/// The time of day, in ns since 1970.
pub fn wall_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
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

/// Runs to the end, and tells how much CPU time that took on this thread, which others may use in between.
pub async fn metered<F: Future>(work: F) -> (F::Output, Nanos) {
    let mut work = pin!(work);
    let mut cpu = Nanos::ZERO;
    let output = poll_fn(|cx| {
        let start = thread_cpu();
        let poll = work.as_mut().poll(cx);
        cpu += thread_cpu().since(start);
        poll
    });
    (output.await, cpu)
}
