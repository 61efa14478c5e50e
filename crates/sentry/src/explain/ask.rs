//! The client's side of the admin address.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// How long everything together may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer, in bytes.
const LONGEST: usize = 64 << 20;

/// The bodies of these paths at the admin address, in order.
///
/// # Errors
/// Where the sentry cannot be reached, wants a token or answers something else than 200.
pub fn get(admin: &str, token: Option<&str>, paths: &[&str]) -> Result<Vec<Vec<u8>>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("cannot ask anybody: {e}"))?;
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, ask(admin, token, paths))
            .await
            .map_err(|_| format!("{admin} does not answer"))?
    })
}

async fn ask(admin: &str, token: Option<&str>, paths: &[&str]) -> Result<Vec<Vec<u8>>, String> {
    let not_an_url = || format!("`{admin}` is not the URL of an admin address; write http://HOST:PORT");
    let uri: Uri = admin.parse().map_err(|_| not_an_url())?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(not_an_url)?;
    let address = format!("{host}:{}", uri.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(&address).await.map_err(|e| {
        format!("no sentry answers at {address}: {e}; is it running, and is this its admin address?")
    })?;
    let failed = |e: hyper::Error| format!("{admin}: {e}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(connection);
    let mut bodies = Vec::new();
    for path in paths {
        let mut request = Request::get(*path).header(HOST, &address);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|_| "the token has characters that no header takes")?;
        sender.ready().await.map_err(failed)?;
        let response = sender.send_request(request).await.map_err(failed)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => {
                return Err(format!(
                    "{admin} wants its token: give --config FILE or set {}",
                    super::TOKEN_VAR
                ));
            }
            status => return Err(format!("{admin}{path} answers {status}")),
        }
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        bodies.push(body.map_err(|e| format!("{admin}{path}: {e}"))?.to_bytes().to_vec());
    }
    Ok(bodies)
}
