//! One connection to the target: opening it, one exchange on it, and what the answer means.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use crate::stats::{ErrorKind, Outcome};
use crate::target::{HttpVersion, Target};

/// The header by which a Plimsoll says why it refused.
const REASON: &str = "plimsoll-reason";
const GRPC_RESOURCE_EXHAUSTED: u16 = 8;
const GRPC_UNAVAILABLE: u16 = 14;

/// How long a connection may take to become ready again after a full answer before it is given up.
const SETTLE: Duration = Duration::from_millis(100);

/// The sending end of a connection, or of one stream's worth of it.
pub(crate) enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// Why an exchange brought no answer.
pub(crate) enum Failure {
    /// Nothing of the request was sent: the server had closed the idle connection. Another one may carry it.
    Unsent,
    Error(ErrorKind),
}

impl Sender {
    /// Opens a connection. A task on this thread drives it until it ends or all its senders are dropped.
    pub(crate) async fn connect(target: &Target) -> Result<Sender, ErrorKind> {
        let tcp =
            TcpStream::connect(&target.addresses[..]).await.map_err(|e| ErrorKind::Connect(e.kind()))?;
        // Not essential: on failure small requests wait for the acknowledgement of the last.
        let _ = tcp.set_nodelay(true);
        let Some((tls, name)) = &target.tls else {
            return handshake(tcp, target.version).await;
        };
        let stream = tls.connect(name.clone(), tcp).await.map_err(|_| ErrorKind::Tls)?;
        let agreed = stream.get_ref().1.alpn_protocol();
        if target.version == HttpVersion::Http2 && agreed != Some(b"h2") {
            return Err(ErrorKind::Tls);
        }
        handshake(stream, target.version).await
    }

    /// Sends a request and reads the answer to its end, trailers included.
    pub(crate) async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Outcome, Failure> {
        let response = match self {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => sender.try_send_request(request).await,
        };
        let (head, mut body) = response.map_err(failure)?.into_parts();
        let mut trailers = HeaderMap::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| Failure::Error(error_kind(&e)))?;
            if let Ok(found) = frame.into_trailers() {
                trailers = found;
            }
        }
        Ok(judge(head.status, &head.headers, &trailers))
    }

    /// Another sender on the same connection, where the protocol has that.
    pub(crate) fn sibling(&self) -> Option<Sender> {
        match self {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => Some(Sender::Http2(sender.clone())),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Waits until the connection can carry another request; false if it never will. `answered`: whether the
    /// last exchange came to its end, without which an HTTP/1.1 connection is of no further use.
    pub(crate) async fn settle(&mut self, answered: bool) -> bool {
        match self {
            Sender::Http1(_) if !answered => false,
            Sender::Http1(sender) if sender.is_ready() => true,
            Sender::Http1(sender) => {
                matches!(tokio::time::timeout(SETTLE, sender.ready()).await, Ok(Ok(())))
            }
            Sender::Http2(sender) => !sender.is_closed(),
        }
    }
}

async fn handshake<I>(io: I, version: HttpVersion) -> Result<Sender, ErrorKind>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(io);
    // How a connection ended is told by the exchanges on it, so the connection's own result adds nothing.
    match version {
        HttpVersion::Http1 => {
            let (sender, connection) = http1::handshake(io).await.map_err(|e| error_kind(&e))?;
            spawn_local(async move { drop(connection.await) });
            Ok(Sender::Http1(sender))
        }
        HttpVersion::Http2 => {
            let (sender, connection) = http2::handshake(SameThread, io).await.map_err(|e| error_kind(&e))?;
            spawn_local(async move { drop(connection.await) });
            Ok(Sender::Http2(sender))
        }
    }
}

/// Runs HTTP/2's inner tasks on the thread of their connection.
#[derive(Clone)]
struct SameThread;

impl<F: Future + 'static> hyper::rt::Executor<F> for SameThread {
    fn execute(&self, task: F) {
        spawn_local(async move { drop(task.await) });
    }
}

fn judge(status: StatusCode, headers: &HeaderMap, trailers: &HeaderMap) -> Outcome {
    let find = |name: &str| trailers.get(name).or_else(|| headers.get(name));
    let refused = || match find(REASON) {
        Some(_) => Outcome::Rejected,
        None => Outcome::RefusedOther,
    };
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return refused();
    }
    if !status.is_success() && !status.is_redirection() {
        return Outcome::Error(ErrorKind::Status(status.as_u16()));
    }
    let grpc = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if !grpc {
        return Outcome::Ok;
    }
    match find("grpc-status").and_then(|code| code.to_str().ok()?.parse().ok()) {
        Some(0) => Outcome::Ok,
        Some(GRPC_RESOURCE_EXHAUSTED | GRPC_UNAVAILABLE) => refused(),
        other => Outcome::Error(ErrorKind::Grpc(other)),
    }
}

fn failure(mut error: TrySendError<Request<Full<Bytes>>>) -> Failure {
    match error.take_message() {
        Some(_) => Failure::Unsent,
        None => Failure::Error(error_kind(error.error())),
    }
}

fn error_kind(error: &hyper::Error) -> ErrorKind {
    if error.is_parse() {
        return ErrorKind::Protocol;
    }
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(h2) = inner.downcast_ref::<h2::Error>() {
            match (h2.reason(), h2.get_io()) {
                (Some(reason), _) => {
                    return ErrorKind::Http2(u8::try_from(u32::from(reason)).unwrap_or(u8::MAX));
                }
                (None, Some(io)) => return io_kind(io),
                (None, None) => {}
            }
        }
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return io_kind(io);
        }
        cause = inner.source();
    }
    ErrorKind::Closed
}

fn io_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ErrorKind::Closed,
        kind => ErrorKind::Io(kind),
    }
}
