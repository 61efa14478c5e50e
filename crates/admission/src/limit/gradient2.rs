//! Gradient2: compare how long requests take now with how long they took over a longer time.
//!
//! `gradient = clamp(tolerance * long / now, 0.5, 1)` and the limit moves towards `limit * gradient + room`, so it
//! rises by `room` while times are steady and falls by up to half when they jump. The long average follows
//! slowly, and quickly downwards when it has drifted far above, which a long overload makes it do. A limit that is not
//! used stays where it is. A drop is a measurement like any other, as in the original: what timed out took long.

use plimsoll_core::Mechanism;

use super::{Limit, Sample};

/// Gradient of response times.
pub struct Gradient2 {
    limit: f64,
    max: f64,
    /// How much slower than usual is still no queue.
    tolerance: f64,
    /// What the limit may grow by at once.
    room: f64,
    /// How far one measurement moves the limit, in 0..1.
    smoothing: f64,
    /// Weight of one measurement in the long average.
    long_weight: f64,
    long_ns: Option<f64>,
}

impl Gradient2 {
    /// As an admission policy, with the parameters that people run: tolerance 1.5, room 4, long average over 600.
    pub fn policy(initial: f64, max: f64) -> Gradient2 {
        Gradient2 {
            limit: initial,
            max,
            tolerance: 1.5,
            room: 4.0,
            smoothing: 0.2,
            long_weight: 2.0 / 601.0,
            long_ns: None,
        }
    }

    /// For finding a server's slots from measurements that are already averages over many requests relative
    /// to a baseline of one: the baseline is the long average and nothing has to be smoothed again.
    pub fn slots(initial: f64, max: f64, tolerance: f64, baseline_ns: f64) -> Gradient2 {
        Gradient2 {
            limit: initial,
            max,
            tolerance,
            room: 0.5,
            smoothing: 0.5,
            long_weight: 0.0,
            long_ns: Some(baseline_ns),
        }
    }

    /// Puts the limit somewhere else, to go on from there.
    pub fn move_to(&mut self, limit: f64) {
        self.limit = limit.clamp(1.0, self.max);
    }

    /// The same with another bound.
    pub fn scale_to(&mut self, limit: f64, max: f64) {
        self.max = max;
        self.move_to(limit);
    }
}

impl Limit for Gradient2 {
    fn update(&mut self, sample: Sample) -> f64 {
        let now_ns = sample.took.0.max(1) as f64;
        let long_ns = self.long_ns.get_or_insert(now_ns);
        *long_ns += self.long_weight * (now_ns - *long_ns);
        if self.long_weight > 0.0 && *long_ns / now_ns > 2.0 {
            *long_ns *= 0.95;
        }
        if f64::from(sample.in_flight) < self.limit / 2.0 {
            return self.limit;
        }
        let gradient = (self.tolerance * *long_ns / now_ns).clamp(0.5, 1.0);
        let target = self.limit * gradient + self.room;
        self.limit += self.smoothing * (target - self.limit);
        self.limit = self.limit.clamp(1.0, self.max);
        self.limit
    }

    fn mechanism(&self) -> Mechanism {
        Mechanism::Gradient2
    }
}
