//! One HTTP request on a connection of its own: to the admin address of a sentry, or to a server that should be ready.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use plimsoll_core::config::Secret;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::timeout;

/// Longest answer that is read, in bytes: 64 pools of 64 classes and their servers fit.
const LONGEST: usize = 8 << 20;

/// Sends it and returns status and body.
///
/// # Errors
/// What went wrong, or that it took longer than `patience`. No message holds the token.
pub async fn ask(
    address: SocketAddr,
    method: Method,
    path: &str,
    token: Option<&Secret>,
    body: Vec<u8>,
    patience: Duration,
) -> Result<(StatusCode, Bytes), String> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, address.to_string())
        .header(CONNECTION, "close");
    if !body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(|_| format!("`{path}` is no path"))?;
    match timeout(patience, exchange(address, request, LONGEST)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {} ms", patience.as_millis())),
    }
}

/// Sends a request on a connection of its own and returns status and body, of at most `longest` bytes.
///
/// # Errors
/// What went wrong.
pub async fn exchange(
    address: impl ToSocketAddrs,
    request: Request<Full<Bytes>>,
    longest: usize,
) -> Result<(StatusCode, Bytes), String> {
    let stream = TcpStream::connect(address).await.map_err(|e| e.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let answer = async {
        let (head, body) = sender.send_request(request).await.map_err(|e| e.to_string())?.into_parts();
        let body = Limited::new(body, longest).collect().await.map_err(|e| e.to_string())?;
        Ok((head.status, body.to_bytes()))
    };
    // The connection is driven for as long as the answer takes, and no longer.
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        // It may end before the answer has been looked at.
        _ = connection => answer.await,
    }
}
