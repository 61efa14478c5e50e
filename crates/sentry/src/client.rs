//! One client connection as its requests see it: who the client is, and the connection's life.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Waker};

use plimsoll_core::Nanos;
use rand::RngExt;

use crate::activity::Phase;
use crate::clock;
use crate::headers::Forwarder;
use crate::peer::{SLOW_HEAD, Watch};
use crate::state::Place;
use crate::thread::Thread;
use crate::timeouts::Expire;

/// Requests that a client may have reset, and more often than not, before its connection is closed. Rapid resets
/// make a server begin work that nobody wants.
const RESETS: u32 = 100;

/// When connections from before are closed after there have come to be more sentries: not before the new one listens, and not all
/// at once, because a handshake costs more than a request.
const SPREAD: Range<Nanos> = Nanos::from_secs(1)..Nanos::from_secs(11);

/// What the task that drives a connection is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Go on.
    Serve,
    /// Finish what is in progress, take no more, close.
    Finish,
    /// Close now.
    Drop,
}

/// A client connection.
pub struct Client {
    /// The thread that it lives on.
    pub thread: Rc<Thread>,
    /// The other end of the TCP connection.
    pub peer: IpAddr,
    /// Whether it came over TLS.
    pub tls: bool,
    /// Whether it speaks HTTP/2.
    pub http2: bool,
    /// Tells when it has left.
    pub watch: Watch,
    /// Tells servers who it is.
    pub forwarder: Forwarder,
    _place: Place,
    opened: Nanos,
    /// So long after there have come to be more sentries it goes.
    turn: Nanos,
    command: Cell<Command>,
    waker: RefCell<Option<Waker>>,
    in_progress: Cell<u32>,
    ended: Cell<u32>,
    reset: Cell<u32>,
}

impl Client {
    /// A connection without requests.
    pub fn new(
        thread: Rc<Thread>,
        place: Place,
        peer: IpAddr,
        tls: bool,
        http2: bool,
        watch: Watch,
    ) -> Client {
        if http2 {
            watch.activity().is_http2();
        }
        let turn = Nanos(thread.with_rng(|rng| rng.random_range(SPREAD.start.0..SPREAD.end.0)));
        let trusted = thread.view().routing.config.sentry.trusts(peer);
        Client {
            forwarder: Forwarder::new(peer, tls, trusted),
            thread,
            peer,
            tls,
            http2,
            watch,
            _place: place,
            opened: clock::coarse(),
            turn,
            command: Cell::new(Command::Serve),
            waker: RefCell::default(),
            in_progress: Cell::new(0),
            ended: Cell::new(0),
            reset: Cell::new(0),
        }
    }

    /// Whether its client had better open another connection for the next request: because the worker drains, or because the
    /// kernel would give it to a sentry that was not there when it opened this one.
    pub fn is_to_leave(&self, now: Nanos) -> bool {
        let joined = self.thread.shared.joined();
        self.thread.drain_ends().is_some() || (joined > self.opened && now >= joined + self.turn)
    }

    /// A request begins; it ends when this is dropped.
    pub fn begin(self: &Rc<Self>) -> InProgress {
        self.in_progress.update(|n| n + 1);
        self.watch.activity().enter(Phase::Busy);
        self.thread.stats().in_flight.bump();
        InProgress { client: Rc::clone(self), whole: false }
    }

    /// Resolves when the client has left. hyper drops a request whose HTTP/2 stream is reset, but it may not look at an
    /// HTTP/1 connection at all.
    pub async fn gone(&self) {
        if self.http2 { std::future::pending().await } else { self.watch.gone().await }
    }

    /// What the task is to do; it is woken when that changes.
    pub fn command(&self, cx: &Context<'_>) -> Command {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        self.command.get()
    }

    /// Tells the task what to do. A connection that is to be dropped stays so.
    pub fn order(&self, command: Command) {
        if self.command.get() == Command::Drop || self.command.get() == command {
            return;
        }
        self.command.set(command);
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    fn request_ended(&self, whole: bool) {
        self.thread.stats().in_flight.drop_one();
        self.in_progress.update(|n| n - 1);
        if self.in_progress.get() == 0 {
            self.watch.activity().enter(Phase::Idle);
        }
        if whole {
            self.ended.update(|n| n.saturating_add(1));
            return;
        }
        self.reset.update(|n| n.saturating_add(1));
        if self.http2 && self.reset.get() >= RESETS && self.reset.get() > self.ended.get() {
            if self.command.get() != Command::Drop {
                self.thread.stats().reset_floods.bump();
            }
            self.order(Command::Drop);
        }
    }
}

impl Expire for Client {
    fn expires(&self) -> Option<Nanos> {
        match self.command.get() {
            Command::Drop => None,
            _ if self.thread.drain_ends().is_some() => Some(Nanos::ZERO),
            _ => Some(self.watch.activity().expires()),
        }
    }

    fn expire(&self) {
        let activity = self.watch.activity();
        let stats = self.thread.stats();
        let now = clock::coarse();
        if activity.is_stalled(now) {
            stats.stalled_clients.bump();
            self.order(Command::Drop);
        } else if activity.expires() <= now {
            match activity.phase() {
                Phase::Head => {
                    stats.slow_heads.bump();
                    if !self.tls {
                        self.watch.last_words(SLOW_HEAD);
                    }
                    self.order(Command::Drop);
                }
                Phase::Idle if self.command.get() == Command::Finish => self.order(Command::Drop),
                Phase::Idle => {
                    self.order(Command::Finish);
                    // A client that does not close its side either has as long again.
                    activity.enter(Phase::Idle);
                }
                Phase::Busy => {}
            }
        } else if let Some(idle_end) = self.thread.drain_ends() {
            // HTTP/1 has no way to say "no more" but with a response; HTTP/2 has.
            if self.http2 || (activity.phase() == Phase::Idle && idle_end <= now) {
                self.order(Command::Finish);
            }
        }
    }
}

/// A request that is between its head and the end of its response.
pub struct InProgress {
    client: Rc<Client>,
    whole: bool,
}

impl InProgress {
    /// The response was handed over to its end: the client did not break it off.
    pub fn done(&mut self) {
        self.whole = true;
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.client.request_ended(self.whole);
    }
}
