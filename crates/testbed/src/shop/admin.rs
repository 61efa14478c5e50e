//! Metrics of the fleet, and its instances as somebody wants them.

use std::cell::RefCell;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use plimsoll_core::Nanos;
use plimsoll_simulator::fleet::plan::ServicePlan;

use super::{Floor, service};
use crate::clock::Clock;
use crate::http::{Body, param, text};
use crate::server::{Handler, Server};

/// How busy workers are is over at least this long.
const LEAST: Nanos = Nanos::from_millis(100);
/// How long a call takes is the mean of some so many: of as many as end in a quarter of a second it would be anything, and so would a queue.
const CALLS: f64 = 100.0;
/// Instances of one service.
const MOST_INSTANCES: u32 = 1_000;

struct Admin {
    floor: Arc<Floor>,
    clock: Clock,
    seen: RefCell<Seen>,
}

/// What they had done when somebody asked last, and what that says.
struct Seen {
    at: Nanos,
    services: Vec<Did>,
}

/// Of one service.
#[derive(Clone, Copy, Default)]
struct Did {
    spent_ns: u64,
    worked: u64,
    worked_ns: u64,
    /// The part of its workers that was busy, and how long a request kept one.
    ratio: f64,
    call_ns: f64,
}

pub(super) fn start(floor: &Arc<Floor>, listen: SocketAddr) -> io::Result<Server> {
    let floor = Arc::clone(floor);
    Server::start("shop-admin", listen, move |_| {
        let did = |service: &ServicePlan| Did { call_ns: service.time.mean_ns(), ..Did::default() };
        let seen = Seen { at: Nanos::ZERO, services: floor.plan.services.iter().map(did).collect() };
        Ok(Admin { floor, clock: Clock::start(), seen: RefCell::new(seen) })
    })
}

impl Admin {
    fn metrics(&self) -> String {
        let mut seen = self.seen.borrow_mut();
        let now = self.clock.now();
        let passed = now.since(seen.at);
        if passed >= LEAST {
            seen.at = now;
            for (at, (service, did)) in self.floor.services.iter().zip(&mut seen.services).enumerate() {
                let spent_ns = service.busy.spent_ns();
                let busy_ns = (spent_ns - did.spent_ns) as f64;
                let ratio = (busy_ns / passed.0 as f64 / self.workers(at)).min(1.0);
                let (worked, worked_ns) = (service.worked.load(Relaxed), service.worked_ns.load(Relaxed));
                let calls = worked.saturating_sub(did.worked) as f64;
                let mut call_ns = did.call_ns;
                if calls > 0.0 {
                    let mean_ns = worked_ns.saturating_sub(did.worked_ns) as f64 / calls;
                    call_ns += (mean_ns - call_ns) * (1.0 - (-calls / CALLS).exp());
                }
                *did = Did { spent_ns, worked, worked_ns, ratio, call_ns };
            }
        }
        let mut page = String::new();
        let mut family = |name: &str, kind: &str, of: &dyn Fn(usize) -> f64| {
            let _ = writeln!(page, "# TYPE {name} {kind}");
            for (at, service) in self.floor.plan.services.iter().enumerate() {
                let _ = writeln!(page, "{name}{{service=\"{}\"}} {}", service.name, of(at));
            }
        };
        let services = &self.floor.services;
        family("shop_workers_busy_ratio", "gauge", &|at| seen.services[at].ratio);
        // Those that wait are worked on one after the other by all of its workers.
        family("shop_queue_seconds", "gauge", &|at| {
            services[at].waiting.load(Relaxed) as f64 * seen.services[at].call_ns / 1e9 / self.workers(at)
        });
        family("shop_asked_total", "counter", &|at| services[at].asked.load(Relaxed) as f64 / 1e3);
        family("shop_worked_total", "counter", &|at| services[at].worked.load(Relaxed) as f64);
        family("shop_instances", "gauge", &|at| services[at].instances() as f64);
        family("shop_served_total", "counter", &|at| services[at].served.load(Relaxed) as f64);
        family("shop_failed_total", "counter", &|at| services[at].refused.load(Relaxed) as f64);
        page
    }

    /// Of all its instances; one where there is none.
    fn workers(&self, at: usize) -> f64 {
        let each = f64::from(self.floor.plan.services[at].workers);
        (each * self.floor.services[at].instances() as f64).max(1.0)
    }

    /// Says where a service's instances are and how many workers each has; or, where that is wanted, has more or fewer of them, or calls to it
    /// go to somebody in front of them.
    fn service(&self, name: &str, query: Option<&str>) -> Response<Body> {
        let Some(at) = self.floor.plan.services.iter().position(|service| service.name == name) else {
            return text(StatusCode::NOT_FOUND, format!("there is no service {name}\n"));
        };
        let (of, workers) = (&self.floor.services[at], self.floor.plan.services[at].workers);
        let Some(query) = query else {
            let addresses: Vec<String> = of.addresses().iter().map(SocketAddr::to_string).collect();
            let service = serde_json::json!({ "instances": addresses, "workers": workers });
            return text(StatusCode::OK, service.to_string());
        };
        if let Some(front) = param(query, "front").and_then(|address| address.parse().ok()) {
            of.stand_before(front);
            return text(StatusCode::OK, format!("calls to {name} go to {front}\n"));
        }
        let wanted = param(query, "instances").and_then(|number| number.parse::<u32>().ok());
        match wanted.filter(|&wanted| wanted <= MOST_INSTANCES) {
            None => {
                let help =
                    format!("write ?instances=3, at most {MOST_INSTANCES}, or ?front=127.0.0.1:9000\n");
                text(StatusCode::BAD_REQUEST, help)
            }
            Some(wanted) => match service::resize(&self.floor, at, wanted) {
                Ok(()) => text(StatusCode::OK, format!("{name} has {wanted} instances\n")),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            },
        }
    }
}

impl Handler for Admin {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let (uri, is_post) = (request.uri(), request.method() == Method::POST);
        match (uri.path(), uri.path().strip_prefix("/services/")) {
            ("/healthz", _) => text(StatusCode::OK, "ok\n"),
            ("/metrics", _) => text(StatusCode::OK, self.metrics()),
            (_, Some(name)) => self.service(name, is_post.then(|| uri.query().unwrap_or_default())),
            _ => text(
                StatusCode::NOT_FOUND,
                "there are /metrics, /healthz, /services/NAME and POST /services/NAME?instances=N or ?front=ADDR\n",
            ),
        }
    }
}
