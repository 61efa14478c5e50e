//! The rates that classes were promised: a leaky bucket a class (Cataclysm, section 3.1). What conforms to its class's rate
//! is let in untested; the rest goes on to the policer.

use plimsoll_core::bucket::TokenBucket;
use plimsoll_core::{ClassId, Nanos};

/// What a bucket holds, as time at the promised rate: requests come in bursts, and a second's worth of them at once still keeps
/// the promise.
pub const DEPTH: Nanos = Nanos::from_secs(1);
/// And at least so many requests, or a promise of a few a second would be broken by every cluster of them. Of requests that come at
/// random and exactly as often as promised, one in twice so many finds the bucket full.
pub const LEAST_DEPTH: u64 = 32;

/// One bucket a class. Lock-free.
pub struct MinimumRates {
    buckets: Box<[TokenBucket]>,
}

impl MinimumRates {
    /// Buckets for these rates in requests a second, one a class; zero promises nothing.
    pub fn new(per_s: &[f64]) -> MinimumRates {
        let rates = MinimumRates { buckets: per_s.iter().map(|_| TokenBucket::closed()).collect() };
        (0..per_s.len()).for_each(|i| rates.promise(ClassId(i as u16), per_s[i], Nanos::ZERO));
        rates
    }

    /// Changes what `class` is promised, in requests a second. What has been let in stays counted, but for what a full bucket of
    /// the new size does not hold.
    pub fn promise(&self, class: ClassId, per_s: f64, now: Nanos) {
        self.buckets[class.index()].set(per_s, DEPTH, LEAST_DEPTH, now);
    }

    /// Whether a request of `class` is within the promised rate. If so it counts.
    #[inline]
    pub fn conforms(&self, class: ClassId, now: Nanos) -> bool {
        self.buckets[class.index()].take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLASS: ClassId = ClassId(0);

    proptest! {
        /// By the definition of a leaky bucket: of any stretch of time, never more than a bucketful and what leaks in it.
        #[test]
        fn never_more_than_was_promised(
            gaps_us in prop::collection::vec(0u64..30_000, 1..2_000),
            per_s in prop::sample::select(vec![0.5, 3.0, 20.0, 700.0]),
        ) {
            let rates = MinimumRates::new(&[per_s]);
            let mut now = Nanos::ZERO;
            let mut let_in = Vec::new();
            for gap in gaps_us {
                now += Nanos::from_micros(gap);
                if rates.conforms(CLASS, now) {
                    let_in.push(now.as_secs_f64());
                }
            }
            let bucketful = per_s.max(LEAST_DEPTH as f64);
            for (i, from) in let_in.iter().enumerate() {
                for (n, to) in let_in[i..].iter().enumerate() {
                    prop_assert!((n + 1) as f64 <= bucketful + (to - from) * per_s + 1e-3);
                }
            }
        }

        /// Who asks for more than it was promised gets what it was promised.
        #[test]
        fn and_never_less(per_s in 1.0f64..5_000.0, times in 1.0f64..20.0) {
            let rates = MinimumRates::new(&[per_s]);
            let asked = (10.0 * per_s * times) as u64;
            let at = |i: u64| Nanos::from_secs_f64(i as f64 / (per_s * times));
            let got = (0..asked).filter(|&i| rates.conforms(CLASS, at(i))).count() as f64;
            prop_assert!(got >= 10.0 * per_s - 2.0, "{got} of {} at {per_s}/s", 10.0 * per_s);
        }
    }

    #[test]
    fn nothing_promised_is_nothing_let_in_and_a_new_promise_holds_at_once() {
        let rates = MinimumRates::new(&[0.0, 5.0]);
        assert!(!rates.conforms(CLASS, Nanos::ZERO) && rates.conforms(ClassId(1), Nanos::ZERO));
        rates.promise(CLASS, 1.0, Nanos::ZERO);
        rates.promise(ClassId(1), 0.0, Nanos::ZERO);
        assert!(rates.conforms(CLASS, Nanos::ZERO) && !rates.conforms(ClassId(1), Nanos::ZERO));
    }

    #[test]
    fn a_promise_that_grows_is_not_held_back_by_what_the_small_one_let_in() {
        let rates = MinimumRates::new(&[1.0]);
        assert_eq!((0..100).filter(|_| rates.conforms(CLASS, Nanos::ZERO)).count() as u64, LEAST_DEPTH);
        rates.promise(CLASS, 1_000.0, Nanos::ZERO);
        assert!(rates.conforms(CLASS, Nanos::from_millis(1)));
    }

    #[test]
    fn the_smallest_promise_is_still_one() {
        let rates = MinimumRates::new(&[f64::MIN_POSITIVE]);
        assert_eq!((0..100).filter(|_| rates.conforms(CLASS, Nanos::ZERO)).count() as u64, LEAST_DEPTH);
    }

    #[test]
    fn threads_that_ask_together_share_one_bucket() {
        let rates = MinimumRates::new(&[1_000.0]);
        let got: usize = std::thread::scope(|scope| {
            let ask = || (0..10_000).filter(|_| rates.conforms(CLASS, Nanos::ZERO)).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(got, 1_000);
    }
}
