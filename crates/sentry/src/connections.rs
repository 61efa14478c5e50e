//! Connections to servers, kept open between requests. Each thread has its own, so that neither taking nor
//! returning one locks.
//!
//! An HTTP/1 connection has no task: whoever uses it drives it, from the same task that serves the client. Only a
//! connection that is still sending the request when the response has begun gets a task of its own, because a client
//! that does not read the response must not keep the server from getting the rest of the request. HTTP/2
//! connections carry many requests, and have a task each.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use plimsoll_core::Nanos;
use tokio::sync::Semaphore;

use crate::clock;
use crate::http1::Http1;
use crate::upload::UploadBody;

/// How long an idle connection is kept: shorter than what most servers keep it, so that it is rarely found dead.
const IDLE: Nanos = Nanos::from_secs(30);
/// How often idle connections are looked at.
const LOOK: Nanos = Nanos::from_secs(1);
/// Requests that share an HTTP/2 connection. RFC 9113 asks servers to allow at least a hundred.
pub const STREAMS: u32 = 100;

/// An HTTP/2 connection.
pub struct Http2 {
    sender: http2::SendRequest<UploadBody>,
    streams: Cell<u32>,
    /// Whether a request was ever answered on it.
    answered: Cell<bool>,
    /// Since when it has no streams, where that is so.
    idle_since: Cell<Nanos>,
}

/// What carries one request and its response.
pub enum Link {
    /// A connection of its own.
    Http1(Box<Http1>),
    /// A connection of its own, which has a task and lasts as long as this.
    Driven(http1::SendRequest<UploadBody>),
    /// One of the streams of a connection.
    Http2(Stream),
}

/// One of the streams of an HTTP/2 connection, until this is dropped.
pub struct Stream(Rc<Http2>);

impl Stream {
    fn of(connection: &Rc<Http2>) -> Stream {
        connection.streams.update(|n| n + 1);
        Stream(Rc::clone(connection))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.streams.update(|n| n - 1);
        self.0.idle_since.set(clock::coarse());
    }
}

/// Why there is no response.
pub enum SendError {
    /// The connection was closed before anything was sent on it: the request is as it was.
    Unsent(Box<Request<UploadBody>>),
    /// It may have been sent.
    Broken(hyper::Error),
}

impl Link {
    /// How long the connection had been idle before this; zero where others use it too.
    pub fn was_idle(&self, now: Nanos) -> Nanos {
        match self {
            Link::Http1(connection) if connection.idle_since > Nanos::ZERO => now - connection.idle_since,
            _ => Nanos::ZERO,
        }
    }

    /// Whether a request was answered on it before: then it is no fault of the server to close it.
    pub fn has_answered(&self) -> bool {
        match self {
            Link::Http1(connection) => connection.idle_since > Nanos::ZERO,
            Link::Driven(_) => false,
            Link::Http2(stream) => stream.0.answered.get(),
        }
    }

    /// Whether it speaks HTTP/2.
    pub fn is_http2(&self) -> bool {
        matches!(self, Link::Http2(_))
    }

    /// Sends a request and waits for the head of its response.
    pub async fn send(&mut self, request: Request<UploadBody>) -> Result<Response<Incoming>, SendError> {
        let answer = match self {
            Link::Http1(connection) => connection.send(request).await,
            Link::Http2(stream) => {
                let answer = stream.0.sender.clone().try_send_request(request).await;
                stream.0.answered.set(stream.0.answered.get() || answer.is_ok());
                answer
            }
            Link::Driven(sender) => sender.try_send_request(request).await,
        };
        answer.map_err(|mut error| match error.take_message() {
            Some(request) => SendError::Unsent(Box::new(request)),
            None => SendError::Broken(error.into_error()),
        })
    }

    /// Gives an HTTP/1 connection a task of its own, which also lets it become something else.
    #[must_use]
    pub fn detach(self) -> Link {
        match self {
            Link::Http1(connection) => Link::Driven(connection.detach()),
            other => other,
        }
    }

