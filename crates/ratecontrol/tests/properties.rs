//! What holds whatever is seen, checked by what knows nothing of how it is decided.

use plimsoll_core::Nanos;
use plimsoll_core::Rng;
use plimsoll_core::rng::{chance, seeded};
use plimsoll_ratecontrol::aimd::Aimd;
use plimsoll_ratecontrol::mimd::Mimd;
use plimsoll_ratecontrol::{
    Api, ApiId, ApiSignal, Branch, Controller, Decision, Observation, RateControl, ServiceId, ServiceSignal,
    Settings, Topology, Why, learned, model,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use rand::RngExt;

const SLO: Nanos = Nanos::from_secs(1);

fn controllers() -> [Controller; 4] {
    [
        Controller::Model(model::Settings::default()),
        Controller::Learned(learned::Settings::default()),
        Controller::Mimd(Mimd::default()),
        Controller::Aimd(Aimd::default()),
    ]
}

fn topology(rng: &mut Rng) -> Topology {
    let services = rng.random_range(1..12u32);
    let apis = (0..rng.random_range(1..8)).map(|_| {
        let branches = (0..rng.random_range(0..4)).map(|_| Branch {
            share: if chance(rng, 0.1) { f64::NAN } else { rng.random_range(-0.1..1.0) },
            services: (0..rng.random_range(0..5)).map(|_| ServiceId(rng.random_range(0..services))).collect(),
        });
        let branches = branches.collect();
        let min_per_s = match rng.random_range(0..10) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2..5 => rng.random_range(0.0..50.0),
            _ => 0.0,
        };
        Api { branches, slo: SLO, priority: rng.random_range(1..4), min_per_s }
    });
    Topology::new(services as usize, apis.collect())
}

/// A number, or what is none.
fn number(rng: &mut Rng, most: f64) -> Option<f64> {
    match rng.random_range(0..12) {
        0 => None,
        1 => Some(f64::NAN),
        2 => Some(f64::INFINITY),
        3 => Some(-1.0),
        4 => Some(0.0),
        5 => Some(1e300),
        _ => Some(rng.random_range(0.0..most)),
    }
}

fn seen(rng: &mut Rng, topology: &Topology) -> (Vec<ServiceSignal>, Vec<ApiSignal>) {
    let delay = |rng: &mut Rng| match rng.random_range(0..8) {
        0 => None,
        1 => Some(Nanos::MAX),
        2..5 => Some(Nanos::ZERO),
        _ => Some(Nanos::from_millis(rng.random_range(0..3_000))),
    };
    let services = rng.random_range(0..=topology.services() + 1);
    let services = (0..services).map(|_| ServiceSignal {
        utilization: number(rng, 1.2),
        queue_delay: delay(rng),
        served_per_s: number(rng, 1_000.0),
    });
    let services = services.collect();
    let apis = (0..rng.random_range(0..=topology.apis().len() + 1)).map(|_| ApiSignal {
        offered_per_s: number(rng, 1_000.0),
        admitted_per_s: number(rng, 1_000.0),
        goodput_per_s: number(rng, 1_000.0),
        tail_latency: delay(rng),
    });
    (services, apis.collect())
}

/// Which services there was a reason to limit anybody for, by what they were told and by who was limited: nothing of it is asked of those
/// who decide.
#[derive(Default)]
struct Reasons {
    /// Since a service said that it was overloaded: whether it is still, and whether anybody has been limited for its sake ever since.
    overloaded: Vec<bool>,
    held: Vec<bool>,
    heard: Vec<Option<Nanos>>,
    /// When it was heard how busy it is, or how long its queue.
    load_heard: Vec<Option<Nanos>>,
    /// For the sake of which service each API is limited.
    limited_for: Vec<Option<ServiceId>>,
}

