//! Whatever the workload and the policy: nobody is lost, nobody overtakes, and no limit is passed.

mod common;

use common::{Blind, checked, setup, slo};
use plimsoll_core::Nanos;
use plimsoll_core::config::PolicingPolicy;
use plimsoll_core::config::workload::{Arrivals, Engine, Policing, Service, Step, Workload, WorkloadClass};
use plimsoll_simulator::engine::Stall;
use plimsoll_simulator::run::Setup;
use plimsoll_simulator::scenario::Scenario;
use proptest::prelude::*;

const POLICIES: [&str; 13] = [
    "bouncer",
    "bouncer,allowance=0.1",
    "bouncer,allowance=0.9",
    "bouncer,underserved=1.0",
    "maxql,limit=40",
    "maxqwt,limit=15ms",
    "maxqwt,limit.c0=5ms,limit.default=20ms",
    "accept-fraction,max-util=0.95",
    "codel",
    "aimd",
    "vegas",
    "gradient2",
    "none",
];

#[test]
fn every_policy_keeps_the_invariants_on_the_papers_workload() {
    let scenario = common::paper();
    for policy in POLICIES.into_iter().filter(|policy| !policy.contains("c0")) {
        for load in [0.9, 1.5, 10.0] {
            checked(&scenario, &setup(policy, load, 1, 30_000), Blind);
        }
    }
}

fn service() -> impl Strategy<Value = Service> {
    let mean = (1u64..50_000_000).prop_map(Nanos);
    prop_oneof![
        (mean.clone(), 0.0..2.0).prop_map(|(mean, sigma)| Service::Lognormal { mean, sigma }),
        mean.clone().prop_map(|mean| Service::Exponential { mean }),
        // Whole milliseconds, so that departures and arrivals fall together.
        (1u64..50).prop_map(|ms| Service::Constant { mean: Nanos::from_millis(ms) }),
        (mean.clone(), 1.1..4.0).prop_map(|(min, alpha)| Service::Pareto { min, alpha }),
        prop::collection::vec(mean, 1..5).prop_map(|values| Service::Empirical { values }),
    ]
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    let ms = Nanos::from_millis;
    let step = (1u64..2_000, 0.0..3.0);
    prop_oneof![
        Just(Arrivals::Poisson),
        (1u64..500, 1u64..500, 0.0..1.0).prop_map(move |(on, off, lull)| {
            let burst = ((on + off) as f64 - lull * off as f64) / on as f64;
            Arrivals::OnOff { on: ms(on), off: ms(off), burst, lull }
        }),
        prop::collection::vec(step, 1..5).prop_map(move |steps| {
            let mut start = Nanos::ZERO;
            let step = |(length, factor)| {
                let step = Step { start, factor };
                start += ms(length);
                step
            };
            Arrivals::Schedule(steps.into_iter().map(step).collect())
        }),
    ]
}

/// The share's weight, the service times, the median objective and what the other may be longer, in ms; how important it is, and what
/// it was promised a second.
type Class = (u32, Service, Option<(u64, u64)>, u32, Option<f64>);

fn policing() -> impl Strategy<Value = Policing> {
    use PolicingPolicy::{Auto, Batch, Off, Threshold};
    let delays = prop::option::of(prop::collection::vec(0u64..200, 1..4));
    (prop::sample::select(vec![Off, Off, Auto, Batch, Threshold]), delays).prop_map(|(policy, delays)| {
        let rising = |mut delays: Vec<u64>| {
            delays.sort_unstable();
            delays.into_iter().map(Nanos::from_millis).collect()
        };
        Policing { policy, ladder: None, delays: delays.map(rising) }
    })
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let objective = prop::option::of((1u64..50, 0u64..100));
    let promised = prop::option::of(0.1..200.0f64);
    let class = (1u32..10, service(), objective, 1u32..4, promised);
    let engine = (1u32..40, 1u32..300).prop_map(|(processes, max_queue)| Engine { processes, max_queue });
    let classes = prop::collection::vec(class, 1..6);
    (engine, arrivals(), policing(), classes).prop_map(|(engine, arrivals, policing, classes)| {
        let total: u32 = classes.iter().map(|(weight, ..)| weight).sum();
        let class = |(i, (weight, service, objective, priority, promised)): (usize, Class)| {
            let ms = Nanos::from_millis;
            let slo = objective.map(|(p50, more)| slo(ms(p50), ms(p50 + more))).unwrap_or_default();
            let share = f64::from(weight) / f64::from(total);
            let min_rate = promised.map(|per_s| format!("{per_s}/s").parse().unwrap());
            WorkloadClass { slo, priority, min_rate, ..WorkloadClass::new(&format!("c{i}"), share, service) }
        };
        let classes: Vec<_> = classes.into_iter().enumerate().map(class).collect();
        let default_slo = classes[0].slo.clone();
        let workload = Workload { engine, arrivals, policing, classes, default_slo };
        Scenario::new(workload, std::path::Path::new("")).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn and_on_any_other(
        scenario in scenario(),
        policy in prop::sample::select(&POLICIES[..]),
        load in 0.2..3.0f64,
        seed in any::<u64>(),
        stalls in prop::collection::vec((0u64..200, 1u64..300), 0..3),
    ) {
        let ms = Nanos::from_millis;
        let mut end = Nanos::ZERO;
        let stalls = stalls.into_iter().map(|(after, lasts)| {
            let stall = Stall { at: end + ms(after), lasts: ms(lasts) };
            end = stall.at + stall.lasts;
            stall
        });
        let stalls = stalls.collect();
        checked(&scenario, &Setup { stalls, ..setup(policy, load, seed, 3_000) }, Blind);
    }
}
