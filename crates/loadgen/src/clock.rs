//! The one place that reads a clock, and an alarm that rings on it.
#![allow(clippy::disallowed_methods)] // Somebody has to, and it is here.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

use plimsoll_core::Nanos;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Time since the start of a run. All threads of a run share one.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    origin: Nanos,
}

impl Clock {
    /// A clock that reads zero until `delay` has passed.
    pub(crate) fn starting_in(delay: Nanos) -> Clock {
        Clock { origin: monotonic() + delay }
    }

    /// Time since the start, zero before it.
    pub(crate) fn now(self) -> Nanos {
        monotonic().since(self.origin)
    }
}

fn monotonic() -> Nanos {
    let t = clock_gettime(ClockId::Monotonic);
    // The monotonic clock counts from boot: neither part is negative or near its end.
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// Wakes one task at a time that may be moved while the task waits.
///
/// Tokio's timers round up to whole milliseconds, which would delay and bunch the requests of any rate above
/// some hundred a second. A timer descriptor in the reactor rings within some ten microseconds and costs one
/// system call to set.
pub(crate) struct Alarm {
    clock: Clock,
    timer: AsyncFd<OwnedFd>,
    set_for: Cell<Nanos>,
}

impl Alarm {
    /// An alarm that is not set. Call within a tokio runtime.
    pub(crate) fn new(clock: Clock) -> io::Result<Alarm> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // SAFETY: the `OwnedFd` is open, names one file for its whole life and is owned by the `AsyncFd`.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE)? };
        Ok(Alarm { clock, timer, set_for: Cell::new(Nanos::MAX) })
    }

    /// Rings at `at` and no longer at what was set before. In the past: at once.
    pub(crate) fn set(&self, at: Nanos) {
        if self.set_for.replace(at) == at {
            return;
        }
        let t = self.clock.origin + at;
        let value = Timespec { tv_sec: (t.0 / 1_000_000_000) as i64, tv_nsec: (t.0 % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)
            .expect("a valid time on a timer of our own");
    }

    /// Returns after the alarm has rung, now and then also early.
    pub(crate) async fn rung(&self) -> io::Result<()> {
        // Edge-triggered: the next setting re-arms the edge, so the count of expirations need not be read.
        self.timer.readable().await?.clear_ready();
        self.set_for.set(Nanos::MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_not_early_and_again_and_can_be_moved() {
        let clock = Clock::starting_in(Nanos::ZERO);
        let alarm = Alarm::new(clock).unwrap();
        for step in 1..=3 {
            alarm.set(Nanos::from_secs(3_600));
            let at = clock.now() + Nanos::from_millis(step);
            alarm.set(at);
            while clock.now() < at {
                alarm.rung().await.unwrap();
                alarm.set(at);
            }
        }
        alarm.set(Nanos::ZERO);
        alarm.rung().await.unwrap();
    }
}
