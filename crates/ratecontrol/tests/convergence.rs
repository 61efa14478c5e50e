//! How soon and how well rates come to what a fleet can carry, on a small model of one. What is best is worked out by hand in each case.

mod chance;
mod fluid;

use std::collections::{BTreeSet, VecDeque};

use fluid::{Fluid, Told};
use plimsoll_core::Nanos;
use plimsoll_core::rng::seeded;
use plimsoll_ratecontrol::aimd::Aimd;
use plimsoll_ratecontrol::mimd::Mimd;
use plimsoll_ratecontrol::{
    Api, ApiSignal, Controller, Observation, RateControl, ServiceId, ServiceSignal, Settings, Topology,
    learned, model,
};
use rand::RngExt;

const SLO: Nanos = Nanos::from_secs(1);
const FAST: f64 = 0.25;
const TOLD: [(Told, f64, f64); 4] =
    [(Told::All, FAST, 2.0), (Told::Queue, FAST, 2.0), (Told::Front, FAST, 2.0), (Told::Served, 1.0, 6.0)];

fn by_model() -> RateControl {
    RateControl::new(Settings::default())
}

/// The paper's first example (Fig. 1): both APIs pass A, the first B as well. Best are 3,000 and 7,000.
fn figure_1() -> Fluid {
    let apis = vec![Api::along([0, 1], SLO, 1), Api::along([0], SLO, 1)];
    Fluid::new(apis, &[10_000.0, 3_000.0], &[10_000.0, 10_000.0])
}

#[test]
fn nobody_is_starved_by_requests_that_are_refused_later() {
    for (told, step, most_s) in TOLD {
        let (mut fleet, mut control) = (figure_1(), by_model());
        let reached = fleet.reaches(&mut control, 9_000.0, step, told, 10.0);
        assert!(reached.is_some_and(|s| s <= most_s), "{reached:?} {told:?} every {step} s");
        let last = fleet.steps(&mut control, 20, step, told);
        assert!(last[0] >= 0.93 * 3_000.0 && last[1] >= 0.93 * 7_000.0, "{last:?} {told:?} every {step} s");
    }
}

#[test]
fn a_surge_a_loss_and_new_capacity_are_followed_within_seconds() {
    for (told, step, most_s) in TOLD {
        let mut control = by_model();
        let apis = vec![Api::along([0, 1], SLO, 1), Api::along([0, 2], SLO, 1)];
        let mut fleet = Fluid::new(apis, &[9_000.0, 3_000.0, 3_000.0], &[1_000.0, 1_500.0]);
        fleet.steps(&mut control, (5.0 / step) as usize, step, told);
        assert_eq!(fleet.rates, [None, None], "nothing is overloaded");
        let mut after = |change: &dyn Fn(&mut Fluid), best: f64, what: &str| {
            change(&mut fleet);
            let reached = fleet.reaches(&mut control, 0.9 * best, step, told, 15.0);
            assert!(reached.is_some_and(|s| s <= most_s), "{what}: {reached:?} {told:?} every {step} s");
            fleet.over_s = 0.0;
            let last: f64 = fleet.steps(&mut control, (8.0 / step) as usize, step, told).iter().sum();
            assert!(last >= 0.93 * best, "{what}: {last} of {best} {told:?} every {step} s");
            assert!(fleet.over_s <= 1.0 + 1e-9, "{what}: {} s over, {told:?} every {step} s", fleet.over_s);
        };
        after(&|fleet| fleet.offered = vec![10_000.0, 6_000.0], 6_000.0, "a surge");
        after(&|fleet| fleet.capacity[1] = 2_000.0, 5_000.0, "a third is lost");
        after(&|fleet| fleet.capacity[1] = 6_000.0, 9_000.0, "three times the capacity");
        after(&|fleet| fleet.offered = vec![1_000.0, 1_500.0], 2_500.0, "the end");
        assert_eq!(fleet.rates, [None, None], "limits that are no longer needed");
    }
}

