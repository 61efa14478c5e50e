//! As many servers as the load needs, and nothing lost when they go.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{PAGES, PATIENCE, Place, is_alive, ports, shop, until};
use crate::sentry::Sentry;

const QUICK: &str = "ready = \"/healthz\", pause = \"500ms\", period = \"1s\", season = \"0s\"";

#[test]
fn servers_come_with_the_load_and_go_with_it() {
    let sentry = Sentry::start(&["shop"]);
    let (settings, config) = shop(sentry.address, &PAGES, ports(6), &format!("{QUICK}, min = 2, max = 6"));
    let place = Place::new(&settings, &config);
    let _controller = place.start("log", &[]);
    let first = sentry.has("shop", 2);
    assert!(first.iter().all(|server| server.starts_with("127.0.0.1:")), "{first:?}");

    // 80/s a server: eight times what two can do is more than there may be.
    sentry.load(1_280.0);
    let all = sentry.has("shop", 6);
    assert!(first.iter().all(|server| all.contains(server)), "{first:?} {all:?}");
    assert_eq!(place.pids().len(), 6);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(sentry.servers("shop").len(), 6, "never more than there may be");

    sentry.load(10.0);
    assert_eq!(sentry.has("shop", 2), first, "the youngest go first");
    until(PATIENCE, "the processes are gone", || place.pids().len() == 2);
    let metrics = place.get("/metrics").unwrap();
    assert!(metrics.contains("plimsoll_controller_servers_planned{pool=\"shop\"} 2"), "{metrics}");
}

#[test]
fn a_server_ends_only_after_its_last_request() {
    let sentry = Sentry::start(&["shop"]);
    let (settings, config) =
        shop(sentry.address, &PAGES, ports(2), &format!("{QUICK}, min = 1, max = 2, drain_timeout = \"1h\""));
    let place = Place::new(&settings, &config);
    let _controller = place.start("log", &[]);
    sentry.has("shop", 1);
    sentry.load(300.0);
    let [_, leaving] = &sentry.has("shop", 2)[..] else { unreachable!() };
    sentry.state().in_flight.insert(leaving.clone(), 1);
    sentry.load(1.0);
    sentry.has("shop", 1);
    std::thread::sleep(Duration::from_secs(2));
    assert!(place.pids().iter().all(|&pid| is_alive(pid)) && place.pids().len() == 2);
    sentry.state().in_flight.clear();
    until(PATIENCE, "it ends", || place.pids().len() == 1);
}

#[test]
fn a_shadow_says_what_it_would_do_and_does_nothing() {
    let sentry = Sentry::start(&["shop"]);
    let (settings, config) = shop(sentry.address, &PAGES, ports(6), &format!("{QUICK}, min = 1, max = 6"));
    let config = config.replace("workers", "servers = [\"127.0.0.1:9001\"]\nworkers");
    let config = config.replace("ports = ", "min = 1, ports = ").replace(", min = 1, max", ", max");
    let place = Place::new(&format!("{settings}\nmode = \"shadow\""), &config);
    sentry.state().servers.insert("shop".to_owned(), vec!["127.0.0.1:9001".to_owned()]);
    sentry.load(300.0);
    let _controller = place.start("log", &[]);
    until(PATIENCE, "it would have more", || place.pool()["planned"].as_u64() >= Some(4));
    assert!(place.log("log").contains("enforced=false"), "{}", place.log("log"));
    assert!(sentry.state().orders.is_empty() && place.pids().is_empty());
}

#[test]
fn a_shadow_says_once_that_it_would_have_a_further_sentry_and_that_it_would_not_any_more() {
    let sentry = Sentry::start(&["shop"]);
    sentry.state().servers.insert("shop".to_owned(), vec!["127.0.0.1:9001".to_owned()]);
    sentry.state().busy = 0.95;
    let (first, last) = ports(2);
    let settings = format!(
        "sentries = [\"{}\"]\nmode = \"shadow\"\nsentry_ports = \"{first}-{last}\"\nsentry_busy_for = \"1s\"",
        sentry.address
    );
    let place = Place::new(
        &settings,
        "[pool.shop]\nservers = [\"127.0.0.1:9001\"]\n[class.default]\nslo = { mean = \"100ms\" }\n",
    );
    let _controller = place.start("log", &[]);
    let plan = || serde_json::from_str(&place.get("/plan").unwrap_or_default()).unwrap_or(Value::Null);
    let more = || plan()["more_sentries"]["planned"].clone();
    until(PATIENCE, "it would have one more", || more() == 1);
    let change = plan()["changes"][0].clone();
    let said = ["of", "from", "to", "reason", "enforced"].map(|name| change[name].clone());
    assert_eq!(json!(said), json!(["sentries", 0, 1, "a sentry is busy", false]));
    // Two would do with this load, so no second is asked for, however long it lasts.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(plan()["changes"].as_array().unwrap().len(), 1);
    sentry.state().busy = 0.1;
    until(PATIENCE, "it would return it", || more() == 0);
    let log = place.log("log");
    assert_eq!(log.matches("of=sentries").count(), 2, "{log}");
    assert_eq!(log.matches("enforced=false").count(), 2, "{log}");
    assert!(sentry.state().orders.is_empty() && place.pids().is_empty());
    assert!(!place.directory.path().join("state").exists(), "it leaves no trace");
}

#[test]
fn a_token_is_shown_to_the_sentries_and_to_nobody_else() {
    let sentry = Sentry::start(&["shop"]);
    sentry.state().token = Some("correct-horse".to_owned());
    let (settings, config) = shop(sentry.address, &PAGES, ports(1), &format!("{QUICK}, max = 1"));
    let config = format!("[sentry]\nadmin_token = \"correct-horse\"\n{config}");
    let place = Place::new(&settings, &config);
    let _controller = place.start("log", &[]);
    sentry.has("shop", 1);
    assert_eq!(sentry.state().unauthorized, 0);
    let said = place.log("log") + &place.get("/plan").unwrap() + &place.get("/metrics").unwrap();
    assert!(!said.contains("horse"), "{said}");
}
