//! What broker and shards share around their gates: keeping time for them, and saying no.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use plimsoll_admission::{Gate, Outcome};
use plimsoll_core::estimator::Wait;
use plimsoll_core::{ClassId, Nanos, Refusal, Rng, Verdict};
use rand::RngExt;

use crate::clock::Clock;
use crate::http::{Body, text};

/// The header that says why.
pub const REASON: HeaderName = HeaderName::from_static("plimsoll-reason");

/// Ticks the gate for as long as the runtime lives.
pub async fn tick_for_ever(gate: Arc<Gate>, clock: Clock) {
    loop {
        let now = clock.now();
        let next = gate.tick(now);
        tokio::time::sleep(next.since(now).into()).await;
    }
}

/// An admitted query, in the queue or in service. Dropped there, as when its client goes away, it leaves the
/// gate's books.
pub struct Ticket<'a> {
    gate: &'a Gate,
    clock: &'a Clock,
    class: ClassId,
    expected_wait: Nanos,
    stage: Stage,
}

enum Stage {
    Queued,
    InService { waited: Nanos, started: Nanos },
    Over,
}

impl Ticket<'_> {
    /// A query that the gate has just let into the queue, where it was expected to wait for so long.
    pub fn new<'a>(gate: &'a Gate, clock: &'a Clock, class: ClassId, expected_wait: Nanos) -> Ticket<'a> {
        Ticket { gate, clock, class, expected_wait, stage: Stage::Queued }
    }

    /// It leaves the queue at `started`; served only if the gate still admits it.
    pub fn start(&mut self, waited: Nanos, started: Nanos) -> Verdict {
        let verdict = self.gate.start(self.class, waited, started);
        self.stage = if verdict.is_admit() { Stage::InService { waited, started } } else { Stage::Over };
        verdict
    }

    /// It has been answered; returns how long that took. Not before [`Ticket::start`] admitted it.
    pub fn finish(mut self) -> Nanos {
        let Stage::InService { waited, started } = std::mem::replace(&mut self.stage, Stage::Over) else {
            unreachable!("only what was started can finish");
        };
        let served = self.clock.now().since(started);
        self.leave(waited, served, Outcome::Measured);
        served
    }

    /// There is no answer, and that is the servers' fault. Not before [`Ticket::start`] admitted it.
    pub fn fail(mut self) {
        let Stage::InService { waited, started } = std::mem::replace(&mut self.stage, Stage::Over) else {
            unreachable!("only what was started can fail");
        };
        self.leave(waited, self.clock.now().since(started), Outcome::Failed);
    }

    fn leave(&self, waited: Nanos, served: Nanos, outcome: Outcome) {
        let wait = Wait { expected: self.expected_wait, actual: waited };
        self.gate.finish(self.class, wait, served, outcome);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        match self.stage {
            Stage::Queued => self.gate.abandon(self.class),
            Stage::InService { waited, started } => {
                let served = self.clock.now().since(started);
                self.leave(waited, served, Outcome::Unmeasured);
            }
            Stage::Over => {}
        }
    }
}

/// A 503 that carries the refusal.
pub fn refused(refusal: &Refusal, rng: &mut Rng) -> Response<Body> {
    let reason = refusal.to_string();
    // Up to half as long again, so that those who are refused together do not come back together.
    let wait_s = refusal.retry_after.max(Nanos::from_millis(1)).as_secs_f64() * rng.random_range(1.0..1.5);
    let reason = HeaderValue::try_from(reason).unwrap_or(HeaderValue::from_static("unknown"));
    refused_because(reason, HeaderValue::from(wait_s.ceil() as u64))
}

/// A 503 with these headers.
pub fn refused_because(reason: HeaderValue, retry_after: HeaderValue) -> Response<Body> {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, "refused\n");
    response.headers_mut().insert(REASON, reason);
    response.headers_mut().insert(RETRY_AFTER, retry_after);
    response
}
