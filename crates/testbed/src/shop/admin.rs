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

use super::{Floor, service};
use crate::clock::Clock;
use crate::http::{Body, param, text};
use crate::server::{Handler, Server};

/// How busy workers are is over at least this long.
const LEAST: Nanos = Nanos::from_millis(100);
/// Instances of one service.
const MOST_INSTANCES: u32 = 1_000;

struct Admin {
    floor: Arc<Floor>,
    clock: Clock,
    seen: RefCell<Seen>,
}

/// How busy they were when somebody asked last.
#[derive(Default)]
struct Seen {
    at: Nanos,
    busy_ns: Vec<u64>,
    ratios: Vec<f64>,
}

pub(super) fn start(floor: &Arc<Floor>, listen: SocketAddr) -> io::Result<Server> {
    let floor = Arc::clone(floor);
    Server::start("shop-admin", listen, move |_| {
        let services = floor.services.len();
        let seen = Seen { at: Nanos::ZERO, busy_ns: vec![0; services], ratios: vec![0.0; services] };
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
            for (at, service) in self.floor.services.iter().enumerate() {
                let busy = service.busy_ns.load(Relaxed);
                let workers = f64::from(self.floor.plan.services[at].workers) * service.instances() as f64;
                let done = (busy - std::mem::replace(&mut seen.busy_ns[at], busy)) as f64;
                seen.ratios[at] = (done / passed.0 as f64 / workers.max(1.0)).min(1.0);
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
        family("shop_workers_busy_ratio", "gauge", &|at| seen.ratios[at]);
        family("shop_instances", "gauge", &|at| services[at].instances() as f64);
        family("shop_served_total", "counter", &|at| services[at].served.load(Relaxed) as f64);
        family("shop_failed_total", "counter", &|at| services[at].refused.load(Relaxed) as f64);
        page
    }

    fn resize(&self, name: &str, query: &str) -> Response<Body> {
        let at = self.floor.plan.services.iter().position(|service| service.name == name);
        let wanted = param(query, "instances").and_then(|number| number.parse::<u32>().ok());
        match (at, wanted.filter(|&wanted| wanted <= MOST_INSTANCES)) {
            (None, _) => text(StatusCode::NOT_FOUND, format!("there is no service {name}\n")),
            (_, None) => {
                text(StatusCode::BAD_REQUEST, format!("write ?instances=3, at most {MOST_INSTANCES}\n"))
            }
            (Some(at), Some(wanted)) => match service::resize(&self.floor, at, wanted) {
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
            (_, Some(name)) if is_post => self.resize(name, uri.query().unwrap_or_default()),
            _ => text(
                StatusCode::NOT_FOUND,
                "there are /metrics, /healthz and POST /services/NAME?instances=N\n",
            ),
        }
    }
}
