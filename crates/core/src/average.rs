//! Averages that follow what changes: as many old values are kept beside the new ones as make an average steady, no more.

use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A mean of signed nanoseconds whose old values fade.
#[derive(Clone, Copy, Debug, Default)]
pub struct Average {
    weight: f64,
    sum_ns: f64,
}

impl Average {
    /// Adds `count` values of this sum.
    pub fn add(&mut self, count: f64, sum_ns: f64) {
        self.weight += count;
        self.sum_ns += sum_ns;
    }

    /// Lets everything so far weigh `factor` of what it does, or as much as `kept` values if that is less. The mean stays.
    pub fn fade(&mut self, factor: f64, kept: f64) {
        let factor = factor.min(kept / self.weight.max(1.0));
        // Never into denormals: the last mean is kept for as long as nothing newer comes.
        if self.weight > 1e-6 {
            self.weight *= factor;
            self.sum_ns *= factor;
        }
    }

    /// The mean in nanoseconds, zero of nothing.
    pub fn mean_ns(&self) -> f64 {
        if self.weight > 0.0 { self.sum_ns / self.weight } else { 0.0 }
    }
}

/// Signed values that threads add while one takes them away.
#[derive(Default)]
pub struct Sum {
    count: AtomicU32,
    /// In two's complement.
    sum_ns: AtomicU64,
}

impl Sum {
    /// Adds a value.
    #[inline]
    pub fn add(&self, ns: i64) {
        self.count.fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns as u64, Relaxed);
    }

    /// Takes what was added away: how many values, and their sum. One that is just being added may be counted now and summed
    /// later, which matters to nobody.
    pub fn take(&self) -> (f64, f64) {
        (f64::from(self.count.swap(0, Relaxed)), self.sum_ns.swap(0, Relaxed) as i64 as f64)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn new_values_take_over_as_soon_as_there_are_enough() {
        let mut average = Average::default();
        average.add(1_000.0, -50_000.0);
        assert_eq!(average.mean_ns(), -50.0);
        average.fade(0.9, 100.0);
        average.add(300.0, 21_000.0);
        assert_eq!(average.mean_ns(), 40.0, "100 old ones beside 300 new ones");
        (0..1_000).for_each(|_| average.fade(0.9, 100.0));
        assert!((average.mean_ns() - 40.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_taken_is_gone() {
        let sum = Sum::default();
        [-50, 20, -5].into_iter().for_each(|ns| sum.add(ns));
        assert_eq!((sum.take(), sum.take()), ((3.0, -35.0), (0.0, 0.0)));
    }
}
