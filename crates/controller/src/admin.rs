//! The controller's admin address: `/plan`, `/metrics`, `/healthz`. Nothing can be changed through it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use plimsoll_core::config::Secret;
use plimsoll_sentry::admin::accept::{Limits, serve};
use plimsoll_sentry::admin::auth;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::metrics;
use crate::status::Status;

/// Scrapers, people and probes are few.
const LIMITS: Limits = Limits { connections: 16, lifetime: Duration::from_secs(60) };

/// Serves it until the runtime ends.
///
/// # Errors
/// Where the address cannot be listened on.
pub async fn start(
    address: SocketAddr,
    token: Option<Secret>,
    status: watch::Receiver<Status>,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let token = Arc::new(token);
    tokio::spawn(serve(listener, LIMITS, move |request: Request<Incoming>| {
        let (token, status) = (Arc::clone(&token), status.clone());
        async move { answer(&request.into_parts().0, (*token).as_ref(), &status.borrow()) }
    }));
    Ok(address)
}

fn answer(request: &Parts, token: Option<&Secret>, status: &Status) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    // Probes of an orchestrator carry no token, and the word tells nothing.
    if request.uri.path() == "/healthz" {
        return respond(StatusCode::OK, TEXT, "ok\n");
    }
    if token.is_some_and(|token| !auth::shows(token.reveal(), request)) {
        let mut response =
            respond(StatusCode::UNAUTHORIZED, TEXT, "show the admin_token of this controller\n");
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return response;
    }
    if !matches!(request.method, Method::GET | Method::HEAD) {
        let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri.path() {
        "/metrics" => respond(StatusCode::OK, metrics::CONTENT_TYPE, metrics::render(status)),
        "/plan" => match serde_json::to_vec(status) {
            Ok(bytes) => respond(StatusCode::OK, "application/json", bytes),
            Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
        },
        _ => respond(StatusCode::NOT_FOUND, TEXT, "there is /plan, /metrics and /healthz\n"),
    }
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use plimsoll_core::config::{Config, Mode, parse};

    use super::*;

    fn ask(method: Method, path: &str, token: &str) -> StatusCode {
        let text = "[controller]\nadmin_token = \"correct-horse\"\n[pool.a]\nservers = [\"127.0.0.1:1\"]";
        let secret = parse::<Config>(text, "").unwrap().0.controller.admin_token;
        let request = Request::builder().method(method).uri(path).header("authorization", token);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        answer(&parts, secret.as_ref(), &Status::new(Mode::Enforce)).status()
    }

    #[test]
    fn only_the_token_opens_and_nothing_can_be_changed() {
        assert_eq!(ask(Method::GET, "/plan", ""), StatusCode::UNAUTHORIZED);
        assert_eq!(ask(Method::GET, "/metrics", "Bearer wrong-horse"), StatusCode::UNAUTHORIZED);
        assert_eq!(ask(Method::GET, "/healthz", ""), StatusCode::OK);
        for path in ["/plan", "/metrics"] {
            assert_eq!(ask(Method::GET, path, "Bearer correct-horse"), StatusCode::OK);
            assert_eq!(ask(Method::PUT, path, "Bearer correct-horse"), StatusCode::METHOD_NOT_ALLOWED);
        }
        assert_eq!(ask(Method::GET, "/", "Bearer correct-horse"), StatusCode::NOT_FOUND);
    }
}
