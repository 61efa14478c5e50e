//! AIMD: one more for every measurement while the limit is used, a tenth less when the server fails a
//! request or takes longer than a timeout.

use plimsoll_core::{Mechanism, Nanos};

use super::{Limit, Sample};

const BACKOFF: f64 = 0.9;

/// Additive increase, multiplicative decrease.
pub struct Aimd {
    limit: f64,
    max: f64,
    timeout: Nanos,
}

impl Aimd {
    /// Starts at `initial`, never above `max`; a request that takes longer than `timeout` counts as dropped.
    pub fn new(initial: f64, max: f64, timeout: Nanos) -> Aimd {
        Aimd { limit: initial, max, timeout }
    }
}

impl Limit for Aimd {
    fn update(&mut self, sample: Sample) -> f64 {
        if sample.dropped || sample.took > self.timeout {
            self.limit = (self.limit * BACKOFF).floor();
        } else if f64::from(sample.in_flight) * 2.0 >= self.limit {
            self.limit += 1.0;
        }
        self.limit = self.limit.clamp(1.0, self.max);
        self.limit
    }

    fn mechanism(&self) -> Mechanism {
        Mechanism::Aimd
    }
}