/// Goodput, four times a second, of one API that passes a service of 200 calls a second and one of 400, from when more is sent: after a minute
/// and some `quarters` of a second. Told as by a Prometheus: how busy services are every `every` seconds, in the mean over that time, and
/// `late` seconds later; what comes and goes at the entry four times a second.
fn scraped(surge: f64, every: usize, late: usize, quarters: usize) -> Vec<f64> {
    let apis = vec![Api::along([0, 1], SLO, 1)];
    let (mut fleet, mut control) = (Fluid::new(apis, &[200.0, 400.0], &[52.0]), by_model());
    let (mut busy, mut scrapes, mut good) = ([0.0; 2], VecDeque::new(), Vec::new());
    let calm = 240 + quarters;
    for step in 1..=calm + 4 * 300 {
        if step > calm {
            fleet.offered = vec![surge];
        }
        let (services, apis) = fleet.run(FAST, Told::Busy);
        good.push(apis[0].goodput_per_s.unwrap());
        for (sum, service) in busy.iter_mut().zip(&services) {
            *sum += service.utilization.unwrap() / (4 * every) as f64;
        }
        if step % (4 * every) == 0 {
            scrapes.push_back((step + 4 * late, std::mem::take(&mut busy)));
        }
        let mut told = [ServiceSignal::default(); 2];
        if let Some((_, busy)) = scrapes.pop_front_if(|(at, _)| *at == step) {
            told = busy.map(|busy| ServiceSignal { utilization: Some(busy), ..ServiceSignal::default() });
        }
        let seen = Observation { services: &told, apis: &apis };
        fleet.rates = control.step(fleet.now, &fleet.topology, &seen).rates.to_vec();
    }
    good.split_off(calm)
}

/// Most look every 15 or 30 s. Where that was taken for silence all was let in for a part of each time.
#[test]
fn a_prometheus_that_looks_twice_a_minute_is_not_silent_in_between() {
    for (every, surge, part) in [(15, 300.0, 0), (15, 900.0, 2), (30, 300.0, 1), (30, 900.0, 3)] {
        let good = scraped(surge, every, 1, 1 + part * every);
        let least = |from_s: usize| good[4 * from_s..].iter().copied().fold(f64::INFINITY, f64::min);
        let looked_twice = 2 * every + 2;
        assert!(least(looked_twice) >= 0.8 * 200.0, "{surge} every {every} s: {}", least(looked_twice));
        assert!(least(180) >= 0.95 * 200.0, "{surge} every {every} s: {} at last", least(180));
    }
}

/// A queue that nobody tells is in the way until it is worked off, and latencies tell of it for as long after that; neither means that less can
/// be done.
#[test]
fn a_queue_that_nobody_tells_is_worked_off_and_no_more() {
    // What is told of the second in which it begins is of both what was and what comes.
    for quarters in 0..4 {
        for surge in [300.0, 520.0, 900.0] {
            let good = scraped(surge, 1, 1, quarters);
            let least = |from_s: usize| good[4 * from_s..].iter().copied().fold(f64::INFINITY, f64::min);
            assert!(least(4) >= 0.7 * 200.0, "{surge}, {quarters}: {} from the fourth second on", least(4));
            assert!(least(20) >= 0.95 * 200.0, "{surge}, {quarters}: {} at last", least(20));
        }
    }
}

#[test]
fn the_most_important_lose_nothing_that_their_path_could_carry() {
    let mut control = by_model();
    let apis = vec![
        Api::along([0, 1], SLO, 1),
        Api::along([0, 2], SLO, 2),
        Api { min_per_s: 200.0, ..Api::along([0], SLO, 3) },
    ];
    let mut fleet = Fluid::new(apis, &[5_000.0, 3_000.0, 9_000.0], &[4_000.0, 4_000.0, 4_000.0]);
    let last = fleet.steps(&mut control, 40, FAST, Told::All);
    assert!(last[0] >= 0.98 * 3_000.0, "{last:?}");
    assert!(last[1] >= 0.95 * 1_800.0, "{last:?}");
    assert!(last[2] >= 0.98 * 200.0, "{last:?}");
}

/// Whatever the fleet: the one that is the most important gets what its path could carry if nobody else were there, but for what it takes to keep
/// queues short: of 2,000 fleets 30 are below 0.98, and the last is 0.947.
#[test]
fn the_most_important_of_any_fleet_loses_nothing_that_its_path_could_carry() {
    for seed in 0..400 {
        let rng = &mut seeded(seed, 3);
        let services = rng.random_range(1..12u32);
        let apis = (0..rng.random_range(2..9)).map(|nth| {
            let path: BTreeSet<u32> =
                (0..rng.random_range(1..6)).map(|_| rng.random_range(0..services)).collect();
            Api::along(path, SLO, if nth == 0 { 1 } else { rng.random_range(2..4) })
        });
        let apis: Vec<Api> = apis.collect();
        let capacity: Vec<f64> = (0..services).map(|_| rng.random_range(500.0..5_000.0)).collect();
        let offered: Vec<f64> = apis.iter().map(|_| rng.random_range(200.0..6_000.0)).collect();
        let path = apis[0].branches[0].services.iter();
        let alone = path.map(|service| capacity[service.index()]).fold(offered[0], f64::min);
        let (mut fleet, mut control) = (Fluid::new(apis, &capacity, &offered), by_model());
        fleet.steps(&mut control, 60, FAST, Told::All);
        let before = fleet.good[0];
        fleet.steps(&mut control, 40, FAST, Told::All);
        let got = (fleet.good[0] - before) / (40.0 * FAST);
        assert!(got >= 0.94 * alone, "fleet {seed}: {got} of {alone}");
    }
}

