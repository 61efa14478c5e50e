//! A broker: takes queries from clients and answers them in rounds of sub-queries to the shards.
//!
//! Its engine has a fixed number of slots behind one FIFO queue. The policy under study stands at the entry.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use plimsoll_admission::{Ask, Gate, GateSpec, Slots, build};
use plimsoll_core::config::Admission;
use plimsoll_core::estimator::ClassEstimate;
use plimsoll_core::{ClassId, Nanos, Percentile, Refusal, Rng, Slo, Verdict, rng};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::Options;
use super::gate::{Ticket, refused, refused_because, tick_for_ever};
use super::queries::{Query, QueryType};
use super::shards::{Failure, Shards};
use super::stats::{End, Stats};
use super::store::KINDS;
use crate::clock::{Clock, metered};
use crate::http::{Body, json, param, text};
use crate::orca::{Form, Load};
use crate::server::{Handler, Server};

/// The paper's objectives, the same for every type.
pub const SLO: [(Percentile, Nanos); 2] =
    [(Percentile::P50, Nanos::from_millis(18)), (Percentile::P90, Nanos::from_millis(50))];

/// Vertices that an answer names where the query does not say.
const DEFAULT_K: usize = 10;
/// Most that it may ask for.
const MAX_K: usize = 10_000;

/// Random streams of the seed; zero is the graph's, and those from one on the shards'.
const DECISIONS: u64 = 1 << 32;
const VERTICES: u64 = DECISIONS + 1;

/// How the broker works.
#[derive(Clone, Debug, clap::Args)]
pub struct BrokerOptions {
    /// What decides whether a query may enter the queue, as NAME[,key=value...].
    #[arg(long, value_name = "POLICY", default_value_t = BrokerOptions::default().policy, value_parser = policy)]
    pub policy: String,
    /// Queries worked on at once.
    #[arg(long, default_value_t = BrokerOptions::default().slots)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub slots: u32,
    /// How long after its arrival a query is given up.
    #[arg(long, value_name = "TIME", default_value_t = BrokerOptions::default().expire)]
    pub expire: Nanos,
    /// How the broker reports its load, and what each query cost it.
    #[arg(long, value_enum, default_value_t = BrokerOptions::default().orca)]
    pub orca: Form,
}

impl Default for BrokerOptions {
    fn default() -> BrokerOptions {
        BrokerOptions {
            policy: "bouncer".to_owned(),
            slots: 5,
            expire: Nanos::from_secs(10),
            orca: Form::Text,
        }
    }
}

/// Checked here, where the command line can point at it, and read where it is used.
fn policy(text: &str) -> Result<String, String> {
    Admission::from_args(text).map(|_| text.to_owned())
}

struct Broker {
    options: Options,
    shards: Shards,
    gate: Arc<Gate>,
    slots: Semaphore,
    clock: Clock,
    /// For what the gate draws and refusals jitter.
    decisions: RefCell<Rng>,
    /// For queries that name no vertex.
    vertices: RefCell<Rng>,
    stats: RefCell<Stats>,
}

/// Starts a broker in this process, in front of the shards at these addresses in the order of their index.
///
/// # Errors
/// Where the policy is not one, or the address is taken.
pub fn start(options: &Options, shards: &[SocketAddr], listen: SocketAddr) -> io::Result<Server> {
    let (options, shards) = (options.clone(), shards.to_vec());
    Server::start("broker", listen, move |_| Broker::new(options, &shards))
}

impl Broker {
    fn new(options: Options, shards: &[SocketAddr]) -> io::Result<Broker> {
        let admission = Admission::from_args(&options.broker.policy)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let clock = Clock::start();
        let slo = Slo::new(SLO).expect("p50 is below p90");
        let names: Vec<String> =
            QueryType::ALL.iter().map(QueryType::to_string).chain(["default".to_owned()]).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let spec = GateSpec {
            slos: vec![slo; names.len()],
            ranks: Vec::new(),
            fair_share: Vec::new(),
            slots: Slots::Fixed(options.broker.slots),
            max_queue: options.max_queue,
            start: clock.now(),
        };
        let gate = Arc::new(build::gate(spec, &admission.policy, &names));
        tokio::task::spawn_local(tick_for_ever(gate.clone(), clock));
        Ok(Broker {
            shards: Shards::new(shards),
            gate,
            slots: Semaphore::new(options.broker.slots as usize),
            clock,
            decisions: RefCell::new(rng::seeded(options.graph.seed, DECISIONS)),
            vertices: RefCell::new(rng::seeded(options.graph.seed, VERTICES)),
            stats: RefCell::new(Stats::new(clock.now())),
            options,
        })
    }

    async fn query(&self, query: Query) -> Response<Body> {
        let (response, end) = self.admit(query).await;
        self.stats.borrow_mut().ended(query.of, end);
        response
    }

