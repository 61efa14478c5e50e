//! Time as a server tells it. Stamps are only compared and subtracted.

/// A point in the server's time: microseconds since an origin that is its adapter's affair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub i64);

impl Stamp {
    /// Earlier than anything.
    pub const EARLIEST: Stamp = Stamp(i64::MIN);

    /// From `earlier` to here in ns, 0 where that is later.
    pub fn since_ns(self, earlier: Stamp) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0).saturating_mul(1_000)
    }
}
