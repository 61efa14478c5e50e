//! Moving averages over a sliding minute in steps of a second, for the policies that do not tell classes apart
//! (Bouncer, section 5.2: `D` = 60 s, `delta` = 1 s).

use plimsoll_core::Nanos;
use plimsoll_core::window::SlidingWindow;

const STEP: Nanos = Nanos::from_secs(1);
const STEPS: usize = 60;
const SUM_NS: usize = 0;
const COUNT: usize = 1;

/// The moving average of processing times.
pub struct ServiceTimes(SlidingWindow<2>);

impl ServiceTimes {
    /// An empty window.
    pub fn new(now: Nanos) -> ServiceTimes {
        ServiceTimes(SlidingWindow::new(STEP, STEPS, now))
    }

    /// Counts one processing time.
    pub fn record(&self, served: Nanos) {
        self.0.add(SUM_NS, served.0);
        self.0.add(COUNT, 1);
    }

    /// The average, zero where nothing was recorded.
    pub fn mean(&self) -> Nanos {
        Nanos(self.0.sum(SUM_NS).checked_div(self.0.sum(COUNT)).unwrap_or(0))
    }

    /// Eq. 5: how long a request that joins a queue of `length` is expected to wait for one of `slots`.
    pub fn expected_wait(&self, length: u32, slots: u32) -> Nanos {
        Nanos(self.mean().0.saturating_mul(u64::from(length)) / u64::from(slots))
    }

    /// Moves the window on; returns when the next step is due.
    pub fn advance(&self, now: Nanos) -> Nanos {
        self.0.advance(now)
    }
}

/// The moving average of a rate.
pub struct Rate(SlidingWindow<1>);

impl Rate {
    /// An empty window.
    pub fn new(now: Nanos) -> Rate {
        Rate(SlidingWindow::new(STEP, STEPS, now))
    }

    /// Counts one event.
    pub fn record(&self) {
        self.0.add(0, 1);
    }

    /// Events per second over the window, or over its life while that is shorter.
    pub fn per_s(&self, now: Nanos) -> f64 {
        let covered = self.0.covered(now).as_secs_f64();
        if covered > 0.0 { self.0.sum(0) as f64 / covered } else { 0.0 }
    }

    /// Moves the window on; returns when the next step is due.
    pub fn advance(&self, now: Nanos) -> Nanos {
        self.0.advance(now)
    }
}
