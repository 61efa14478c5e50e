//! The path of a request: recognise it, let it in, pass it on, pass the response back.

use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Poll;

use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri, Version, request};
use http_body::Body;
use hyper::body::Incoming;
use plimsoll_core::{ClassId, Nanos};

use crate::admit::{self, Admission, Arrival};
use crate::balance::{Lease, Server};
use crate::body::{Exchange, ResponseBody, Running};
use crate::client::Client;
use crate::connections::{Link, SendError};
use crate::deadline::Deadline;
use crate::state::Pool;
use crate::stats::Failure;
use crate::thread::View;
use crate::ticket::{STREAM, Ticket};
use crate::upload::{Upload, UploadBody, UploadError};
use crate::upstream::{self, Need};
use crate::{clock, guard, headers, refuse, upgrade};

/// A connection that was idle for longer than this may have been closed by its server while a request was on its way.
/// What may safely be sent again is kept until the response comes.
const STALE: Nanos = Nanos::from_millis(500);

/// Nobody waits for the response: hyper ends the connection or resets the stream.
#[derive(Clone, Copy, Debug)]
pub struct ClientGone;

impl fmt::Display for ClientGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client has left")
    }
}

impl std::error::Error for ClientGone {}

/// The whole path of a request.
///
/// # Errors
/// Where its client has left.
pub async fn handle(
    client: Rc<Client>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, ClientGone> {
    let now = clock::refresh();
    let in_progress = client.begin();
    let mut response = respond(&client, request, now).await?;
    if client.thread.drain_ends().is_some()
        && !client.http2
        && response.status() != StatusCode::SWITCHING_PROTOCOLS
    {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response.body().ends(in_progress);
    Ok(response)
}

async fn respond(
    client: &Rc<Client>,
    request: Request<Incoming>,
    now: Nanos,
) -> Result<Response<ResponseBody>, ClientGone> {
    let grpc = refuse::is_grpc(request.headers());
    if let Err(malformed) = guard::check(&request) {
        client.thread.stats().malformed.bump();
        client.answers_early(request.body());
        let mut response = refuse::error(malformed.status, malformed.why, grpc);
        if !client.http2 {
            // Where one request was not what it seemed, the next may not begin where it seems to.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        return Ok(response);
    }
    let view = client.thread.view();
    let config = &view.routing.config.sentry;
    let class = classify(&view, &request);
    let deadline = Deadline::of(request.headers(), Some(&config.deadline_header), now);
    let fair_share = view.class(class).fair_share.as_ref();
    let key = fair_share.map(|by| admit::client_key(by, config, client.peer, request.headers()));
    let arrival = Arrival { at: now, class, deadline: deadline.as_ref().map(|d| d.at), client: key };

    let ticket = match admit::admit(&client.thread, &view, arrival, client.gone()).await {
        Admission::In(ticket) => ticket,
        Admission::Refused(refusal) => {
            client.answers_early(request.body());
            return Ok(client.thread.with_rng(|rng| refuse::refusal(&refusal, grpc, rng)));
        }
        Admission::ClientGone => return Err(ClientGone),
    };
    let passage = Passage { client: Rc::clone(client), view, class, deadline, grpc };
    if upgrade::is_wanted(&request) {
        // Boxed: rare, and large enough to make every request's future larger otherwise.
        return Box::pin(upgrade::forward(passage, ticket, request)).await;
    }
    passage.forward(ticket, request).await
}

fn classify(view: &View, request: &Request<Incoming>) -> ClassId {
    let headers = request.headers();
    let host = match request.uri().host() {
        Some(host) => host,
        None => headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or(""),
    };
    let header = |name: &http::HeaderName| headers.get(name).map(HeaderValue::as_bytes);
    view.routing.classifier.classify(request.method().as_str(), request.uri().path(), host, header)
}

impl Client {
    /// A request is answered although not all of it was read.
    pub fn answers_early(&self, body: &Incoming) {
        if !self.http2 && !body.is_end_stream() {
            self.watch.activity().leaves_body_unread();
        }
    }
}

/// A request that was let in, on its way to a server.
pub struct Passage {
    /// Who asks.
    pub client: Rc<Client>,
    /// The config that it came in with.
    pub view: Rc<View>,
    /// What it is.
    pub class: ClassId,
    /// When its client stops waiting.
    pub deadline: Option<Deadline>,
    /// Whether it is a gRPC call.
    pub grpc: bool,
}

/// What came of sending a request.
enum Sent {
    Answered(Response<Incoming>, Link, Lease),
    Failed(Failure),
    ClientGone,
}

impl Passage {
    /// The pool that serves it.
    pub fn pool(&self) -> &Pool {
        self.view.pool(self.class)
    }

    async fn forward(
        self,
        ticket: Ticket,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, ClientGone> {
        let limits = self.client.watch.activity().limits();
        // A gRPC client may have nothing to say for as long as it likes.
        let pause = (!self.grpc).then_some(limits.body);
        let (head, incoming) = request.into_parts();
        let (body, upload) = UploadBody::new(incoming, pause);
        let (request, host) = self.prepare(head, body);

        let sent = tokio::select! {
            biased;
            sent = self.send(request, host, upload.as_deref()) => sent,
            failure = self.time_limit(ticket.started(), upload.as_deref()) => Sent::Failed(failure),
            () = self.client.gone(), if upload.is_some() => Sent::ClientGone,
        };
        if let Sent::Failed(_) | Sent::ClientGone = sent
            && let Some(upload) = &upload
        {
            upload.cancel();
            if !self.client.http2 {
                self.client.watch.activity().leaves_body_unread();
            }
        }
        match sent {
            Sent::Answered(response, link, lease) => {
                Ok(self.answer(ticket, response, link, lease, upload).await)
            }
            Sent::Failed(failure) => Ok(self.apologise(ticket, failure)),
            Sent::ClientGone => Err(ClientGone),
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
            let (lease, mut link) = match self.connect(need, &mut tried).await {
                Ok(connected) => connected,
                Err(failure) => return Sent::Failed(failure),
            };
            address(&mut request, host.as_ref(), lease.server(), &link);
            let idle = link.was_idle(clock::coarse());
            let spare = if idle > STALE { copy(&request) } else { None };
            let broken = match link.send(request).await {
                Ok(response) => return Sent::Answered(response, link, lease),
                // The server closed an idle connection; there may be others, and at last a fresh one.
                Err(SendError::Unsent(unsent)) if idle > Nanos::ZERO || link.is_http2() => {
                    request = *unsent;
                    continue;
                }
                Err(SendError::Unsent(unsent)) => Some(*unsent),
                Err(SendError::Broken(error)) => match upload.and_then(Upload::error) {
                    Some(UploadError::Stalled) => {
                        thread.stats().stalled_clients.bump();
                        return Sent::Failed(Failure::ClientGone);
                    }
                    Some(_) => return Sent::ClientGone,
                    None => {
                        log::debug!(server:% = lease.server().origin, error:%; "no response");
                        spare
                    }
                },
            };
            self.failed(&lease);
            match broken {
                Some(again) if self.may_retry(&mut tried, &lease) => request = again,
                _ => return Sent::Failed(Failure::Upstream),
            }
        }
    }

    /// A connection to a server, of those that were not tried before if possible.
    pub async fn connect(&self, need: Need, tried: &mut Vec<u64>) -> Result<(Lease, Link), Failure> {
        let pool = self.pool();
        loop {
            let now = clock::coarse();
            let lease = pool.servers.choose(tried, now, (now.0 >> 8) as usize);
            match upstream::link(&self.client.thread.connections, pool, lease.server(), need).await {
                Ok(link) => return Ok((lease, link)),
                Err(error) => {
                    log::debug!(server:% = lease.server().origin, error:%; "cannot connect");
                    self.failed(&lease);
                    if !self.may_retry(tried, &lease) {
                        return Err(Failure::Connect);
                    }
                }
            }
        }
    }

    /// A server did not do what it should; after a few times in a row it is left out.
    fn failed(&self, lease: &Lease) {
        let (pool, server, now) = (self.pool(), lease.server(), clock::coarse());
        if server.failed(&pool.config.eject, now) {
            log::warn!(pool = &*pool.config.name, server:% = server.origin; "server left out after failures");
            pool.resize(now);
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
        let limit = self.pool().config.response_timeout;
        let deadline = self.deadline.as_ref().map_or(Nanos::MAX, |deadline| deadline.at);
        let mut from = started;
        loop {
            tokio::time::sleep_until(clock::timer((from + limit).min(deadline))).await;
            let now = clock::refresh();
            if deadline <= now {
                return Failure::Deadline;
            }
            match upload {
                Some(upload) if upload.progress() > from => from = upload.progress(),
                // A gRPC client that has not finished may be the one that all wait for.
                Some(upload) if self.grpc && !upload.ended() => from = now,
                _ => return Failure::Timeout,
            }
        }
    }

    /// A response whose head is there.
    pub async fn answer(
        &self,
        mut ticket: Ticket,
        response: Response<Incoming>,
        mut link: Link,
        lease: Lease,
        upload: Option<Rc<Upload>>,
    ) -> Response<ResponseBody> {
        let (mut head, incoming) = response.into_parts();
        let (pool, now) = (self.pool(), clock::refresh());
        lease.server().answered();
        headers::prepare_response(&mut head.headers);
        head.extensions.clear();
        head.version = Version::HTTP_11;

        let events = is_event_stream(&head.headers);
        let slow_client =
            upload.as_ref().is_some_and(|u| u.progress().since(ticket.started()) > STREAM || !u.ended());
        ticket.answered(now, !events && !slow_client && !head.status.is_server_error());
        if upload.as_ref().is_some_and(|upload| !upload.ended()) {
            link = link.detach();
        }
        let threads = self.client.thread.shared.stats.threads.len();
        let mut running = Some(Running {
            incoming,
            ahead: None,
            link,
            lease,
            ticket,
            upload,
            thread: Rc::clone(&self.client.thread),
            server_pause: (!events && !self.grpc).then_some(pool.config.response_timeout),
            client_pause: self.client.watch.activity().limits().body,
            keep: (pool.config.max_idle_connections as usize).div_ceil(threads),
        });
        // Most responses are short and here with their head. Such a one is over now, and its slot free.
        let body = poll_fn(|cx| Poll::Ready(whole(&mut running, cx))).await;
        match (body, running) {
            (Ok(Some(bytes)), _) => Response::from_parts(head, ResponseBody::full(bytes)),
            (Ok(None), Some(running)) => {
                Response::from_parts(head, ResponseBody::forwarded(Exchange::new(running)))
            }
            (Ok(None), None) => Response::from_parts(head, ResponseBody::empty()),
            (Err(_), Some(running)) => {
                self.failed(&running.lease);
                self.apologise(running.ticket, Failure::Upstream)
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
        };
        ticket.fail(failure);
        refuse::error(status, why, self.grpc)
    }
}

/// The whole body, if it is there already; then the exchange is over. Otherwise what there is of it is kept.
fn whole(
    slot: &mut Option<Running>,
    cx: &mut std::task::Context<'_>,
) -> Result<Option<bytes::Bytes>, hyper::Error> {
    let Some(running) = slot.as_mut() else { return Ok(None) };
    let mut body = bytes::Bytes::new();
    if !running.incoming.is_end_stream() {
        match running.poll_incoming(cx) {
            Poll::Pending => return Ok(None),
            Poll::Ready(None) => {}
            Poll::Ready(Some(frame)) => match frame?.into_data() {
                Ok(data) if running.incoming.is_end_stream() => body = data,
                Ok(data) => {
                    running.ahead = Some(http_body::Frame::data(data));
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

fn is_event_stream(headers: &http::HeaderMap) -> bool {
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

/// Makes a request one for this server, as what is spoken on the link wants it. Where no host was asked for, it is the
/// server's own.
pub fn address(request: &mut Request<UploadBody>, host: Option<&HeaderValue>, server: &Server, link: &Link) {
    if link.is_http2() {
        for_http2(request, host, server);
    } else {
        for_http1(request, host, server);
    }
}

/// HTTP/1 has the host in a header and the path alone in its first line.
fn for_http1(request: &mut Request<UploadBody>, host: Option<&HeaderValue>, server: &Server) {
    if request.uri().authority().is_some() {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    }
    if request.version() == Version::HTTP_2 {
        headers::join_cookies(request.headers_mut());
    }
    *request.version_mut() = Version::HTTP_11;
    let host = host.cloned().or_else(|| authority_of(server).as_ref().and_then(headers::host_of));
    if let Some(host) = host
        && request.headers().get(HOST) != Some(&host)
    {
        request.headers_mut().insert(HOST, host);
    }
}

/// HTTP/2 has everything in its URI.
fn for_http2(request: &mut Request<UploadBody>, host: Option<&HeaderValue>, server: &Server) {
    request.headers_mut().remove(HOST);
    *request.version_mut() = Version::HTTP_2;
    let https = server.origin.scheme == plimsoll_core::config::Scheme::Https;
    let asked_for = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(if https { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = asked_for.or_else(|| authority_of(server));
    parts.path_and_query =
        Some(request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// What a server is called where the request does not say whom it wants.
fn authority_of(server: &Server) -> Option<Authority> {
    let origin = &server.origin;
    let text = match origin.host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{}", origin.port),
        _ => format!("{}:{}", origin.host, origin.port),
    };
    Authority::try_from(text).ok()
}