impl Reasons {
    /// These signals came, before anything was decided.
    fn take(&mut self, now: Nanos, fleet: &Topology, services: &[ServiceSignal]) {
        let (at, freeze) = (Settings::default().overload, Settings::default().freeze);
        let patience = Nanos::from_secs_f64(SLO.as_secs_f64() * at.wait);
        let least = Nanos::from_secs_f64(patience.as_secs_f64() * at.short);
        self.overloaded.resize(fleet.services(), false);
        self.held.resize(fleet.services(), false);
        self.heard.resize(fleet.services(), None);
        self.load_heard.resize(fleet.services(), None);
        for service in 0..fleet.services() {
            let signal = services.get(service).copied().unwrap_or_default();
            let utilization = signal.utilization.filter(|utilization| (0.0..=2.0).contains(utilization));
            let is_served = signal.served_per_s.is_some_and(|served| (0.0..=1e12).contains(&served));
            let is_load = utilization.is_some() || signal.queue_delay.is_some();
            if is_load || is_served {
                self.heard[service] = Some(now);
            }
            if is_load {
                self.load_heard[service] = Some(now);
                let busy = |limit: f64| utilization.is_some_and(|utilization| utilization >= limit);
                let waits = |limit: Nanos| signal.queue_delay.is_some_and(|wait| wait > limit);
                let enters = waits(patience) || signal.queue_delay.is_none() && busy(at.utilization);
                let stays = self.overloaded[service] && (busy(at.relieved) || waits(least));
                self.overloaded[service] = enters || stays;
            }
            let recent = |heard: Option<Nanos>| heard.is_some_and(|heard| now.since(heard) <= freeze);
            let is_known = recent(self.heard[service]);
            let id = ServiceId(service as u32);
            let limits = |&(api, _): &(ApiId, f64)| self.limited_for.get(api.index()) == Some(&Some(id));
            self.overloaded[service] &= recent(self.load_heard[service]);
            self.held[service] &= is_known && fleet.users(id).iter().any(limits);
            self.held[service] |= self.overloaded[service];
        }
    }

    fn note(&mut self, fleet: &Topology, decisions: &[Decision]) {
        self.limited_for.resize(fleet.apis().len(), None);
        for decision in decisions {
            let place = &mut self.limited_for[decision.api.index()];
            *place = decision.rate_per_s.and(decision.target.or(*place));
        }
    }

    /// Whether a service on the path of an API has said that it is overloaded, or somebody more important is limited who calls the same
    /// service.
    fn on_path(&self, now: Nanos, fleet: &Topology, api: ApiId) -> bool {
        let priority = fleet.api(api).priority;
        let limited = |other: ApiId| self.limited_for.get(other.index()).is_some_and(Option::is_some);
        let outranks = |&(other, _): &(ApiId, f64)| limited(other) && fleet.api(other).priority < priority;
        let known = |service: ServiceId| {
            self.heard[service.index()].is_some_and(|heard| now.since(heard) <= Settings::default().freeze)
        };
        fleet.uses(api).iter().any(|&(service, _)| {
            self.held[service.index()] || known(service) && fleet.users(service).iter().any(outranks)
        })
    }
}

