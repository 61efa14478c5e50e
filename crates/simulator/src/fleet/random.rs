//! Seeded random fleets, to compare controllers on more than a few of our choosing.
//!
//! Paths are drawn first. Then every service is given the capacity at which what users send would use it to a drawn degree: some are
//! overloaded, one of them by the fleet's whole overload, most have room. So it is known how overloaded a fleet is, whatever its shape.

use plimsoll_core::config::fleet::{Api, Branch, Offered, Retries, Scenario, Service, Telemetry, Work};
use plimsoll_core::config::workload::Service as ServiceTimes;
use plimsoll_core::rng::{chance, seeded};
use plimsoll_core::{Nanos, Percentile, Rng, Slo};
use rand::RngExt;
use rand::seq::SliceRandom;

/// From where to where things are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranges {
    /// How many services there are.
    pub services: (usize, usize),
    /// How many APIs there are.
    pub apis: (usize, usize),
    /// How many times what the most overloaded service can do is asked of it.
    pub overload: (f64, f64),
    /// Requests a second that users send in all.
    pub offered_per_s: (f64, f64),
    /// How long a run lasts.
    pub duration: Nanos,
    /// How often the controller sees the fleet.
    pub signals: Nanos,
}

impl Default for Ranges {
    fn default() -> Ranges {
        Ranges {
            services: (2, 60),
            apis: (2, 30),
            overload: (1.5, 5.0),
            offered_per_s: (1_000.0, 4_000.0),
            duration: Nanos::from_secs(60),
            signals: Nanos::from_millis(250),
        }
    }
}

/// Most steps of a path.
const LONGEST_PATH: usize = 10;
/// The part of the services that is overloaded, beside the one that always is.
const OVERLOADED: f64 = 0.25;
/// How much the others are used if everything is let in.
const ROOM: (f64, f64) = (0.2, 0.9);

/// The fleet of a seed.
pub fn fleet(seed: u64, ranges: &Ranges) -> Scenario {
    let mut rng = seeded(seed, 0x00F1_EE75);
    let rng = &mut rng;
    let services = rng.random_range(ranges.services.0..=ranges.services.1);
    let apis = rng.random_range(ranges.apis.0..=ranges.apis.1);
    let overload = rng.random_range(ranges.overload.0..=ranges.overload.1);
    // Some fleets have one entry for all, some have costs that differ, some have priorities.
    let (entry, costs, levels) = (chance(rng, 0.5), chance(rng, 0.5), rng.random_range(1..=3));
    let mut drawn: Vec<Drawn> = (0..apis)
        .map(|_| {
            let branches = if chance(rng, 0.7) { 1 } else { rng.random_range(2..=6) };
            Drawn {
                branches: branches_of(branches, services, entry, costs, rng),
                weight: log_uniform(0.3, 3.0, rng),
                priority: rng.random_range(1..=levels),
                promised: chance(rng, 0.2),
            }
        })
        .collect();
    let all: f64 = drawn.iter().map(|api| api.weight).sum();
    let offered = log_uniform(ranges.offered_per_s.0, ranges.offered_per_s.1, rng);
    drawn.iter_mut().for_each(|api| api.weight *= offered / all);
    let demand = demand(&drawn, services);
    let mut used: Vec<usize> = (0..services).filter(|&service| demand[service] > 0.0).collect();
    used.shuffle(rng);
    let overloaded = 1 + (used.len() as f64 * OVERLOADED * rng.random::<f64>()) as usize;
    let mut degree = vec![1.0; services];
    for (nth, &service) in used.iter().enumerate() {
        degree[service] = match nth {
            0 => overload,
            _ if nth < overloaded => rng.random_range(1.0..=overload),
            _ => rng.random_range(ROOM.0..=ROOM.1),
        };
    }
    build(&drawn, &demand, &degree, ranges, rng)
}

