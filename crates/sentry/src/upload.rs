//! The body of a request on its way to the server.

use std::cell::Cell;
use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use plimsoll_core::Nanos;
use tokio::time::Sleep;

use crate::clock;
use crate::etcd::Listening;
use crate::stats::{Failure, ThreadStats};

/// Bytes a second that a client sends at least, on average and besides the pause that it may make anyway. Otherwise one
/// byte now and then would hold a slot for as long as anybody likes. The number is Apache's.
const MIN_RATE: u64 = 500;

/// Why the body of a request ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadError {
    /// The client left.
    Client,
    /// What the client sent is not what it announced, or nothing that could be read.
    Malformed,
    /// The client paused for too long, or was too slow in all.
    Stalled,
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UploadError::Client => "the client broke off its request",
            UploadError::Malformed => "the request's body is malformed",
            UploadError::Stalled => "the client was too slow with its request",
        })
    }
}

impl std::error::Error for UploadError {}

impl UploadError {
    /// Counts it, and says what it makes of the request.
    pub fn count(self, stats: &ThreadStats) -> Failure {
        match self {
            UploadError::Client => {}
            UploadError::Malformed => {
                stats.malformed.bump();
                return Failure::Malformed;
            }
            UploadError::Stalled => stats.stalled_clients.bump(),
        }
        Failure::ClientGone
    }
}

/// How far a body is, for whoever waits for the response to it.
#[derive(Debug, Default)]
pub struct Upload {
    progress: Cell<Nanos>,
    waits: Cell<bool>,
    ended: Cell<bool>,
    error: Cell<Option<UploadError>>,
    /// Whether the client's pauses have a limit of their own.
    limited: bool,
}

impl Upload {
    /// When the client last sent something, or the whole of it.
    pub fn progress(&self) -> Nanos {
        self.progress.get()
    }

    /// Whether it is the client that everybody waits for.
    pub fn waits_for_client(&self) -> bool {
        self.waits.get() && !self.ended.get()
    }

    /// Since when nobody has to wait for the client any more. That is now while the client pauses, unless its pauses
    /// have no limit: then each is a silence like any other.
    pub fn quiet_since(&self, now: Nanos) -> Nanos {
        if self.limited && self.waits_for_client() { now } else { self.progress() }
    }

    /// Whether all of it went to the server, or never will.
    pub fn ended(&self) -> bool {
        self.ended.get()
    }

    /// What broke it off, if anything did.
    pub fn error(&self) -> Option<UploadError> {
        self.error.get()
    }
}

/// The body of a request; a connection to a server reads it.
#[derive(Debug)]
pub struct UploadBody(Option<Box<Sending>>);

#[derive(Debug)]
struct Sending {
    incoming: Incoming,
    state: Rc<Upload>,
    /// How long the client may pause, if there is a limit.
    pause: Option<Nanos>,
    received: u64,
    /// How long the client was waited for, up to the current wait and in it.
    waited: Nanos,
    wait: Option<Wait>,
    /// Who wants to know what is asked.
    listening: Option<Listening>,
}

#[derive(Debug)]
struct Wait {
    since: Nanos,
    over: Pin<Box<Sleep>>,
}

impl UploadBody {
    /// What the client sends, if it sends anything. It may pause for so long between two parts.
    pub fn new(incoming: Incoming, pause: Option<Nanos>) -> (UploadBody, Option<Rc<Upload>>) {
        if incoming.is_end_stream() {
            return (UploadBody(None), None);
        }
        let state = Rc::new(Upload { limited: pause.is_some(), ..Upload::default() });
        state.progress.set(clock::coarse());
        let sending = Sending {
            incoming,
            state: Rc::clone(&state),
            pause,
            received: 0,
            waited: Nanos::ZERO,
            wait: None,
            listening: None,
        };
        (UploadBody(Some(Box::new(sending))), Some(state))
    }

    /// Lets somebody listen as it passes.
    pub fn listen(&mut self, listening: Option<Listening>) {
        if let Some(sending) = &mut self.0 {
            sending.listening = listening;
        }
    }

    /// Nothing.
    pub fn empty() -> UploadBody {
        UploadBody(None)
    }
}

impl Sending {
    fn fail(&mut self, error: UploadError) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        self.state.error.set(Some(error));
        self.state.ended.set(true);
        Poll::Ready(Some(Err(error)))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match Pin::new(&mut self.incoming).poll_frame(cx) {
            Poll::Ready(frame) => {
                if let Some(wait) = self.wait.take() {
                    self.waited += clock::refresh() - wait.since;
                }
                self.state.waits.set(false);
                self.state.progress.set(clock::coarse());
                match frame {
                    Some(Ok(frame)) => {
                        if let Some(data) = frame.data_ref() {
                            self.received += data.len() as u64;
                            if let Some(listening) = &mut self.listening {
                                listening.hear(data);
                            }
                        }
                        if self.incoming.is_end_stream() {
                            self.state.ended.set(true);
                        }
                        Poll::Ready(Some(Ok(frame)))
                    }
                    Some(Err(e)) if is_malformed(&e) => self.fail(UploadError::Malformed),
                    Some(Err(_)) => self.fail(UploadError::Client),
                    None => {
                        self.state.ended.set(true);
                        Poll::Ready(None)
                    }
                }
            }
            Poll::Pending => {
                self.state.waits.set(true);
                let Some(pause) = self.pause else { return Poll::Pending };
                let wait = self.wait.get_or_insert_with(|| {
                    let in_all = pause + Nanos::from_millis(self.received * 1_000 / MIN_RATE);
                    let left = pause.min(in_all - self.waited);
                    Wait { since: clock::refresh(), over: Box::pin(tokio::time::sleep(left.into())) }
                });
                match wait.over.as_mut().poll(cx) {
                    Poll::Ready(()) => self.fail(UploadError::Stalled),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }
}

/// Whether a body could not be read because of what was sent, rather than because no more was. hyper says the former of
/// chunks and trailers with these two kinds, h2 with an error of its own.
fn is_malformed(error: &hyper::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput};
    let Some(source) = error.source() else { return false };
    let of_chunks =
        source.downcast_ref().is_some_and(|e: &io::Error| matches!(e.kind(), InvalidData | InvalidInput));
    of_chunks || source.downcast_ref().is_some_and(|e: &h2::Error| !e.is_io() && !e.is_remote())
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match &mut self.0 {
            Some(sending) => sending.poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|sending| sending.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |sending| sending.incoming.size_hint())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.state.ended.set(true);
    }
}