    async fn admit(&self, query: Query) -> (Response<Body>, End) {
        let class = ClassId(query.of.index() as u16);
        let arrived = self.clock.now();
        let deadline = arrived + self.options.broker.expire;
        let ask = Ask { deadline: Some(deadline), ..Ask::of(class) };
        let expected_wait = self.gate.expected_wait();
        let verdict = self.gate.offer(&ask, arrived, &mut self.decisions.borrow_mut());
        self.stats.borrow_mut().decided(self.clock.now().since(arrived));
        let grant = match verdict {
            Verdict::Refuse(refusal) => return self.refuse(&refusal),
            Verdict::Admit(grant) => grant,
        };
        let mut ticket = Ticket::new(&self.gate, &self.clock, class, expected_wait);
        // The semaphore is the FIFO queue: permits go to those who wait in the order in which they came.
        let _slot = self.slots.acquire().await.expect("never closed");
        let started = self.clock.now();
        let waited = started.since(arrived);
        if started >= deadline {
            return self.refuse(&self.gate.expired(waited, self.options.broker.expire));
        }
        if let Verdict::Refuse(refusal) = ticket.start(waited, started) {
            return self.refuse(&refusal);
        }
        let left = deadline.since(started).into();
        let result = tokio::time::timeout(left, metered(query.run(&self.shards))).await;
        match result {
            Ok((Ok(answer), cpu)) => {
                let processed = ticket.finish();
                let mut answer = json(StatusCode::OK, &answer.to_json(query.of));
                let free = self.slots.available_permits() as u32;
                let in_service = self.options.broker.slots - free;
                // What it did not compute it waited for, from the shards.
                let load = Load { cpu, data: processed - cpu, queue_delay: waited, in_service };
                load.report(self.options.broker.orca, &mut answer);
                (answer, End::Served { grant, waited, processed })
            }
            Ok((Err(Failure::Refused(reason, retry_after)), _)) => {
                let retry_after = retry_after.unwrap_or(HeaderValue::from_static("1"));
                (refused_because(reason, retry_after), End::RefusedByShard)
            }
            Ok((Err(Failure::Broken(why)), _)) => {
                ticket.fail();
                (text(StatusCode::BAD_GATEWAY, why + "\n"), End::Failed)
            }
            Err(_) => {
                ticket.fail();
                (text(StatusCode::GATEWAY_TIMEOUT, "the query has expired\n"), End::Failed)
            }
        }
    }

    fn refuse(&self, refusal: &Refusal) -> (Response<Body>, End) {
        (refused(refusal, &mut self.decisions.borrow_mut()), End::Refused)
    }

    /// What the path and its parameters ask for. A query that names no vertex is about a random one, so
    /// that a load generator with a fixed path a type is enough.
    fn parse(&self, of: &str, parameters: &str) -> Result<Query, String> {
        let of = of.parse()?;
        let number = |name: &str, below: u32| match param(parameters, name) {
            None => Ok(None),
            Some(text) => match text.parse::<u32>() {
                Ok(n) if n < below => Ok(Some(n)),
                _ => Err(format!("`{name}={text}`: write a whole number below {below}")),
            },
        };
        let vertices = self.options.graph.vertices;
        let (src, dst) = (number("src", vertices)?, number("dst", vertices)?);
        let (kind, k) = (number("kind", KINDS)?, number("k", MAX_K as u32 + 1)?);
        let rng = &mut *self.vertices.borrow_mut();
        Ok(Query {
            of,
            src: src.unwrap_or_else(|| rng.random_range(0..vertices)),
            dst: dst.unwrap_or_else(|| rng.random_range(0..vertices)),
            kind: kind.unwrap_or_else(|| rng.random_range(0..KINDS)),
            k: k.map_or(DEFAULT_K, |k| k as usize),
        })
    }

    /// What the gate expects of each type, objective by objective.
    fn classes(&self) -> Value {
        let ms = Nanos::as_millis_f64;
        let of = |(of, estimate): (&QueryType, &ClassEstimate)| {
            let targets = estimate.targets.iter().map(|&(percentile, estimate, objective)| {
                let times = json!({ "estimate_ms": ms(estimate), "objective_ms": ms(objective) });
                (percentile.to_string(), times)
            });
            (of.to_string(), Value::Object(targets.collect()))
        };
        Value::Object(QueryType::ALL.iter().zip(&self.gate.report()).map(of).collect())
    }
}

impl Handler for Broker {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let uri = request.uri();
        let parameters = uri.query().unwrap_or_default();
        match (request.method(), uri.path()) {
            (_, "/healthz") => text(StatusCode::OK, "ok\n"),
            (_, "/classes") => json(StatusCode::OK, &self.classes()),
            (&Method::GET, "/stats") => {
                let mut stats = self.stats.borrow().to_json(self.clock.now());
                stats["queued"] = self.gate.queued().into();
                json(StatusCode::OK, &stats)
            }
            (&Method::DELETE, "/stats") => {
                *self.stats.borrow_mut() = Stats::new(self.clock.now());
                text(StatusCode::OK, "counting from zero\n")
            }
            (_, path) => match path.strip_prefix("/q/").map(|of| self.parse(of, parameters)) {
                Some(Ok(query)) => self.query(query).await,
                Some(Err(wrong)) => text(StatusCode::BAD_REQUEST, wrong + "\n"),
                None => text(
                    StatusCode::NOT_FOUND,
                    "there are /q/QT1 to /q/QT11, /stats, /classes and /healthz\n",
                ),
            },
        }
    }
}
