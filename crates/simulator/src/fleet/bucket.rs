//! Token buckets: how a rate becomes an answer to each request (TopFull, section 5). The bucket is the sentries' own.

use plimsoll_core::Nanos;
use plimsoll_core::bucket::{TokenBucket, burst_of};

/// Lets requests of one API in at a rate, or all.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate_per_s: Option<f64>,
    bucket: TokenBucket,
}

impl Default for Bucket {
    /// Without a limit.
    fn default() -> Bucket {
        Bucket { rate_per_s: None, bucket: TokenBucket::closed() }
    }
}

impl Bucket {
    /// Requests a second from now on; nothing: all.
    pub fn set_rate(&mut self, rate_per_s: Option<f64>, now: Nanos) {
        self.rate_per_s = rate_per_s.map(|rate| rate.max(0.0));
        if let Some(rate) = self.rate_per_s {
            self.bucket.set(rate, Nanos::ZERO, burst_of(rate).into(), now);
        }
    }

    /// The rate in force.
    pub fn rate_per_s(&self) -> Option<f64> {
        self.rate_per_s
    }

    /// Whether a request may enter.
    pub fn admits(&self, now: Nanos) -> bool {
        self.rate_per_s.is_none() || self.bucket.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_rate_and_its_depth_passes() {
        let mut bucket = Bucket::default();
        assert!(bucket.admits(Nanos::ZERO), "without a rate all pass");
        bucket.set_rate(Some(200.0), Nanos::ZERO);
        let passed = (0..10_000u64).filter(|i| bucket.admits(Nanos::from_millis(*i))).count();
        assert!((1_995..=2_010).contains(&passed), "{passed} of 2,000 in ten seconds");
        // After a pause there is no more than it holds.
        let burst = (0..100).filter(|_| bucket.admits(Nanos::from_secs(100))).count();
        assert_eq!(burst, 10);
    }

    #[test]
    fn the_slowest_rate_lets_one_in_now_and_then() {
        let mut bucket = Bucket::default();
        bucket.set_rate(Some(0.5), Nanos::ZERO);
        let passed = (0..=100u64).filter(|s| bucket.admits(Nanos::from_secs(*s))).count();
        assert!((50..=58).contains(&passed), "{passed}");
        bucket.set_rate(Some(0.0), Nanos::from_secs(200));
        let passed = (200..300u64).filter(|s| bucket.admits(Nanos::from_secs(*s))).count();
        assert_eq!(passed, 0);
    }
}
