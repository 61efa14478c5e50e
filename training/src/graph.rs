//! The paper's graph simulator (section 4.3): APIs are paths through nodes with a capacity and a latency each, requests are a fluid. What
//! is more than a node can do waits, and latency and good answers are noisy in proportion to the overload. It is a thousand times faster than
//! the fleet simulator, which counts every request; a base model is trained here, and judged there.

use std::collections::VecDeque;

use plimsoll_core::rng::{chance, seeded};
use plimsoll_core::{Nanos, Rng};
use plimsoll_ratecontrol::{Api, ApiSignal, ServiceSignal, Topology};
use plimsoll_simulator::fleet::optimum::{Asked, Best};
use rand::RngExt;
use rand_distr::StandardNormal;

/// A step of the fluid, in seconds.
const STEP_S: f64 = 0.05;
const SLO_S: f64 = 1.0;
/// A queue of so many seconds is full.
const FULL_S: f64 = 2.0;
/// How noisy latency and good answers are at a load of twice the capacity, as a part.
const NOISE: f64 = 0.1;

struct Node {
    capacity_per_s: f64,
    /// How long a request takes where none waits.
    calm_s: f64,
    /// Requests of each API that wait.
    queue: Vec<f64>,
    /// How long a request that came now would wait, step by step, the last one first.
    waits_s: VecDeque<f64>,
    /// Requests that came and were served since the last look.
    came: f64,
    served: f64,
}

impl Node {
    fn wait_s(&self) -> f64 {
        self.queue.iter().sum::<f64>() / self.capacity_per_s
    }

    /// How long those had waited who are served now: the wait that they found when they came.
    fn waited_s(&self) -> f64 {
        let found = self.waits_s.iter().enumerate().find(|&(ago, &wait)| wait <= (ago as f64 + 1.0) * STEP_S);
        found.map_or(FULL_S, |(_, &wait)| wait)
    }
}

/// A graph under way.
pub struct Graph {
    pub topology: Topology,
    pub now: Nanos,
    /// Requests a second that could be answered well at best, as things were at the beginning.
    pub best_per_s: f64,
    nodes: Vec<Node>,
    /// By API.
    paths: Vec<Vec<usize>>,
    offered: Vec<f64>,
    rates: Vec<Option<f64>>,
    tells_queues: bool,
    /// When something changes, in seconds: what is offered, or what a node can do.
    changes_s: f64,
    change: (bool, usize, f64),
    rng: Rng,
}

impl Graph {
    /// The graph of a seed: 1 to 3 APIs of 1 to 5 nodes each, which share some; one node is asked for 1.1 to 6 times what it can do. In half
    /// of them, what is offered or the capacity of that node changes on the way.
    pub fn new(seed: u64, lasts_s: f64) -> Graph {
        let mut rng = seeded(seed, 0x6747);
        let rng = &mut rng;
        let apis = rng.random_range(1..=3usize);
        let mut paths: Vec<Vec<usize>> = Vec::new();
        let mut count = 0;
        for api in 0..apis {
            let length = rng.random_range(1..=5usize);
            let node = |at: usize, count: &mut usize, rng: &mut Rng| {
                let shared = paths.first().and_then(|first: &Vec<usize>| first.get(at)).copied();
                shared.filter(|_| api > 0 && (at == 0 || chance(rng, 0.4))).unwrap_or_else(|| {
                    *count += 1;
                    *count - 1
                })
            };
            let path = (0..length).map(|at| node(at, &mut count, rng)).collect();
            paths.push(path);
        }
        let offered: Vec<f64> = (0..apis).map(|_| log_uniform(50.0, 2_000.0, rng)).collect();
        let demand = |node: usize| -> f64 {
            let calls = paths.iter().zip(&offered).filter(|(path, _)| path.contains(&node));
            calls.map(|(_, offered)| offered).sum()
        };
        let tight = rng.random_range(0..count);
        let nodes: Vec<Node> = (0..count)
            .map(|node| {
                let degree = match node {
                    _ if node == tight => log_uniform(1.1, 6.0, rng),
                    _ if chance(rng, 0.15) => log_uniform(1.0, 3.0, rng),
                    _ => rng.random_range(0.2..0.9),
                };
                Node {
                    capacity_per_s: demand(node) / degree,
                    calm_s: log_uniform(0.002, 0.05, rng),
                    queue: vec![0.0; apis],
                    waits_s: VecDeque::from([0.0]),
                    came: 0.0,
                    served: 0.0,
                }
            })
            .collect();
        let levels = rng.random_range(1..=2u32);
        let api = |path: &Vec<usize>, rng: &mut Rng| {
            let priority = rng.random_range(1..=levels);
            Api::along(path.iter().map(|&node| node as u32), Nanos::from_secs_f64(SLO_S), priority)
        };
        let topology = Topology::new(count, paths.iter().map(|path| api(path, rng)).collect());
        let asked = |(at, path): (usize, &Vec<usize>)| Asked {
            offered_per_s: offered[at],
            min_per_s: 0.0,
            priority: 1,
            load: (0..count).map(|node| if path.contains(&node) { 1.0 } else { 0.0 }).collect(),
        };
        let best = Best {
            capacity_per_s: nodes.iter().map(|node| node.capacity_per_s).collect(),
            apis: paths.iter().enumerate().map(asked).collect(),
        };
        let solved = best.solve().map_or(0.0, |rates| rates.iter().sum());
        let changes_s = if chance(rng, 0.5) { rng.random_range(0.2..0.8) * lasts_s } else { f64::INFINITY };
        let change = if chance(rng, 0.5) {
            (true, rng.random_range(0..apis), log_uniform(0.3, 3.0, rng))
        } else {
            (false, tight, log_uniform(0.4, 3.0, rng))
        };
        Graph {
            topology,
            now: Nanos::ZERO,
            best_per_s: solved.max(1.0),
            rates: vec![None; apis],
            tells_queues: chance(rng, 0.75),
            changes_s,
            change,
            rng: seeded(seed, 0x6748),
            nodes,
            paths,
            offered,
        }
    }

