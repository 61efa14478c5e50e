//! Token buckets: how a rate becomes an answer to each request (TopFull, section 5).

use plimsoll_core::Nanos;

/// How many seconds' worth of tokens a bucket holds: enough that Poisson arrivals below the rate pass nearly all, little enough that no
/// burst fills a queue.
const DEPTH_S: f64 = 0.05;
/// Fewest that it holds: below one, nothing would ever pass.
const MIN_DEPTH: f64 = 1.0;

/// Lets requests of one API in at a rate, or all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    rate_per_s: Option<f64>,
    tokens: f64,
    at: Nanos,
}

impl Bucket {
    /// Requests a second from now on; nothing: all. A bucket that is new begins empty: who has just been limited is owed nothing.
    pub fn set_rate(&mut self, rate_per_s: Option<f64>, now: Nanos) {
        self.fill(now);
        self.rate_per_s = rate_per_s.map(|rate| rate.max(0.0));
        match self.rate_per_s {
            Some(rate) => self.tokens = self.tokens.min(depth(rate)),
            None => self.tokens = 0.0,
        }
    }

    /// The rate in force.
    pub fn rate_per_s(&self) -> Option<f64> {
        self.rate_per_s
    }

    /// Whether a request may enter.
    pub fn admits(&mut self, now: Nanos) -> bool {
        if self.rate_per_s.is_none() {
            return true;
        }
        self.fill(now);
        let admits = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(admits));
        admits
    }

    fn fill(&mut self, now: Nanos) {
        if let Some(rate) = self.rate_per_s {
            let owed = rate * now.since(self.at).as_secs_f64();
            self.tokens = (self.tokens + owed).min(depth(rate));
        }
        self.at = now;
    }
}

fn depth(rate_per_s: f64) -> f64 {
    (rate_per_s * DEPTH_S).max(MIN_DEPTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_rate_and_its_depth_passes() {
        let mut bucket = Bucket::default();
        assert!(bucket.admits(Nanos::ZERO), "without a rate all pass");
        bucket.set_rate(Some(100.0), Nanos::ZERO);
        let passed = (0..10_000u64).filter(|i| bucket.admits(Nanos::from_millis(*i))).count();
        assert!((995..=1_005).contains(&passed), "{passed} of 1,000 in ten seconds");
        // After a pause there is no more than it holds.
        let burst = (0..100).filter(|_| bucket.admits(Nanos::from_secs(100))).count();
        assert_eq!(burst, 5);
    }

    #[test]
    fn the_slowest_rate_lets_one_in_now_and_then() {
        let mut bucket = Bucket::default();
        bucket.set_rate(Some(0.5), Nanos::ZERO);
        let passed = (0..=100u64).filter(|s| bucket.admits(Nanos::from_secs(*s))).count();
        assert_eq!(passed, 50);
        bucket.set_rate(Some(0.0), Nanos::from_secs(200));
        let passed = (200..300u64).filter(|s| bucket.admits(Nanos::from_secs(*s))).count();
        assert!(passed <= 1, "what was owed before, and nothing else");
    }
}
