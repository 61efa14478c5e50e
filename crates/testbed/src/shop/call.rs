//! A call of one service by another.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use plimsoll_core::rng::Rng;
use plimsoll_simulator::fleet::plan::Plan;

use super::Floor;
use super::spans::Trace;
use crate::http::param;
use crate::server::OnThisThread;

/// Whoever takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// One visit of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    /// Which path of the plan,
    pub path: usize,
    /// which of its visits,
    pub at: usize,
    /// and whether it is to ask all others in turn.
    pub leads: bool,
}

impl Visit {
    /// From a query string; nothing where there is no such visit.
    pub fn read(query: &str, plan: &Plan) -> Option<Visit> {
        let number = |name| param(query, name)?.parse::<usize>().ok();
        let visit =
            Visit { path: number("path")?, at: number("at")?, leads: param(query, "leads").is_some() };
        (visit.at < plan.paths.get(visit.path)?.visits.len()).then_some(visit)
    }

    fn query(self) -> String {
        format!("path={}&at={}{}", self.path, self.at, if self.leads { "&leads" } else { "" })
    }
}

/// A call that is under way, until it has ended or nobody waits for it any more.
struct UnderWay<'a>(&'a AtomicU32);

impl<'a> UnderWay<'a> {
    fn new(in_flight: &'a AtomicU32) -> UnderWay<'a> {
        in_flight.fetch_add(1, Relaxed);
        UnderWay(in_flight)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Calls, over connections that it keeps.
pub(super) struct Caller(Client<HttpConnector, Full<Bytes>>);

impl Default for Caller {
    fn default() -> Caller {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Caller(Client::builder(OnThisThread).build(connector))
    }
}

impl Caller {
    /// Asks an instance of the service for its part, and returns how that went.
    pub async fn call(
        &self,
        floor: &Floor,
        rng: &RefCell<Rng>,
        visit: Visit,
        trace: Option<&Trace>,
    ) -> StatusCode {
        let at = &floor.plan.paths[visit.path].visits[visit.at];
        let service = at.service as usize;
        floor.services[service].asked.fetch_add((1e3 * at.cost).round() as u64, Relaxed);
        let Some(instance) = floor.services[service].pick(&mut rng.borrow_mut()) else {
            return StatusCode::BAD_GATEWAY;
        };
        let uri = format!("http://{}/?{}", instance.address, visit.query());
        let mut request = Request::get(uri);
        if let Some(trace) = trace {
            request = request.header("traceparent", trace.to_string());
        }
        let Ok(request) = request.body(Full::default()) else { return StatusCode::BAD_GATEWAY };
        let _under_way = UnderWay::new(&instance.in_flight);
        let answer = async {
            let answer = self.0.request(request).await.ok()?;
            let status = answer.status();
            answer.into_body().collect().await.ok().map(|_| status)
        };
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Some(status)) => status,
            Ok(None) => StatusCode::BAD_GATEWAY,
            Err(_) => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}
