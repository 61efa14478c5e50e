//! Workloads with policing: what is told of them, and that it is the whole truth for a seed.

mod common;

use common::setup;
use plimsoll_core::config;
use plimsoll_core::config::workload::Workload;
use plimsoll_simulator::report::{Report, Run};
use plimsoll_simulator::run::Setup;
use plimsoll_simulator::scenario::Scenario;
use serde_json::Value;

const CROWD: &str = include_str!("../../../paper/cataclysm/crowd.toml");

fn told(text: &str, seed: u64) -> String {
    let (workload, _) = config::parse::<Workload>(text, "crowd.toml").unwrap();
    let scenario = Scenario::new(workload, std::path::Path::new("")).unwrap();
    let setup = Setup { warmup: 20_000, ..setup("bouncer", 1.0, seed, 150_000) };
    let outcome = setup.run(&scenario, &|_| {});
    let run = Run::new("bouncer", 1.0, seed, &outcome, &scenario.names);
    serde_json::to_string(&Report { runs: vec![run] }).unwrap()
}

#[test]
fn a_seed_is_the_whole_truth_with_policing_too() {
    assert_eq!(told(CROWD, 1), told(CROWD, 1));
    assert_ne!(told(CROWD, 1), told(CROWD, 2));
}

#[test]
fn revenue_and_promises_are_told_where_there_is_policing() {
    let report: Value = serde_json::from_str(&told(CROWD, 1)).unwrap();
    let run = &report["runs"][0];
    let class = |name: &str| &run["classes"][name];
    let served = |name: &str| {
        let [received, rejected] = ["received", "rejected_pct"].map(|key| class(name)[key].as_f64().unwrap());
        received * (1.0 - rejected / 100.0)
    };
    // Ten, three and one: what the file says an answer is worth.
    let worth = 10.0 * served("gold") + 3.0 * served("silver") + served("bronze");
    let revenue_per_s = run["revenue_per_s"].as_f64().unwrap();
    assert!((revenue_per_s * run["simulated_s"].as_f64().unwrap() / worth - 1.0).abs() < 1e-6);
    for name in ["gold", "silver", "bronze"] {
        assert!(class(name)["promised"].as_u64().unwrap() > 0, "{name}");
        let policed = class(name)["refused"]["policing"].as_u64().unwrap_or(0);
        assert!(name == "gold" || policed > 10_000, "{name}: {policed}");
    }
    // And not a word of it where there is none.
    let without: String =
        CROWD.lines().filter(|line| !line.contains("min_rate")).collect::<Vec<_>>().join("\n");
    let without = told(&without.replace("policy = \"batch\"", ""), 1);
    assert!(!without.contains("revenue") && !without.contains("promised"), "{without}");
}
