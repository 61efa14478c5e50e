//! A shard: holds a part of the graph in memory and answers sub-queries about it.
//!
//! Its engine is a few threads behind a FIFO queue. AcceptFraction guards them, whatever the brokers run:
//! it keeps the engine from more work than it can do, and knows nothing of objectives.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use plimsoll_admission::{Ask, Gate, GateSpec, Outcome, Slots, build};
use plimsoll_core::config::Policy;
use plimsoll_core::{ClassId, Nanos, Refusal, Rng, Slo, Verdict, rng};
use serde_json::json;
use tokio::sync::oneshot;

use super::Options;
use super::gate::{refused, tick_for_ever};
use super::protocol::{self, SubQuery, encode_words};
use super::store::Store;
use crate::clock::Clock;
use crate::http::{Body, json, text};
use crate::pool::Pool;
use crate::server::{Handler, Server};
use crate::work::{Work, WorkKind};

/// All sub-queries are one class: shards are oblivious to query types.
const CLASS: ClassId = ClassId(0);

/// How the shards work.
#[derive(Clone, Debug, clap::Args)]
pub struct ShardOptions {
    /// Shards that the graph is divided into.
    #[arg(long, default_value_t = ShardOptions::default().shards)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub shards: u32,
    /// Threads of a shard's engine.
    #[arg(long, default_value_t = ShardOptions::default().engines)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    pub engines: u32,
    /// Whether a sub-query costs CPU time or waiting time, beyond its own look-ups.
    #[arg(long, value_enum, default_value_t = ShardOptions::default().work)]
    pub work: WorkKind,
    /// What every sub-query costs.
    #[arg(long, value_name = "TIME", default_value_t = ShardOptions::default().subquery_cost)]
    pub subquery_cost: Nanos,
    /// What it costs for every edge that it touches.
    #[arg(long, value_name = "TIME", default_value_t = ShardOptions::default().edge_cost)]
    pub edge_cost: Nanos,
    /// The utilisation above which a shard turns sub-queries away, above 0 and at most 1.
    #[arg(long, value_name = "SHARE", default_value_t = ShardOptions::default().max_util, value_parser = share)]
    pub max_util: f64,
}

impl Default for ShardOptions {
    fn default() -> ShardOptions {
        ShardOptions {
            shards: 6,
            engines: 1,
            work: WorkKind::Wait,
            subquery_cost: Nanos::from_micros(200),
            edge_cost: Nanos::from_micros(10),
            max_util: 0.8,
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("`{text}` is not a share; write a number above 0 and at most 1")),
    }
}

struct Job {
    query: SubQuery,
    arrived: Nanos,
    done: oneshot::Sender<Result<Bytes, Refusal>>,
}

struct Shard {
    gate: Arc<Gate>,
    clock: Clock,
    engine: Pool<Job>,
    counts: Arc<Counts>,
    rng: RefCell<Rng>,
}

#[derive(Default)]
struct Counts {
    served: AtomicU64,
    refused: AtomicU64,
    busy_ns: AtomicU64,
}

/// Starts one of the shards in this process.
///
/// # Errors
/// Where the address is taken or a thread cannot start.
pub fn start(options: &Options, index: usize, listen: SocketAddr) -> io::Result<Server> {
    let options = options.clone();
    Server::start("shard", listen, move |_| Shard::new(&options, index))
}

impl Shard {
    fn new(options: &Options, index: usize) -> io::Result<Shard> {
        let ShardOptions { shards, engines, work, subquery_cost, edge_cost, max_util } = options.shard;
        let store = Arc::new(Store::generate(options.graph, index, shards as usize));
        let work = Work::new(work);
        let clock = Clock::start();
        let spec = GateSpec {
            slos: vec![Slo::default()],
            ranks: Vec::new(),
            fair_share: Vec::new(),
            slots: Slots::Fixed(engines),
            max_queue: options.max_queue,
            start: clock.now(),
        };
        let gate = Arc::new(build::gate(spec, &Policy::AcceptFraction { max_util }, &["default"]));
        tokio::task::spawn_local(tick_for_ever(gate.clone(), clock));
        let counts = Arc::new(Counts::default());
        // The gate bounds the queue.
        let engine = Pool::start("shard-engine", engines as usize, None, || {
            let (store, gate, counts) = (store.clone(), gate.clone(), counts.clone());
            move |job: Job| {
                if job.done.is_closed() {
                    return gate.abandon(CLASS);
                }
                let started = clock.now();
                let waited = started.since(job.arrived);
                if let Verdict::Refuse(refusal) = gate.start(CLASS, waited, started) {
                    return drop(job.done.send(Err(refusal)));
                }
                let (answer, edges) = job.query.answer(&store);
                work.spend(subquery_cost + Nanos(edge_cost.0 * edges));
                let served = clock.now().since(started);
                gate.finish(CLASS, waited, served, Outcome::Measured);
                counts.served.fetch_add(1, Relaxed);
                counts.busy_ns.fetch_add(served.0, Relaxed);
                let _ = job.done.send(Ok(encode_words(answer)));
            }
        })?;
        let rng = RefCell::new(rng::seeded(options.graph.seed, 1 + index as u64));
        Ok(Shard { gate, clock, engine, counts, rng })
    }

    async fn answer(&self, query: SubQuery) -> Response<Body> {
        let arrived = self.clock.now();
        let verdict = self.gate.offer(&Ask::of(CLASS), arrived, &mut self.rng.borrow_mut());
        let answer = match verdict {
            Verdict::Refuse(refusal) => Err(refusal),
            Verdict::Admit(_) => {
                let (done, answer) = oneshot::channel();
                let pushed = self.engine.push(Job { query, arrived, done });
                assert!(pushed.is_ok(), "an unbounded queue takes every job");
                match answer.await {
                    Ok(answer) => answer,
                    Err(_) => return text(StatusCode::INTERNAL_SERVER_ERROR, "the engine has stopped\n"),
                }
            }
        };
        match answer {
            Ok(words) => Response::new(Full::new(words)),
            Err(refusal) => {
                self.counts.refused.fetch_add(1, Relaxed);
                refused(&refusal, &mut self.rng.borrow_mut())
            }
        }
    }

    fn stats(&self) -> Response<Body> {
        let Counts { served, refused, busy_ns } = &*self.counts;
        let stats = json!({
            "uptime_s": self.clock.now().as_secs_f64(), "busy_s": Nanos(busy_ns.load(Relaxed)).as_secs_f64(),
            "served": served.load(Relaxed), "refused": refused.load(Relaxed), "waiting": self.engine.waiting(),
        });
        json(StatusCode::OK, &stats)
    }
}

impl Handler for Shard {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        match request.uri().path() {
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/stats" => self.stats(),
            protocol::PATH => {
                let body = Limited::new(request.into_body(), protocol::MAX_BODY).collect().await;
                match body.ok().and_then(|body| SubQuery::decode(&body.to_bytes())) {
                    Some(query) => self.answer(query).await,
                    None => text(StatusCode::BAD_REQUEST, "not a sub-query\n"),
                }
            }
            _ => text(StatusCode::NOT_FOUND, "there are /subquery, /stats and /healthz\n"),
        }
    }
}