#[test]
fn who_costs_less_is_preferred_once_that_is_known() {
    let mut control = by_model();
    let apis = vec![Api::along([0], SLO, 1), Api::along([0], SLO, 1)];
    let mut fleet = Fluid::new(apis, &[3_000.0], &[1_000.0, 1_000.0]);
    fleet.work[1][0] = 3.0;
    // What is sent of each varies for a while, as it does everywhere.
    for second in 0..10 {
        fleet.offered[0] = 500.0 + 100.0 * f64::from(second % 3);
        fleet.offered[1] = 400.0 + 100.0 * f64::from(second % 2);
        fleet.steps(&mut control, 4, FAST, Told::All);
    }
    fleet.offered = vec![1_500.0, 1_500.0];
    let last = fleet.steps(&mut control, 20, FAST, Told::All);
    // Best: 1,500 of the first and (3,000 - 1,500) / 3 of the second.
    assert!(last[0] >= 0.95 * 1_500.0 && last[0] + last[1] >= 0.95 * 2_000.0, "{last:?}");
}

#[test]
fn without_a_word_rates_freeze_then_relax_then_go() {
    let (mut fleet, mut control) = (figure_1(), by_model());
    fleet.steps(&mut control, 40, FAST, Told::All);
    let frozen = fleet.rates.clone();
    assert!(frozen.iter().all(Option::is_some));
    let (mut now, nothing) = (fleet.now, Observation::default());
    let mut silence = |control: &mut RateControl, seconds: u64| {
        for _ in 0..4 * seconds {
            now += Nanos::from_millis(250);
            control.step(now, &fleet.topology, &nothing);
        }
        control.step(now, &fleet.topology, &nothing).rates.to_vec()
    };
    assert_eq!(silence(&mut control, 10), frozen);
    let relaxed = silence(&mut control, 10);
    for (relaxed, frozen) in relaxed.iter().zip(&frozen) {
        let ratio = relaxed.unwrap() / frozen.unwrap();
        assert!((ratio - 2.0).abs() < 0.05, "doubled in ten seconds: {ratio}");
    }
    assert_eq!(silence(&mut control, 41), [None, None]);
}

#[test]
fn after_silence_control_goes_on() {
    let (mut fleet, mut control) = (figure_1(), by_model());
    fleet.steps(&mut control, 40, FAST, Told::All);
    for _ in 0..400 {
        fleet.now += Nanos::from_millis(250);
        fleet.rates = control.step(fleet.now, &fleet.topology, &Observation::default()).rates.to_vec();
    }
    let reached = fleet.reaches(&mut control, 9_000.0, FAST, Told::All, 10.0);
    assert!(reached.is_some_and(|s| s <= 2.0), "{reached:?}");
}

/// What comes of the APIs goes on being told, as the sentries do.
#[test]
fn who_is_limited_for_services_that_fell_silent_is_let_go_whatever_else_is_told() {
    for controller in [
        Controller::Model(model::Settings::default()),
        Controller::Learned(learned::Settings::default()),
        Controller::Mimd(Mimd::default()),
        Controller::Aimd(Aimd::default()),
    ] {
        let settings = Settings { controller: controller.clone(), ..Settings::default() };
        let (mut fleet, mut control) = (figure_1(), RateControl::new(settings));
        fleet.steps(&mut control, 160, FAST, Told::All);
        let frozen = fleet.rates.clone();
        assert!(frozen.iter().all(Option::is_some), "{controller:?}: {frozen:?}");
        let mut silence = |seconds: u64| {
            for _ in 0..4 * seconds {
                let (_, mut apis) = fleet.run(FAST, Told::All);
                // All too late, so that nobody would be recovered.
                apis.iter_mut().for_each(|api| api.tail_latency = Some(SLO + SLO));
                fleet.rates = control
                    .step(fleet.now, &fleet.topology, &Observation { services: &[], apis: &apis })
                    .rates
                    .to_vec();
            }
            fleet.rates.clone()
        };
        let frozen_still = silence(10);
        let relaxed = silence(10);
        for ((frozen, still), relaxed) in frozen.iter().zip(&frozen_still).zip(&relaxed) {
            let (frozen, still, relaxed) = (frozen.unwrap(), still.unwrap(), relaxed.unwrap());
            assert!(
                (still / frozen - 1.0).abs() < 0.15,
                "{controller:?}: {still} of {frozen} after ten seconds"
            );
            assert!((relaxed / still - 2.0).abs() < 0.05, "{controller:?}: {relaxed} of {still} in ten more");
        }
        assert_eq!(silence(41), [None, None], "{controller:?}");
    }
}

