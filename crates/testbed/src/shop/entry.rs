//! Where requests enter: draws a way through the fleet for each and asks its first service.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use plimsoll_core::rng::{self, Rng};
use rand::RngExt;

use super::Floor;
use super::call::{Caller, Visit};
use super::spans::Trace;
use crate::http::{Body, text};
use crate::server::{Handler, Server};

struct Entry {
    floor: Arc<Floor>,
    rng: RefCell<Rng>,
    caller: Caller,
}

pub(super) fn start(floor: &Arc<Floor>, listen: SocketAddr) -> io::Result<Server> {
    let floor = Arc::clone(floor);
    Server::start("entry", listen, move |_| {
        Ok(Entry { rng: RefCell::new(rng::seeded(floor.seed, 0)), floor, caller: Caller::default() })
    })
}

impl Handler for Entry {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let name = request.uri().path().trim_start_matches('/');
        if name == "healthz" {
            return text(StatusCode::OK, "ok\n");
        }
        let plan = &self.floor.plan;
        let Some(api) = plan.apis.iter().find(|api| api.name == name) else {
            let names: Vec<String> = plan.apis.iter().map(|api| format!("/{}", api.name)).collect();
            return text(StatusCode::NOT_FOUND, format!("there are {} and /healthz\n", names.join(", ")));
        };
        let (drawn, trace) = {
            let mut rng = self.rng.borrow_mut();
            let trace = rng.random_bool(self.floor.sample).then(|| Trace::new(&mut rng));
            (rng.random::<f64>(), trace)
        };
        let path = api.paths.clone().find(|&path| drawn < plan.paths[path].share_up_to);
        let path = path.unwrap_or(api.paths.end - 1);
        let visit = Visit { path, at: 0, leads: true };
        let status = self.caller.call(&self.floor, &self.rng, visit, trace.as_ref()).await;
        text(status, if status.is_success() { "done\n" } else { "not done\n" })
    }
}