/// The demo of the paper (section 5): 127 services, 25 APIs, 43 paths, of which eight APIs have up to six, and 13 services overloaded. Who
/// calls whom is not published; here it is drawn, from a seed that is fixed.
pub fn trace_demo() -> Scenario {
    const SERVICES: usize = 127;
    const OVERLOADED: usize = 13;
    /// Paths of the 25 APIs: 43 in all.
    const PATHS: [usize; 25] = [6, 5, 4, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    let mut rng = seeded(127, 43);
    let rng = &mut rng;
    let mut drawn: Vec<Drawn> = PATHS
        .iter()
        .map(|&branches| Drawn {
            branches: branches_of(branches, SERVICES, false, false, rng),
            weight: log_uniform(0.5, 2.0, rng),
            priority: 5,
            promised: false,
        })
        .collect();
    // Every service is on some path: those that were not drawn join one.
    let mut absent: Vec<usize> = (0..SERVICES).collect();
    absent.retain(|service| {
        !drawn
            .iter()
            .any(|api| api.branches.iter().any(|b| b.stages.iter().flatten().any(|v| v.0 == *service)))
    });
    for service in absent {
        let api = rng.random_range(0..drawn.len());
        let branch = rng.random_range(0..drawn[api].branches.len());
        drawn[api].branches[branch].stages.push(vec![(service, 1.0)]);
    }
    let all: f64 = drawn.iter().map(|api| api.weight).sum();
    drawn.iter_mut().for_each(|api| api.weight *= 3_000.0 / all);
    let demand = demand(&drawn, SERVICES);
    // The overloaded ones are shared: overload of a service that one API takes is no question of who gives way.
    let users = |service: usize| drawn.iter().filter(|api| api.loads(service) > 0.0).count();
    let mut order: Vec<usize> = (0..SERVICES).collect();
    order.shuffle(rng);
    order.sort_by_key(|&service| users(service) < 2);
    let mut degree = vec![1.0; SERVICES];
    for (nth, &service) in order.iter().enumerate() {
        degree[service] =
            if nth < OVERLOADED { rng.random_range(1.5..=4.0) } else { rng.random_range(ROOM.0..=ROOM.1) };
    }
    let ranges = Ranges { duration: Nanos::from_secs(120), ..Ranges::default() };
    build(&drawn, &demand, &degree, &ranges, rng)
}

/// An API before its fleet is built.
struct Drawn {
    branches: Vec<Branch>,
    /// In the end, requests a second.
    weight: f64,
    priority: u32,
    promised: bool,
}

impl Drawn {
    /// What a request of it is at a service.
    fn loads(&self, service: usize) -> f64 {
        let visits =
            self.branches.iter().flat_map(|b| b.stages.iter().flatten().map(move |visit| (b.share, visit)));
        visits.filter(|(_, visit)| visit.0 == service).map(|(share, visit)| share * visit.1).sum()
    }
}

fn demand(apis: &[Drawn], services: usize) -> Vec<f64> {
    (0..services).map(|service| apis.iter().map(|api| api.weight * api.loads(service)).sum()).collect()
}

fn branches_of(count: usize, services: usize, entry: bool, costs: bool, rng: &mut Rng) -> Vec<Branch> {
    let weights: Vec<f64> = (0..count).map(|_| rng.random_range(0.2..=1.0)).collect();
    let all: f64 = weights.iter().sum();
    // A service costs an API the same on all its branches.
    let cost: Vec<f64> =
        (0..services).map(|_| if costs { round(log_uniform(0.5, 2.0, rng)) } else { 1.0 }).collect();
    let mut left = 1.0;
    let shares = weights.iter().enumerate().map(|(nth, weight)| {
        let share = if nth + 1 == count { left } else { round(weight / all) };
        left -= share;
        share
    });
    let shares: Vec<f64> = shares.collect();
    shares.into_iter().map(|share| Branch { share, stages: stages_of(services, entry, &cost, rng) }).collect()
}

/// Different services in some order; now and then several at once.
fn stages_of(services: usize, entry: bool, cost: &[f64], rng: &mut Rng) -> Vec<Vec<(usize, f64)>> {
    let length = rng.random_range(1..=LONGEST_PATH.min(services));
    let mut order: Vec<usize> = (usize::from(entry)..services).collect();
    order.shuffle(rng);
    if entry {
        order.insert(0, 0);
    }
    order.truncate(length);
    let mut stages: Vec<Vec<(usize, f64)>> = Vec::new();
    for (nth, service) in order.into_iter().enumerate() {
        let visit = (service, cost[service]);
        match stages.last_mut() {
            Some(stage) if nth > 1 && chance(rng, 0.25) => stage.push(visit),
            _ => stages.push(vec![visit]),
        }
    }
    stages
}

fn build(apis: &[Drawn], demand: &[f64], degree: &[f64], ranges: &Ranges, rng: &mut Rng) -> Scenario {
    let services = demand.iter().zip(degree).enumerate().map(|(place, (&demand, degree))| {
        let capacity = if demand > 0.0 { demand / degree } else { 100.0 };
        let instances = rng.random_range(1..=4u32);
        // A worker takes 2 to 20 ms: as many workers as that takes, and the time that then makes the capacity exact.
        let wanted_s = log_uniform(0.002, 0.020, rng);
        let of_one = capacity / f64::from(instances);
        let workers = (of_one * wanted_s).ceil().clamp(1.0, 100_000.0);
        let mean = Nanos::from_secs_f64(workers / of_one).max(Nanos(1_000));
        let work = Work { workers: workers as u32, times: ServiceTimes::Exponential { mean } };
        Service {
            name: format!("s{place}"),
            work,
            instances,
            max_queue: None,
            autoscale: None,
            failures: Vec::new(),
        }
    });
    let services = services.collect();
    let apis = apis.iter().enumerate().map(|(place, api)| Api {
        name: format!("a{place}"),
        branches: api.branches.clone(),
        offered: Offered::constant(round(api.weight)),
        slo: Slo::new([(Percentile::P90, Nanos::from_secs(1))]).ok(),
        deadline: Nanos::from_secs(1),
        priority: api.priority,
        min_rate: api.promised.then(|| round(api.weight * 0.05)),
        retries: Retries::default(),
    });
    let (duration, signals) = (ranges.duration, ranges.signals);
    Scenario { duration, signals, telemetry: Telemetry::Agents, services, apis: apis.collect() }
}

fn log_uniform(low: f64, high: f64, rng: &mut Rng) -> f64 {
    (low.ln() + (high / low).ln() * rng.random::<f64>()).exp()
}

/// To three decimals: so that a scenario reads well, and is the same when it is read again.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
