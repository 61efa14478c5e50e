//! Scenario files: those that are committed, and those that are drawn.
//! `UPDATE_SCENARIOS=1 cargo test -p plimsoll-simulator --test fleet` writes the drawn one anew.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::Nanos;
use plimsoll_core::config::fleet::Scenario;
use plimsoll_core::config::fleet::to_toml;
use plimsoll_simulator::fleet::plan::Plan;
use plimsoll_simulator::fleet::random::{self, Ranges};

use super::scenario;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../paper/topfull")
}

/// How many times what each service can do is asked of it if everything is let in, at the highest load.
fn degrees(scenario: &Scenario) -> Vec<f64> {
    let plan = Plan::new(scenario, Path::new("")).unwrap();
    let highest = |api: usize| plan.apis[api].offered.steps().iter().map(|step| step.1).fold(0.0, f64::max);
    let mut asked = vec![0.0; plan.services.len()];
    for api in 0..plan.apis.len() {
        asked.iter_mut().zip(plan.load(api)).for_each(|(sum, load)| *sum += load * highest(api));
    }
    let can = plan.services.iter().map(|service| service.instance_per_s() * f64::from(service.instances));
    asked.iter().zip(can).map(|(asked, can)| asked / can).collect()
}

#[test]
fn the_scenarios_of_the_paper_are_read() {
    let mut read = 0;
    for entry in fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name != "topologies.toml") {
            let scenario = scenario(&fs::read_to_string(&path).unwrap());
            let overloaded = degrees(&scenario).iter().filter(|&&degree| degree > 1.0).count();
            let fails = scenario.services.iter().any(|service| !service.failures.is_empty());
            assert!(overloaded > 0 || fails, "{path:?} has nothing to control");
            read += 1;
        }
    }
    assert!(read >= 5, "{read} scenarios");
}

/// The paths in the scenarios are those that are published.
#[test]
fn the_paths_are_the_published_ones() {
    let published: toml::Table =
        fs::read_to_string(directory().join("topologies.toml")).unwrap().parse().unwrap();
    for (application, file) in
        [("online-boutique", "online-boutique.toml"), ("train-ticket", "train-ticket.toml")]
    {
        let scenario = scenario(&fs::read_to_string(directory().join(file)).unwrap());
        let apis = published[application]["api"].as_table().unwrap();
        assert_eq!(scenario.apis.len(), apis.len(), "{application}");
        for api in &scenario.apis {
            let mut expected: Vec<&str> =
                apis[&api.name]["path"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
            let visits = api.branches.iter().flat_map(|b| b.stages.iter().flatten());
            let mut found: Vec<&str> =
                visits.map(|&(service, _)| scenario.services[service].name.as_str()).collect();
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "{application} {}", api.name);
        }
    }
}

#[test]
fn the_demo_has_the_shape_of_the_papers() {
    let demo = random::trace_demo();
    let path = directory().join("trace-demo.toml");
    let head = "# The demo of the TopFull evaluation (section 5) by its published measures: 127 services, 25 APIs, 43 paths, eight APIs that\n\
                # branch up to six times, 13 overloaded services. Who calls whom is drawn: `plimsoll fleet draw --trace-demo`.\n";
    let text = head.to_owned() + &to_toml(&demo).unwrap();
    if std::env::var_os("UPDATE_SCENARIOS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text);
    assert_eq!((demo.services.len(), demo.apis.len()), (127, 25));
    let branches: Vec<usize> = demo.apis.iter().map(|api| api.branches.len()).collect();
    assert_eq!(branches.iter().sum::<usize>(), 43);
    assert_eq!(branches.iter().filter(|&&count| count > 1).count(), 8);
    assert_eq!(branches.iter().max(), Some(&6));
    let degrees = degrees(&demo);
    assert_eq!(degrees.iter().filter(|&&degree| degree > 1.0).count(), 13);
    assert!(degrees.iter().all(|&degree| degree > 0.0), "every service is on some path");
}

#[test]
fn random_fleets_are_what_they_are_drawn_from() {
    let ranges = Ranges::default();
    let (mut priorities, mut branches, mut promised, mut wide) = (0, 0, 0, 0);
    for seed in 1..=200 {
        let fleet = random::fleet(seed, &ranges);
        assert!((2..=60).contains(&fleet.services.len()) && (2..=30).contains(&fleet.apis.len()));
        let most = degrees(&fleet).into_iter().fold(0.0, f64::max);
        assert!(
            (1.49..=5.01).contains(&most),
            "fleet {seed}: {most} times what its narrowest service can do"
        );
        let offered: f64 = fleet.apis.iter().map(|api| api.offered.at(Nanos::ZERO)).sum();
        assert!((999.0..=4_001.0).contains(&offered), "{offered}");
        priorities += usize::from(fleet.apis.iter().any(|api| api.priority > 1));
        branches += usize::from(fleet.apis.iter().any(|api| api.branches.len() > 1));
        promised += usize::from(fleet.apis.iter().any(|api| api.min_rate.is_some()));
        wide += usize::from(
            fleet.apis.iter().any(|api| api.branches.iter().any(|b| b.stages.iter().any(|s| s.len() > 1))),
        );
    }
    for (what, count) in
        [("priorities", priorities), ("branches", branches), ("promises", promised), ("fan-out", wide)]
    {
        assert!((60..200).contains(&count), "{what} in {count} of 200 fleets");
    }
}

#[test]
fn what_is_drawn_is_read_back_as_it_was() {
    for seed in 1..=60 {
        let fleet = random::fleet(seed, &Ranges::default());
        assert_eq!(scenario(&to_toml(&fleet).unwrap()), fleet, "fleet {seed}");
    }
    let text = "duration = \"20s\"\ntelemetry = \"prometheus\"\n[service.s]\nworkers = 3\nservice = { dist = \"lognormal\", mean = \"3ms\", sigma = 0.5 }\n\
                instances = 2\nmax_queue = 7\nautoscale = { max = 5, sees = \"offered\" }\nfailures = [{ at = \"3s\", instances = 1, back_after = \"1500ms\" }]\n\
                [api.a]\npath = [\"s\"]\noffered = [[\"0s\", \"1/s\"], [\"2s\", \"3/s\"]]\nretries = { max = 2, timeout = \"1s\" }\nmin_rate = \"1/s\"\ncost = { s = 2.5 }";
    let written = scenario(text);
    assert_eq!(scenario(&to_toml(&written).unwrap()), written);
}
