//! One GET on a connection of its own.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use plimsoll_core::config::{Secret, Server};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest answer that is read, in bytes. A node of 500 containers has a page of cAdvisor of about 20 MB.
const LONGEST: usize = 64 << 20;
/// Longest part of an answer that is shown when it is an error.
const SHOWN: usize = 200;

/// What is there.
///
/// # Errors
/// What went wrong, or that it took longer than `patience`. No message holds the token.
pub async fn get(
    server: &Server,
    path: &str,
    token: Option<&Secret>,
    patience: Duration,
) -> Result<Bytes, String> {
    let mut request = Request::builder()
        .uri(path)
        .header(HOST, format!("{}:{}", server.host, server.port))
        .header(ACCEPT, "text/plain;version=0.0.4, application/json, */*;q=0.1")
        .header(CONNECTION, "close");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|_| format!("`{path}` is no path"))?;
    let (status, body) = match timeout(patience, exchange(server, request)).await {
        Ok(answer) => answer?,
        Err(_) => return Err(format!("no answer within {} ms", patience.as_millis())),
    };
    match status {
        StatusCode::OK => Ok(body),
        // Prometheus says what is wrong with a query in an answer of its own.
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY if body.first() == Some(&b'{') => Ok(body),
        _ => {
            let why: String = String::from_utf8_lossy(&body).trim().chars().take(SHOWN).collect();
            Err(format!("{status} {why}").trim_end().to_owned())
        }
    }
}

async fn exchange(server: &Server, request: Request<Empty<Bytes>>) -> Result<(StatusCode, Bytes), String> {
    let stream = TcpStream::connect((&*server.host, server.port)).await.map_err(|e| e.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let answer = async {
        let (head, body) = sender.send_request(request).await.map_err(|e| e.to_string())?.into_parts();
        let body = Limited::new(body, LONGEST).collect().await.map_err(|e| e.to_string())?;
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
