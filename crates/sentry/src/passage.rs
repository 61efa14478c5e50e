//! From slot to response: a request that was let in is sent to a server, again where that is safe, and its response is
//! passed back.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version, request};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use plimsoll_core::config::Mode;
use plimsoll_core::{ClassId, Nanos};

use crate::address::address;
use crate::body::{Exchange, ResponseBody, Running};
use crate::client::Client;
use crate::connections::{Link, SendError};
use crate::deadline::Deadline;
use crate::etcd::Call;
use crate::nucleus::lesson::Lesson;
use crate::pool::Pool;
use crate::rerun;
use crate::server::{Lease, Server};
use crate::solr::Query;
use crate::stats::Failure;
use crate::thread::View;
use crate::ticket::{STREAM, Ticket};
use crate::upload::{Upload, UploadBody, UploadError};
use crate::upstream::{self, Need};
use crate::{clock, headers, refuse};

/// A connection that was idle for longer than this may have been closed by its server while a request was on its way.
/// What may safely be sent again is kept until the response comes.
const STALE: Nanos = Nanos::from_millis(500);

/// How often a request looks again for a server with room. It has a slot, so there is one, unless servers have left since.
const LOOK: Duration = Duration::from_millis(5);

/// Nobody waits for the response: hyper ends the connection or resets the stream.
#[derive(Clone, Copy, Debug)]
pub struct ClientGone;

impl fmt::Display for ClientGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client has left")
    }
}

impl std::error::Error for ClientGone {}

/// A request that was let in, on its way to a server.
pub struct Passage {
    /// Who asks.
    pub client: Rc<Client>,
    /// The config that it came in with.
    pub view: Rc<View>,
    /// What it is.
    pub class: ClassId,
    /// Which requests it is like.
    pub kind: u64,
    /// What tells its client from others, where the class shares fairly.
    pub key: Option<u64>,
    /// When its client stops waiting.
    pub deadline: Option<Deadline>,
    /// Whether it is a gRPC call.
    pub grpc: bool,
    /// Whether it lasts for as long as it likes.
    pub lasts: bool,
    /// What it is among those that are under way at an etcd.
    pub call: Option<Call>,
    /// What it is among those that are under way at a Solr.
    pub query: Option<Query>,
    /// The server that has it, or may have.
    pub server: RefCell<Option<Arc<Server>>>,
}

/// What came of sending a request.
pub enum Sent {
    /// The head of the response is there.
    Answered(Response<Incoming>, Link, Lease),
    /// No server answered.
    Failed(Failure),
    /// Nobody waits any more.
    ClientGone,
}

impl Passage {
    /// The pool that serves it.
    pub fn pool(&self) -> &Pool {
        self.view.pool(self.class)
    }

