//! What the issue of overload is about: a stall, a cold start, and that neither lasts.

mod common;

use common::{checked, class, paper, setup};
use plimsoll_core::{Grant, Nanos, Refusal};
use plimsoll_simulator::engine::{Arrival, Observer, Request, Stall};
use plimsoll_simulator::run::Setup;
use plimsoll_simulator::stats::Histogram;

/// Per class: what came, what was refused and what was let in by the estimate, of those that came in a span.
struct Span {
    from: Nanos,
    to: Nanos,
    received: Vec<u64>,
    refused: Vec<u64>,
    response_times: Vec<Histogram>,
    longest_wait: Nanos,
}

impl Span {
    fn new(from: Nanos, to: Nanos, classes: usize) -> Span {
        Span {
            from,
            to,
            received: vec![0; classes],
            refused: vec![0; classes],
            response_times: vec![Histogram::default(); classes],
            longest_wait: Nanos::ZERO,
        }
    }

    fn within(&self, arrival: &Arrival) -> bool {
        self.from <= arrival.at && arrival.at < self.to
    }

    fn refused_pct(&self) -> f64 {
        100.0 * self.refused.iter().sum::<u64>() as f64 / self.received.iter().sum::<u64>() as f64
    }
}

impl Observer for Span {
    fn refused(&mut self, _index: u64, arrival: &Arrival, _refusal: &Refusal) {
        if self.within(arrival) {
            self.received[arrival.class.index()] += 1;
            self.refused[arrival.class.index()] += 1;
        }
    }

    fn admitted(&mut self, request: &Request) {
        if self.within(&request.arrival) {
            self.received[request.arrival.class.index()] += 1;
        }
    }

    fn served(&mut self, request: &Request, started: Nanos, now: Nanos) {
        if self.within(&request.arrival) && request.grant == Grant::Estimate {
            let class = request.arrival.class.index();
            self.response_times[class].record(now - request.arrival.at);
            self.longest_wait = self.longest_wait.max(started - request.arrival.at);
        }
    }
}

const STALLS_AT: Nanos = Nanos::from_secs(20);
const STALL: Nanos = Nanos::from_secs(1);
const END: Nanos = Nanos::from_secs(100);

/// At 0.8 times the full load, a second in which nothing moves: ten seconds later every class is served as before.
#[test]
fn a_stall_is_over_within_ten_seconds() {
    let scenario = paper();
    let classes = scenario.names.len();
    let queries = (0.8 * scenario.full_load_per_s() * END.as_secs_f64()) as u64;
    for seed in 1..=5 {
        let stalls = vec![Stall { at: STALLS_AT, lasts: STALL }];
        let run = Setup { stalls, ..setup("bouncer", 0.8, seed, queries) };
        let overall = Span::new(STALLS_AT, END, classes);
        let after = Span::new(STALLS_AT + STALL + Nanos::from_secs(10), END, classes);
        let common::Both(overall, after) = checked(&scenario, &run, common::Both(overall, after));
        let refused = overall.refused_pct();
        assert!(refused > 0.0 && refused < 2.0, "seed {seed}: {refused} % refused");
        for name in ["fast", "medium_fast", "medium_slow", "slow"] {
            let class = class(&scenario, name).index();
            let refused = 100.0 * after.refused[class] as f64 / after.received[class] as f64;
            assert!(refused < 0.1, "seed {seed}: {refused} % of {name} still refused");
            assert_eq!(after.response_times[class].meets(&scenario.slos[class]), Some(true), "{name}");
        }
    }
}

/// Ten times the full load from the first moment on, nothing known: the queue stays within its bound (the checker looks), and
/// what is let in by the estimate meets twice its objectives.
#[test]
fn a_cold_start_at_ten_times_the_load_lets_nothing_in_that_it_cannot_serve() {
    let scenario = paper();
    for seed in 1..=5 {
        let queries = (10.0 * scenario.full_load_per_s()) as u64;
        let first_second = Span::new(Nanos::ZERO, Nanos::from_secs(1), scenario.names.len());
        let first_second = checked(&scenario, &setup("bouncer", 10.0, seed, queries), first_second);
        for (class, slo) in scenario.slos.iter().enumerate() {
            for &(statistic, limit) in slo.targets() {
                let times = &first_second.response_times[class];
                let Some(value) = times.value(statistic) else { continue };
                let name = &scenario.names[class];
                assert!(value.0 <= 2 * limit.0, "seed {seed}, {name}: {statistic} is {value}");
            }
        }
        let longest = first_second.longest_wait;
        assert!(longest <= Nanos::from_millis(36), "seed {seed}: somebody waited {longest}");
        let fast = class(&scenario, "fast").index();
        assert!(first_second.response_times[fast].total() > 1_000, "and the fast ones are let in");
    }
}
