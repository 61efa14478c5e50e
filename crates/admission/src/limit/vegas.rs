//! Vegas: keep a few requests queued in the server, no more (after TCP Vegas; Brakmo and Peterson, 1995).
//!
//! With the shortest time ever seen as the time without a queue, `limit * (1 - shortest / took)` estimates how many of
//! the admitted requests are waiting inside the server. Below `alpha` the limit rises, above `beta` it falls; both
//! grow with the logarithm of the limit. Every `30 * limit` measurements the shortest time is forgotten, so that a
//! server which became slower for good does not look overloaded for ever. A drop lowers the limit, whatever it took. A
//! limit that is not used stays where it is: what is measured then says nothing about it.

use plimsoll_core::{Mechanism, Nanos};

use super::{Limit, Sample};

const PROBE_EVERY_LIMITS: f64 = 30.0;

/// Delay-based limit.
pub struct Vegas {
    limit: f64,
    max: f64,
    shortest: Nanos,
    until_probe: f64,
}

impl Vegas {
    /// Starts at `initial`, never above `max`.
    pub fn new(initial: f64, max: f64) -> Vegas {
        Vegas { limit: initial, max, shortest: Nanos::MAX, until_probe: PROBE_EVERY_LIMITS * initial }
    }
}

impl Limit for Vegas {
    fn update(&mut self, sample: Sample) -> f64 {
        let step = self.limit.log10().max(1.0);
        if sample.dropped {
            self.limit = (self.limit - step).max(1.0);
            return self.limit;
        }
        self.until_probe -= 1.0;
        if self.until_probe <= 0.0 {
            self.until_probe = PROBE_EVERY_LIMITS * self.limit;
            self.shortest = sample.took;
            return self.limit;
        }
        if sample.took < self.shortest {
            self.shortest = sample.took;
            return self.limit;
        }
        if f64::from(sample.in_flight) * 2.0 < self.limit {
            return self.limit;
        }
        let (alpha, beta) = (3.0 * step, 6.0 * step);
        let queue = (self.limit * (1.0 - self.shortest.0 as f64 / sample.took.0.max(1) as f64)).ceil();
        if queue > beta {
            self.limit -= step;
        } else if queue <= step {
            self.limit += beta;
        } else if queue < alpha {
            self.limit += step;
        }
        self.limit = self.limit.clamp(1.0, self.max);
        self.limit
    }

    fn mechanism(&self) -> Mechanism {
        Mechanism::Vegas
    }
}