/// Any signals at all, and fleets that change: rates are numbers, none is below what is promised, none is lowered or new without a signal of
/// overload on the API's path, and what is decided is all that changes.
fn holds_whatever_is_seen(seed: u64, which: usize, clustering: bool) -> Result<(), TestCaseError> {
    let rng = &mut seeded(seed, 0);
    let controller = controllers()[which].clone();
    let mut control = RateControl::new(Settings { controller, clustering, ..Settings::default() });
    let (mut fleet, mut reasons) = (topology(rng), Reasons::default());
    let mut before: Vec<Option<f64>> = Vec::new();
    let mut now = Nanos::ZERO;
    for _ in 0..60 {
        if chance(rng, 0.05) {
            fleet = topology(rng);
        }
        now += Nanos::from_millis(rng.random_range(0..2_000));
        let (services, apis) = seen(rng, &fleet);
        reasons.take(now, &fleet, &services);
        let step = control.step(now, &fleet, &Observation { services: &services, apis: &apis });
        prop_assert_eq!(step.rates.len(), fleet.apis().len());
        before.resize(fleet.apis().len(), None);
        for (at, rate) in step.rates.iter().enumerate() {
            let (id, api) = (ApiId(at as u32), &fleet.apis()[at]);
            let Some(rate) = *rate else { continue };
            prop_assert!(rate.is_finite() && rate >= 0.0, "{:?}: {}", id, rate);
            if api.min_per_s.is_finite() {
                prop_assert!(rate >= api.min_per_s, "{:?}: {} of {} promised", id, rate, api.min_per_s);
            }
            if before[at].is_none_or(|before| rate < before) {
                prop_assert!(step.overload.on_path(&fleet, id), "{:?} has no reason", id);
                prop_assert!(reasons.on_path(now, &fleet, id), "{:?}: nobody on its path is overloaded", id);
            }
        }
        reasons.note(&fleet, step.decisions);
        let mut replayed = before.clone();
        for decision in step.decisions {
            let place = &mut replayed[decision.api.index()];
            let near = match (*place, decision.before_per_s) {
                (None, None) => true,
                (Some(a), Some(b)) => (a - b).abs() <= 1e-5 * b,
                _ => false,
            };
            prop_assert!(near, "{} from {:?}", decision, place);
            *place = decision.rate_per_s;
            if let Some(cluster) = decision.cluster {
                prop_assert_eq!(step.clusters.of(decision.api), Some(cluster));
            }
        }
        for (at, (replayed, rate)) in replayed.iter().zip(step.rates).enumerate() {
            let near = match (replayed, rate) {
                (None, None) => true,
                (Some(a), Some(b)) => (a - b).abs() <= 1e-5 * b,
                _ => false,
            };
            prop_assert!(near, "{}: {:?} by decisions, {:?} in force", at, replayed, rate);
        }
        before = step.rates.to_vec();
    }
    Ok(())
}

