//! Against queueing theory: one queue, two in a row, two at once, one that is full.

use plimsoll_core::Nanos;
use plimsoll_simulator::fleet::run::{Controller, Driver};

use super::plan;

/// The mean time that requests took and the part that was refused, over `seconds` after a start-up of a hundred.
fn measure(text: &str, seconds: u64) -> (f64, f64) {
    let plan = plan(text);
    let mut driver = Driver::with(plan, Controller::None, 1);
    driver.advance(Nanos::from_secs(100));
    let before = driver.fleet.counts(0);
    driver.fleet.accounts_mut()[0].window = Default::default();
    driver.advance(Nanos::from_secs(100 + seconds));
    let since = driver.fleet.counts(0).since(&before);
    let mean = driver.fleet.accounts_mut()[0].window.mean().unwrap().as_secs_f64();
    (mean, since.refused as f64 / since.sent as f64)
}

fn assert_near(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < tolerance, "{what}: {found} instead of {expected}");
}

fn service(name: &str, workers: u32, mean_ms: u32, max_queue: u32) -> String {
    let service = format!("service = {{ dist = \"exponential\", mean = \"{mean_ms}ms\" }}");
    format!("[service.{name}]\nworkers = {workers}\n{service}\nmax_queue = {max_queue}\n")
}

/// M/M/c: Erlang's C by its recurrence.
#[test]
fn one_service_is_erlangs() {
    for (workers, load) in [(1u32, 0.7), (8, 0.85)] {
        let c = f64::from(workers);
        let offered = c * load;
        let blocked = (1..=workers).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
        let waits = blocked / (1.0 - load * (1.0 - blocked));
        let expected = 0.010 * (1.0 + waits / (c * (1.0 - load)));
        let rate = offered / 0.010;
        let text =
            service("s", workers, 10, 100_000) + &format!("[api.a]\npath = [\"s\"]\noffered = \"{rate}/s\"");
        let (mean, refused) = measure(&text, 3_000);
        assert_near(mean, expected, 0.04, &format!("M/M/{workers}"));
        assert_eq!(refused, 0.0);
    }
}

/// Burke: what leaves a queue is Poisson, so two in a row are two by themselves.
#[test]
fn two_in_a_row_take_the_sum() {
    let services = service("s", 1, 10, 100_000) + &service("t", 1, 8, 100_000);
    let text = services + "[api.a]\npath = [\"s\", \"t\"]\noffered = \"70/s\"";
    let (mean, _) = measure(&text, 4_000);
    assert_near(mean, 1.0 / (100.0 - 70.0) + 1.0 / (125.0 - 70.0), 0.05, "s, then t");
}

/// Nelson and Tantawi (1988): the mean of two M/M/1 queues that get each job at once and join it is `(12 - load) / 8` times that of one.
#[test]
fn two_at_once_take_as_long_as_the_theory_of_fork_and_join_says() {
    let services = service("s", 1, 10, 100_000) + &service("t", 1, 10, 100_000);
    let text = services + "[api.a]\npath = [[\"s\", \"t\"]]\noffered = \"60/s\"";
    let (mean, _) = measure(&text, 4_000);
    assert_near(mean, (12.0 - 0.6) / 8.0 / (100.0 - 60.0), 0.05, "s and t");
}

/// M/M/1/K: with room for K in all, `(1 - r) r^K / (1 - r^(K+1))` are refused.
#[test]
fn a_full_queue_refuses_as_often_as_it_should() {
    let (load, room) = (1.5f64, 5);
    let text = service("s", 1, 10, room as u32 - 1) + "[api.a]\npath = [\"s\"]\noffered = \"150/s\"";
    let (_, refused) = measure(&text, 2_000);
    let expected = (1.0 - load) * load.powi(room) / (1.0 - load.powi(room + 1));
    assert_near(refused, expected, 0.03, "refused");
}

/// A cost is that much more work: M/M/1 at twice the mean.
#[test]
fn costs_and_branches_are_work() {
    let text =
        service("s", 1, 10, 100_000) + "[api.a]\npath = [\"s\"]\noffered = \"30/s\"\ncost = { s = 2.0 }";
    assert_near(measure(&text, 3_000).0, 1.0 / (50.0 - 30.0), 0.05, "twice the work");
    let services = service("s", 1, 10, 100_000) + &service("t", 1, 20, 100_000);
    let branches = "branches = [{ share = 0.75, path = [\"s\"] }, { share = 0.25, path = [\"t\"] }]";
    let text = services + "[api.a]\noffered = \"80/s\"\n" + branches;
    let expected = 0.75 / (100.0 - 60.0) + 0.25 / (50.0 - 20.0);
    assert_near(measure(&text, 3_000).0, expected, 0.05, "by branches");
}
