//! Requests that their server cancelled because they held up everybody else, and that are sent once more when there has been room for
//! a while (ATROPOS, section 4). Only what changes nothing and has no body is, no more than the config says wait at once, each
//! goes once more and no further, and one at a time: each may need all the room there is.
//!
//! A server says that it has cancelled a request with a 503 and `plimsoll-cancelled: RESOURCE` (the SDKs' middlewares do). The second time
//! the request says `plimsoll-rerun: 1`, and the server lets it run to its end.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use plimsoll_core::Nanos;

use crate::admit::{self, Admission, Arrival};
use crate::body::ResponseBody;
use crate::passage::{ClientGone, Passage};
use crate::pool::Pool;
use crate::slots::Count;
use crate::stats::Failure;
use crate::ticket::Ticket;
use crate::upload::UploadBody;
use crate::{clock, refuse};

/// What a server says of a request that it has cancelled: what that held up.
pub const CANCELLED: HeaderName = HeaderName::from_static("plimsoll-cancelled");
/// What a request says the second time. Only a sentry may say it.
pub const RERUN: HeaderName = HeaderName::from_static("plimsoll-rerun");

/// There must have been room for so long.
const ROOM: Nanos = Nanos::from_secs(1);
/// Between two requests that are sent once more.
const APART: Nanos = Nanos::from_secs(1);
/// Nobody waits longer for room.
const PATIENCE: Nanos = Nanos::from_secs(20);
/// How often one that waits looks.
const LOOK: Duration = Duration::from_millis(50);

/// Those of a pool that wait.
#[derive(Debug)]
pub struct Reruns {
    most: u32,
    waiting: AtomicU32,
    /// No other goes before then.
    next: AtomicU64,
}

impl Reruns {
    /// So many wait at most.
    pub fn new(most: u32) -> Reruns {
        Reruns { most, waiting: AtomicU32::new(0), next: AtomicU64::new(0) }
    }

    /// Whether any request may be sent once more.
    pub fn are_wanted(&self) -> bool {
        self.most > 0
    }

    /// A place among those that wait, if there is one.
    pub fn place(&self) -> Option<Count<'_>> {
        let place = Count::up(&self.waiting);
        // Of several that come at once for the last place none may get it, which is as good a bound.
        (self.waiting.load(Relaxed) <= self.most).then_some(place)
    }

    /// Whose turn it is, of those for whom there is room.
    fn go(&self, now: Nanos) -> bool {
        let free = |next| (next <= now.0).then_some((now + APART).0);
        self.next.fetch_update(Relaxed, Relaxed, free).is_ok()
    }
}

/// Whether a response says that its request was cancelled.
pub fn is_cancelled<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::SERVICE_UNAVAILABLE && response.headers().contains_key(&CANCELLED)
}

impl Pool {
    /// Waits until there has been room for a while and it is the turn of whoever asks. No later than `deadline`, and not for ever: then
    /// the answer is no.
    pub async fn room(&self, deadline: Nanos) -> bool {
        let began = clock::refresh();
        let ends = deadline.min(began + PATIENCE);
        let mut room_since = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = clock::refresh();
            if now >= ends {
                return false;
            }
            let room = self.slots.is_idle() && !self.ease.is_told(now);
            room_since = if room { room_since.or(Some(now)) } else { None };
            if room_since.is_some_and(|since| now.since(since) >= ROOM) && self.reruns.go(now) {
                return true;
            }
        }
    }
}

impl Passage {
    /// Sends a request that its server has cancelled a second time, when there is room. It gives its slot back meanwhile, and has to
    /// be let in like any other.
    ///
    /// # Errors
    /// Where its client has left.
    pub async fn run_again(
        &self,
        ticket: Ticket,
        mut request: Request<UploadBody>,
        host: Option<HeaderValue>,
        head_only: bool,
        _place: Count<'_>,
    ) -> Result<Response<ResponseBody>, ClientGone> {
        ticket.fail(Failure::Cancelled);
        let deadline = self.deadline.as_ref().map(|deadline| deadline.at);
        tokio::select! {
            room = self.pool().room(deadline.unwrap_or(Nanos::MAX)) => if !room {
                let why = "the server cancelled it to free what others needed, and there was no room to run it again";
                return Ok(refuse::error(StatusCode::SERVICE_UNAVAILABLE, why, self.grpc));
            },
            () = self.client.gone() => return Err(ClientGone),
        }
        self.client.thread.stats().reruns.bump();
        let (at, class, kind) = (clock::refresh(), self.class, self.kind);
        let arrival = Arrival { at, class, deadline, client: self.key, kind };
        let thread = &self.client.thread;
        let ticket = match admit::admit(thread, &self.view, arrival, self.client.gone()).await {
            Admission::In(ticket) => ticket,
            Admission::Refused(refusal) => {
                return Ok(thread.with_rng(|rng| refuse::refusal(&refusal, self.grpc, rng)));
            }
            Admission::ClientGone => return Err(ClientGone),
        };
        request.headers_mut().insert(RERUN, HeaderValue::from_static("1"));
        let sent = self.exchange(ticket.started(), request, host, None).await;
        self.conclude(ticket, sent, None, head_only).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_wait_than_may() {
        let reruns = Reruns::new(2);
        let (first, second) = (reruns.place(), reruns.place());
        assert!(first.is_some() && second.is_some() && reruns.place().is_none());
        drop(first);
        assert!(reruns.place().is_some());
        assert!(!Reruns::new(0).are_wanted());
    }

    #[test]
    fn they_go_one_at_a_time() {
        let reruns = Reruns::new(2);
        assert!(reruns.go(Nanos::from_secs(5)));
        assert!(!reruns.go(Nanos::from_millis(5_999)));
        assert!(reruns.go(Nanos::from_secs(6)));
    }
}
