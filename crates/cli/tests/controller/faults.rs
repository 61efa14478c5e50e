//! Servers that do not start, hang, or die; sentries that talk nonsense.

use std::time::Duration;

use crate::harness::{PAGES, PATIENCE, Place, is_alive, ports, shop, signal, until};
use crate::sentry::Sentry;

const QUICK: &str = "pause = \"500ms\", period = \"1s\", season = \"0s\"";

#[test]
fn a_server_that_dies_is_replaced_and_its_sentry_is_told_first() {
    let sentry = Sentry::start(&["shop"]);
    let (settings, config) = shop(sentry.address, &PAGES, ports(4), &format!("{QUICK}, min = 2, max = 3"));
    let place = Place::new(&settings, &config);
    let _controller = place.start("log", &[]);
    let before = sentry.has("shop", 2);
    let victim = place.pids()[0];
    signal(victim, "KILL");
    until(PATIENCE, "another is there", || {
        let now = sentry.servers("shop");
        now.len() == 2 && now != before
    });
    let orders = sentry.state().orders.clone();
    let counts: Vec<usize> =
        orders.iter().map(|(_, order)| order["servers"].as_array().unwrap().len()).collect();
    let full = counts.iter().position(|&count| count == 2).unwrap();
    assert!(counts[full..].contains(&1), "it was told of the loss: {counts:?}");
    assert!(!place.pids().contains(&victim));
    assert_eq!(place.pool()["failures"], 1);
}

/// How often a command was started within four seconds, and how many of it ran at once at most.
fn attempts(command: &str) -> (usize, usize) {
    let sentry = Sentry::start(&["shop"]);
    sentry.load(1_000.0);
    let place_of_marks = tempfile::tempdir().unwrap();
    let marks = place_of_marks.path().join("marks");
    let script = format!("echo {{port}} >> {}; {command}", marks.display());
    let (settings, config) = shop(
        sentry.address,
        &["sh", "-c", &script],
        ports(5),
        &format!("{QUICK}, min = 2, max = 3, start_timeout = \"300ms\", stop_timeout = \"100ms\""),
    );
    let place = Place::new(&settings, &config);
    let _controller = place.start("log", &[]);
    let mut at_once = 0;
    for _ in 0..80 {
        at_once = at_once.max(place.pids().into_iter().filter(|&pid| is_alive(pid)).count());
        std::thread::sleep(Duration::from_millis(50));
    }
    until(PATIENCE, "it is reported", || {
        place.pool()["trouble"].is_string() && place.pool()["failures"].as_u64() >= Some(2)
    });
    assert!(place.log("log").contains("server failed"));
    assert!(sentry.servers("shop").is_empty(), "nothing is offered that is not ready");
    (std::fs::read_to_string(&marks).unwrap_or_default().lines().count(), at_once)
}

#[test]
fn a_server_that_dies_at_once_is_tried_ever_more_slowly() {
    let (attempts, at_once) = attempts("exit 1");
    // Three at once, then one after 1, 2, 4, ... s; a tight loop would have had dozens.
    assert!((2..=8).contains(&attempts) && at_once <= 3, "{attempts} {at_once}");
}

#[test]
fn a_server_that_hangs_is_given_up_and_killed() {
    let (attempts, at_once) = attempts("trap '' TERM; while true; do sleep 1; done");
    assert!((2..=8).contains(&attempts) && at_once <= 3, "{attempts} {at_once}");
}

#[test]
fn a_program_that_is_not_there_is_reported() {
    let sentry = Sentry::start(&["shop"]);
    let (settings, config) =
        shop(sentry.address, &["/nonexistent/server", "{port}"], ports(1), &format!("{QUICK}, max = 1"));
    let place = Place::new(&settings, &config);
    let _controller = place.start("log", &[]);
    until(PATIENCE, "it is reported", || {
        place.pool()["trouble"].as_str().is_some_and(|trouble| trouble.contains("/nonexistent/server"))
    });
}

