//! An HTTP/1 connection to a server that has no task: whoever waits for its response drives it.
//!
//! That saves two wake-ups a request. It would not save them if the parts of hyper that signal each other within the
//! connection woke the task that is driving it already, so they are given a waker that knows when it is.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection, SendRequest};
use parking_lot::Mutex;
use plimsoll_core::Nanos;

use crate::upload::UploadBody;
use crate::upstream::ServerIo;

/// What hyper says of a request that got no response.
type Unanswered = TrySendError<Request<UploadBody>>;

/// A connection.
pub struct Http1 {
    sender: SendRequest<UploadBody>,
    /// Gone once the connection is closed: hyper gives a request that was not sent back when this is dropped.
    driver: Option<Connection<ServerIo, UploadBody>>,
    signal: Arc<Signal>,
    waker: Waker,
    /// Since when it waits to be used again; zero if it was never used.
    pub idle_since: Nanos,
}

/// What the connection is woken by.
#[derive(Default)]
struct Signal {
    /// The task that waits, if any does.
    task: Mutex<Option<Waker>>,
    /// Whether it is driving just now, and will look again if there was a signal.
    driving: AtomicBool,
    signalled: AtomicBool,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.signalled.store(true, Relaxed);
        if !self.driving.load(Relaxed)
            && let Some(task) = &*self.task.lock()
        {
            task.wake_by_ref();
        }
    }
}

impl Http1 {
    /// A fresh connection.
    pub fn new(sender: SendRequest<UploadBody>, driver: Connection<ServerIo, UploadBody>) -> Http1 {
        let signal = Arc::new(Signal::default());
        let waker = Waker::from(Arc::clone(&signal));
        Http1 { sender, driver: Some(driver), signal, waker, idle_since: Nanos::ZERO }
    }

    /// Sends a request and waits for the head of its response.
    pub async fn send(&mut self, request: Request<UploadBody>) -> Result<Response<Incoming>, Unanswered> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let Http1 { driver, signal, waker, .. } = self;
        poll_fn(|cx| drive(driver, signal, waker, cx, |cx| answer.as_mut().poll(cx))).await
    }

    /// What comes next of a response's body.
    pub fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, hyper::Error>>> {
        let Http1 { driver, signal, waker, .. } = self;
        drive(driver, signal, waker, cx, |cx| Pin::new(&mut *body).poll_frame(cx))
    }

    /// Nobody waits any more. Whether another request may be sent.
    pub fn rest(&mut self) -> bool {
        self.signal.task.lock().take();
        // It is ready once it has seen that the exchange is over.
        self.driver.is_some() && (self.sender.is_ready() || (self.is_open() && self.sender.is_ready()))
    }

    /// Looks whether the server has closed it. Nobody is woken when that changes; whoever sends next will see.
    pub fn is_open(&mut self) -> bool {
        let mut cx = Context::from_waker(&self.waker);
        if self.driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(&mut cx).is_ready()) {
            self.driver = None;
        }
        self.driver.is_some()
    }

    /// Gives it a task of its own, which also lets it become something else.
    pub fn detach(self) -> SendRequest<UploadBody> {
        if let Some(driver) = self.driver {
            tokio::task::spawn_local(driver.with_upgrades());
        }
        self.sender
    }
}

/// Polls what is waited for, and drives the connection as long as that leads to anything.
#[inline]
fn drive<R>(
    driver: &mut Option<Connection<ServerIo, UploadBody>>,
    signal: &Signal,
    waker: &Waker,
    cx: &Context<'_>,
    mut wanted: impl FnMut(&mut Context<'_>) -> Poll<R>,
) -> Poll<R> {
    {
        let mut task = signal.task.lock();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }
    let mut inner = Context::from_waker(waker);
    signal.driving.store(true, Relaxed);
    let mut result = wanted(&mut inner);
    while result.is_pending() {
        signal.signalled.store(false, Relaxed);
        if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(&mut inner).is_ready()) {
            *driver = None;
        }
        result = wanted(&mut inner);
        // Tokio's budget for a task ends this loop where the server sends faster than anybody reads: what is out of
        // budget signals only after the task has yielded.
        if !signal.signalled.load(Relaxed) {
            break;
        }
    }
    signal.driving.store(false, Relaxed);
    result
}
