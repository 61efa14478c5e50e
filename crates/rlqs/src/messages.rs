//! What is said, in either direction. The numbers are those of the fields in `envoy/service/rate_limit_quota/v3/rlqs.proto` and
//! `envoy/type/v3/{ratelimit_strategy,token_bucket}.proto`; fields that nobody here needs are left out, and skipped where they come.

use std::collections::BTreeMap;

use plimsoll_core::Nanos;
use prost::{Enumeration, Message, Oneof};

/// `RateLimitQuotaUsageReports`: what a data plane counted since its last report.
#[derive(Clone, PartialEq, Message)]
pub struct UsageReports {
    /// Whose buckets they are; said in the first report at least.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// By bucket.
    #[prost(message, repeated, tag = "2")]
    pub bucket_quota_usages: Vec<BucketUsage>,
}

/// `RateLimitQuotaUsageReports.BucketQuotaUsage`.
#[derive(Clone, PartialEq, Message)]
pub struct BucketUsage {
    /// Of which bucket.
    #[prost(message, optional, tag = "1")]
    pub bucket_id: Option<BucketId>,
    /// Since the last report of this bucket.
    #[prost(message, optional, tag = "2")]
    pub time_elapsed: Option<Duration>,
    /// Requests that were let in.
    #[prost(uint64, tag = "3")]
    pub num_requests_allowed: u64,
    /// Requests that were turned away.
    #[prost(uint64, tag = "4")]
    pub num_requests_denied: u64,
}

/// `BucketId`: the same names and values are the same bucket, in whatever order.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct BucketId {
    /// By name.
    #[prost(btree_map = "string, string", tag = "1")]
    pub bucket: BTreeMap<String, String>,
}

/// `RateLimitQuotaResponse`: what is to be done with some buckets.
#[derive(Clone, PartialEq, Message)]
pub struct QuotaResponse {
    /// In this order.
    #[prost(message, repeated, tag = "1")]
    pub bucket_action: Vec<BucketAction>,
}

/// `RateLimitQuotaResponse.BucketAction`.
#[derive(Clone, PartialEq, Message)]
pub struct BucketAction {
    /// With which bucket.
    #[prost(message, optional, tag = "1")]
    pub bucket_id: Option<BucketId>,
    /// What.
    #[prost(oneof = "Action", tags = "2, 3")]
    pub bucket_action: Option<Action>,
}

/// What is done with a bucket.
#[derive(Clone, PartialEq, Oneof)]
pub enum Action {
    /// It gets a strategy.
    #[prost(message, tag = "2")]
    Assign(QuotaAssignment),
    /// It is forgotten.
    #[prost(message, tag = "3")]
    Abandon(Abandon),
}

/// `RateLimitQuotaResponse.BucketAction.QuotaAssignmentAction`.
#[derive(Clone, PartialEq, Message)]
pub struct QuotaAssignment {
    /// Without one it never ends.
    #[prost(message, optional, tag = "2")]
    pub assignment_time_to_live: Option<Duration>,
    /// Without one everything is let in.
    #[prost(message, optional, tag = "3")]
    pub rate_limit_strategy: Option<Strategy>,
}

/// `RateLimitQuotaResponse.BucketAction.AbandonAction`.
#[derive(Clone, PartialEq, Message)]
pub struct Abandon {}

/// `envoy.type.v3.RateLimitStrategy`. Requests per unit of time, the third kind, Envoy's own filter does not know either.
#[derive(Clone, PartialEq, Message)]
pub struct Strategy {
    /// Which.
    #[prost(oneof = "Kind", tags = "1, 3")]
    pub strategy: Option<Kind>,
}

/// Which strategy.
#[derive(Clone, PartialEq, Oneof)]
pub enum Kind {
    /// All or nothing.
    #[prost(enumeration = "BlanketRule", tag = "1")]
    Blanket(i32),
    /// So many a second.
    #[prost(message, tag = "3")]
    TokenBucket(TokenBucket),
}

/// `envoy.type.v3.RateLimitStrategy.BlanketRule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum BlanketRule {
    /// All are let in.
    AllowAll = 0,
    /// None is.
    DenyAll = 1,
}

