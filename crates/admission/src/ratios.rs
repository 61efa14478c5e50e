//! How many requests of each class were received and accepted in the last second: what both starvation
//! strategies of Bouncer decide by (section 4; window of 1 s in steps of 10 ms).

use plimsoll_core::window::SlidingWindow;
use plimsoll_core::{ClassId, Nanos};

const STEP: Nanos = Nanos::from_millis(10);
const STEPS: usize = 100;
const RECEIVED: usize = 0;
const ACCEPTED: usize = 1;

/// Received and accepted requests per class over a sliding second.
pub struct AcceptanceRatios {
    classes: Box<[SlidingWindow<2>]>,
}

impl AcceptanceRatios {
    /// Empty windows for this many classes.
    pub fn new(classes: usize, now: Nanos) -> AcceptanceRatios {
        AcceptanceRatios { classes: (0..classes).map(|_| SlidingWindow::new(STEP, STEPS, now)).collect() }
    }

    /// Counts one request.
    #[inline]
    pub fn count(&self, class: ClassId, accepted: bool) {
        let window = &self.classes[class.index()];
        window.add(RECEIVED, 1);
        if accepted {
            window.add(ACCEPTED, 1);
        }
    }

    /// Accepted over received, or `None` where nothing was received.
    #[inline]
    pub fn of(&self, class: ClassId) -> Option<f64> {
        let window = &self.classes[class.index()];
        let received = window.sum(RECEIVED);
        (received > 0).then(|| window.sum(ACCEPTED) as f64 / received as f64)
    }

    /// The mean ratio of the classes that received anything; 1 where none did.
    pub fn mean(&self) -> f64 {
        let ratios = (0..self.classes.len()).filter_map(|i| self.of(ClassId(i as u16)));
        let (sum, n) = ratios.fold((0.0, 0), |(sum, n), ratio| (sum + ratio, n + 1));
        if n == 0 { 1.0 } else { sum / f64::from(n) }
    }

    /// Moves the windows on; returns when the next step is due.
    pub fn advance(&self, now: Nanos) -> Nanos {
        self.classes.iter().map(|w| w.advance(now)).min().unwrap_or(Nanos::MAX)
    }
}
