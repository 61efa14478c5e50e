//! The body of a response on its way to the client. It holds the request's slot until the server has sent the last
//! of it, the client has left, or either has paused for too long.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use plimsoll_core::Nanos;

use crate::client::InProgress;
use crate::clock;
use crate::connections::Link;
use crate::etcd::Counting;
use crate::nucleus::lesson::Lesson;
use crate::server::Lease;
use crate::stats::Failure;
use crate::thread::Thread;
use crate::ticket::Ticket;
use crate::timeouts::{Expire, Registration};
use crate::upload::Upload;

/// A server that keeps to the deadline of a request ends it in its own words, which say more than a reset. This long after it
/// none will.
const GRACE: Nanos = Nanos::from_millis(500);

/// The response broke off. Its client sees that: hyper ends the connection or resets the stream, so that what was sent
/// never passes for all of it.
#[derive(Debug)]
pub struct BrokenOff {
    failure: Failure,
    /// Where hyper finds what to reset the stream with.
    reset: h2::Error,
}

impl From<Break> for BrokenOff {
    fn from(Break { failure, reason }: Break) -> BrokenOff {
        BrokenOff { failure, reset: reason.into() }
    }
}

impl fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the response broke off: {}", self.failure.as_str())
    }
}

impl Error for BrokenOff {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.reset)
    }
}

/// How a response broke off.
#[derive(Clone, Copy, Debug)]
struct Break {
    failure: Failure,
    reason: h2::Reason,
}

impl From<Failure> for Break {
    fn from(failure: Failure) -> Break {
        Break { failure, reason: h2::Reason::INTERNAL_ERROR }
    }
}

impl From<hyper::Error> for Break {
    /// A server that resets its stream has a reason, and the client is to have the same: a gRPC call that the server has cancelled
    /// is not one that has crashed.
    fn from(error: hyper::Error) -> Break {
        let mut cause = error.source();
        while let Some(found) = cause {
            if let Some(reason) = found.downcast_ref::<h2::Error>().and_then(h2::Error::reason) {
                return Break { failure: Failure::Truncated, reason };
            }
            cause = found.source();
        }
        Failure::Truncated.into()
    }
}

/// The body of a response.
pub struct ResponseBody(Kind);

enum Kind {
    Full(Bytes),
    Forwarded(Reader),
}

