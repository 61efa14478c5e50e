//! The graph store over real sockets: every query type against a naive reference, and what happens when
//! things go wrong.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use common::{ask, get, reported, send};
use plimsoll_core::{Nanos, rng};
use plimsoll_testbed::graph::store::{GraphSpec, KINDS, Kind, Vertex};
use plimsoll_testbed::graph::{Options, broker, shard};
use plimsoll_testbed::server::Server;
use rand::RngExt;
use serde_json::{Value, json};

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Three shards that cost nothing beyond their look-ups, and room for whatever comes.
fn options(graph: GraphSpec) -> Options {
    let mut options = Options { graph, ..Options::default() };
    options.shard.shards = 3;
    options.shard.subquery_cost = Nanos::ZERO;
    options.shard.edge_cost = Nanos::ZERO;
    options.broker.policy = "none".to_owned();
    options
}

struct Store {
    broker: Server,
    _shards: Vec<Server>,
}

fn start(options: &Options) -> Store {
    let shards: Vec<Server> = (0..options.shard.shards as usize)
        .map(|index| shard::start(options, index, any_port()).unwrap())
        .collect();
    let addrs: Vec<SocketAddr> = shards.iter().map(Server::addr).collect();
    Store { broker: broker::start(options, &addrs, any_port()).unwrap(), _shards: shards }
}

impl Store {
    fn get(&self, target: &str) -> String {
        get(self.broker.addr(), target)
    }

    fn json(&self, target: &str) -> Value {
        body(&self.get(target))
    }

    /// Waits until the broker's books say so.
    fn wait_until_queued(&self, wanted: u64) {
        for _ in 0..2_000 {
            if self.json("/stats")["queued"] == wanted {
                return;
            }
            thread::yield_now();
        }
        panic!("never {wanted} queued: {}", self.json("/stats"));
    }
}

