//! The admin address of a process that only reports how things stand: a page of JSON, `/metrics` and `/healthz`. Nothing can
//! be changed through it.

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
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::accept::{Limits, serve};
use super::{auth, scrape};

/// Scrapers, people and probes are few.
const LIMITS: Limits = Limits { connections: 16, lifetime: Duration::from_secs(60) };
/// The content type of words.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// What there is to read of a process whose state is `S`.
pub struct Pages<S> {
    /// What the process is called in messages: `agent`.
    pub role: &'static str,
    /// The path of its state as JSON: `/status`.
    pub page: &'static str,
    /// Paths that are answered elsewhere, for whoever asks what there is.
    pub others: &'static [&'static str],
    /// Its state as [`scrape::render`] returns it.
    pub metrics: fn(&S) -> String,
}

impl<S: Serialize> Pages<S> {
    /// Serves them until the runtime ends; returns the address, with its port where that was left open.
    ///
    /// # Errors
    /// Where the address cannot be listened on.
    pub async fn start(
        self,
        address: SocketAddr,
        token: Option<Secret>,
        state: watch::Receiver<S>,
    ) -> io::Result<SocketAddr>
    where
        S: Send + Sync + 'static,
    {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new((self, token));
        tokio::spawn(serve(listener, LIMITS, move |request: Request<Incoming>| {
            let (shared, state) = (Arc::clone(&shared), state.clone());
            async move { shared.0.answer(&request.into_parts().0, shared.1.as_ref(), &state.borrow()) }
        }));
        Ok(address)
    }

    /// The answer to one request, of whoever must show `token` where there is one.
    pub fn answer(&self, request: &Parts, token: Option<&Secret>, state: &S) -> Response<Full<Bytes>> {
        // Probes of an orchestrator carry no token, and the word tells nothing.
        if request.uri.path() == "/healthz" {
            return respond(StatusCode::OK, TEXT, "ok\n");
        }
        if let Some(refused) = self.refuse(request, token) {
            return refused;
        }
        match request.uri.path() {
            "/metrics" => respond(StatusCode::OK, scrape::CONTENT_TYPE, (self.metrics)(state)),
            path if path == self.page => match serde_json::to_vec(state) {
                Ok(bytes) => respond(StatusCode::OK, "application/json", bytes),
                Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
            },
            _ => {
                let pages = [&[self.page], self.others, &["/metrics"]].concat().join(", ");
                let words = format!("there is {pages} and /healthz\n");
                respond(StatusCode::NOT_FOUND, TEXT, words)
            }
        }
    }

    /// What is answered to a request that shows no token where one is wanted, or wants to change something.
    pub fn refuse(&self, request: &Parts, token: Option<&Secret>) -> Option<Response<Full<Bytes>>> {
        if token.is_some_and(|token| !auth::shows(token.reveal(), request)) {
            let words = format!("show the admin_token of this {}\n", self.role);
            let mut response = respond(StatusCode::UNAUTHORIZED, TEXT, words);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return Some(response);
        }
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Some(response);
        }
        None
    }
}

/// A short answer, which nobody may keep.
pub fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
