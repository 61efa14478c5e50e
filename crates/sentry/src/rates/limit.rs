//! How much of one class may enter, as the controller says: a bucket that all threads share.
//!
//! **Promises come first.** The rate is never kept below what the class was promised (`min_rate`), and the bucket never smaller than the
//! promise's. A request that is within the promise is so within the rate: by the calculus of token buckets, what passes a bucket whose
//! rate and depth are at least another's passes that other one as if the first were not there.
//!
//! **Nobody renews it.** A rate holds for as long as it was assigned for. Then it is relaxed, a little every step, so that what was held
//! back does not hit the fleet all at once; and after [`RELAXES`] there is none, whoever may have stopped by then.

use plimsoll_core::bucket::TokenBucket;
use plimsoll_core::sync::{AtomicU64, Ordering::Relaxed};
use plimsoll_core::{Limit, Mechanism, Nanos, Quantity, Refusal};
use plimsoll_policing::minimum;
use plimsoll_rlqs::assignment::{self, Assignment, burst_of};

/// How long it takes from the end of an assignment until there is no limit.
pub const RELAXES: Nanos = Nanos::from_secs(10);
/// Every step, by so much: twice as much enters after a second and a quarter, a hundred times as much after eight.
const GROWTH: f64 = 1.15;
/// From this rate on, or nothing would ever come of none.
const FROM_PER_S: f64 = 1.0;
/// What a client is told to wait: a rate changes every step, and the fleet's load within seconds.
const RETRY_AFTER: Nanos = Nanos::from_secs(1);

/// The limit of one class.
#[derive(Debug)]
pub struct RateLimit {
    /// There is a limit until then; zero where there is none.
    until_ns: AtomicU64,
    /// It is kept as it is until then, and relaxed from then on.
    holds_until_ns: AtomicU64,
    /// Requests a second, as bits: those that may enter, and those that come.
    per_s: AtomicU64,
    offered_per_s: AtomicU64,
    bucket: TokenBucket,
}

impl Default for RateLimit {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        RateLimit {
            until_ns: zero(),
            holds_until_ns: zero(),
            per_s: zero(),
            offered_per_s: zero(),
            bucket: TokenBucket::closed(),
        }
    }
}

impl RateLimit {
    /// Why a request may not enter, if it may not. One load and one compare where there is no limit.
    #[inline]
    pub fn offer(&self, now: Nanos) -> Option<Refusal> {
        if now.0 >= self.until_ns.load(Relaxed) || self.bucket.take(now) {
            None
        } else {
            Some(self.refusal())
        }
    }

    #[cold]
    fn refusal(&self) -> Refusal {
        let [estimate, objective] =
            [&self.offered_per_s, &self.per_s].map(|of| f64::from_bits(of.load(Relaxed)));
        Refusal {
            mechanism: Mechanism::Rate,
            limit: Limit::Rate,
            estimate: Quantity::Rate(estimate),
            objective: Quantity::Rate(objective),
            retry_after: RETRY_AFTER,
        }
    }

    /// The controller has said so. One caller at a time, as for [`RateLimit::relax`].
    pub fn assign(&self, assignment: Assignment, promised_per_s: f64, now: Nanos) {
        let assignment::Limit::Rate { per_s, burst } = assignment.limit else { return self.lift() };
        self.set(per_s, burst, promised_per_s, now);
        let holds_until = now + assignment.holds_for;
        self.holds_until_ns.store(holds_until.0, Relaxed);
        self.until_ns.store((holds_until + RELAXES).0, Relaxed);
    }

    /// There is no limit from now on.
    pub fn lift(&self) {
        self.until_ns.store(0, Relaxed);
    }

    /// A step has gone by: a limit that nobody has renewed is wider from now on.
    pub fn relax(&self, promised_per_s: f64, now: Nanos) {
        let [holds_until, until] = [&self.holds_until_ns, &self.until_ns].map(|of| of.load(Relaxed));
        if (holds_until..until).contains(&now.0) {
            let per_s = f64::from_bits(self.per_s.load(Relaxed)).max(FROM_PER_S) * GROWTH;
            self.set(per_s, burst_of(per_s), promised_per_s, now);
        }
    }

    fn set(&self, per_s: f64, burst: u32, promised_per_s: f64, now: Nanos) {
        let per_s = per_s.max(promised_per_s);
        let (mut depth, mut least) = (Nanos::ZERO, u64::from(burst));
        if promised_per_s > 0.0 {
            // As much as the promise's bucket holds, in time at this rate.
            depth = Nanos::from_secs_f64(minimum::DEPTH.as_secs_f64() * promised_per_s / per_s);
            least = least.max(minimum::LEAST_DEPTH);
        }
        self.bucket.set(per_s, depth, least, now);
        self.per_s.store(per_s.to_bits(), Relaxed);
    }

    /// So many come, a second.
    pub fn note_offered(&self, per_s: f64) {
        self.offered_per_s.store(per_s.to_bits(), Relaxed);
    }

