//! The agent's admin address: `/status`, `/metrics`, `/futures`, `/healthz`. Nothing can be changed through it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use http_body_util::Either;
use hyper::body::Incoming;
use plimsoll_core::config::Secret;
use plimsoll_sentry::admin::accept::{Limits, serve};
use plimsoll_sentry::admin::reading::Pages;
use plimsoll_sentry::reload::Reloads;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::herald::{self, Body, Figures, Page};
use crate::metrics;
use crate::status::Status;

/// Scrapers and probes are few, but subscriptions stay open: for an hour, then whoever still wants to know asks again.
const LIMITS: Limits = Limits { connections: 48, lifetime: Duration::from_secs(3_600) };

/// How things stand.
#[derive(Serialize)]
pub struct Seen<'a> {
    /// What is watched.
    #[serde(flatten)]
    pub status: &'a Status,
    /// What the herald reads.
    pub herald: &'a Figures,
    /// How often the config was read again.
    #[serde(skip)]
    pub reloads: &'a Reloads,
}

/// What the agent shows.
pub struct Admin {
    /// What it wants to be shown, if anything.
    pub token: watch::Receiver<Option<Secret>>,
    /// What is watched.
    pub status: watch::Receiver<Status>,
    /// What the herald reads.
    pub figures: watch::Receiver<Figures>,
    /// Whom the herald is asked through.
    pub futures: Page,
    /// How often the config was read again.
    pub reloads: Arc<Reloads>,
}

impl Admin {
    /// Shows it until the runtime ends; returns the address, with its port where that was left open.
    ///
    /// # Errors
    /// Where the address cannot be listened on.
    pub async fn start(self, address: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let admin = Arc::new(self);
        tokio::spawn(serve(listener, LIMITS, move |request: Request<Incoming>| {
            let admin = Arc::clone(&admin);
            async move { admin.answer(&request.into_parts().0).await }
        }));
        Ok(address)
    }

    async fn answer(&self, request: &Parts) -> Response<Body> {
        let token = self.token.borrow().clone();
        if request.uri.path() == herald::PATH {
            return match pages().refuse(request, token.as_ref()) {
                Some(refused) => refused.map(Either::Left),
                None => self.futures.answer(&request.uri).await,
            };
        }
        let (status, figures) = (self.status.borrow(), self.figures.borrow());
        let seen = Seen { status: &status, herald: &figures, reloads: &self.reloads };
        pages().answer(request, token.as_ref(), &seen).map(Either::Left)
    }
}

fn pages<'a>() -> Pages<Seen<'a>> {
    Pages { role: "agent", page: "/status", others: &[herald::PATH], metrics: metrics::render }
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};
    use plimsoll_core::config::{Config, parse};

    use super::*;
    use crate::status::Board;

    fn ask(method: Method, path: &str, token: &str) -> StatusCode {
        let text = "[agent]\nadmin_token = \"correct-horse\"\n[herald]\nreader = \"off\"";
        let config = parse::<Config>(text, "").unwrap().0;
        let (futures, figures) = herald::start(&config.herald);
        let (_, wanted) = watch::channel(config.agent.admin_token);
        let (status, reloads) = (Board::new().1, Arc::default());
        let admin = Admin { token: wanted, status, figures, futures, reloads };
        let request = Request::builder().method(method).uri(path).header("authorization", token);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(admin.answer(&parts)).status()
    }

    #[test]
    fn only_the_token_opens_and_nothing_can_be_changed() {
        assert_eq!(ask(Method::GET, "/status", ""), StatusCode::UNAUTHORIZED);
        assert_eq!(ask(Method::GET, "/futures", ""), StatusCode::UNAUTHORIZED);
        assert_eq!(ask(Method::GET, "/metrics", "Bearer wrong-horse"), StatusCode::UNAUTHORIZED);
        assert_eq!(ask(Method::GET, "/healthz", ""), StatusCode::OK);
        for path in ["/status", "/metrics"] {
            assert_eq!(ask(Method::GET, path, "Bearer correct-horse"), StatusCode::OK);
        }
        for path in ["/status", "/metrics", "/futures"] {
            assert_eq!(ask(Method::PUT, path, "Bearer correct-horse"), StatusCode::METHOD_NOT_ALLOWED);
        }
        assert_eq!(ask(Method::GET, "/", "Bearer correct-horse"), StatusCode::NOT_FOUND);
    }

    #[test]
    fn a_herald_that_is_off_says_so() {
        assert_eq!(ask(Method::GET, "/futures", "Bearer correct-horse"), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask(Method::GET, "/futures?pid=x", "Bearer correct-horse"), StatusCode::BAD_REQUEST);
    }
}
