//! Against queueing theory: with Poisson arrivals, exponential service and nobody refused, the wait is Erlang's.

mod common;

use common::{checked, one_class, setup};
use plimsoll_core::Nanos;
use plimsoll_core::config::workload::{Engine, Service};
use plimsoll_simulator::engine::{Observer, Request};
use plimsoll_simulator::stats::Histogram;

#[derive(Default)]
struct Waits {
    sum_ns: f64,
    waited: f64,
    count: f64,
}

impl Observer for Waits {
    fn started(&mut self, request: &Request, now: Nanos) {
        let wait = now - request.arrival.at;
        self.sum_ns += wait.0 as f64;
        self.waited += f64::from(u8::from(wait > Nanos::ZERO));
        self.count += 1.0;
    }
}

/// The probability to wait in M/M/c at this utilisation, by the recurrence of Erlang B.
fn erlang_c(processes: u32, utilization: f64) -> f64 {
    let offered = f64::from(processes) * utilization;
    let blocked = (1..=processes).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
    blocked / (1.0 - utilization * (1.0 - blocked))
}

#[test]
fn waits_are_erlangs() {
    let (processes, mean, load) = (10, Nanos::from_millis(10), 0.9);
    let scenario = one_class(Engine { processes, max_queue: 100_000 }, Service::Exponential { mean });
    let mut waits = Waits::default();
    for seed in 1..=4 {
        let run = checked(&scenario, &setup("none", load, seed, 500_000), Waits::default());
        waits.sum_ns += run.sum_ns;
        waits.waited += run.waited;
        waits.count += run.count;
    }
    let probability = erlang_c(processes, load);
    assert!((probability - 0.6687).abs() < 1e-3, "Erlang C of 10 servers at 0.9, from its tables");
    let expected = probability * mean.0 as f64 / (f64::from(processes) * (1.0 - load));
    let (measured, waited) = (waits.sum_ns / waits.count, waits.waited / waits.count);
    // Two million correlated waits: the mean is known to about 2 %.
    assert!((waited / probability - 1.0).abs() < 0.02, "{waited} wait instead of {probability}");
    assert!((measured / expected - 1.0).abs() < 0.08, "{measured} ns instead of {expected}");
}

/// M/D/1 by Pollaczek and Khinchine: half the wait of M/M/1.
#[test]
fn constant_service_halves_the_wait() {
    let (mean, load) = (Nanos::from_millis(1), 0.8);
    let scenario = one_class(Engine { processes: 1, max_queue: 100_000 }, Service::Constant { mean });
    let waits = checked(&scenario, &setup("none", load, 1, 1_000_000), Waits::default());
    let expected = load * mean.0 as f64 / (2.0 * (1.0 - load));
    let measured = waits.sum_ns / waits.count;
    assert!((measured / expected - 1.0).abs() < 0.03, "{measured} ns instead of {expected}");
}

#[test]
fn a_histogram_tells_quantiles_within_a_bucket() {
    let mut histogram = Histogram::default();
    (1..=100_000u64).for_each(|v| histogram.record(Nanos(v * 1_000)));
    for q in [0.01, 0.5, 0.9, 0.999] {
        let got = histogram.quantile(q).unwrap().0 as f64;
        assert!((got / (q * 1e8) - 1.0).abs() < 0.005, "{q}: {got}");
    }
    assert_eq!(Histogram::default().quantile(0.5), None);
}
