//! A token bucket kept by virtual scheduling: all that it remembers is when what was let in will have drained away. One that was
//! idle for long is empty of debt, and lets a bucketful in at once.

use crate::Nanos;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// The gap of a bucket that lets nothing in.
const NOTHING: u64 = u64::MAX;

/// What a bucket holds that keeps a rate: what comes in so many seconds.
const DEPTH_S: f64 = 0.05;
/// And at least so many, or a rate of a few a second would be lost to every two requests that come together. Of requests that come at
/// random, half again as many as the rate, one in a hundred tokens is lost to a bucket of eight being full.
pub const LEAST_BURST: u32 = 8;

/// What a bucket of so many requests a second holds: a twentieth of a second's worth, and eight at least.
pub fn burst_of(per_s: f64) -> u32 {
    ((per_s * DEPTH_S) as u32).max(LEAST_BURST)
}

/// One bucket, shared by all who ask. Lock-free; on a cache line of its own, as every request that passes writes it.
#[derive(Debug)]
#[repr(align(64))]
pub struct TokenBucket {
    /// Nanoseconds between two requests at the rate.
    gap_ns: AtomicU64,
    /// What it holds, as time at the rate.
    depth_ns: AtomicU64,
    empty_at: AtomicU64,
}

impl Clone for TokenBucket {
    /// One of its own in the same state, for a simulation that goes two ways.
    fn clone(&self) -> TokenBucket {
        let copy = |of: &AtomicU64| AtomicU64::new(of.load(Relaxed));
        TokenBucket {
            gap_ns: copy(&self.gap_ns),
            depth_ns: copy(&self.depth_ns),
            empty_at: copy(&self.empty_at),
        }
    }
}

impl TokenBucket {
    /// One that lets nothing in.
    pub fn closed() -> TokenBucket {
        TokenBucket {
            gap_ns: AtomicU64::new(NOTHING),
            depth_ns: AtomicU64::new(0),
            empty_at: AtomicU64::new(0),
        }
    }

    /// Lets in `per_s` requests a second from now on, none where that is zero, and at once as many as come in `depth` at that rate, but
    /// at least `least`. What has been let in stays counted, but for what a full bucket of the new size does not hold.
    ///
    /// Whoever asks in between may see one of the two numbers and not yet the other: for that one request it does not matter.
    pub fn set(&self, per_s: f64, depth: Nanos, least: u64, now: Nanos) {
        // So long a gap that a bucketful of them is still a time.
        let longest = NOTHING / (4 * least.max(1));
        let gap_ns = if per_s > 0.0 { ((1e9 / per_s) as u64).clamp(1, longest) } else { NOTHING };
        let depth_ns = depth.0.max(least.saturating_mul(gap_ns));
        self.gap_ns.store(gap_ns, Relaxed);
        self.depth_ns.store(depth_ns, Relaxed);
        self.empty_at.fetch_min(now.0.saturating_add(depth_ns), Relaxed);
    }

    /// Whether a request is within the rate. If so it counts.
    #[inline]
    pub fn take(&self, now: Nanos) -> bool {
        let gap_ns = self.gap_ns.load(Relaxed);
        if gap_ns == NOTHING {
            return false;
        }
        let depth_ns = self.depth_ns.load(Relaxed);
        let poured = |empty_at: u64| {
            let level_ns = empty_at.saturating_sub(now.0).saturating_add(gap_ns);
            (level_ns <= depth_ns).then_some(now.0.saturating_add(level_ns))
        };
        self.empty_at.fetch_update(Relaxed, Relaxed, poured).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTH: Nanos = Nanos::from_millis(50);

    fn let_in(bucket: &TokenBucket, now: Nanos) -> usize {
        (0..10_000).take_while(|_| bucket.take(now)).count()
    }

    #[test]
    fn a_bucketful_at_once_and_then_the_rate() {
        let bucket = TokenBucket::closed();
        assert_eq!(let_in(&bucket, Nanos::ZERO), 0);
        bucket.set(1_000.0, DEPTH, 8, Nanos::ZERO);
        assert_eq!(let_in(&bucket, Nanos::ZERO), 50);
        assert_eq!(let_in(&bucket, Nanos::from_millis(10)), 10);
        bucket.set(10.0, DEPTH, 8, Nanos::from_millis(10));
        assert_eq!(let_in(&bucket, Nanos::from_secs(60)), 8, "the least, where the depth has not even one");
        bucket.set(0.0, DEPTH, 8, Nanos::from_secs(60));
        assert_eq!(let_in(&bucket, Nanos::from_secs(90)), 0);
    }

    #[test]
    fn a_new_rate_holds_at_once_and_a_repeated_one_gives_nothing_away() {
        let bucket = TokenBucket::closed();
        bucket.set(1_000.0, DEPTH, 8, Nanos::ZERO);
        assert_eq!(let_in(&bucket, Nanos::ZERO), 50);
        for _ in 0..10 {
            bucket.set(1_000.0, DEPTH, 8, Nanos::ZERO);
        }
        assert_eq!(let_in(&bucket, Nanos::ZERO), 0);
        bucket.set(4_000.0, DEPTH, 8, Nanos::ZERO);
        assert_eq!(let_in(&bucket, Nanos::from_millis(5)), 20);
        bucket.set(0.0, DEPTH, 0, Nanos::from_millis(5));
        bucket.set(f64::INFINITY, Nanos(1), 1, Nanos::from_millis(5));
        assert!(bucket.take(Nanos::from_millis(6)), "however fast");
    }
}
