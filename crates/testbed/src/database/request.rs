//! What became of the requests of a load, and figures of them.

use std::fmt;

use plimsoll_core::Nanos;

/// The server ended a statement because it was asked to: `pg_cancel_backend`, or `statement_timeout`.
pub const CANCELLED: [u8; 5] = *b"57014";
/// The server ended the session because it was asked to: `pg_terminate_backend`, or a fast shutdown.
pub const TERMINATED: [u8; 5] = *b"57P01";

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it was to be sent, since the beginning of the load.
    pub at: Nanos,
    /// From then until its answer, its failure, or its being given up.
    pub latency: Nanos,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Answered.
    Ok,
    /// The server failed it, with this SQLSTATE.
    Failed([u8; 5]),
    /// The server failed it, with this status of HTTP, 400 or above.
    Status(u16),
    /// The server ended it because it was asked to, or by a limit of its own, and said so over HTTP.
    Ended,
    /// Nobody took it: too many waited for a connection when it came, or the server said so (429 or 503 of HTTP).
    Refused,
    /// Its connection broke.
    Lost,
    /// The load was over, and nobody waited any longer.
    Unanswered,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Ok => f.write_str("ok"),
            Outcome::Failed(state) => write!(f, "SQLSTATE {}", String::from_utf8_lossy(state)),
            Outcome::Status(status) => write!(f, "HTTP {status}"),
            Outcome::Ended => f.write_str("ended"),
            Outcome::Refused => f.write_str("refused"),
            Outcome::Lost => f.write_str("lost"),
            Outcome::Unanswered => f.write_str("unanswered"),
        }
    }
}

/// Figures of the requests that were to be sent in a span of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Those requests.
    pub sent: usize,
    /// Those that were answered, however late.
    pub ok: usize,
    /// Those that were answered, a second.
    pub throughput_per_s: f64,
    /// Of those that were answered.
    pub p50_ms: Option<f64>,
    /// Likewise.
    pub p99_ms: Option<f64>,
}

impl Figures {
    /// Of the requests that were to be sent from `from` until `to`.
    pub fn between(requests: &[Request], from: Nanos, to: Nanos) -> Figures {
        Figures::of(requests.iter().filter(|request| (from..to).contains(&request.at)), to.since(from))
    }

    /// Of these requests, which came within so much time. Whoever leaves out what came around some event takes that from the time, too.
    pub fn of<'a>(requests: impl IntoIterator<Item = &'a Request>, within: Nanos) -> Figures {
        let (mut sent, mut latencies) = (0, Vec::new());
        for request in requests {
            sent += 1;
            latencies.extend((request.outcome == Outcome::Ok).then_some(request.latency));
        }
        latencies.sort_unstable();
        Figures {
            sent,
            ok: latencies.len(),
            throughput_per_s: latencies.len() as f64 / within.as_secs_f64(),
            p50_ms: quantile(&latencies, 0.50).map(Nanos::as_millis_f64),
            p99_ms: quantile(&latencies, 0.99).map(Nanos::as_millis_f64),
        }
    }
}

/// The smallest that so large a share does not exceed.
fn quantile(sorted: &[Nanos], share: f64) -> Option<Nanos> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    #[test]
    fn figures_are_of_those_that_came_in_time_and_were_answered() {
        let request = |i: u64, outcome| Request { at: MS(10 * i), latency: MS(i + 1), outcome };
        let mut requests: Vec<_> = (0..200).map(|i| request(i, Outcome::Ok)).collect();
        let of = |requests: &[_]| Figures::between(requests, Nanos::ZERO, MS(1_000));
        let figures = of(&requests);
        assert_eq!((figures.sent, figures.ok, figures.throughput_per_s), (100, 100, 100.0));
        assert_eq!((figures.p50_ms, figures.p99_ms), (Some(50.0), Some(99.0)));
        requests[99].outcome = Outcome::Failed(CANCELLED);
        requests[98].outcome = Outcome::Refused;
        let figures = of(&requests);
        assert_eq!((figures.sent, figures.ok, figures.p99_ms), (100, 98, Some(98.0)));
        assert_eq!(requests[99].outcome.to_string(), "SQLSTATE 57014");
        assert_eq!(Figures::between(&[], Nanos::ZERO, MS(1_000)).p99_ms, None);
    }
}
