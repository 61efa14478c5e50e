//! Path by path, what the admin address answers.

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use super::change::{Change, Refused};
use super::{Admin, history, metrics, pools, query, scrape, views};

const PAGE: &str = include_str!("page.html");
/// The page brings everything along and loads nothing from anywhere else.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
     frame-ancestors 'none'; base-uri 'none'";

/// Most decisions in one answer.
const MOST_DECISIONS: usize = 10_000;
/// Decisions in an answer to a query that does not say how many.
const DECISIONS: usize = 100;

/// Whether the body of this request is to be read.
pub fn wants_body(admin: &Admin, request: &Parts) -> bool {
    request.method == Method::PUT && Change::of(request.uri.path()).is_some() && admin.allows(request)
}

/// Answers one request, with its body where that [was wanted](wants_body) and could be read.
pub fn answer(admin: &Admin, request: &Parts, body: &Result<Bytes, Refused>) -> Response<Full<Bytes>> {
    let path = request.uri.path();
    // Probes of an orchestrator carry no token, and the two words tell nothing.
    match path {
        "/healthz" => return text(StatusCode::OK, "ok\n"),
        "/readyz" if !admin.shared.is_draining() => return text(StatusCode::OK, "ready\n"),
        "/readyz" => return text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        _ => {}
    }
    if !admin.allows(request) {
        let mut response = text(StatusCode::UNAUTHORIZED, "show the admin_token of this sentry\n");
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return response;
    }
    if let Some(change) = Change::of(path) {
        return match (&request.method, body) {
            (&Method::PUT, Ok(body)) => match Change::may(request).and_then(|()| change.make(admin, body)) {
                Ok(now) => json(&now),
                Err((status, why)) => error(status, &why),
            },
            (&Method::PUT, Err((status, why))) => error(*status, why),
            _ => not_allowed("PUT"),
        };
    }
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return not_allowed("GET, HEAD");
    }
    match path {
        "/" => {
            let mut response = respond(StatusCode::OK, "text/html; charset=utf-8", PAGE);
            let policy = HeaderValue::from_static(PAGE_POLICY);
            response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
            response
        }
        "/metrics" => respond(StatusCode::OK, scrape::CONTENT_TYPE, metrics::render(admin)),
        "/classes" => {
            let seconds = query(&request.uri, "history").and_then(|n| n.parse().ok()).unwrap_or(0);
            json(&views::overview(admin, usize::min(seconds, history::KEPT)))
        }
        "/decisions" => {
            let most = query(&request.uri, "limit").and_then(|n| n.parse().ok()).unwrap_or(DECISIONS);
            let (class, verdict) = (query(&request.uri, "class"), query(&request.uri, "verdict"));
            json(&views::decisions(
                admin,
                class.as_deref(),
                verdict.as_deref(),
                usize::min(most, MOST_DECISIONS),
            ))
        }
        "/pools" => json(&pools::pools(admin)),
        "/queries" => {
            let (pool, server) = (query(&request.uri, "pool"), query(&request.uri, "server"));
            match pools::queries(admin, &pool.unwrap_or_default(), server.as_deref()) {
                Ok(queries) => json(&queries),
                Err(why) => error(StatusCode::NOT_FOUND, &why),
            }
        }
        _ => {
            let known = "there is /, /classes, /decisions, /metrics, /pools, /queries, /healthz and /readyz; and PUT for \
                         /pools/NAME/servers, /pools/NAME/overload, /pools/NAME/slowdown and /share\n";
            text(StatusCode::NOT_FOUND, known)
        }
    }
}

fn not_allowed(allowed: &'static str) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("only {allowed}\n"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn error(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let mut response = json(&serde_json::json!({ "error": why }));
    *response.status_mut() = status;
    response
}

fn json(body: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(body) {
        Ok(bytes) => respond(StatusCode::OK, "application/json", bytes),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", body)
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
