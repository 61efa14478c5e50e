//! What runs are asked is what happened in them.

use plimsoll_core::Nanos;
use plimsoll_core::config::fleet::{Scenario, Sees};
use plimsoll_core::config::parse;

use super::scenes::{Altered, online_boutique, train_ticket};
use super::study::{OURS, Who, compare, compare_all};
use crate::fleet::run::Controller;
use crate::reproduce::Settings;

const QUICK: Settings = Settings { seed: 1, quick: true, real: false };
const NOBODY: Who = Who::Named(Controller::None);

fn scenario(text: &str) -> Scenario {
    parse::<Scenario>(text, "test.toml").unwrap_or_else(|errors| panic!("{errors}")).0
}

/// Two services, of which one loses half of its four instances for ten seconds.
const FAILS: &str = "duration = \"40s\"\n[service.a]\ncapacity = \"400/s\"\ninstances = 4\n\
    failures = [{ at = \"10s\", instances = 2, back_after = \"10s\" }]\n[service.b]\ncapacity = \"500/s\"\n\
    [api.x]\npath = [\"a\"]\noffered = \"100/s\"\n[api.y]\npath = [\"b\"]\noffered = [[\"0s\", \"50/s\"], [\"20s\", \"100/s\"]]";

#[test]
fn goodput_and_instances_are_over_the_seconds_asked_for() {
    let runs = compare(&scenario(FAILS), &[NOBODY], QUICK).unwrap();
    let ran = runs[0].first();
    assert_eq!((ran.instances((0, 10)), ran.instances((10, 20)), ran.instances((5, 15))), (5.0, 3.0, 4.0));
    let y = ran.api("y").unwrap();
    let (before, after) = (ran.api_per_s(y, (0, 20)), ran.api_per_s(y, (20, 40)));
    assert!((before - 50.0).abs() < 6.0 && (after - 100.0).abs() < 8.0, "{before}, then {after}");
    assert!((ran.per_s((20, 40)) - ran.api_per_s(0, (20, 40)) - after).abs() < 1e-9);
    let line = runs[0].line("y", Some(y), (0, 40));
    let mean = line.points.iter().map(|point| point.1).sum::<f64>() / 40.0;
    assert!((mean - ran.api_per_s(y, (0, 40))).abs() < 1e-9 && line.points[0].0 == 1.0);
    // All of it could be had, and was.
    let optimum = ran.optimum((20, 40)).unwrap();
    assert!(optimum.iter().all(|per_s| (per_s - 100.0).abs() < 1e-3), "{optimum:?}");
    assert!((ran.share((20, 40)).unwrap() - 1.0).abs() < 0.05);
    assert!(ran.api("z").is_err());
}

#[test]
fn scenarios_come_with_their_runs() {
    let text = FAILS.replace("100/s\"\n[api.y]", "300/s\"\n[api.y]");
    let both = [scenario(FAILS), scenario(&text)];
    let all = compare_all(&both, &[OURS, NOBODY], QUICK).unwrap();
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    for runs in &all {
        assert_eq!(runs.iter().map(|runs| runs.who).collect::<Vec<_>>(), [OURS, NOBODY]);
    }
    let [first, second] = [&all[0][1], &all[1][1]].map(|runs| runs.mean(|ran| ran.api_per_s(0, (25, 40))));
    assert!((first - 100.0).abs() < 12.0 && (second - 300.0).abs() < 25.0, "{first} and {second}");
}

#[test]
fn what_the_experiments_change_is_changed() {
    let base = online_boutique().unwrap();
    let doubled = base.clone().times(2.0).unwrap();
    let at = |scenario: &Scenario| scenario.apis[0].offered.at(Nanos::from_secs(20));
    assert_eq!(at(&doubled), 2.0 * at(&base));
    let ranked = base.clone().only(&["getproduct", "postcheckout"]).ranked();
    let priorities: Vec<_> = ranked.apis.iter().map(|api| (api.name.as_str(), api.priority)).collect();
    assert_eq!(priorities, [("postcheckout", 1), ("getproduct", 2)]);
    let half = train_ticket().unwrap().with_instances(0.5);
    assert_eq!((half.services[0].name.as_str(), half.services[0].instances), ("station", 18));
    let scaled = base.clone().autoscaled(Nanos::from_secs(40), Sees::Admitted);
    assert!(scaled.services.iter().all(|s| s.autoscale.as_ref().is_some_and(|a| a.min == s.instances)));
    assert!(!base.by_prometheus().telemetry.tells_queues());
}
