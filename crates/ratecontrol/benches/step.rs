//! What a step costs in a fleet of the size that the paper claims for one core: 15,000 services and 1,000 clusters (section 6.4). CPU time
//! of the one thread; time comes in as an argument.
//!
//! ```text
//! cargo bench -p plimsoll-ratecontrol --bench step             # a line a case: median and quartiles in us
//! cargo bench -p plimsoll-ratecontrol --bench step -- --json
//! ```

use std::hint::black_box;

use plimsoll_core::Nanos;
use plimsoll_core::rng::seeded;
use plimsoll_ratecontrol::mimd::Mimd;
use plimsoll_ratecontrol::{
    Api, ApiId, ApiSignal, Branch, Controller, Observation, RateControl, ServiceId, ServiceSignal, Settings,
    Topology, learned, model,
};
use rand::RngExt;
use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread, in ns.
#[allow(clippy::disallowed_methods)] // a benchmark measures time
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A fleet in parts that have nothing in common but a front end which all call and which is not overloaded. In each part of `services`,
/// `apis` call some of them, one in three on two branches, and all call the first, which is overloaded.
fn fleet(clusters: u32, services: u32, apis: u32) -> Topology {
    let rng = &mut seeded(15_000, 1_000);
    let mut all = Vec::new();
    for cluster in 0..clusters {
        let first = 1 + cluster * services;
        for api in 0..apis {
            let mut branch = |share: f64| {
                let others = (0..6).map(|_| first + 1 + rng.random_range(0..services - 1));
                let services = [0, first].into_iter().chain(others).map(ServiceId).collect();
                Branch { share, services }
            };
            let branches = if api % 3 == 0 { vec![branch(0.7), branch(0.3)] } else { vec![branch(1.0)] };
            let slo = Nanos::from_secs(1);
            all.push(Api { branches, slo, priority: 1 + api % 3, min_per_s: 0.0 });
        }
    }
    Topology::new((1 + clusters * services) as usize, all)
}

/// Requests a second that are sent of each API.
const OFFERED_PER_S: f64 = 1_000.0;

/// Requests a second of an API that were let in.
fn entered(apis: &[ApiSignal], api: ApiId) -> f64 {
    apis[api.index()].admitted_per_s.unwrap_or(0.0)
}

fn main() {
    let timed = std::env::args().any(|arg| arg == "--bench");
    let json = std::env::args().any(|arg| arg == "--json");
    let times = if timed { 200 } else { 2 };
    let controllers = [
        ("model", Controller::Model(model::Settings::default())),
        ("learned", Controller::Learned(learned::Settings::default())),
        ("mimd", Controller::Mimd(Mimd::default())),
    ];
    for (clusters, services, apis) in [(1, 60, 30), (100, 15, 4), (1_000, 15, 4), (1_000, 15, 12)] {
        let topology = fleet(clusters, services, apis);
        for (name, controller) in &controllers {
            let mut control =
                RateControl::new(Settings { controller: controller.clone(), ..Settings::default() });
            let rng = &mut seeded(1, 2);
            let mut services_seen = vec![ServiceSignal::default(); topology.services()];
            let mut apis_seen = vec![ApiSignal::default(); topology.apis().len()];
            let (mut us, mut seen_clusters) = (Vec::new(), Vec::new());
            for step in 0..times + 8 {
                for (at, signal) in apis_seen.iter_mut().enumerate() {
                    let offered = OFFERED_PER_S * rng.random_range(0.9..1.1);
                    let admitted = control.rate(at).unwrap_or(offered).min(offered);
                    *signal = ApiSignal {
                        offered_per_s: Some(offered),
                        admitted_per_s: Some(admitted),
                        goodput_per_s: Some(admitted * 0.9),
                        tail_latency: Some(Nanos::from_millis(rng.random_range(100..1_500))),
                    };
                }
                for (at, signal) in services_seen.iter_mut().enumerate() {
                    let users = topology.users(ServiceId(at as u32)).iter();
                    let calls: f64 =
                        users.clone().map(|&(api, calls)| calls * entered(&apis_seen, api)).sum();
                    let all: f64 = users.map(|&(_, calls)| calls * OFFERED_PER_S).sum();
                    // The first of each part can do two thirds of what is sent, the others twice that; now and then one is slow.
                    let can = all * if at > 0 && at % services as usize == 1 { 0.65 } else { 2.0 };
                    let slow = at > 0 && rng.random_range(0..100) == 0;
                    let full = slow || calls > 0.97 * can;
                    *signal = ServiceSignal {
                        utilization: Some(if full { 1.0 } else { calls / can.max(1.0) }),
                        queue_delay: Some(Nanos::from_millis(if full {
                            rng.random_range(60..160)
                        } else {
                            0
                        })),
                        served_per_s: Some(calls.min(can)),
                    };
                }
                let seen = Observation { services: &services_seen, apis: &apis_seen };
                let before = cpu_ns();
                let done =
                    black_box(control.step(Nanos::from_millis(250 * (step as u64 + 1)), &topology, &seen));
                let found = done.clusters.len();
                let took = (cpu_ns() - before) as f64 / 1e3;
                if step >= 8 {
                    us.push(took);
                    seen_clusters.push(found);
                }
            }
            seen_clusters.sort_unstable();
            let usual = seen_clusters[seen_clusters.len() / 2];
            let wanted = clusters as usize * 9 / 10..=clusters as usize;
            assert!(wanted.contains(&usual), "{usual} clusters: not what was to be measured");
            us.sort_unstable_by(f64::total_cmp);
            let [p50, p25, p75, max] =
                [us.len() / 2, us.len() / 4, us.len() * 3 / 4, us.len() - 1].map(|at| us[at]);
            let (all, apis) = (topology.services(), topology.apis().len());
            if json {
                println!(
                    "{{\"controller\":\"{name}\",\"services\":{all},\"apis\":{apis},\"clusters\":{usual},\"p50_us\":{p50},\"p25_us\":{p25},\"p75_us\":{p75},\"max_us\":{max}}}"
                );
            } else {
                println!(
                    "{name:>7}, {all:>6} services, {apis:>6} APIs, {usual:>5} clusters: {p50:10.1} us [{p25:.1}, {p75:.1}], {max:.1} at most"
                );
            }
        }
    }
}
