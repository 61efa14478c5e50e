//! WebSocket: a request that turns both its connections into something else.
//!
//! No other upgrade is passed on. In particular not `h2c`, behind which requests could pass that nobody looked at.

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use crate::address::address;
use crate::body::ResponseBody;
use crate::clock;
use crate::headers::has_token;
use crate::nucleus::lesson::Lesson;
use crate::passage::{ClientGone, Passage};
use crate::server::Lease;
use crate::stats::Failure;
use crate::ticket::Ticket;
use crate::upload::UploadBody;
use crate::upstream::Need;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const TO_UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");

/// Whether a request wants to become a WebSocket.
pub fn is_wanted(request: &Request<Incoming>) -> bool {
    let headers = request.headers();
    headers.contains_key(UPGRADE)
        && request.version() == Version::HTTP_11
        && request.method() == Method::GET
        && request.body().is_end_stream()
        && has_token(headers, &UPGRADE, "websocket")
        && has_token(headers, &CONNECTION, "upgrade")
}

/// Passes such a request on, and then whatever both sides say. It holds its slot until both are done.
///
/// # Errors
/// Where its client has left.
pub async fn forward(
    passage: Passage,
    ticket: Ticket,
    mut request: Request<Incoming>,
) -> Result<Response<ResponseBody>, ClientGone> {
    let client_side = hyper::upgrade::on(&mut request);
    let (head, _) = request.into_parts();
    let (mut request, host) = passage.prepare(head, UploadBody::empty());
    request.headers_mut().insert(CONNECTION, TO_UPGRADE);
    request.headers_mut().insert(UPGRADE, WEBSOCKET);

    let limit = clock::timer(ticket.started() + passage.pool().config.response_timeout);
    let sent = tokio::time::timeout_at(limit, async {
        let mut tried = Vec::new();
        let (lease, link) = passage.connect(Need::Upgrade, &mut tried).await?;
        let mut link = link.detach();
        address(&mut request, host.as_ref(), lease.server(), &link);
        let response = link.send(request).await.map_err(|_| Failure::Upstream)?;
        Ok((response, lease, link))
    });
    let (mut response, lease, link) = match sent.await {
        Ok(Ok(sent)) => sent,
        Ok(Err(failure)) => return Ok(passage.apologise(ticket, failure)),
        Err(_) => return Ok(passage.apologise(ticket, Failure::Timeout)),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let answer = passage.answer(ticket, response, link, lease, None, false).await;
        return Ok(answer);
    }
    lease.server().answered();
    let server_side = hyper::upgrade::on(&mut response);
    let (mut head, _) = response.into_parts();
    crate::headers::prepare_response(&mut head.headers);
    // A conversation teaches nothing, but what its server says about itself is heard.
    let reports = &passage.pool().reports;
    Lesson::about(passage.kind).hear(&mut head.headers, lease.server(), reports, clock::coarse());
    head.headers.insert(CONNECTION, TO_UPGRADE);
    head.headers.insert(UPGRADE, WEBSOCKET);
    let in_progress = passage.client.begin();
    tokio::task::spawn_local(async move {
        converse(client_side, server_side, ticket, lease).await;
        drop(in_progress);
    });
    Ok(Response::from_parts(head, ResponseBody::empty()))
}

async fn converse(client: OnUpgrade, server: OnUpgrade, mut ticket: Ticket, lease: Lease) {
    ticket.answered(clock::refresh(), false);
    // Each side is what hyper makes of it once its part of the handshake is through.
    let (Ok(client), Ok(server)) = (client.await, server.await) else {
        drop(lease);
        return ticket.fail(Failure::Upstream);
    };
    let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
    // However it ends, it was a conversation: which of the two broke it off is between them.
    let _ = copy_bidirectional(&mut client, &mut server).await;
    drop(lease);
    ticket.complete(clock::refresh());
}