/// The client's hold on a response that is still coming. Without it the exchange is over: the sweep's own reference
/// must not keep it running.
struct Reader(Rc<Exchange>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl ResponseBody {
    /// Nothing.
    pub fn empty() -> ResponseBody {
        ResponseBody::full(Bytes::new())
    }

    /// All of it.
    pub fn full(bytes: Bytes) -> ResponseBody {
        ResponseBody(Kind::Full(bytes))
    }

    /// What comes from a server.
    pub fn forwarded(exchange: Rc<Exchange>) -> ResponseBody {
        ResponseBody(Kind::Forwarded(Reader(exchange)))
    }

    /// The request that this responds to ends with it: at once where all of it is here. What hyper then still has to
    /// write is watched by the connection.
    pub fn ends(&self, mut in_progress: InProgress) {
        match &self.0 {
            Kind::Forwarded(Reader(exchange)) if exchange.running.borrow().is_some() => {
                *exchange.in_progress.borrow_mut() = Some(in_progress);
            }
            Kind::Full(_) | Kind::Forwarded(_) => in_progress.done(),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match &mut self.0 {
            Kind::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Forwarded(Reader(exchange)) => exchange.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Forwarded(Reader(exchange)) => exchange.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Forwarded(Reader(exchange)) => exchange.size_hint(),
        }
    }
}

/// A response that is still coming.
pub struct Exchange {
    /// Nothing once the server has sent the last of it, or it was broken off.
    running: RefCell<Option<Running>>,
    broken: Cell<Option<Break>>,
    /// Whose turn it is, and until when.
    turn: Cell<Turn>,
    /// When it ends, whosever turn it is.
    ends: Nanos,
    waker: RefCell<Option<Waker>>,
    registration: RefCell<Option<Registration>>,
    in_progress: RefCell<Option<InProgress>>,
}

/// Who has to do something next.
#[derive(Clone, Copy)]
enum Turn {
    Server(Nanos),
    Client(Nanos),
}

/// What a response that is still coming holds.
pub struct Running {
    /// What comes from the server.
    pub incoming: Incoming,
    /// What was read of it already.
    pub ahead: Option<Frame<Bytes>>,
    /// What it comes on.
    pub link: Link,
    /// Which server it comes from.
    pub lease: Lease,
    /// The request's slot.
    pub ticket: Ticket,
    /// What it teaches.
    pub lesson: Lesson,
    /// Who counts what an etcd answers.
    pub counting: Option<Counting>,
    /// The request's own body.
    pub upload: Option<Rc<Upload>>,
    /// The thread that all this is on.
    pub thread: Rc<Thread>,
    /// Whether it is a stream of events or of gRPC messages, which may be silent without anybody being at fault.
    pub is_stream: bool,
    /// When the client stops waiting for all of it.
    pub deadline: Option<Nanos>,
    /// How long the server may pause while the client does, too.
    pub server_pause: Nanos,
    /// How long the client may.
    pub client_pause: Nanos,
    /// Idle connections to keep to the server.
    pub keep: usize,
}

impl Running {
    /// What comes next, driving the connection that it comes on.
    pub fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(frame) = self.ahead.take() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let frame = self.link.poll_frame(&mut self.incoming, cx);
        if let (Some(counting), Poll::Ready(Some(Ok(frame)))) = (&mut self.counting, &frame)
            && let Some(data) = frame.data_ref()
        {
            counting.read(data);
        }
        frame
    }

    /// What the client did where its own body broke off. That takes the connection to the server with it, so it looks as if
    /// the server had broken off.
    pub fn clients_fault(&self) -> Option<Failure> {
        Some(self.upload.as_ref()?.error()?.count(self.thread.stats()))
    }

    /// Whether there is nothing left of it but the word that it has ended, which may come later or never.
    fn is_all_there(&self) -> bool {
        self.ahead.is_none() && self.incoming.size_hint().exact() == Some(0)
    }

    /// The server has sent the last of it.
    pub fn complete(self, now: Nanos) {
        let Running { link, lease, ticket, lesson, counting, thread, upload, keep, .. } = self;
        if let Some(counting) = counting {
            counting.done();
        }
        let server = lease.server().id;
        ticket.teach(&lesson, lease.is_alone(), now);
        lease.server().answered();
        // The server's before the slot: whoever gets the slot finds room at a server.
        drop(lease);
        ticket.complete(now);
        // While the request itself is still under way, the connection cannot carry another.
        if upload.is_none_or(|upload| upload.ended()) {
            thread.connections.give_back(server, link, keep);
        }
    }
}

impl Exchange {
    /// A response whose head is there.
    pub fn new(running: Running) -> Rc<Exchange> {
        let until = clock::coarse() + running.server_pause;
        let ends = running.deadline.map_or(Nanos::MAX, |deadline| deadline + GRACE);
        let timeouts = Rc::clone(&running.thread.timeouts);
        let exchange = Rc::new(Exchange {
            running: RefCell::new(Some(running)),
            broken: Cell::new(None),
            turn: Cell::new(Turn::Server(until)),
            ends,
            waker: RefCell::default(),
            registration: RefCell::default(),
            in_progress: RefCell::default(),
        });
        let registration = timeouts.register(Rc::clone(&exchange) as Rc<dyn Expire>);
        *exchange.registration.borrow_mut() = Some(registration);
        exchange
    }

    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if let Some(broken) = self.broken.get() {
            return Poll::Ready(Some(Err(broken.into())));
        }
        let mut slot = self.running.borrow_mut();
        let Some(running) = slot.as_mut() else { return Poll::Ready(None) };
        let frame = running.poll_incoming(cx);
        match frame {
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(trailers) = frame.trailers_mut() {
                    let reports = &running.ticket.pool().reports;
                    running.lesson.hear(trailers, running.lease.server(), reports, clock::coarse());
                }
                if running.incoming.is_end_stream() || frame.is_trailers() {
                    self.complete(slot.take());
                } else {
                    self.turn.set(Turn::Client(clock::coarse() + running.client_pause));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let broken = running.clients_fault().map_or_else(|| Break::from(error), Break::from);
                let running = slot.take();
                drop(slot);
                self.break_off(running, broken);
                Poll::Ready(Some(Err(broken.into())))
            }
            Poll::Ready(None) => {
                self.complete(slot.take());
                Poll::Ready(None)
            }
            Poll::Pending => {
                if let Turn::Client(_) = self.turn.get() {
                    self.turn.set(Turn::Server(clock::coarse() + running.server_pause));
                }
                let mut waker = self.waker.borrow_mut();
                if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    fn complete(&self, running: Option<Running>) {
        self.end(true);
        if let Some(running) = running {
            running.complete(clock::refresh());
        }
    }

    /// Nothing is waited for any more; `whole` unless that is the client's doing.
    fn end(&self, whole: bool) {
        self.registration.take();
        if let Some(mut in_progress) = self.in_progress.take()
            && whole
        {
            in_progress.done();
        }
    }

    fn break_off(&self, running: Option<Running>, broken: Break) {
        let failure = broken.failure;
        self.broken.set(Some(broken));
        let by_client = matches!(failure, Failure::ClientGone | Failure::Malformed);
        self.end(!by_client);
        if let Some(running) = running {
            let silence = running.is_stream && failure == Failure::Timeout;
            if !by_client && !silence && failure != Failure::Deadline {
                running.ticket.blame(running.lease.server());
            }
            running.ticket.fail(failure);
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The client has left, or has all of it.
    fn abandon(&self) {
        match self.running.take() {
            Some(running) if running.is_all_there() => self.complete(Some(running)),
            Some(running) => {
                self.end(false);
                running.ticket.fail(Failure::ClientGone);
            }
            None => self.end(false),
        }
    }

    /// Each part of the request that the server gets begins its turn anew. True where that leaves it time.
    fn is_still_asked(&self) -> bool {
        let running = self.running.borrow();
        let Some(Running { upload: Some(upload), server_pause, .. }) = &*running else { return false };
        let (now, turn) = (clock::coarse(), self.turn.get());
        let until = upload.quiet_since(now) + *server_pause;
        let goes_on = matches!(turn, Turn::Server(_)) && until > now;
        if goes_on {
            self.turn.set(Turn::Server(until));
        }
        goes_on
    }

    fn is_over(&self) -> bool {
        self.broken.get().is_none() && self.running.borrow().is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.running.borrow() {
            Some(running) => {
                let ahead = running.ahead.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
                running
                    .incoming
                    .size_hint()
                    .exact()
                    .map_or_else(SizeHint::default, |n| SizeHint::with_exact(n + ahead))
            }
            None => SizeHint::with_exact(0),
        }
    }
}

impl Expire for Exchange {
    fn expires(&self) -> Option<Nanos> {
        let (Turn::Server(until) | Turn::Client(until)) = self.turn.get();
        Some(until.min(self.ends))
    }

    fn expire(&self) {
        let late = self.ends <= clock::coarse();
        if !late && self.is_still_asked() {
            return;
        }
        let running = self.running.take();
        let broken = match self.turn.get() {
            _ if late => Break { failure: Failure::Deadline, reason: h2::Reason::CANCEL },
            Turn::Server(_) => Failure::Timeout.into(),
            Turn::Client(_) => Failure::ClientGone.into(),
        };
        self.break_off(running, broken);
    }
}