#[test]
fn a_port_that_somebody_else_has_is_left_alone() {
    let sentry = Sentry::start(&["shop"]);
    let range = ports(3);
    let _other = std::net::TcpListener::bind(("127.0.0.1", range.0)).unwrap();
    let (settings, config) = shop(sentry.address, &PAGES, range, &format!("{QUICK}, min = 2, max = 2"));
    let place = Place::new(&settings, &config);
    let _controller = place.start("log", &[]);
    let servers = sentry.has("shop", 2);
    assert!(!servers.contains(&format!("127.0.0.1:{}", range.0)), "{servers:?}");
}

#[test]
fn a_further_sentry_that_does_not_start_is_reported_and_its_share_goes_back() {
    let sentry = Sentry::start(&["shop"]);
    sentry.state().busy = 0.95;
    // Somebody else's port, which nobody may join.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (first, last) = ports(2);
    let settings = format!(
        "sentries = [\"{}\"]\nsentry_ports = \"{first}-{last}\"\nsentry_busy_for = \"1s\"",
        sentry.address
    );
    let config = format!(
        "[sentry]\nlisten = \"{}\"\n[pool.shop]\nservers = [\"127.0.0.1:1\"]\n",
        taken.local_addr().unwrap()
    );
    let place = Place::new(&settings, &config);
    let _controller = place.start("log", &[]);
    let more = || {
        let plan: serde_json::Value =
            serde_json::from_str(&place.get("/plan").unwrap_or_default()).unwrap_or_default();
        plan["more_sentries"].clone()
    };
    until(PATIENCE, "it is reported", || {
        more()["trouble"].as_str().is_some_and(|trouble| trouble.contains("ended before it was ready"))
            && more()["failures"].as_u64() >= Some(2)
    });
    assert_eq!(more()["planned"], 1);
    until(PATIENCE, "all is the first one's again", || sentry.state().share == (0, 1));
    let orders = sentry.state().orders.clone();
    let shares: Vec<u64> = orders.iter().filter_map(|(_, order)| order["of"].as_u64()).collect();
    assert_eq!(shares[..3], [2, 1, 2], "each time its share is left to it before it is started: {orders:?}");
}

#[test]
fn nonsense_and_silence_change_nothing() {
    let sentry = Sentry::start(&["shop"]);
    let (settings, config) = shop(sentry.address, &PAGES, ports(6), &format!("{QUICK}, min = 1, max = 6"));
    let place = Place::new(&settings, &config);
    let _controller = place.start("log", &[]);
    sentry.has("shop", 1);
    sentry.load(250.0);
    let planned = |_| place.pool()["planned"].as_u64().unwrap();
    until(PATIENCE, "it has grown", || planned(()) >= 4);
    let servers = planned(());
    let class = |offered: &str| {
        format!(
            "{{\"sentry\":{{\"busy\":-3}},\"pools\":[{{\"name\":\"shop\",\"slots\":-1,\"servers\":[],\"classes\":\
             [{{\"name\":\"default\",\"offered\":{offered},\"refused\":0,\"served\":0}}]}}]}}"
        )
    };
    for instead in [class("-5"), class("1e300"), class("\"NaN\""), "not JSON".to_owned(), "{}".to_owned()] {
        sentry.state().instead = Some(instead);
        std::thread::sleep(Duration::from_millis(800));
        assert_eq!(planned(()), servers);
    }
    let metrics = place.get("/metrics").unwrap();
    let count = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(count("plimsoll_controller_nonsense_total") >= 3.0, "{metrics}");
    assert!(count("plimsoll_controller_sentry_failures_total") >= 2.0, "{metrics}");
}

#[test]
fn what_is_contradictory_is_said_with_its_line_and_nothing_starts() {
    let place =
        Place::new("servers = 1", "[pool.shop]\nprovision = { min = 3, max = 2, command = [\"x\"] }\n");
    let mut controller = place.start("log", &[]);
    assert_eq!(controller.ended().code(), Some(1));
    let said = place.log("log");
    for expected in [":7:21: `min` 3 is above `max` 2", "`ports` is missing", "`servers` is 1, but"] {
        assert!(said.contains(expected), "{said}");
    }
}