    /// How many may enter, a second; nothing where there is no limit.
    pub fn per_s(&self, now: Nanos) -> Option<f64> {
        (now.0 < self.until_ns.load(Relaxed)).then(|| f64::from_bits(self.per_s.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::ClassId;
    use plimsoll_policing::minimum::MinimumRates;
    use plimsoll_rlqs::STEP;
    use proptest::prelude::*;

    use super::*;

    fn rate(per_s: f64) -> Assignment {
        let limit = assignment::Limit::Rate { per_s, burst: burst_of(per_s) };
        Assignment { limit, holds_for: Nanos::from_secs(3) }
    }

    /// How many of so many a second get in, from one time to another.
    fn let_in(limit: &RateLimit, per_s: u64, from: Nanos, to: Nanos) -> u64 {
        let n = (to.since(from).as_secs_f64() * per_s as f64) as u64;
        let at = |i: u64| from + Nanos::from_secs_f64(i as f64 / per_s as f64);
        (0..n).filter(|&i| limit.offer(at(i)).is_none()).count() as u64
    }

    #[test]
    fn what_is_assigned_is_kept_and_a_change_within_a_step() {
        let limit = RateLimit::default();
        let at = Nanos::from_millis;
        assert_eq!(let_in(&limit, 1_000, at(0), at(1_000)), 1_000, "nobody has said anything");
        limit.assign(rate(100.0), 0.0, at(1_000));
        let got = let_in(&limit, 1_000, at(1_000), at(2_000));
        assert!((100..=109).contains(&got), "{got}");
        limit.assign(rate(400.0), 0.0, at(2_000));
        let got = let_in(&limit, 1_000, at(2_000), at(2_250));
        assert!((95..=120).contains(&got), "a quarter of 400, and a burst: {got}");
        limit.assign(rate(0.0), 0.0, at(2_250));
        assert_eq!(let_in(&limit, 1_000, at(2_250), at(3_000)), 0);
        limit.assign(Assignment { limit: assignment::Limit::None, ..rate(0.0) }, 0.0, at(3_000));
        assert_eq!(let_in(&limit, 1_000, at(3_000), at(3_500)), 500);
    }

    #[test]
    fn a_refusal_says_what_comes_and_what_may() {
        let limit = RateLimit::default();
        limit.assign(rate(0.0), 0.0, Nanos(1));
        limit.note_offered(153.21);
        let refusal = limit.offer(Nanos(2)).unwrap();
        assert_eq!(refusal.to_string(), "rate; limit=rate; estimate=153.2/s; objective=0.0/s");
    }

    #[test]
    fn a_limit_that_nobody_renews_is_relaxed_and_gone_even_if_nobody_relaxes_it() {
        let relaxed = |steps: bool| {
            let limit = RateLimit::default();
            limit.assign(rate(100.0), 0.0, Nanos::ZERO);
            let mut got = Vec::new();
            let mut now = Nanos::ZERO;
            while now < Nanos::from_secs(14) {
                got.push(let_in(&limit, 1_000, now, now + STEP));
                now += STEP;
                if steps {
                    limit.relax(0.0, now);
                }
            }
            got
        };
        let got = relaxed(true);
        assert!(got[1..12].iter().all(|n| (24..=26).contains(n)), "held for three seconds: {got:?}");
        let rises = got[12..].windows(2).all(|pair| pair[1] + 1 >= pair[0] && pair[1] <= pair[0] * 5 / 4 + 4);
        assert!(rises, "then step by step: {got:?}");
        assert_eq!(got[53], 250);
        let got = relaxed(false);
        assert!(got[1..51].iter().all(|n| (24..=26).contains(n)) && got[53] == 250, "{got:?}");
    }

    proptest! {
        /// Whatever comes, and whatever is assigned: who is within the promise is let in as if there were no limit.
        #[test]
        fn a_promise_holds(
            gaps_us in prop::collection::vec(0u64..20_000, 1..1_500),
            promised in prop::sample::select(vec![0.5, 3.0, 20.0, 700.0]),
            times in prop::sample::select(vec![0.0, 0.5, 1.0, 1.3, 4.0]),
        ) {
            let limit = RateLimit::default();
            let assigned = Assignment { holds_for: Nanos::from_secs(60), ..rate(promised * times) };
            limit.assign(assigned, promised, Nanos::ZERO);
            let [alone, behind] = [0, 1].map(|_| MinimumRates::new(&[promised]));
            let (mut now, mut without, mut with) = (Nanos::ZERO, 0, 0);
            for gap in gaps_us {
                now += Nanos::from_micros(gap);
                without += u32::from(alone.conforms(ClassId(0), now));
                with += u32::from(limit.offer(now).is_none() && behind.conforms(ClassId(0), now));
                // Packets are not a fluid: one request may come a gap later.
                prop_assert!(with + 1 >= without, "{with} of {without}");
            }
        }
    }

    #[test]
    fn threads_that_ask_together_share_one_limit() {
        let limit = RateLimit::default();
        limit.assign(rate(2_000.0), 0.0, Nanos::ZERO);
        let got: usize = std::thread::scope(|scope| {
            let ask = || (0..10_000).filter(|_| limit.offer(Nanos(1)).is_none()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(got, 100);
    }
}