    pub fn set_rates(&mut self, rates: &[Option<f64>]) {
        self.rates.copy_from_slice(rates);
    }

    /// Lets so much time pass, and tells what was seen.
    pub fn advance(&mut self, seconds: f64, services: &mut Vec<ServiceSignal>, apis: &mut Vec<ApiSignal>) {
        if self.now.as_secs_f64() >= self.changes_s {
            let (load, which, factor) = self.change;
            if load {
                self.offered[which] *= factor;
            } else {
                self.nodes[which].capacity_per_s *= factor;
            }
            self.changes_s = f64::INFINITY;
        }
        let steps = (seconds / STEP_S).round() as usize;
        let count = self.paths.len();
        // Arrivals are random.
        let rng = &mut self.rng;
        let sent: Vec<f64> =
            self.offered.iter().map(|&per_s| scattered(per_s * seconds, rng) / seconds).collect();
        let mut out = vec![0.0; count];
        self.nodes.iter_mut().for_each(|node| (node.came, node.served) = (0.0, 0.0));
        for _ in 0..steps {
            let mut flow: Vec<f64> = (0..count).map(|api| self.enters(api, &sent) * STEP_S).collect();
            // Nodes are numbered so that whoever calls comes first, but for those that are shared: within a step it does not matter.
            for at in 0..self.nodes.len() {
                let node = &mut self.nodes[at];
                let room = (FULL_S * node.capacity_per_s - node.queue.iter().sum::<f64>()).max(0.0);
                let users = || (0..count).filter(|&api| self.paths[api].contains(&at));
                let came: f64 = users().map(|api| flow[api]).sum();
                let taken =
                    if came > 0.0 { ((room + node.capacity_per_s * STEP_S) / came).min(1.0) } else { 0.0 };
                users().for_each(|api| node.queue[api] += flow[api] * taken);
                let waiting: f64 = node.queue.iter().sum();
                let part =
                    if waiting > 0.0 { (node.capacity_per_s * STEP_S / waiting).min(1.0) } else { 0.0 };
                node.came += came;
                for api in users() {
                    flow[api] = node.queue[api] * part;
                    node.queue[api] -= flow[api];
                    node.served += flow[api];
                }
                node.waits_s.push_front(node.wait_s());
                node.waits_s.truncate((FULL_S / STEP_S) as usize + 2);
            }
            (0..count).for_each(|api| out[api] += flow[api]);
            self.now += Nanos::from_secs_f64(STEP_S);
        }
        services.clear();
        services.extend(self.nodes.iter().map(|node| ServiceSignal {
            utilization: Some((node.served / seconds / node.capacity_per_s).min(1.0)),
            queue_delay: self.tells_queues.then(|| Nanos::from_secs_f64(node.wait_s())),
            served_per_s: Some(node.served / seconds),
        }));
        apis.clear();
        for api in 0..count {
            let admitted = self.enters(api, &sent);
            apis.push(self.outcome(api, sent[api], admitted, out[api], seconds));
        }
    }

    fn enters(&self, api: usize, sent: &[f64]) -> f64 {
        sent[api].min(self.rates[api].unwrap_or(f64::INFINITY))
    }

    fn outcome(&mut self, api: usize, offered: f64, admitted: f64, out: f64, seconds: f64) -> ApiSignal {
        let (mut calm_s, mut waited_s, mut overload) = (0.0, 0.0, 0.0f64);
        for &node in &self.paths[api] {
            let node = &self.nodes[node];
            calm_s += node.calm_s;
            waited_s += node.waited_s();
            overload = overload.max(node.came / seconds / node.capacity_per_s - 1.0);
        }
        // Those in the tail take three times as long as usual.
        let noise = |rng: &mut Rng| NOISE * overload * rng.sample::<f64, _>(StandardNormal);
        let tail_s = (3.0 * calm_s + waited_s) * (1.0 + noise(&mut self.rng)).max(0.1);
        let in_time = ((1.1 - (calm_s + waited_s) / SLO_S) / 0.2).clamp(0.0, 1.0);
        let good = scattered(out * in_time * (1.0 - noise(&mut self.rng).abs()).max(0.0), &mut self.rng);
        ApiSignal {
            offered_per_s: Some(offered),
            admitted_per_s: Some(admitted),
            goodput_per_s: Some(good / seconds),
            tail_latency: (out > 0.0).then(|| Nanos::from_secs_f64(tail_s)),
        }
    }
}

/// A count that is so much in the mean.
fn scattered(mean: f64, rng: &mut Rng) -> f64 {
    (mean + mean.sqrt() * rng.sample::<f64, _>(StandardNormal)).max(0.0)
}

pub fn log_uniform(low: f64, high: f64, rng: &mut Rng) -> f64 {
    (low.ln() + (high / low).ln() * rng.random::<f64>()).exp()
}