fn body(answer: &str) -> Value {
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// The same questions, answered from the whole list of edges without regard to cost.
struct Reference(BTreeMap<Vertex, BTreeMap<Vertex, Kind>>);

impl Reference {
    fn new(spec: GraphSpec) -> Reference {
        let mut edges: BTreeMap<Vertex, BTreeMap<Vertex, Kind>> = BTreeMap::new();
        for (a, b, kind) in spec.edges() {
            for (from, to) in [(a, b), (b, a)] {
                let known = edges.entry(from).or_default().entry(to).or_insert(kind);
                *known = kind.min(*known);
            }
        }
        Reference(edges)
    }

    fn neighbours(&self, of: Vertex, kind: Option<Kind>) -> BTreeSet<Vertex> {
        let edges = self.0.get(&of).into_iter().flatten();
        edges.filter(|(_, of)| kind.is_none_or(|kind| kind == **of)).map(|(&to, _)| to).collect()
    }

    fn ranked(&self, vertices: BTreeSet<Vertex>) -> Vec<Vertex> {
        let mut ranked: Vec<Vertex> = vertices.into_iter().collect();
        // Stable, so that equals stay in rising order.
        ranked.sort_by_key(|&v| usize::MAX - self.neighbours(v, None).len());
        ranked
    }

    fn two_hops(&self, src: Vertex, kind: Option<Kind>) -> BTreeSet<Vertex> {
        let first = self.neighbours(src, kind);
        let second = first.iter().flat_map(|&v| self.neighbours(v, kind)).collect();
        first.union(&second).copied().filter(|&v| v != src).collect()
    }

    /// Breadth first from one end.
    fn distance(&self, src: Vertex, dst: Vertex) -> Option<u32> {
        let mut level = BTreeSet::from([src]);
        let mut seen = level.clone();
        for distance in 0..=10 {
            if level.contains(&dst) {
                return Some(distance);
            }
            level = level.iter().flat_map(|&v| self.neighbours(v, None)).collect();
            level.retain(|&v| seen.insert(v));
        }
        None
    }

    fn answer(&self, of: &str, src: Vertex, dst: Vertex, kind: Kind, k: usize) -> Value {
        let vertices = |found: Vec<Vertex>| {
            let first = &found[..k.min(found.len())];
            json!({ "type": of, "count": found.len(), "vertices": first })
        };
        let set = |found: BTreeSet<Vertex>| vertices(found.into_iter().collect());
        let (of_src, of_dst) = (self.neighbours(src, None), self.neighbours(dst, None));
        match of {
            "QT1" => json!({ "type": of, "kind": self.0.get(&src).and_then(|edges| edges.get(&dst)) }),
            "QT2" => json!({ "type": of, "count": of_src.len() }),
            "QT3" => json!({ "type": of, "count": self.neighbours(src, Some(kind)).len() }),
            "QT4" => set(self.neighbours(src, Some(kind))),
            "QT5" => set(of_src),
            "QT6" => set(of_src.union(&of_dst).copied().collect()),
            "QT7" => vertices(self.ranked(of_src.intersection(&of_dst).copied().collect())),
            "QT8" => vertices(self.ranked(of_src)),
            "QT9" => set(self.two_hops(src, Some(kind))),
            "QT10" => set(self.two_hops(src, None)),
            "QT11" => json!({ "type": of, "distance": self.distance(src, dst) }),
            _ => unreachable!(),
        }
    }
}

/// Every type on a graph: random pairs, neighbouring pairs, and a vertex with itself.
fn compare_with_reference(spec: GraphSpec) -> Vec<Value> {
    let (store, reference) = (start(&options(spec)), Reference::new(spec));
    let mut rng = rng::seeded(spec.seed, 99);
    let mut answers = Vec::new();
    for round in 0..24 {
        let src: Vertex = rng.random_range(0..spec.vertices);
        let neighbours: Vec<Vertex> = reference.neighbours(src, None).into_iter().collect();
        let dst = match (round % 4, &neighbours[..]) {
            (0, _) => src,
            (1, [first, ..]) => *first,
            _ => rng.random_range(0..spec.vertices),
        };
        let (kind, k) = (rng.random_range(0..KINDS), rng.random_range(0..20));
        for of in 1..=11 {
            let of = format!("QT{of}");
            let answer = store.json(&format!("/q/{of}?src={src}&dst={dst}&kind={kind}&k={k}"));
            let expected = reference.answer(&of, src, dst, kind, k);
            assert_eq!(answer, expected, "{of} src={src} dst={dst} kind={kind} k={k}");
            answers.push(answer);
        }
    }
    answers
}

#[test]
fn an_answer_reports_what_it_cost_the_broker() {
    let mut options = options(GraphSpec { vertices: 300, degree: 6, seed: 1 });
    options.shard.subquery_cost = Nanos::from_millis(20);
    let store = start(&options);
    let [cpu, data, _, in_service] = reported(&store.get("/q/QT7?src=1&dst=2"));
    assert!(cpu > 0.0 && data >= 0.02, "two rounds of the shards' time, and some of its own: {cpu} {data}");
    assert_eq!(in_service, 1.0);
}

#[test]
fn answers_agree_on_a_dense_graph() {
    let answers = compare_with_reference(GraphSpec { vertices: 400, degree: 12, seed: 3 });
    let common = |answer: &&Value| answer["type"] == "QT7" && answer["count"] != 0;
    assert!(answers.iter().filter(common).count() > 3, "the graph has vertices with common neighbours");
}

#[test]
fn answers_agree_on_a_graph_that_is_not_connected() {
    let answers = compare_with_reference(GraphSpec { vertices: 500, degree: 2, seed: 4 });
    let distances: BTreeSet<String> = answers
        .iter()
        .filter(|answer| answer["type"] == "QT11")
        .map(|answer| answer["distance"].to_string())
        .collect();
    assert!(distances.contains("null") && distances.len() > 4, "{distances:?}");
}

#[test]
fn a_query_without_vertices_is_about_random_ones() {
    let store = start(&options(GraphSpec { vertices: 1_000, degree: 8, seed: 5 }));
    let counts: BTreeSet<String> = (0..20).map(|_| store.json("/q/QT2")["count"].to_string()).collect();
    assert!(counts.len() > 3, "{counts:?}");
    let stats = store.json("/stats");
    assert_eq!((&stats["types"]["QT2"]["served"], &stats["queued"]), (&json!(20), &json!(0)));
    ask(store.broker.addr(), "DELETE", "/stats").unwrap();
    assert_eq!(store.json("/stats")["types"]["QT2"]["received"], 0);
    for wrong in ["/q/QT12", "/q/QT1?src=1000", "/q/QT1?src=x", "/q/QT9?kind=9", "/q/QT5?k=1000000"] {
        assert!(store.get(wrong).starts_with("HTTP/1.1 400"), "{wrong}");
    }
    assert_eq!(store.json("/classes")["QT11"]["p90"]["objective_ms"], 50.0);
}

/// One slot, and shards so slow that whoever has it keeps it.
fn slow_options() -> Options {
    let mut options = options(GraphSpec { vertices: 100, degree: 4, seed: 6 });
    options.shard.subquery_cost = Nanos::from_secs(3);
    options.broker.slots = 1;
    options
}

#[test]
fn a_refusal_says_why() {
    let mut options = slow_options();
    options.broker.policy = "maxql,limit=1".to_owned();
    let store = start(&options);
    // The first takes the slot, the second the one place in the queue.
    let _in_service = send(store.broker.addr(), "GET", "/q/QT1").unwrap();
    let _queued = send(store.broker.addr(), "GET", "/q/QT1").unwrap();
    store.wait_until_queued(1);
    let answer = store.get("/q/QT1");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("plimsoll-reason: maxql; limit=queue-length; "), "{answer}");
    let (_, retry_after) = answer.split_once("retry-after: ").expect("a Retry-After header");
    assert!(retry_after.split("\r\n").next().unwrap().parse::<u64>().unwrap() >= 1, "{answer}");
    assert_eq!(store.json("/stats")["types"]["QT1"]["refused"], 1);
}

