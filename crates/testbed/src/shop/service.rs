//! A service: its instances, and what one of them does with a request.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use parking_lot::Mutex;
use plimsoll_core::Nanos;
use plimsoll_core::rng::{self, Rng};
use tokio::sync::Semaphore;

use super::Floor;
use super::busy::Busy;
use super::call::{Caller, Visit};
use super::spans::{Span, Trace};
use crate::clock::Clock;
use crate::http::{Body, text};
use crate::server::{Handler, Server};

/// A service, whatever its instances are.
#[derive(Default)]
pub(super) struct Service {
    instances: Mutex<Vec<(Arc<Instance>, Server)>>,
    /// Who stands in front of them, if somebody does: calls go there.
    front: Mutex<Option<Arc<Instance>>>,
    /// What others have asked for, done or not, in thousandths of a call that costs 1.
    pub asked: AtomicU64,
    pub busy: Busy,
    /// Requests that its workers are done with, and the time that they took, in ns; requests that wait for a worker.
    pub worked: AtomicU64,
    pub worked_ns: AtomicU64,
    pub waiting: AtomicU64,
    /// Requests that it has served, with all that was asked of others for them, and those that it has not.
    pub served: AtomicU64,
    pub refused: AtomicU64,
    started: AtomicU64,
}

/// An instance, as whoever calls it sees it.
pub(super) struct Instance {
    pub address: SocketAddr,
    pub in_flight: AtomicU32,
}

impl Service {
    /// Where to call it: the less loaded of two instances, or whoever stands in front of all.
    pub fn pick(&self, rng: &mut Rng) -> Option<Arc<Instance>> {
        use rand::RngExt;
        if let Some(front) = &*self.front.lock() {
            return Some(Arc::clone(front));
        }
        let instances = self.instances.lock();
        let mut one =
            || instances.get(rng.random_range(0..instances.len().max(1))).map(|(one, _)| Arc::clone(one));
        let (first, second) = (one()?, one()?);
        Some(if second.in_flight.load(Relaxed) < first.in_flight.load(Relaxed) { second } else { first })
    }

    /// How many instances it has.
    pub fn instances(&self) -> usize {
        self.instances.lock().len()
    }

    /// Where they are.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.instances.lock().iter().map(|(one, _)| one.address).collect()
    }

    /// From now on calls go to whoever is at this address, and from there to the instances.
    pub fn stand_before(&self, address: SocketAddr) {
        *self.front.lock() = Some(Arc::new(Instance { address, in_flight: AtomicU32::new(0) }));
    }

    /// Ends all instances, requests or none.
    pub fn close(&self) {
        let all = std::mem::take(&mut *self.instances.lock());
        drop(all);
    }
}

/// Starts instances, or kills some of them in the middle of what they do, until there are so many.
///
/// # Errors
/// Where one cannot start.
pub(super) fn resize(floor: &Arc<Floor>, service: usize, instances: u32) -> io::Result<()> {
    let of = &floor.services[service];
    while of.instances() < instances as usize {
        let number = of.started.fetch_add(1, Relaxed);
        let shared = Arc::clone(floor);
        let name: String = floor.plan.services[service].name.chars().take(15).collect();
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::start(&name, listen, move |_| {
            Ok(Endpoint(Rc::new(Worker::new(shared, service, number))))
        })?;
        let instance = Arc::new(Instance { address: server.addr(), in_flight: AtomicU32::new(0) });
        of.instances.lock().push((instance, server));
    }
    let surplus = {
        let mut all = of.instances.lock();
        let keep = all.len().min(instances as usize);
        all.split_off(keep)
    };
    // Not under the lock: each waits for its thread.
    drop(surplus);
    Ok(())
}

/// What an instance does.
struct Worker {
    floor: Arc<Floor>,
    service: usize,
    workers: Semaphore,
    waiting: Cell<usize>,
    rng: RefCell<Rng>,
    clock: Clock,
    /// By how much it has waited too long so far: timers are coarse, but what it can do a second must be right.
    overslept_ns: Cell<i64>,
    caller: Caller,
}

impl Worker {
    fn new(floor: Arc<Floor>, service: usize, number: u64) -> Worker {
        let plan = &floor.plan.services[service];
        let stream = ((service as u64) << 32) | number;
        Worker {
            workers: Semaphore::new(plan.workers as usize),
            waiting: Cell::new(0),
            rng: RefCell::new(rng::seeded(floor.seed, 1 + stream)),
            clock: Clock::start(),
            overslept_ns: Cell::new(0),
            caller: Caller::default(),
            floor,
            service,
        }
    }

