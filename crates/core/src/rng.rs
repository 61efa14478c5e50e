//! Seeded randomness. Policies receive a generator; nobody asks the system for one.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::Nanos;

/// The one generator used everywhere: small, fast, and the same bytes for a seed in every release.
pub type Rng = Xoshiro256PlusPlus;

/// A generator for one purpose of a run. Different `stream`s of a seed are independent, so that what one part
/// draws never shifts what another part sees.
pub fn seeded(seed: u64, stream: u64) -> Rng {
    // SplitMix64 inside `seed_from_u64` spreads neighbouring values; the odd constant keeps (s, t) and (t, s) apart.
    Rng::seed_from_u64(seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// True with probability `p`; never for `p <= 0`, always for `p >= 1`.
pub fn chance(rng: &mut Rng, p: f64) -> bool {
    rng.random::<f64>() < p
}

/// How long whoever tries again waits before that: `first`, twice as long for each try of `before`, from half of it to all of it.
pub fn backoff(rng: &mut Rng, first: Nanos, before: u32) -> Nanos {
    let longest = first.as_secs_f64() * f64::from(before.min(20)).exp2();
    Nanos::from_secs_f64(longest * rng.random_range(0.5..=1.0))
}