/// `envoy.type.v3.TokenBucket`.
#[derive(Clone, PartialEq, Message)]
pub struct TokenBucket {
    /// What it holds, and begins with.
    #[prost(uint32, tag = "1")]
    pub max_tokens: u32,
    /// What it gains in an interval; one, where nothing is said.
    #[prost(message, optional, tag = "2")]
    pub tokens_per_fill: Option<u32>,
    /// The interval.
    #[prost(message, optional, tag = "3")]
    pub fill_interval: Option<Duration>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// And nanoseconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl From<Nanos> for Duration {
    fn from(time: Nanos) -> Duration {
        // Both fit: the seconds of a u64 of nanoseconds are far below 2^63, and the rest is below a billion.
        Duration { seconds: (time.0 / 1_000_000_000) as i64, nanos: (time.0 % 1_000_000_000) as i32 }
    }
}

impl Duration {
    /// As a time; nothing where it is negative or longer than 500 years.
    pub fn read(self) -> Option<Nanos> {
        let whole = u64::try_from(self.seconds).ok()?.checked_mul(1_000_000_000)?;
        whole.checked_add(u64::try_from(self.nanos).ok()?).map(Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as the field numbers of the .proto files say, written by hand.
    #[test]
    fn a_report_and_an_assignment_are_these_bytes() {
        let id = || BucketId { bucket: BTreeMap::from([("class".to_owned(), "a".to_owned())]) };
        let id_bytes = b"\x0a\x0a\x0a\x05class\x12\x01a";
        let usage = BucketUsage {
            bucket_id: Some(id()),
            time_elapsed: Some(Nanos::from_millis(1_250).into()),
            num_requests_allowed: 300,
            num_requests_denied: 7,
        };
        let reports = UsageReports { domain: "d".to_owned(), bucket_quota_usages: vec![usage] };
        let mut usage_bytes = [&[0x0a, id_bytes.len() as u8], &id_bytes[..]].concat();
        usage_bytes.extend(b"\x12\x07\x08\x01\x10\x80\xe5\x9a\x77\x18\xac\x02\x20\x07");
        let bytes = [&[0x0a, 1, b'd', 0x12, usage_bytes.len() as u8], &usage_bytes[..]].concat();
        assert_eq!(reports.encode_to_vec(), bytes);

        let bucket = TokenBucket {
            max_tokens: 8,
            tokens_per_fill: Some(90),
            fill_interval: Some(Nanos::from_secs(60).into()),
        };
        let assignment = QuotaAssignment {
            assignment_time_to_live: Some(Nanos::from_secs(3).into()),
            rate_limit_strategy: Some(Strategy { strategy: Some(Kind::TokenBucket(bucket)) }),
        };
        let action = BucketAction { bucket_id: Some(id()), bucket_action: Some(Action::Assign(assignment)) };
        let response = QuotaResponse { bucket_action: vec![action] };
        let bucket_bytes = b"\x08\x08\x12\x02\x08\x5a\x1a\x02\x08\x3c";
        let strategy = [&[0x1a, bucket_bytes.len() as u8], &bucket_bytes[..]].concat();
        let assignment = [b"\x12\x02\x08\x03\x1a", &[strategy.len() as u8][..], &strategy[..]].concat();
        let mut action = [&[0x0a, id_bytes.len() as u8], &id_bytes[..]].concat();
        action.extend([0x12, assignment.len() as u8]);
        action.extend(assignment);
        let bytes = [&[0x0a, action.len() as u8], &action[..]].concat();
        assert_eq!(response.encode_to_vec(), bytes);
        assert_eq!(QuotaResponse::decode(&bytes[..]), Ok(response));
    }

    /// Of a version to come, or one gone by: `last_report`, field 5, which Envoy once had, and a field 900.
    #[test]
    fn fields_that_nobody_knows_are_skipped() {
        let mut bytes = b"\x18\x03".to_vec();
        bytes.extend(b"\x2a\x02\x08\x01");
        bytes.extend(b"\xa2\x38\x03new");
        let usage = BucketUsage::decode(&bytes[..]).unwrap();
        assert_eq!((usage.num_requests_allowed, usage.num_requests_denied), (3, 0));
    }

    #[test]
    fn durations_that_cannot_be_are_nothing() {
        let read = |seconds, nanos| Duration { seconds, nanos }.read();
        assert_eq!(read(3, 5), Some(Nanos(3_000_000_005)));
        assert_eq!((read(-1, 0), read(0, -1), read(i64::MAX, 0)), (None, None, None));
    }
}
