//! The controller's admin address: `/plan`, `/paths`, `/scenario`, `/metrics`, `/healthz`. Nothing can be changed through it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use plimsoll_core::config::{Class, Secret};
use plimsoll_sentry::admin::accept::{Limits, serve};
use plimsoll_sentry::admin::reading::{Pages, TEXT, respond};
use plimsoll_sentry::clock;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::metrics;
use crate::status::Status;
use crate::telemetry::{Telemetry, page};

/// Scrapers, people and probes are few.
const LIMITS: Limits = Limits { connections: 16, lifetime: Duration::from_secs(60) };

/// What was seen of the fleet, for `plimsoll fleet`.
const SCENARIO: &str = "/scenario";

const NOTHING_SEEN: &str = "no scenario: there is one ten seconds after rates are decided ([controller.rates], [controller.telemetry]) and paths are learnt\n";

/// How things stand.
#[derive(Serialize)]
pub struct Seen<'a> {
    /// The plan.
    #[serde(flatten)]
    pub status: &'a Status,
    /// What is learnt; it has a page of its own.
    #[serde(skip)]
    pub telemetry: Option<&'a Telemetry>,
}

fn pages<'a>() -> Pages<Seen<'a>> {
    Pages { role: "controller", page: "/plan", others: &[page::PATH, SCENARIO], metrics: metrics::render }
}

/// What the controller shows.
pub struct Admin {
    /// What it wants to be shown, if anything.
    pub token: Option<Secret>,
    /// The plan.
    pub status: watch::Receiver<Status>,
    /// What is learnt of the fleet, where it is learnt.
    pub telemetry: Option<Telemetry>,
    /// The classes of the sentries, which are what is limited.
    pub classes: Vec<Class>,
    /// What was seen of the fleet, as a scenario, where rates are decided.
    pub recorded: watch::Receiver<Option<Arc<str>>>,
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
            async move { admin.answer(&request.into_parts().0) }
        }));
        Ok(address)
    }

    fn answer(&self, request: &Parts) -> Response<Full<Bytes>> {
        let path = request.uri.path();
        if ![page::PATH, SCENARIO].contains(&path) {
            let status = self.status.borrow();
            let seen = Seen { status: &status, telemetry: self.telemetry.as_ref() };
            return pages().answer(request, self.token.as_ref(), &seen);
        }
        if let Some(refused) = pages().refuse(request, self.token.as_ref()) {
            return refused;
        }
        if path == SCENARIO {
            return match &*self.recorded.borrow() {
                Some(scenario) => respond(StatusCode::OK, TEXT, scenario.to_string()),
                None => respond(StatusCode::NOT_FOUND, TEXT, NOTHING_SEEN),
            };
        }
        match &self.telemetry {
            None => respond(StatusCode::NOT_FOUND, TEXT, "no paths are learnt: add [controller.telemetry]\n"),
            Some(telemetry) => {
                let page = page::render(telemetry, &self.classes, clock::now());
                respond(StatusCode::OK, "application/json", page.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use plimsoll_core::config::{Config, Mode, parse};

    use super::*;

    fn ask(method: Method, path: &str, token: &str) -> StatusCode {
        let text = "[controller]\nadmin_token = \"correct-horse\"\n[pool.a]\nservers = [\"127.0.0.1:1\"]";
        let secret = parse::<Config>(text, "").unwrap().0.controller.admin_token;
        let request = Request::builder().method(method).uri(path).header("authorization", token);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let (_, status) = watch::channel(Status::new(Mode::Enforce));
        Admin {
            token: secret,
            status,
            telemetry: None,
            classes: Vec::new(),
            recorded: watch::channel(None).1,
        }
        .answer(&parts)
        .status()
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
        assert_eq!(ask(Method::GET, "/paths", ""), StatusCode::UNAUTHORIZED);
        assert_eq!(ask(Method::PUT, "/paths", "Bearer correct-horse"), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(ask(Method::GET, "/scenario", ""), StatusCode::UNAUTHORIZED);
        for path in ["/", "/paths", "/scenario"] {
            assert_eq!(ask(Method::GET, path, "Bearer correct-horse"), StatusCode::NOT_FOUND);
        }
    }
}
