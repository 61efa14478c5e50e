//! The little HTTP server of the admin address: HTTP/1.1, few connections, short heads, short bodies.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::change::{LONGEST_BODY, Refused};
use super::{Admin, routes};

/// Connections at once. Scrapers, people and probes are few; whoever comes on top waits.
const CONNECTIONS: usize = 64;
/// Longest head of a request, in bytes; hyper allows no less.
const LONGEST_HEAD: usize = 8 * 1024;
/// How long a head may take, and how long a connection may stay idle.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one connection may live: it holds one of few places.
const LIFETIME: Duration = Duration::from_secs(600);

/// Serves this listener until the future is dropped; connections end with the runtime.
pub async fn serve(listener: TcpListener, admin: Arc<Admin>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: nothing is gained by asking again at once.
                log::warn!(error:%; "admin connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let admin = Arc::clone(&admin);
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .max_buf_size(LONGEST_HEAD)
                .serve_connection(TokioIo::new(stream), service_fn(|request| answer(&admin, request)));
            // Errors are those of one client, who knows.
            let _ = tokio::time::timeout(LIFETIME, connection).await;
            drop(place);
        });
    }
}

async fn answer(admin: &Admin, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = if routes::wants_body(admin, &parts) { read(body).await } else { Ok(Bytes::new()) };
    Ok(routes::answer(admin, &parts, &body))
}

async fn read(body: Incoming) -> Result<Bytes, Refused> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    match tokio::time::timeout(PATIENCE, Limited::new(body, LONGEST_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {LONGEST_BODY} bytes")))
        }
        Ok(Err(error)) => Err(bad(error.to_string())),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body took too long".to_owned())),
    }
}
