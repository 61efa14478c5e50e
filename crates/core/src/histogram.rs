//! Latency histograms: one side is written by many threads without a lock, the other is read at leisure.
//!
//! [`IntervalHistogram`] is the paper's dual buffer (Bouncer, section 3, footnote 4): requests are recorded
//! in one buffer while the other is drained. [`Profile`] is what the drained intervals add up to, each
//! interval weighing less as it ages, so that a class which falls silent keeps its last known shape.
//!
//! The bucket layout is the usual log-linear one. Crates that implement it keep the index function private,
//! and the whole layout is three lines, so it is here.

use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::{Nanos, Percentile};

/// 2^6 buckets to each power of two: no bucket is wider than 1.6 % of its values.
const SUB_BITS: u32 = 6;
/// Values from 2^38 ns (275 s) on share the last bucket.
const VALUE_BITS: u32 = 38;
/// Buckets of a histogram: 2,112.
pub const BUCKETS: usize = (((VALUE_BITS - SUB_BITS) as usize) << SUB_BITS) + (1 << SUB_BITS);

/// The bucket of a value.
pub fn bucket_of(value: Nanos) -> usize {
    let v = value.0.min((1 << VALUE_BITS) - 1);
    let shift = (63 - (v | 1).leading_zeros()).saturating_sub(SUB_BITS);
    ((shift as usize) << SUB_BITS) + (v >> shift) as usize
}

/// The smallest value of a bucket and the smallest above it, in nanoseconds.
pub fn bounds_of(bucket: usize) -> (u64, u64) {
    let group = bucket >> SUB_BITS;
    let shift = group.saturating_sub(1);
    let low = (bucket - (shift << SUB_BITS)) as u64;
    (low << shift, (low + 1) << shift)
}

struct Buffer {
    counts: Box<[AtomicU32]>,
    sum_ns: AtomicU64,
}

/// What one class recorded in the current interval. Recording is two relaxed additions; nothing is lost at a
/// swap: a recorder that was late finds its value counted one interval later.
pub struct IntervalHistogram {
    active: AtomicUsize,
    buffers: [Buffer; 2],
}

impl Default for IntervalHistogram {
    fn default() -> Self {
        let buffer = || Buffer {
            counts: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            sum_ns: AtomicU64::new(0),
        };
        IntervalHistogram { active: AtomicUsize::new(0), buffers: [buffer(), buffer()] }
    }
}

impl IntervalHistogram {
    /// Counts one value.
    #[inline]
    pub fn record(&self, value: Nanos) {
        let buffer = &self.buffers[self.active.load(Relaxed) & 1];
        buffer.counts[bucket_of(value)].fetch_add(1, Relaxed);
        buffer.sum_ns.fetch_add(value.0, Relaxed);
    }

    /// Ends the interval: moves what was recorded into `profile` and returns how many values that were, and their sum in ns.
    /// One caller at a time.
    pub fn drain_into(&self, profile: &mut Profile) -> (u64, u64) {
        let old = self.active.fetch_xor(1, Relaxed) & 1;
        let buffer = &self.buffers[old];
        let mut drained = 0;
        for (bucket, count) in buffer.counts.iter().enumerate() {
            if count.load(Relaxed) != 0 {
                let count = count.swap(0, Relaxed);
                profile.weights[bucket] += f64::from(count);
                drained += u64::from(count);
            }
        }
        let sum_ns = buffer.sum_ns.swap(0, Relaxed);
        profile.total += drained as f64;
        (drained, sum_ns)
    }
}

/// A weighted distribution of latencies.
#[derive(Clone)]
pub struct Profile {
    weights: Vec<f64>,
    total: f64,
}

impl Default for Profile {
    fn default() -> Self {
        Profile { weights: vec![0.0; BUCKETS], total: 0.0 }
    }
}

impl Profile {
    /// Whether nothing was ever recorded.
    pub fn is_empty(&self) -> bool {
        self.total <= 0.0
    }

    /// Makes everything recorded so far weigh `factor` of what it did. Stops where it would fade into
    /// denormals: the last known shape is kept for as long as nothing newer comes.
    pub fn decay(&mut self, factor: f64) {
        if self.total < 1e-6 {
            return;
        }
        self.weights.iter_mut().for_each(|w| *w *= factor);
        self.total *= factor;
    }

    /// The squared coefficient of variation: the variance over the squared mean, to the width of a bucket. 0 is constant, 1 is
    /// exponential; zero where nothing was recorded.
    pub fn scv(&self) -> f64 {
        let moments = self.weights.iter().enumerate().filter(|&(_, &weight)| weight > 0.0).fold(
            [0.0; 3],
            |[zeroth, first, second], (bucket, &weight)| {
                let (low, high) = bounds_of(bucket);
                let value = (low + high) as f64 / 2.0;
                [zeroth + weight, first + weight * value, second + weight * value * value]
            },
        );
        let [zeroth, first, second] = moments;
        if first > 0.0 { (second * zeroth / (first * first) - 1.0).max(0.0) } else { 0.0 }
    }

