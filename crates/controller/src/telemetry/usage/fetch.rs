//! One GET on a connection of its own.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST};
use http::{Request, StatusCode};
use http_body_util::Full;
use plimsoll_core::config::{Secret, Server};
use tokio::time::timeout;

use crate::ask::exchange;

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
    let request = request.body(Full::default()).map_err(|_| format!("`{path}` is no path"))?;
    let (status, body) =
        match timeout(patience, exchange((&*server.host, server.port), request, LONGEST)).await {
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