    /// Waits for a worker and keeps it busy. Whether there was room in the queue.
    async fn work(&self, cost: f64) -> bool {
        let of = &self.floor.services[self.service];
        let place = match self.workers.try_acquire() {
            Ok(place) => place,
            Err(_) if self.waiting.get() >= self.floor.plan.services[self.service].max_queue => return false,
            Err(_) => {
                let _waits = Waits::new(&self.waiting, &of.waiting);
                let Ok(place) = self.workers.acquire().await else { return false };
                place
            }
        };
        let time = self.floor.plan.services[self.service].time.sample(&mut self.rng.borrow_mut());
        let wanted_ns = (time.0 as f64 * cost) as i64;
        let works = of.busy.begin();
        let start = self.clock.now();
        let sleep_ns = wanted_ns - self.overslept_ns.get();
        if sleep_ns > 0 {
            tokio::time::sleep(Duration::from_nanos(sleep_ns as u64)).await;
        }
        let took = self.clock.now().since(start);
        // A machine that stood still is not made up for.
        let overslept =
            (self.overslept_ns.get() + took.0 as i64 - wanted_ns).min(Nanos::from_millis(50).0 as i64);
        self.overslept_ns.set(overslept);
        of.worked_ns.fetch_add(wanted_ns as u64, Relaxed);
        of.worked.fetch_add(1, Relaxed);
        drop((works, place));
        true
    }

    async fn serve(&self, visit: Visit, trace: Option<&Trace>) -> StatusCode {
        let path = &self.floor.plan.paths[visit.path];
        if !self.work(f64::from(path.visits[visit.at].cost)).await {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        if !visit.leads {
            return StatusCode::OK;
        }
        for stage in &path.stages {
            let others = stage.clone().filter(|&at| at != visit.at);
            let calls = others.map(|at| {
                self.caller.call(&self.floor, &self.rng, Visit { path: visit.path, at, leads: false }, trace)
            });
            let answers = join_all(calls).await;
            if let Some(&failed) = answers.iter().find(|status| !status.is_success()) {
                return failed;
            }
        }
        StatusCode::OK
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let visit = request.uri().query().and_then(|query| Visit::read(query, &self.floor.plan));
        let Some(visit) = visit else { return text(StatusCode::BAD_REQUEST, "no visit\n") };
        let parent = Trace::read(request.headers());
        let own = parent.as_ref().map(|parent| parent.child(&mut self.rng.borrow_mut()));
        let begin = crate::clock::wall_ns();
        let status = self.serve(visit, own.as_ref()).await;
        let of = &self.floor.services[self.service];
        let count = if status.is_success() { &of.served } else { &of.refused };
        count.fetch_add(1, Relaxed);
        if let (Some(own), Some(parent), Some(exporter)) = (own, parent, &self.floor.exporter) {
            let service = self.floor.plan.services[self.service].name.clone();
            let api = self.floor.plan.api_of(visit.path).name.clone();
            let times_ns = (begin, crate::clock::wall_ns());
            exporter.send(Span {
                trace: own,
                parent: parent.span,
                service,
                api,
                times_ns,
                failed: !status.is_success(),
            });
        }
        text(status, "")
    }
}

/// Where an instance is asked. What was asked for is done to its end, whether somebody still waits for it or not, as most servers do.
struct Endpoint(Rc<Worker>);

impl Handler for Endpoint {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let worker = Rc::clone(&self.0);
        let answer = tokio::task::spawn_local(async move { worker.answer(request).await }).await;
        answer.unwrap_or_else(|_| text(StatusCode::INTERNAL_SERVER_ERROR, ""))
    }
}

/// One that waits at an instance, and so at its service, until it no longer does or the instance ends.
struct Waits<'a>(&'a Cell<usize>, &'a AtomicU64);

impl<'a> Waits<'a> {
    fn new(instance: &'a Cell<usize>, service: &'a AtomicU64) -> Waits<'a> {
        instance.set(instance.get() + 1);
        service.fetch_add(1, Relaxed);
        Waits(instance, service)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
        self.1.fetch_sub(1, Relaxed);
    }
}
