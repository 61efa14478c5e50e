//! What became of the requests: counters and latency histograms of one name of the mix.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use hdrhistogram::Histogram;
use plimsoll_core::Nanos;

use crate::log::Entry;

/// How one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 2xx or 3xx, and where it is gRPC, status OK.
    Ok,
    /// Refused by a Plimsoll: 429, 503, RESOURCE_EXHAUSTED or UNAVAILABLE with its reason header.
    Rejected,
    /// The same without the header: somebody else's refusal.
    RefusedOther,
    /// All else.
    Error(ErrorKind),
}

impl Outcome {
    /// Whether a client that tries again does so now: who was refused, or lost the connection, may fare better; who was told that there is no such
    /// page will not.
    pub(crate) fn may_pass(self) -> bool {
        use ErrorKind::{Closed, Connect, Http2, Io};
        match self {
            Outcome::Ok => false,
            Outcome::Rejected | Outcome::RefusedOther => true,
            Outcome::Error(kind) => matches!(kind, Connect(_) | Closed | Io(_) | Http2(_)),
        }
    }
}

/// Why a request counts as an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// No TCP connection.
    Connect(io::ErrorKind),
    /// No TLS session, or the wrong protocol agreed in it.
    Tls,
    /// The connection ended before the answer did.
    Closed,
    /// The connection broke.
    Io(io::ErrorKind),
    /// The HTTP/2 stream or connection was ended with this error code; all that are above 255 count as that, lest a
    /// server fill the list of kinds.
    Http2(u8),
    /// What came back is not HTTP.
    Protocol,
    /// No full answer in time.
    Timeout,
    /// Not even sent in time: every connection was in use.
    TimeoutUnsent,
    /// An HTTP status that is neither success nor refusal.
    Status(u16),
    /// A gRPC status that is neither OK nor a refusal; `None`: missing or unreadable.
    Grpc(Option<u16>),
}

/// An identifier: `status_404`, `connect_connection_refused`.
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identifier = |text: String| text.replace(' ', "_").to_lowercase();
        match self {
            ErrorKind::Connect(kind) => write!(f, "connect_{}", identifier(kind.to_string())),
            ErrorKind::Tls => f.write_str("tls"),
            ErrorKind::Closed => f.write_str("closed"),
            ErrorKind::Io(kind) => write!(f, "io_{}", identifier(kind.to_string())),
            ErrorKind::Http2(code) => {
                write!(f, "h2_{}", identifier(format!("{:?}", h2::Reason::from(u32::from(*code)))))
            }
            ErrorKind::Protocol => f.write_str("protocol"),
            ErrorKind::Timeout => f.write_str("timeout"),
            ErrorKind::TimeoutUnsent => f.write_str("timeout_unsent"),
            ErrorKind::Status(code) => write!(f, "status_{code}"),
            ErrorKind::Grpc(Some(code)) => write!(f, "grpc_status_{code}"),
            ErrorKind::Grpc(None) => f.write_str("grpc_status_missing"),
        }
    }
}

/// Durations to three significant digits, to half a microsecond below one millisecond.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    fn new() -> Latencies {
        let mut histogram = Histogram::new_with_bounds(1_000, 2_000, 3).expect("valid bounds");
        histogram.auto(true);
        Latencies(histogram)
    }

    fn record(&mut self, latency: Nanos) {
        self.0.record(latency.0).expect("grows as needed");
    }

    fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("grows as needed");
    }

    /// The latency that `percent` of all do not exceed, in milliseconds; none of nothing.
    pub(crate) fn percentile_ms(&self, percent: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| Nanos(self.0.value_at_percentile(percent)).as_millis_f64())
    }
}

/// Everything counted for one name of the mix. Latencies run from the intended send time.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    /// Tries after the first one of a request.
    pub(crate) retries: u64,
    pub(crate) ok: u64,
    /// Of the ok ones, those within their deadline.
    pub(crate) good: u64,
    pub(crate) rejected: u64,
    pub(crate) refused_other: u64,
    pub(crate) errors: BTreeMap<ErrorKind, u64>,
    pub(crate) ok_latency: Latencies,
    pub(crate) rejected_latency: Latencies,
    pub(crate) refused_other_latency: Latencies,
    /// From the intended to the actual moment of sending.
    pub(crate) late: Latencies,
    /// The longest latency of all, however the request ended.
    pub(crate) max: Nanos,
    /// How each ended, where somebody wants to know.
    pub(crate) log: Vec<Entry>,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            sent: 0,
            retries: 0,
            ok: 0,
            good: 0,
            rejected: 0,
            refused_other: 0,
            errors: BTreeMap::new(),
            ok_latency: Latencies::new(),
            rejected_latency: Latencies::new(),
            refused_other_latency: Latencies::new(),
            late: Latencies::new(),
            max: Nanos::ZERO,
            log: Vec::new(),
        }
    }

    /// A request was handed to its connection `late` after its intended time.
    pub(crate) fn sent(&mut self, late: Nanos) {
        self.sent += 1;
        self.late.record(late);
    }

    /// A request ended `latency` after its intended time.
    pub(crate) fn ended(&mut self, outcome: Outcome, latency: Nanos, deadline: Option<Nanos>) {
        self.max = self.max.max(latency);
        match outcome {
            Outcome::Ok => {
                self.ok += 1;
                self.good += u64::from(deadline.is_none_or(|deadline| latency <= deadline));
                self.ok_latency.record(latency);
            }
            Outcome::Rejected => {
                self.rejected += 1;
                self.rejected_latency.record(latency);
            }
            Outcome::RefusedOther => {
                self.refused_other += 1;
                self.refused_other_latency.record(latency);
            }
            Outcome::Error(kind) => *self.errors.entry(kind).or_default() += 1,
        }
    }

    /// Adds all that `other` counted.
    pub(crate) fn merge(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.retries += other.retries;
        self.ok += other.ok;
        self.good += other.good;
        self.rejected += other.rejected;
        self.refused_other += other.refused_other;
        for (kind, count) in &other.errors {
            *self.errors.entry(*kind).or_default() += count;
        }
        self.ok_latency.merge(&other.ok_latency);
        self.rejected_latency.merge(&other.rejected_latency);
        self.refused_other_latency.merge(&other.refused_other_latency);
        self.late.merge(&other.late);
        self.max = self.max.max(other.max);
    }

    /// Back to nothing counted, keeping the memory.
    pub(crate) fn clear(&mut self) {
        let Tally { ok_latency, rejected_latency, refused_other_latency, late, .. } = self;
        for latencies in [ok_latency, rejected_latency, refused_other_latency, late] {
            latencies.0.reset();
        }
        self.errors.clear();
        (self.sent, self.retries, self.ok, self.good) = (0, 0, 0, 0);
        (self.rejected, self.refused_other) = (0, 0);
        self.max = Nanos::ZERO;
        self.log.clear();
    }
}