    /// What comes next of a response's body.
    #[inline]
    pub fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, hyper::Error>>> {
        match self {
            Link::Http1(connection) => connection.poll_frame(body, cx),
            Link::Driven(_) | Link::Http2(_) => Pin::new(body).poll_frame(cx),
        }
    }
}

/// The connections of one thread to the servers of all pools, by [`Server::id`](crate::server::Server).
#[derive(Default)]
pub struct Connections {
    servers: RefCell<BTreeMap<u64, Kept>>,
    last_look: Cell<Nanos>,
}

#[derive(Default)]
struct Kept {
    /// Boxed once when opened, so that taking one moves a pointer and not the whole connection.
    #[allow(clippy::vec_box)]
    idle: Vec<Box<Http1>>,
    http2: Vec<Rc<Http2>>,
    /// Whoever opens an HTTP/2 connection has it, so that a crowd opens one and not a crowd.
    turn: Option<Rc<Semaphore>>,
}

impl Connections {
    /// An idle connection: the one used last, which is the one most likely to be alive.
    pub fn idle(&self, server: u64) -> Option<Link> {
        self.servers.borrow_mut().get_mut(&server)?.idle.pop().map(Link::Http1)
    }

    /// A stream of an open HTTP/2 connection.
    pub fn stream(&self, server: u64) -> Option<Link> {
        let mut servers = self.servers.borrow_mut();
        let kept = servers.get_mut(&server)?;
        kept.http2.retain(|connection| !connection.sender.is_closed());
        let connection = kept.http2.iter().find(|connection| connection.streams.get() < STREAMS)?;
        Some(Link::Http2(Stream::of(connection)))
    }

    /// Whoever may open an HTTP/2 connection next.
    pub fn turn(&self, server: u64) -> Rc<Semaphore> {
        let mut servers = self.servers.borrow_mut();
        let turn = &mut servers.entry(server).or_default().turn;
        Rc::clone(turn.get_or_insert_with(|| Rc::new(Semaphore::new(1))))
    }

    /// Shares a fresh HTTP/2 connection, whose task runs, and takes its first stream.
    pub fn share(&self, server: u64, sender: http2::SendRequest<UploadBody>) -> Link {
        let connection = Rc::new(Http2 {
            sender,
            streams: Cell::new(0),
            answered: Cell::new(false),
            idle_since: Cell::default(),
        });
        let stream = Stream::of(&connection);
        self.servers.borrow_mut().entry(server).or_default().http2.push(connection);
        Link::Http2(stream)
    }

    /// Takes back a connection whose response has ended. It is closed if it cannot be used again, or if `most` are
    /// idle already.
    pub fn give_back(&self, server: u64, link: Link, most: usize) {
        let Link::Http1(mut connection) = link else { return };
        if !connection.rest() {
            return;
        }
        connection.idle_since = clock::coarse();
        let mut servers = self.servers.borrow_mut();
        let idle = &mut servers.entry(server).or_default().idle;
        if idle.len() < most {
            idle.push(connection);
        }
    }

    /// Closes connections that have been idle for long, or that their server has closed.
    pub fn sweep(&self, now: Nanos) {
        if now.since(self.last_look.get()) < LOOK {
            return;
        }
        self.last_look.set(now);
        self.servers.borrow_mut().retain(|_, kept| {
            kept.idle
                .retain_mut(|connection| now.since(connection.idle_since) < IDLE && connection.is_open());
            kept.http2.retain(|connection| {
                let idle = connection.streams.get() == 0 && now.since(connection.idle_since.get()) >= IDLE;
                !idle && !connection.sender.is_closed()
            });
            let turn_taken = kept.turn.as_ref().is_some_and(|turn| Rc::strong_count(turn) > 1);
            turn_taken || !kept.idle.is_empty() || !kept.http2.is_empty()
        });
    }
}
