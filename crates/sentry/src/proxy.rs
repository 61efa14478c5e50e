//! The path of a request: recognise it, let it in, pass it on.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use http::header::{CONNECTION, HOST, HeaderValue};
use http::{HeaderName, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use plimsoll_core::config::PathPattern;
use plimsoll_core::{ClassId, Nanos};

use crate::admit::{self, Admission, Arrival};
use crate::body::ResponseBody;
use crate::client::{Client, Command};
use crate::deadline::Deadline;
use crate::etcd::Guard;
use crate::etcd::message::Method;
use crate::nucleus::kind::kind;
use crate::passage::{ClientGone, Passage};
use crate::thread::View;
use crate::{clock, guard, refuse, upgrade};

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
    if client.is_to_leave(now) && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        if client.http2 {
            client.order(Command::Finish);
        } else {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
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
    let (class, pattern) = classify(&view, &request);
    let deadline = Deadline::of(request.headers(), Some(&config.deadline_header), now);
    let fair_share = view.class(class).fair_share.as_ref();
    let key = fair_share.map(|by| admit::client_key(by, config, client.peer, request.headers()));
    let arrival = Arrival {
        at: now,
        class,
        deadline: deadline.as_ref().map(|d| d.at),
        client: key,
        kind: kind(request.method().as_str(), request.uri().path(), pattern),
    };

    let query = view.pool(class).solr.as_ref().and_then(|queries| {
        queries.arrive(request.method(), request.uri(), client.thread.id, client.peer, now)
    });
    let method = view.pool(class).etcd.as_ref().filter(|_| grpc).map(|_| Method::of(request.uri().path()));
    let lasts = method == Some(Method::Other);
    let admission = match lasts {
        true => admit::pass_by(&view, class, now),
        false => admit::admit(&client.thread, &view, arrival, client.gone()).await,
    };
    let ticket = match admission {
        Admission::In(ticket) => ticket,
        Admission::Refused(refusal) => {
            client.answers_early(request.body());
            return Ok(client.thread.with_rng(|rng| refuse::refusal(&refusal, grpc, rng)));
        }
        Admission::ClientGone => return Err(ClientGone),
    };
    let begin = |(guard, method): (&Arc<Guard>, Method)| {
        guard.begin(method, client.thread.id, client.peer, ticket.started())
    };
    let passage = Passage {
        call: view.pool(class).etcd.as_ref().zip(method).and_then(begin),
        query,
        lasts,
        client: Rc::clone(client),
        view,
        class,
        kind: arrival.kind,
        key,
        deadline,
        grpc,
        server: RefCell::default(),
    };
    if upgrade::is_wanted(&request) {
        // Boxed: rare, and large enough to make every request's future larger otherwise.
        return Box::pin(upgrade::forward(passage, ticket, request)).await;
    }
    passage.forward(ticket, request).await
}

/// The class of a request, and the path pattern that it was recognised by, if it was.
fn classify<'a>(view: &'a View, request: &Request<Incoming>) -> (ClassId, Option<&'a PathPattern>) {
    let headers = request.headers();
    let host = match request.uri().host() {
        Some(host) => host,
        None => headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or(""),
    };
    let header = |name: &HeaderName| headers.get(name).map(HeaderValue::as_bytes);
    view.routing.classifier.recognise(request.method().as_str(), request.uri().path(), host, header)
}

impl Client {
    /// A request is answered although not all of it was read.
    pub fn answers_early(&self, body: &Incoming) {
        if !self.http2 && !body.is_end_stream() {
            self.watch.activity().leaves_body_unread();
        }
    }
}
