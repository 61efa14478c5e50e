//! The same seed gives the same bytes, users do not depend on who controls, and every attempt ends in exactly one way.

use std::path::Path;
use std::sync::Arc;

use plimsoll_core::Nanos;
use plimsoll_core::config::fleet::{Offered, Retries, Scenario};
use plimsoll_simulator::fleet::plan::Plan;
use plimsoll_simulator::fleet::random::{self, Ranges};
use plimsoll_simulator::fleet::run::{Controller, Driver, run};

const S: fn(u64) -> Nanos = Nanos::from_secs;

fn small(seed: u64) -> Scenario {
    let ranges = Ranges {
        services: (2, 12),
        apis: (2, 8),
        offered_per_s: (300.0, 600.0),
        duration: S(9),
        ..Ranges::default()
    };
    random::fleet(seed, &ranges)
}

fn ready(scenario: &Scenario) -> Arc<Plan> {
    Arc::new(Plan::new(scenario, Path::new("")).unwrap())
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for controller in Controller::ALL {
        let run = |seed| serde_json::to_string(&run(&ready(&small(3)), controller, seed).unwrap()).unwrap();
        assert_eq!(run(7), run(7), "{controller}");
        assert_ne!(run(7), run(8), "{controller}");
    }
}

#[test]
fn users_do_not_depend_on_who_controls() {
    let plan = ready(&small(5));
    let sent = |controller| {
        let report = run(&plan, controller, 2).unwrap();
        report.apis.0.iter().map(|(_, api)| api.offered_per_s).collect::<Vec<_>>()
    };
    let expected = sent(Controller::None);
    assert!(Controller::ALL.into_iter().all(|controller| sent(controller) == expected));
}

/// Fleets in which everything happens that can happen to a request; then nobody comes any more, and all that is under way ends.
#[test]
fn every_attempt_ends_in_exactly_one_way() {
    let mut seen = [0u64; 6];
    for seed in 1..=12 {
        let mut scenario = small(seed);
        for (nth, api) in scenario.apis.iter_mut().enumerate() {
            let rate = api.offered.at(Nanos::ZERO);
            api.offered =
                Offered::schedule(vec![(Nanos::ZERO, rate), (S(2), 2.0 * rate), (S(8), 0.0)]).unwrap();
            let timeout = (nth % 2 == 0).then_some(Nanos::from_millis(300));
            api.retries = Retries { max: nth as u32 % 4, backoff: Nanos::from_millis(50), timeout };
        }
        let text = "[service.s]\ncapacity = \"1/s\"\ninstances = 9\nfailures = [{ at = \"3s\", instances = 9, back_after = \"1s\" }, { at = \"6s\", instances = 1 }]\n[api.a]\npath = [\"s\"]\noffered = \"1/s\"";
        scenario.services[0].failures = super::scenario(text).services[0].failures.clone();
        for controller in Controller::ALL {
            let mut driver = Driver::with(ready(&scenario), controller, seed);
            let mut now = Nanos::ZERO;
            while now < S(9) {
                now += Nanos::from_millis(250);
                driver.advance(now);
                driver.control();
                check_under_way(&driver);
            }
            // Everybody's tries are over by then, and all queues empty.
            driver.advance(S(600));
            assert_eq!(driver.fleet.under_way(), 0, "{controller} on fleet {seed} loses sight of requests");
            for api in 0..scenario.apis.len() {
                let c = driver.fleet.counts(api);
                let ends = [c.limited, c.refused, c.lost, c.answered];
                assert_eq!(c.attempts, ends.iter().sum::<u64>(), "{controller} on fleet {seed}: {c:?}");
                let tries = u64::from(scenario.apis[api].retries.max) + 1;
                assert!((c.sent..=c.sent * tries).contains(&c.attempts), "{c:?}");
                assert!(c.good <= c.answered && c.good <= c.sent && c.abandoned <= c.admitted(), "{c:?}");
                let counted = ends.into_iter().chain([c.abandoned, c.attempts - c.sent]);
                seen.iter_mut().zip(counted).for_each(|(sum, count)| *sum += count);
            }
        }
    }
    assert!(seen.iter().all(|&count| count > 100), "some ends hardly ever came about: {seen:?}");
}

/// At any time: what has not ended is under way.
fn check_under_way(driver: &Driver) {
    let apis = driver.fleet.plan().apis.len();
    let open: u64 = (0..apis)
        .map(|api| {
            let c = driver.fleet.counts(api);
            c.attempts - c.limited - c.refused - c.lost - c.answered
        })
        .sum();
    assert!(
        open <= driver.fleet.under_way() as u64,
        "{open} attempts have not ended, {} are known",
        driver.fleet.under_way()
    );
}

#[test]
fn a_run_that_is_cut_into_steps_is_the_same_run() {
    let plan = ready(&small(4));
    let whole = |steps: &[u64]| {
        let mut driver = Driver::with(plan.clone(), Controller::None, 9);
        steps.iter().for_each(|&ms| driver.advance(Nanos::from_millis(ms)));
        (0..plan.apis.len()).map(|api| driver.fleet.counts(api)).collect::<Vec<_>>()
    };
    assert_eq!(whole(&[5_000]), whole(&[1, 17, 900, 901, 3_333, 5_000]));
}

/// The contract of `fleet run --json`; more may be there.
#[test]
fn a_report_has_the_names_that_scripts_rely_on() {
    let plan = ready(&small(6));
    let report = serde_json::to_value(run(&plan, Controller::Dagor, 1).unwrap()).unwrap();
    assert_eq!(report["controller"], "dagor");
    for key in ["goodput_per_s", "optimum_per_s", "share_of_optimum", "worst_api_share"] {
        assert!(report[key].as_f64().is_some_and(|value| value >= 0.0), "{key}: {}", report[key]);
    }
    assert!(report.as_object().unwrap().contains_key("converged_s"));
    let apis = report["apis"].as_object().unwrap();
    assert_eq!(apis.len(), plan.apis.len());
    for api in apis.values() {
        for key in ["offered_per_s", "admitted_per_s", "goodput_per_s"] {
            assert!(api[key].is_f64(), "{key}");
        }
        assert!(api["p95_ms"].is_f64() || api["goodput_per_s"] == 0.0);
    }
    let timeline = report["timeline"].as_array().unwrap();
    assert_eq!(timeline.len(), 9);
    assert_eq!(timeline[8]["t_s"], 9.0);
    // The last third of nine seconds is the last three of them.
    let last: f64 = timeline[6..].iter().map(|point| point["goodput_per_s"].as_f64().unwrap()).sum();
    assert!((last / 3.0 - report["goodput_per_s"].as_f64().unwrap()).abs() < 1e-9);
}
