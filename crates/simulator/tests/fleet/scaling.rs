//! Instances that come, go and fail, clients that try again, and how a run is told.

use plimsoll_core::Nanos;
use plimsoll_simulator::fleet::run::{Controller, Driver, run};

use super::plan;

const S: fn(u64) -> Nanos = Nanos::from_secs;

/// When the service had how many instances.
fn history(text: &str, controller: Controller, until: Nanos) -> Vec<(f64, u32)> {
    let mut driver = Driver::with(plan(text), controller, 1);
    driver.advance(until);
    driver.fleet.history().iter().map(|&(at, _, count)| (at.as_secs_f64(), count)).collect()
}

#[test]
fn failed_instances_are_gone_at_once_and_come_back_when_they_should() {
    let text = "duration = \"60s\"\n[service.s]\ncapacity = \"350/s\"\ninstances = 35\n\
                failures = [{ at = \"20s\", instances = 25, back_after = \"10s\" }, { at = \"40s\", instances = 5 }]\n\
                [api.a]\npath = [\"s\"]\noffered = \"300/s\"";
    let history = history(text, Controller::None, S(60));
    assert_eq!(history[0], (0.0, 35));
    assert_eq!(history[1], (20.0, 10));
    assert_eq!((history[26], history[27]), ((30.0, 35), (40.0, 30)));
    assert_eq!(history.len(), 28);
    // The optimum knows: of the last 20 s, all at 300 of 300 a second that 30 instances can do.
    let report = run(&plan(text), Controller::None, 1).unwrap();
    assert!((report.optimum_per_s - 300.0).abs() < 1.0, "{}", report.optimum_per_s);
}

#[test]
fn the_optimum_follows_load_and_instances_through_the_last_third() {
    let text = "duration = \"30s\"\n[service.s]\ncapacity = \"200/s\"\ninstances = 4\nfailures = [{ at = \"25s\", instances = 3 }]\n\
                [api.a]\npath = [\"s\"]\noffered = [[\"0s\", \"10/s\"], [\"22s\", \"120/s\"]]";
    let report = run(&plan(text), Controller::Model, 1).unwrap();
    let expected = (10.0 * 2.0 + 120.0 * 3.0 + 50.0 * 5.0) / 10.0;
    assert!((report.optimum_per_s - expected).abs() < 0.5, "{} instead of {expected}", report.optimum_per_s);
}

#[test]
fn an_autoscaler_adds_what_the_load_needs_after_its_delay() {
    let text = "duration = \"240s\"\n[service.s]\nworkers = 1\nservice = { dist = \"exponential\", mean = \"10ms\" }\ninstances = 2\n\
                autoscale = { target = 0.5, max = 20, start = \"40s\" }\n\
                [api.a]\npath = [\"s\"]\noffered = [[\"0s\", \"100/s\"], [\"30s\", \"450/s\"]]";
    let history = history(text, Controller::None, S(240));
    let first = history.iter().find(|&&(_, count)| count > 2).unwrap().0;
    assert_eq!(first, 85.0, "the first look after the step is at 45 s, and it takes 40 s to start");
    let (_, last) = *history.last().unwrap();
    // Nine are used to half. While the queues of before are worked off it looks as if more were needed, as it does in life.
    assert!((9..=18).contains(&last), "{history:?}");
}

#[test]
fn retries_make_an_overload_worse() {
    let text = |retries: &str| {
        format!(
            "duration = \"60s\"\n[service.s]\ncapacity = \"100/s\"\nmax_queue = 20\n[api.a]\npath = [\"s\"]\noffered = \"150/s\"\n{retries}"
        )
    };
    let attempts = |retries: &str| {
        let mut driver = Driver::with(plan(&text(retries)), Controller::None, 1);
        driver.advance(S(60));
        let counts = driver.fleet.counts(0);
        counts.attempts as f64 / counts.sent as f64
    };
    assert_eq!(attempts(""), 1.0);
    let tried = attempts("retries = { max = 3, backoff = \"50ms\" }");
    assert!((1.7..=2.9).contains(&tried), "{tried} attempts a request");
}

#[test]
fn a_client_that_waits_no_longer_has_no_use_for_the_answer() {
    let text = "duration = \"30s\"\n[service.s]\nworkers = 1\nservice = { dist = \"constant\", mean = \"50ms\" }\n\
                [api.a]\npath = [\"s\"]\noffered = \"10/s\"\nretries = { timeout = \"40ms\" }";
    let mut driver = Driver::with(plan(text), Controller::None, 1);
    driver.advance(S(30));
    let counts = driver.fleet.counts(0);
    assert!(counts.answered > 250 && counts.abandoned >= counts.answered && counts.good == 0, "{counts:?}");
}

#[test]
fn steady_is_told_from_a_step_on() {
    // Nobody controls; the queue of a service that is freed of its overload at 10 s is empty again soon after.
    let text = "duration = \"60s\"\n[service.s]\ncapacity = \"100/s\"\nmax_queue = 300\n[api.a]\npath = [\"s\"]\n\
                offered = [[\"0s\", \"200/s\"], [\"10s\", \"50/s\"]]";
    let report = run(&plan(text), Controller::None, 1).unwrap();
    // 300 wait at first, 50 a second come and 100 go. Who comes from 14 s on finds fewer than 100, and is answered in time from 15 s on, at
    // twice the pace until nobody waits at 16 s.
    let converged = report.converged_s.unwrap();
    assert!((4.5..=7.0).contains(&converged), "{converged}");
    let total: f64 = report.timeline.iter().map(|point| point.goodput_per_s).sum();
    assert_eq!(report.timeline.len(), 60);
    assert!((total - 50.0 * 46.0).abs() < 500.0, "{total} in time in all");
}

#[test]
fn the_entry_lets_in_what_it_is_told_to() {
    let text = "duration = \"60s\"\n[service.s]\ncapacity = \"1000/s\"\n[api.a]\npath = [\"s\"]\noffered = \"500/s\"";
    let mut driver = Driver::with(plan(text), Controller::None, 1);
    driver.advance(S(10));
    let before = driver.fleet.counts(0);
    driver.fleet.set_rates(&[Some(120.0)]);
    driver.advance(S(40));
    let since = driver.fleet.counts(0).since(&before);
    assert!((since.admitted() as f64 / 3_600.0 - 1.0).abs() < 0.01, "{since:?}");
    driver.fleet.set_rates(&[None]);
    let before = driver.fleet.counts(0);
    driver.advance(S(50));
    assert_eq!(driver.fleet.counts(0).since(&before).limited, 0);
}
