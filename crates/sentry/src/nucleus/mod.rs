//! The nucleus: what a server knows and a gateway cannot see (Cataclysm, section 3.5). Servers tell it in headers and
//! trailers that others understand too: ORCA load reports, and `Server-Timing`. What a user has to know is in docs/nucleus.md.
//!
//! Where a server says nothing this costs a look-up of each of the three names. What it says is read within limits, and where
//! that is nonsense it counts as not said: a server that errs about itself still serves.

pub mod kind;
pub mod lesson;
pub mod load;
pub mod orca;
pub mod server_timing;
pub mod stretch;

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::HeaderMap;
use plimsoll_core::Nanos;

/// The longest report that is read, in bytes.
pub const MAX_REPORT: usize = 4096;
/// No request takes longer, in seconds; nor does one wait so long to be begun.
const TIMES_S: RangeInclusive<f64> = 0.0..=3600.0;
/// No server works on more requests at once.
const REQUESTS: RangeInclusive<f64> = 0.0..=1e6;
/// Of its CPUs. A server that counts what it would need beside what it has may report more than one.
const UTILISATION: RangeInclusive<f64> = 0.0..=1e3;

/// What a server said with one response; whatever it left out is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// CPU time that this request took.
    pub cpu: Option<Nanos>,
    /// How long this request waited for disks, databases, caches or other services.
    pub data: Option<Nanos>,
    /// How long a request waits at the server before the server begins with it.
    pub queue_delay: Option<Nanos>,
    /// Requests that the server works on now, this one included.
    pub in_service: Option<f32>,
    /// How busy its CPUs are; 1 is all of them.
    pub cpu_utilization: Option<f32>,
}

/// A report that is malformed or too long, or that says what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonsense;

impl Report {
    /// What this says and, where it says nothing, what the other one does.
    pub fn or(self, other: Report) -> Report {
        Report {
            cpu: self.cpu.or(other.cpu),
            data: self.data.or(other.data),
            queue_delay: self.queue_delay.or(other.queue_delay),
            in_service: self.in_service.or(other.in_service),
            cpu_utilization: self.cpu_utilization.or(other.cpu_utilization),
        }
    }
}

/// Reads what a server says in the head or the trailers of a response. Load reports are removed: they are nobody else's business.
/// `Server-Timing` is for browsers as well and stays.
pub fn hear(headers: &mut HeaderMap, counts: &Counts) -> Report {
    let orca = orca::take(headers).map_or(Report::default(), |report| counts.count(report));
    let timing = server_timing::read(headers).map_or(Report::default(), |report| counts.count(report));
    orca.or(timing)
}

/// How many reports were used, and how many could not be.
#[derive(Debug, Default)]
pub struct Counts {
    used: AtomicU64,
    ignored: AtomicU64,
    implausible: AtomicU64,
}

impl Counts {
    /// What was read: nothing where it is nonsense. A report without anything that is read here counts as neither.
    fn count(&self, report: Result<Report, Nonsense>) -> Report {
        match report {
            Ok(report) => {
                if report != Report::default() {
                    self.used.fetch_add(1, Relaxed);
                }
                report
            }
            Err(Nonsense) => {
                self.ignored.fetch_add(1, Relaxed);
                Report::default()
            }
        }
    }

    /// Each with its name in the metrics: reports used, reports ignored because they are nonsense, and requests for which
    /// more time was reported than they can have taken.
    pub fn all(&self) -> [(&'static str, u64); 3] {
        let counts = [("used", &self.used), ("ignored", &self.ignored), ("implausible", &self.implausible)];
        counts.map(|(name, count)| (name, count.load(Relaxed)))
    }
}

/// A span that was reported in seconds.
fn time(seconds: f64) -> Result<Nanos, Nonsense> {
    within(seconds, &TIMES_S).map(Nanos::from_secs_f64)
}

/// A number that is one of those that there can be, which NaN never is.
fn within(number: f64, range: &RangeInclusive<f64>) -> Result<f64, Nonsense> {
    if range.contains(&number) { Ok(number) } else { Err(Nonsense) }
}

#[cfg(test)]
mod tests;