/// Seeds of which one was once limited for the sake of a service that had been overloaded long before, in another fleet.
#[test]
fn nobody_is_limited_for_what_was_long_ago() {
    for seed in [950_388, 271_609].into_iter().chain(0..300) {
        for which in 0..4 {
            for clustering in [true, false] {
                holds_whatever_is_seen(seed, which, clustering)
                    .unwrap_or_else(|error| panic!("{seed}, {which}, {clustering}: {error}"));
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_seen(seed in 0u64..1_000_000, which in 0usize..4, clustering: bool) {
        holds_whatever_is_seen(seed, which, clustering)?;
    }

    /// When the paper's controllers take something away, nobody less important who calls the same service has anything left to give, and
    /// the service is the one of its cluster that the fewest call of those whose callers have; when they give, nobody more important that was limited for the same
    /// service waits.
    #[test]
    fn importance_is_respected_step_by_step(seed in 0u64..1_000_000, which in 1usize..4) {
        let rng = &mut seeded(seed, 1);
        let mut controller = controllers()[which].clone();
        if let Controller::Learned(settings) = &mut controller {
            settings.guard = None;
        }
        let mut control = RateControl::new(Settings { controller, ..Settings::default() });
        let fleet = topology(rng);
        let mut before = vec![None; fleet.apis().len()];
        let mut now = Nanos::ZERO;
        for _ in 0..60 {
            now += Nanos::from_millis(1_000);
            let services: Vec<ServiceSignal> = (0..fleet.services()).map(|_| ServiceSignal {
                utilization: Some(rng.random::<f64>()), queue_delay: None, served_per_s: None,
            }).collect();
            let apis: Vec<ApiSignal> = (0..fleet.apis().len()).map(|_| ApiSignal {
                offered_per_s: Some(rng.random_range(100.0..1_000.0)),
                admitted_per_s: Some(rng.random_range(50.0..100.0)),
                goodput_per_s: Some(rng.random_range(0.0..50.0)),
                tail_latency: Some(Nanos::from_millis(rng.random_range(0..3_000))),
            }).collect();
            let step = control.step(now, &fleet, &Observation { services: &services, apis: &apis });
            for decision in step.decisions {
                let api = fleet.api(decision.api);
                match decision.why {
                    Why::Relieve => {
                        let target = decision.target.unwrap();
                        prop_assert!(step.overload.is(target));
                        let gives = |&(other, _): &(ApiId, f64)| {
                            let floor = 0.001 * apis[other.index()].offered_per_s.unwrap();
                            let promised = fleet.api(other).min_per_s;
                            let floor = if promised.is_finite() { floor.max(promised) } else { floor };
                            let rate: f64 = before[other.index()].unwrap_or(apis[other.index()].admitted_per_s.unwrap());
                            rate > floor * 1.001
                        };
                        let rival = |service: &ServiceId| {
                            step.overload.is(*service) && fleet.users(*service).len() < fleet.users(target).len()
                                && step.clusters.of(fleet.users(*service)[0].0) == decision.cluster
                                && fleet.users(*service).iter().any(gives)
                        };
                        let overloaded: Vec<ServiceId> = step.overload.iter().filter(|s| !fleet.users(*s).is_empty()).collect();
                        prop_assert!(!overloaded.iter().any(rival), "{:?} was not the turn", target);
                        for other in fleet.users(target).iter().filter(|other| gives(other)) {
                            prop_assert!(fleet.api(other.0).priority <= api.priority,
                                "{:?} should give before {:?}", other.0, decision.api);
                        }
                    }
                    Why::Recover => prop_assert!(!fleet.uses(decision.api).iter().any(|(s, _)| step.overload.is(*s))),
                    Why::Plan => prop_assert!(false, "only the model plans"),
                    Why::Unneeded | Why::Silence | Why::Gone => prop_assert_eq!(decision.rate_per_s, None),
                    Why::Floor => prop_assert!(decision.rate_per_s > decision.before_per_s),
                }
            }
            before = step.rates.to_vec();
        }
    }
}

/// A service whose only caller is promised all that it gets is the one that the fewest call; the other one is relieved all the same.
#[test]
fn who_has_nothing_to_give_keeps_no_other_service_waiting() {
    let promised = Api { min_per_s: 100.0, ..Api::along([0, 1], SLO, 1) };
    let fleet = Topology::new(2, vec![promised, Api::along([1], SLO, 1)]);
    let busy = ServiceSignal { utilization: Some(1.0), queue_delay: None, served_per_s: None };
    let api = |per_s| ApiSignal {
        offered_per_s: Some(per_s),
        admitted_per_s: Some(per_s),
        goodput_per_s: Some(0.0),
        tail_latency: Some(SLO + SLO),
    };
    let apis = [api(100.0), api(500.0)];
    for controller in [Controller::Mimd(Mimd::default()), Controller::Aimd(Aimd::default())] {
        let mut control = RateControl::new(Settings { controller, ..Settings::default() });
        let seen = Observation { services: &[busy, busy], apis: &apis };
        let rates = control.step(Nanos::from_secs(1), &fleet, &seen).rates.to_vec();
        assert!(rates[0].is_none() && rates[1].is_some_and(|rate| rate < 500.0), "{rates:?}");
    }
}

#[test]
fn a_gone_api_is_not_limited_and_its_place_is_free() {
    let mut control = RateControl::new(Settings::default());
    let fleet = Topology::new(1, vec![Api::along([0], SLO, 1)]);
    let services =
        [ServiceSignal { utilization: Some(1.0), queue_delay: Some(SLO), served_per_s: Some(100.0) }];
    let apis =
        [ApiSignal { offered_per_s: Some(500.0), admitted_per_s: Some(500.0), ..ApiSignal::default() }];
    let seen = Observation { services: &services, apis: &apis };
    for second in 1..=3 {
        control.step(Nanos::from_secs(second), &fleet, &seen);
    }
    assert!(control.step(Nanos::from_secs(4), &fleet, &seen).rates[0].is_some());
    let gone = Topology::new(1, vec![Api { branches: Vec::new(), ..Api::along([], SLO, 1) }]);
    let step = control.step(Nanos::from_secs(5), &gone, &seen);
    assert_eq!((step.rates[0], step.decisions[0].why), (None, Why::Gone));
}

#[test]
fn the_same_signals_give_the_same_rates() {
    let run = || {
        let rng = &mut seeded(7, 2);
        let fleet = topology(rng);
        let mut control = RateControl::new(Settings::default());
        let mut all = Vec::new();
        for second in 0..50 {
            let (services, apis) = seen(rng, &fleet);
            let seen = Observation { services: &services, apis: &apis };
            all.extend_from_slice(control.step(Nanos::from_secs(second), &fleet, &seen).rates);
        }
        all
    };
    assert_eq!(run(), run());
}
