//! The same seed gives the same bytes; every policy sees the same traffic.

mod common;

use common::{checked, paper, policy, setup};
use plimsoll_core::{Nanos, Refusal};
use plimsoll_simulator::engine::{Arrival, Observer, Request};
use plimsoll_simulator::parallel;
use plimsoll_simulator::report::{Report, Run, write_csv, write_table};
use plimsoll_simulator::run::Setup;

fn report(seed: u64) -> Vec<u8> {
    let scenario = paper();
    let policies = ["bouncer,allowance=0.1", "bouncer,underserved=1.0", "accept-fraction", "codel", "aimd"];
    let setups: Vec<(&str, Setup)> = policies
        .iter()
        .flat_map(|&name| [0.9, 1.4].map(|load| (name, load)))
        .map(|(name, load)| {
            (name, Setup { policy: policy(name), warmup: 2_000, ..setup("none", load, seed, 40_000) })
        })
        .collect();
    let outcomes = parallel::map(&setups, |(_, setup)| setup.run(&scenario, &|_| {}));
    let runs = setups.iter().zip(&outcomes);
    let runs =
        runs.map(|((name, setup), outcome)| Run::new(name, setup.load, seed, outcome, &scenario.names));
    let report = Report { runs: runs.collect() };
    let mut bytes = serde_json::to_vec(&report).unwrap();
    write_csv(&report, &mut bytes).unwrap();
    write_table(&report, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_seed_is_the_whole_truth() {
    assert_eq!(report(1), report(1));
    assert_ne!(report(1), report(2));
}

/// What came, whatever became of it.
#[derive(Default, PartialEq, Debug)]
struct Seen(Vec<Arrival>);

impl Observer for Seen {
    fn refused(&mut self, _index: u64, arrival: &Arrival, _refusal: &Refusal) {
        self.0.push(*arrival);
    }
    fn admitted(&mut self, request: &Request) {
        self.0.push(request.arrival);
    }
}

#[test]
fn every_policy_sees_the_same_traffic() {
    let scenario = paper();
    let seen = |policy: &str| checked(&scenario, &setup(policy, 1.5, 3, 20_000), Seen::default());
    let open = seen("none");
    assert_eq!(open.0.len(), 20_000);
    for policy in ["bouncer", "bouncer,allowance=0.3", "accept-fraction", "codel"] {
        assert_eq!(seen(policy), open, "{policy}");
    }
}

/// The warm-up is left out of every count, and the load of the rest is what was asked for.
#[test]
fn the_warm_up_does_not_count() {
    let scenario = paper();
    let run = Setup { warmup: 50_000, ..setup("none", 0.5, 1, 100_000) };
    let outcome = run.run(&scenario, &|_| {});
    assert_eq!(outcome.queries, 100_000);
    assert_eq!(outcome.classes.iter().map(|class| class.received).sum::<u64>(), 100_000);
    assert_eq!(outcome.classes.iter().map(|class| class.served.count).sum::<u64>(), 100_000);
    assert!((outcome.utilization_pct - 50.0).abs() < 2.0, "{}", outcome.utilization_pct);
    let seconds = 100_000.0 / (0.5 * scenario.full_load_per_s());
    assert!((outcome.span.as_secs_f64() / seconds - 1.0).abs() < 0.02, "{}", outcome.span);
    assert!(outcome.span > Nanos::ZERO);
}