    /// Sends it and passes the response back.
    ///
    /// # Errors
    /// Where its client has left.
    pub async fn forward(
        self,
        ticket: Ticket,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, ClientGone> {
        let limits = self.client.watch.activity().limits();
        // A gRPC client may have nothing to say for long, as long as the server has: see `stream_timeout`.
        let pause = (!self.grpc).then_some(limits.body);
        let (head, incoming) = request.into_parts();
        let head_only = head.method == Method::HEAD;
        let (mut body, upload) = UploadBody::new(incoming, pause);
        body.listen(self.call.as_ref().and_then(Call::listening));
        let (request, host) = self.prepare(head, body);
        let again = if self.pool().reruns.are_wanted() { copy(&request) } else { None };

        let sent = self.exchange(ticket.started(), request, host.clone(), upload.as_deref()).await;
        if let Sent::Failed(_) = sent
            && upload.is_some()
            && !self.client.http2
        {
            self.client.watch.activity().leaves_body_unread();
        }
        if let Some(again) = again
            && let Sent::Answered(response, ..) = &sent
            && rerun::is_cancelled(response)
            && let Some(place) = self.pool().reruns.place()
        {
            drop(sent);
            // Boxed: rare, as upgrades are.
            return Box::pin(self.run_again(ticket, again, host, head_only, place)).await;
        }
        self.conclude(ticket, sent, upload, head_only).await
    }

    /// Answers as it was answered, or says what went wrong; `head_only` where no more was asked for.
    ///
    /// # Errors
    /// Where its client has left.
    pub async fn conclude(
        &self,
        ticket: Ticket,
        sent: Sent,
        upload: Option<Rc<Upload>>,
        head_only: bool,
    ) -> Result<Response<ResponseBody>, ClientGone> {
        match sent {
            Sent::Answered(response, link, lease) => {
                Ok(self.answer(ticket, response, link, lease, upload, head_only).await)
            }
            Sent::Failed(failure) => Ok(self.apologise(ticket, failure)),
            Sent::ClientGone => Err(ClientGone),
        }
    }

    /// Sends the request within the time that its server has, and while its client is there.
    pub async fn exchange(
        &self,
        started: Nanos,
        request: Request<UploadBody>,
        host: Option<HeaderValue>,
        upload: Option<&Upload>,
    ) -> Sent {
        tokio::select! {
            biased;
            sent = self.send(request, host, upload) => sent,
            failure = self.time_limit(started, upload) => {
                if let (Failure::Timeout, Some(server)) = (failure, self.server.take()) {
                    self.view.server_failed(self.class, &server);
                }
                Sent::Failed(failure)
            }
            () = self.told() => Sent::Failed(Failure::Cancelled),
            () = self.client.gone(), if upload.is_some() => Sent::ClientGone,
        }
    }

    /// Resolves when the request is told to end.
    async fn told(&self) {
        match &self.call {
            Some(call) => call.told().await,
            None => std::future::pending().await,
        }
    }

    /// Makes the request ours, whatever is spoken to the server. Also returns its host.
    pub fn prepare(
        &self,
        mut head: request::Parts,
        body: UploadBody,
    ) -> (Request<UploadBody>, Option<HeaderValue>) {
        let host = match head.uri.authority() {
            Some(authority) => headers::host_of(authority),
            None => head.headers.get(HOST).cloned(),
        };
        let config = &self.view.routing.config.sentry;
        headers::prepare_request(&mut head.headers);
        self.client.forwarder.add(&mut head.headers, host.as_ref(), head.version);
        head.headers.insert(config.priority_header.clone(), self.view.class(self.class).priority.clone());
        if let Some(deadline) = &self.deadline {
            deadline.forward(&mut head.headers, clock::coarse());
        }
        if let Some(query) = &self.query {
            query.mark(&mut head);
        }
        head.extensions.clear();
        (Request::from_parts(head, body), host)
    }

    /// Sends the request until a server answers, for as long as that is safe and the budget allows.
    async fn send(
        &self,
        mut request: Request<UploadBody>,
        host: Option<HeaderValue>,
        upload: Option<&Upload>,
    ) -> Sent {
        let (pool, thread) = (self.pool(), &self.client.thread);
        let need = Need::Exchange { grpc: self.grpc };
        let mut tried = Vec::new();
        pool.retries.deposit();
        loop {
            self.server.take();
            let (lease, mut link) = match self.connect(need, &mut tried).await {
                Ok(connected) => connected,
                Err(failure) => return Sent::Failed(failure),
            };
            self.server.replace(Some(Arc::clone(lease.server())));
            address(&mut request, host.as_ref(), lease.server(), &link);
            if let Some(query) = &self.query {
                query.sent(lease.server(), clock::coarse());
            }
            let idle = link.was_idle(clock::coarse());
            let spare = if idle > STALE { copy(&request) } else { None };
            let broken = match link.send(request).await {
                Ok(response) => return Sent::Answered(response, link, lease),
                // The server closed a connection that had served; there may be others, and at last a fresh one.
                Err(SendError::Unsent(unsent)) if link.has_answered() => {
                    request = *unsent;
                    continue;
                }
                Err(SendError::Unsent(unsent)) => Some(*unsent),
                Err(SendError::Broken(error)) => match upload.and_then(Upload::error) {
                    Some(UploadError::Client) => return Sent::ClientGone,
                    Some(fault) => return Sent::Failed(fault.count(thread.stats())),
                    None => {
                        log::debug!(server:% = lease.server().origin, error:%; "no response");
                        spare
                    }
                },
            };
            self.view.server_failed(self.class, lease.server());
            match broken {
                Some(again) if self.may_retry(&mut tried, &lease) => request = again,
                _ => return Sent::Failed(Failure::Upstream),
            }
        }
    }

    /// A connection to a server, of those that were not tried before if possible.
    pub async fn connect(&self, need: Need, tried: &mut Vec<u64>) -> Result<(Lease, Link), Failure> {
        let pool = self.pool();
        let patience = clock::coarse() + pool.config.connect_timeout;
        loop {
            let now = clock::coarse();
            // At an etcd there is also what lasts, and holds none.
            let has_slot = pool.mode() == Mode::Enforce && pool.etcd.is_none();
            // Better one request too many than none, in the end. A retry is within a budget of its own.
            let room = has_slot && tried.is_empty() && now < patience;
            let Some(lease) = pool.servers.choose(tried, room, now, (now.0 >> 8) as usize) else {
                // Who has a slot waits for a server as those behind it do, for as long as a response may take.
                if !has_slot && now >= patience {
                    return Err(Failure::Connect);
                }
                tokio::time::sleep(LOOK).await;
                clock::refresh();
                continue;
            };
            match upstream::link(&self.client.thread.connections, pool, lease.server(), need).await {
                Ok(link) => return Ok((lease, link)),
                Err(error) => {
                    log::debug!(server:% = lease.server().origin, error:%; "cannot connect");
                    self.view.server_failed(self.class, lease.server());
                    if !self.may_retry(tried, &lease) {
                        return Err(Failure::Connect);
                    }
                }
            }
        }
    }

    fn may_retry(&self, tried: &mut Vec<u64>, lease: &Lease) -> bool {
        let (pool, stats) = (self.pool(), self.client.thread.stats());
        if tried.len() >= pool.config.retries.max as usize {
            return false;
        }
        tried.push(lease.server().id);
        let may = pool.retries.withdraw();
        if may {
            stats.retries.bump()
        } else {
            stats.retries_denied.bump()
        }
        may
    }

    /// Ends when the server has had its time: `response_timeout` from when the last of the request went out, or until
    /// the request's own deadline.
    async fn time_limit(&self, started: Nanos, upload: Option<&Upload>) -> Failure {
        let config = &self.pool().config;
        let deadline = self.deadline.as_ref().map_or(Nanos::MAX, |deadline| deadline.at);
        let mut look = if self.lasts { Nanos::MAX } else { started + config.response_timeout };
        loop {
            tokio::time::sleep_until(clock::timer(look.min(deadline))).await;
            let now = clock::refresh();
            if deadline <= now {
                return Failure::Deadline;
            }
            if self.lasts {
                continue;
            }
            let Some(upload) = upload else { return Failure::Timeout };
            let (limit, failure) = if self.grpc && upload.waits_for_client() {
                (config.stream_timeout, Failure::ClientGone)
            } else {
                (config.response_timeout, Failure::Timeout)
            };
            let ends = upload.quiet_since(now) + limit;
            if ends <= now {
                return failure;
            }
            look = ends.min(now + config.response_timeout);
        }
    }

    /// A response whose head is there; `head_only` where no more was asked for.
    pub async fn answer(
        &self,
        mut ticket: Ticket,
        response: Response<Incoming>,
        mut link: Link,
        lease: Lease,
        upload: Option<Rc<Upload>>,
        head_only: bool,
    ) -> Response<ResponseBody> {
        let (mut head, incoming) = response.into_parts();
        let (pool, now) = (self.pool(), clock::refresh());
        if let Some(query) = &self.query {
            query.answered(now);
        }
        headers::prepare_response(&mut head.headers);
        let mut lesson = Lesson::about(self.kind);
        lesson.hear(&mut head.headers, lease.server(), &pool.reports, now);
        head.extensions.clear();
        head.version = Version::HTTP_11;

        let events = is_event_stream(&head.headers);
        let slow_client =
            upload.as_ref().is_some_and(|u| u.progress().since(ticket.started()) > STREAM || !u.ended());
        let typical = !events && !slow_client && !self.lasts && !head.status.is_server_error();
        ticket.answered(now, typical);
        if upload.as_ref().is_some_and(|upload| !upload.ended()) {
            link = link.detach();
        }
        let threads = self.client.thread.shared.stats.threads.len();
        let is_stream = events || self.grpc;
        let pause = |limit| if self.lasts { Nanos::MAX } else { limit };
        let server_pause = if is_stream { pool.config.stream_timeout } else { pool.config.response_timeout };
        let bodyless = head_only || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let mut running = Some(Running {
            incoming,
            ahead: None,
            link,
            lease,
            ticket,
            lesson,
            counting: self.call.as_ref().and_then(|call| call.answered(now)),
            upload,
            thread: Rc::clone(&self.client.thread),
            is_stream,
            deadline: self.deadline.as_ref().map(|deadline| deadline.at),
            server_pause: pause(server_pause),
            client_pause: pause(self.client.watch.activity().limits().body),
            keep: (pool.config.max_idle_connections as usize).div_ceil(threads),
        });
        // Most responses are short and here with their head. Such a one is over now, and its slot free. By HTTP/2 the
        // end of one without a body may be said later, and nobody waits for that.
        let body = poll_fn(|cx| Poll::Ready(whole(&mut running, bodyless, cx))).await;
        match (body, running) {
            (Ok(Some(bytes)), _) => Response::from_parts(head, ResponseBody::full(bytes)),
            (Ok(None), Some(running)) => {
                Response::from_parts(head, ResponseBody::forwarded(Exchange::new(running)))
            }
            (Ok(None), None) => Response::from_parts(head, ResponseBody::empty()),
            (Err(_), Some(running)) => {
                let failure = running.clients_fault().unwrap_or_else(|| {
                    self.view.server_failed(self.class, running.lease.server());
                    Failure::Upstream
                });
                let Running { lease, ticket, .. } = running;
                drop(lease);
                self.apologise(ticket, failure)
            }
            (Err(_), None) => unreachable!("what failed is still there"),
        }
    }

    /// Ends a request that was let in and not served.
    pub fn apologise(&self, ticket: Ticket, failure: Failure) -> Response<ResponseBody> {
        let (status, why) = match failure {
            Failure::Connect => (StatusCode::BAD_GATEWAY, "no server can be reached"),
            Failure::Upstream | Failure::Truncated => (StatusCode::BAD_GATEWAY, "the server broke off"),
            Failure::Timeout => (StatusCode::GATEWAY_TIMEOUT, "the server took too long"),
            Failure::Deadline => (StatusCode::GATEWAY_TIMEOUT, "the deadline has passed"),
            Failure::ClientGone => (StatusCode::REQUEST_TIMEOUT, "the request took too long"),
            Failure::Malformed => (StatusCode::BAD_REQUEST, "the request's body is malformed"),
            Failure::Cancelled => (StatusCode::SERVICE_UNAVAILABLE, "the server cancelled it"),
        };
        ticket.fail(failure);
        match self.call.as_ref().and_then(Call::why).filter(|_| failure == Failure::Cancelled) {
            Some(why) => refuse::cancelled(why),
            None => refuse::error(status, why, self.grpc),
        }
    }
}

impl View {
    /// A server did not do what it should; after a few times in a row it is left out.
    pub fn server_failed(&self, class: ClassId, server: &Server) {
        let (pool, now) = (self.pool(class), clock::coarse());
        if server.failed(&pool.config.eject, now) {
            log::warn!(pool = &*pool.config.name, server:% = server.origin; "server left out after failures");
            pool.resize(now);
        }
    }
}

/// The whole body, if it is there already; then the exchange is over. Otherwise what there is of it is kept.
fn whole(
    slot: &mut Option<Running>,
    bodyless: bool,
    cx: &mut Context<'_>,
) -> Result<Option<Bytes>, hyper::Error> {
    let Some(running) = slot.as_mut() else { return Ok(None) };
    let mut body = Bytes::new();
    if !bodyless && !running.incoming.is_end_stream() {
        match running.poll_incoming(cx) {
            Poll::Pending => return Ok(None),
            Poll::Ready(None) => {}
            Poll::Ready(Some(frame)) => match frame?.into_data() {
                Ok(data) if running.incoming.is_end_stream() => body = data,
                Ok(data) => {
                    running.ahead = Some(Frame::data(data));
                    return Ok(None);
                }
                Err(trailers) => {
                    running.ahead = Some(trailers);
                    return Ok(None);
                }
            },
        }
    }
    if let Some(running) = slot.take() {
        running.complete(clock::coarse());
    }
    Ok(Some(body))
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

/// A request that may be sent twice: it changes nothing the second time, and all of it is in its head.
fn copy(request: &Request<UploadBody>) -> Option<Request<UploadBody>> {
    if !request.method().is_idempotent() || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(UploadBody::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}
