//! The pages' handler: hands requests to the workers, answers for the rest itself.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use http::HeaderValue;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use plimsoll_core::Nanos;
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::sync::oneshot;

use super::{Options, Route, ServiceTimes};
use crate::clock::{Clock, thread_cpu};
use crate::http::{Body, param, text};
use crate::orca::Load;
use crate::pool::Pool;
use crate::server::{Handler, Lifeline, Server};
use crate::work::{Work, WorkKind};

struct Job {
    arrived: Nanos,
    service_time: Nanos,
    /// Receives how long it took, and what there is to report.
    done: oneshot::Sender<(Nanos, Load)>,
}

struct Pages {
    options: Options,
    clock: Clock,
    times: RefCell<ServiceTimes>,
    workers: Pool<Job>,
    stalled_until_ns: Arc<AtomicU64>,
    lifeline: Lifeline,
}

pub(super) fn start(options: Options) -> io::Result<Server> {
    Server::start("pages", options.listen, move |lifeline| Pages::new(options, lifeline))
}

impl Pages {
    fn new(options: Options, lifeline: Lifeline) -> io::Result<Pages> {
        if let Some(cpu) = options.cpu {
            // Before the workers start, so that they inherit it.
            pin_this_thread(cpu)?;
        }
        let clock = Clock::start();
        let work = Work::new(options.work);
        let waits = options.work == WorkKind::Wait;
        let (stalled_until_ns, busy) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU32::new(0)));
        let workers = Pool::start("page-worker", options.workers as usize, options.queue, || {
            let (stalled_until_ns, busy) = (stalled_until_ns.clone(), busy.clone());
            let stand_still = move || clock.sleep_until(Nanos(stalled_until_ns.load(Relaxed)));
            move |job: Job| {
                stand_still();
                let (start, cpu_before) = (clock.now(), thread_cpu());
                busy.fetch_add(1, Relaxed);
                work.spend(job.service_time);
                let cpu = thread_cpu().since(cpu_before);
                // What it only waits for stands for its data. A worker that computes has none, however long others keep it from that.
                let data = if waits { clock.now().since(start) - cpu } else { Nanos::ZERO };
                // A request that a stall catches in service ends with it, too.
                stand_still();
                let in_service = busy.fetch_sub(1, Relaxed);
                let load = Load { cpu, data, queue_delay: start.since(job.arrived), in_service };
                let _ = job.done.send((clock.now().since(start), load));
            }
        })?;
        let times = RefCell::new(ServiceTimes::new(options.seed, options.sigma));
        Ok(Pages { options, clock, times, workers, stalled_until_ns, lifeline })
    }

    async fn page(&self, route: Route) -> Response<Body> {
        let (done, served) = oneshot::channel();
        let service_time = self.times.borrow_mut().draw(self.options.cost(route));
        let arrived = self.clock.now();
        if self.workers.push(Job { arrived, service_time, done }).is_err() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the queue is full\n");
        }
        let Ok((served, load)) = served.await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
        };
        let mut response = text(StatusCode::OK, format!("a {} page\n", route.as_str()));
        let timing = format!("app;dur={:.3}", served.as_millis_f64());
        if let Ok(timing) = HeaderValue::try_from(timing) {
            response.headers_mut().insert("server-timing", timing);
        }
        load.report(self.options.orca, &mut response);
        response
    }

    fn fault(&self, query: &str) -> Response<Body> {
        if param(query, "die").is_some() {
            self.lifeline.cut();
            return text(StatusCode::ACCEPTED, "dying\n");
        }
        match param(query, "stall").map(str::parse::<Nanos>) {
            Some(Ok(span)) => {
                self.stalled_until_ns.store((self.clock.now() + span).0, Relaxed);
                text(StatusCode::OK, format!("standing still for {span}\n"))
            }
            Some(Err(error)) => text(StatusCode::BAD_REQUEST, format!("stall: {error}\n")),
            None => text(StatusCode::BAD_REQUEST, "write ?stall=1s or ?die\n"),
        }
    }
}

impl Handler for Pages {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let uri = request.uri();
        match uri.path() {
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/_fault" if request.method() == Method::POST => self.fault(uri.query().unwrap_or_default()),
            path => match Route::of_path(path) {
                Some(route) => self.page(route).await,
                None => text(StatusCode::NOT_FOUND, "there are /cheap, /middling, /heavy and /healthz\n"),
            },
        }
    }
}

fn pin_this_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}")));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run on CPU {cpu}: {error}")))
}
