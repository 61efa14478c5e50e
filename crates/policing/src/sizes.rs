//! Service-time buckets: requests of about the same size are tested as one, and the small ones before the big ones, without
//! sorting anything (Cataclysm, section 3.2).
//!
//! Four buckets to each power of two, so that none is wider than a fifth of its sizes: from 131 us up to 8.6 s, 64 of them. Which
//! are not empty fits one word.

use plimsoll_core::Nanos;

/// Buckets a class has.
pub const BUCKETS: usize = 64;
/// 2^2 buckets to each power of two.
const SUB_BITS: u32 = 2;
/// Sizes are told apart in units of 2^15 ns; four units begin the second bucket's power of two.
const UNIT_BITS: u32 = 15;

/// The bucket of a request of this inherent service time. Whatever takes less than the first or longer than the last belongs
/// there.
#[inline]
pub fn bucket_of(size: Nanos) -> usize {
    let units = (size.0 >> UNIT_BITS).clamp(1 << SUB_BITS, (1 << 18) - 1);
    let shift = 63 - units.leading_zeros() - SUB_BITS;
    ((shift as usize) << SUB_BITS) + (units >> shift) as usize - (1 << SUB_BITS)
}

/// The smallest size of a bucket and the smallest above it.
pub fn bounds_of(bucket: usize) -> (Nanos, Nanos) {
    let (shift, units) = (bucket >> SUB_BITS, (bucket & 3) as u64 + (1 << SUB_BITS));
    let low = if bucket == 0 { 0 } else { units << shift << UNIT_BITS };
    (Nanos(low), Nanos((units + 1) << shift << UNIT_BITS))
}

/// What a request of the bucket is taken to need: the middle.
#[inline]
pub fn middle_of(bucket: usize) -> Nanos {
    let (low, high) = bounds_of(bucket);
    Nanos((low.0 + high.0) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_size_lies_in_its_bucket(ns in 0u64..1 << 33) {
            let (low, high) = bounds_of(bucket_of(Nanos(ns)));
            prop_assert!(low.0 <= ns && ns < high.0);
        }

        #[test]
        fn greater_sizes_are_in_no_lesser_bucket(a in 0u64..1 << 40, b in 0u64..1 << 40) {
            prop_assert!(bucket_of(Nanos(a.min(b))) <= bucket_of(Nanos(a.max(b))));
        }
    }

    #[test]
    fn the_buckets_follow_each_other_without_gaps_up_to_the_last() {
        assert_eq!(bounds_of(0).0, Nanos::ZERO);
        for bucket in 1..BUCKETS {
            let (low, high) = bounds_of(bucket);
            assert_eq!(bounds_of(bucket - 1).1, low);
            assert!((high.0 - low.0) * 4 <= low.0, "{bucket}");
        }
        assert_eq!(bucket_of(Nanos::MAX), BUCKETS - 1);
    }
}