/// An old word is acted on once, however often something else is heard.
#[test]
fn steps_are_as_long_as_the_time_that_has_passed_and_only_for_news() {
    let lowered = |step: f64, told_every: usize| {
        let mut control = RateControl::new(Settings {
            controller: Controller::Mimd(Mimd::default()),
            ..Settings::default()
        });
        let topology = Topology::new(1, vec![Api::along([0], SLO, 1)]);
        let services = [ServiceSignal { utilization: Some(1.0), ..ServiceSignal::default() }];
        let apis = [ApiSignal {
            offered_per_s: Some(2_000.0),
            admitted_per_s: Some(1_000.0),
            goodput_per_s: Some(0.0),
            tail_latency: Some(SLO + SLO),
        }];
        let steps = (10.0 / step) as usize;
        for nth in 0..=steps {
            let services = if nth.is_multiple_of(told_every) { &services[..] } else { &[] };
            let now = Nanos::from_secs_f64(1.0 + nth as f64 * step);
            control.step(now, &topology, &Observation { services, apis: &apis });
        }
        control.rate(0).unwrap()
    };
    // Eleven actions: one at the beginning, and one a second.
    let expected = 1_000.0 * 0.95f64.powi(11);
    for (step, told_every) in [(1.0, 1), (0.25, 4), (0.25, 1), (0.05, 20), (0.05, 1)] {
        let rate = lowered(step, told_every);
        assert!(
            (rate / expected - 1.0).abs() < 0.02,
            "{rate} instead of {expected}: {step} s, told every {told_every}"
        );
    }
    assert!(
        (lowered(1.0, 5) / (1_000.0 * 0.95f64.powi(3)) - 1.0).abs() < 0.02,
        "what is told later is one action"
    );
}

/// What a service that nobody says is overloaded is thought to bear is a guess: it takes nothing away from anybody.
#[test]
fn who_calls_an_overloaded_service_loses_nothing_for_the_sake_of_another() {
    let mut control = by_model();
    let topology = Topology::new(2, vec![Api::along([0, 1], SLO, 1), Api::along([1], SLO, 1)]);
    let service = |utilization, wait_ms, served| ServiceSignal {
        utilization: Some(utilization),
        queue_delay: Some(Nanos::from_millis(wait_ms)),
        served_per_s: Some(served),
    };
    let api = |offered: f64| ApiSignal {
        offered_per_s: Some(offered),
        admitted_per_s: Some(offered),
        goodput_per_s: Some(offered),
        tail_latency: Some(Nanos::from_millis(200)),
    };
    // The second has long been nearly full, and waits are long but not too long: less than all would be let in if that were held against
    // anybody.
    for step in 1..=80 {
        let services = [service(0.5, 0, 500.0), service(1.0, 99, 1_000.0)];
        let apis = [api(500.0), api(500.0)];
        let step = control.step(
            Nanos::from_millis(250 * step),
            &topology,
            &Observation { services: &services, apis: &apis },
        );
        assert_eq!(step.rates, [None, None]);
    }
    // The first says that it is overloaded, by a little.
    let services = [service(1.0, 101, 500.0), service(1.0, 99, 1_000.0)];
    let apis = [api(500.0), api(500.0)];
    for step in 81..=82 {
        let step = control.step(
            Nanos::from_millis(250 * step),
            &topology,
            &Observation { services: &services, apis: &apis },
        );
        assert_eq!(step.rates[1], None, "nobody on its path is overloaded");
        for decision in step.decisions {
            assert_eq!(decision.target, Some(ServiceId(0)), "{decision}");
        }
    }
}