#[test]
fn a_client_that_leaves_the_queue_leaves_the_books() {
    let store = start(&slow_options());
    let _in_service = send(store.broker.addr(), "GET", "/q/QT1").unwrap();
    let queued: Vec<_> = (0..3).map(|_| send(store.broker.addr(), "GET", "/q/QT1").unwrap()).collect();
    store.wait_until_queued(3);
    drop(queued);
    store.wait_until_queued(0);
}

#[test]
fn a_query_expires_wherever_it_is() {
    let mut options = slow_options();
    options.broker.expire = Nanos::from_millis(200);
    let store = start(&options);
    let mut in_service = send(store.broker.addr(), "GET", "/q/QT1").unwrap();
    let mut queued = send(store.broker.addr(), "GET", "/q/QT2").unwrap();
    let mut answers = [String::new(), String::new()];
    in_service.read_to_string(&mut answers[0]).unwrap();
    queued.read_to_string(&mut answers[1]).unwrap();
    assert!(answers[0].starts_with("HTTP/1.1 504"), "{}", answers[0]);
    assert!(answers[1].starts_with("HTTP/1.1 50"), "{}", answers[1]);
    assert_eq!(store.json("/stats")["queued"], 0);
}

#[test]
fn a_shard_that_is_gone_costs_no_slot() {
    let options = slow_options();
    let gone = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    let broker = broker::start(&options, &[gone], any_port()).unwrap();
    for _ in 0..3 {
        assert!(get(broker.addr(), "/q/QT1").starts_with("HTTP/1.1 502"));
    }
    let stats = body(&get(broker.addr(), "/stats"));
    assert_eq!((&stats["types"]["QT1"]["failed"], &stats["queued"]), (&json!(3), &json!(0)));
}

#[test]
fn a_refusal_by_a_shard_is_passed_on() {
    let shard = TcpListener::bind(any_port()).unwrap();
    let addr = shard.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = shard.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let refusal = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\ncontent-length: 0\r\n\
                       plimsoll-reason: accept-fraction; limit=fraction; estimate=0.500; objective=1.000\r\n\r\n";
        stream.write_all(refusal.as_bytes()).unwrap();
    });
    let broker = broker::start(&slow_options(), &[addr], any_port()).unwrap();
    let answer = get(broker.addr(), "/q/QT5");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("plimsoll-reason: accept-fraction; limit=fraction; "), "{answer}");
    assert!(answer.contains("retry-after: 7\r\n"), "{answer}");
    assert_eq!(body(&get(broker.addr(), "/stats"))["types"]["QT5"]["refused_by_shard"], 1);
}
