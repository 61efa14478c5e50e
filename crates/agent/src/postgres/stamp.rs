//! PostgreSQL's `timestamptz` as it travels: microseconds since the year 2000. Stamps are only compared and subtracted.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// A point in the server's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub i64);

impl Stamp {
    /// Earlier than anything: `-infinity`.
    pub const EARLIEST: Stamp = Stamp(i64::MIN);

    /// From `earlier` to here in ns, 0 where that is later.
    pub fn since_ns(self, earlier: Stamp) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0).saturating_mul(1_000)
    }
}

impl FromSql<'_> for Stamp {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Stamp, Box<dyn Error + Sync + Send>> {
        Ok(Stamp(i64::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

impl ToSql for Stamp {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i64(self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}