    /// Adds another distribution to this one.
    pub fn merge(&mut self, other: &Profile) {
        self.weights.iter_mut().zip(&other.weights).for_each(|(a, b)| *a += b);
        self.total += other.total;
    }

    /// The value at or below which `percentile` of the weight lies, spread evenly within a bucket; zero where
    /// nothing was recorded.
    pub fn percentile(&self, percentile: Percentile) -> Nanos {
        // A hair less, or rounding in the weights would push an exact border into the next bucket.
        let rank = percentile.fraction() * self.weights.iter().sum::<f64>() * (1.0 - 1e-9);
        let mut below = 0.0;
        for (bucket, &weight) in self.weights.iter().enumerate().filter(|&(_, &w)| w > 0.0) {
            if below + weight >= rank {
                let (low, high) = bounds_of(bucket);
                let part = ((rank - below) / weight).clamp(0.0, 1.0);
                return Nanos(low + (part * (high - low) as f64) as u64);
            }
            below += weight;
        }
        Nanos::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn profile_of(values: &[u64]) -> Profile {
        let (interval, mut profile) = (IntervalHistogram::default(), Profile::default());
        values.iter().for_each(|&v| interval.record(Nanos(v)));
        assert_eq!(interval.drain_into(&mut profile), (values.len() as u64, values.iter().sum()));
        profile
    }

    proptest! {
        #[test]
        fn every_value_lies_in_its_bucket(v in 0u64..1 << VALUE_BITS) {
            let (low, high) = bounds_of(bucket_of(Nanos(v)));
            prop_assert!(low <= v && v < high);
            prop_assert!(high - low <= 1 || (high - low) as f64 <= low as f64 / 63.0);
        }

        #[test]
        fn percentiles_are_within_a_bucket_of_the_exact_ones(
            mut values in prop::collection::vec(1_000u64..10_000_000_000, 1..500),
            p in prop::sample::select(vec!["p10", "p50", "p90", "p99", "p99.9"]),
        ) {
            let p: Percentile = p.parse().unwrap();
            let got = profile_of(&values).percentile(p).0 as f64;
            values.sort_unstable();
            let rank = (p.fraction() * values.len() as f64).ceil().max(1.0) as usize - 1;
            let exact = values[rank.min(values.len() - 1)] as f64;
            prop_assert!((got - exact).abs() <= exact * 0.017 + 1.0, "{p}: {got} for {exact}");
        }

        #[test]
        fn the_variation_is_within_a_bucket_of_the_exact_one(
            values in prop::collection::vec(1_000u64..10_000_000_000, 1..500),
        ) {
            let got = profile_of(&values).scv();
            let n = values.len() as f64;
            let mean = values.iter().map(|&v| v as f64).sum::<f64>() / n;
            let exact = values.iter().map(|&v| (v as f64 / mean - 1.0).powi(2)).sum::<f64>() / n;
            prop_assert!((got - exact).abs() <= 0.04 * (exact + 1.0), "{got} for {exact}");
        }

        #[test]
        fn decay_keeps_the_shape(values in prop::collection::vec(1u64..1_000_000_000, 1..100), n in 0..400) {
            let mut profile = profile_of(&values);
            let p90 = profile.percentile(Percentile::P90);
            (0..n).for_each(|_| profile.decay(0.9));
            let close = |a: Nanos, b: Nanos| a.0.abs_diff(b.0) <= 1 + b.0 / 1000;
            prop_assert!(close(profile.percentile(Percentile::P90), p90));
        }
    }

    #[test]
    fn what_is_recorded_during_a_drain_is_counted_later() {
        let (interval, mut profile) = (IntervalHistogram::default(), Profile::default());
        let total = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| (0..20_000).for_each(|i| interval.record(Nanos(i * 1_000)))))
                .collect();
            let mut total = 0;
            while writers.iter().any(|w| !w.is_finished()) {
                total += interval.drain_into(&mut profile).0;
            }
            total
        });
        let rest = interval.drain_into(&mut profile).0 + interval.drain_into(&mut profile).0;
        assert_eq!(total + rest, 60_000);
    }

    #[test]
    fn the_largest_value_has_a_bucket() {
        assert_eq!(bucket_of(Nanos::MAX), BUCKETS - 1);
        assert!(bucket_of(Nanos((1 << VALUE_BITS) - 1)) < BUCKETS);
    }
}
