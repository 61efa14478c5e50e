//! Controllers that end, and controllers that come.

use std::time::Duration;

use crate::harness::{PAGES, PATIENCE, Place, is_alive, ports, shop, until};
use crate::sentry::Sentry;

const QUICK: &str = "min = 2, max = 4, pause = \"500ms\", period = \"1s\", season = \"0s\"";

fn place(sentry: &Sentry) -> Place {
    let (settings, config) = shop(sentry.address, &PAGES, ports(4), QUICK);
    Place::new(&settings, &config)
}

#[test]
fn a_second_controller_stands_by_and_takes_over_what_there_is() {
    let sentry = Sentry::start(&["shop"]);
    let place = place(&sentry);
    let mut first = place.start("first", &[]);
    let servers = sentry.has("shop", 2);
    let pids = place.pids();

    let _second = place.start("second", &[]);
    until(PATIENCE, "it stands by", || place.log("second").contains("standing by"));
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(place.pids(), pids, "it starts nothing");

    first.signal("KILL");
    first.ended();
    assert!(pids.iter().all(|&pid| is_alive(pid)), "servers go on");
    until(PATIENCE, "it takes over", || place.log("second").contains("controller ready"));
    let before = sentry.state().orders.len();
    until(PATIENCE, "it tells", || sentry.state().orders.len() > before + 3);
    assert_eq!((sentry.servers("shop"), place.pids()), (servers, pids.clone()), "it adopts them");
    let orders = sentry.state().orders[before..].to_vec();
    assert!(
        orders.iter().all(|(_, order)| order["servers"].as_array().is_some_and(|servers| servers.len() == 2)),
        "none is missing for a moment: {orders:?}"
    );

    // They are its own now: one that dies is replaced.
    crate::harness::signal(pids[0], "KILL");
    until(PATIENCE, "another is there", || {
        let now = place.pids();
        now.len() == 2 && !now.contains(&pids[0]) && now.contains(&pids[1])
    });
}

#[test]
fn servers_outlive_a_controller_unless_it_is_told_otherwise() {
    let sentry = Sentry::start(&["shop"]);
    let place = place(&sentry);
    let mut first = place.start("first", &[]);
    sentry.has("shop", 2);
    let pids = place.pids();
    first.signal("TERM");
    assert!(first.ended().success());
    std::thread::sleep(Duration::from_millis(500));
    assert!(pids.iter().all(|&pid| is_alive(pid)));

    let mut second = place.start("second", &["--stop-servers"]);
    until(PATIENCE, "they are adopted", || place.log("second").matches("server adopted").count() == 2);
    assert_eq!(place.pids(), pids);
    second.signal("TERM");
    assert!(second.ended().success());
    assert!(place.pids().is_empty() && !pids.iter().any(|&pid| is_alive(pid)));
}

#[test]
fn servers_of_a_pool_that_is_gone_are_ended() {
    let sentry = Sentry::start(&["shop", "other"]);
    let first_place = place(&sentry);
    let mut first = first_place.start("first", &[]);
    sentry.has("shop", 2);
    let pids = first_place.pids();
    first.signal("KILL");
    first.ended();

    let config = first_place.directory.path().join("plimsoll.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let (head, tail) = text.split_once("[pool.shop]").unwrap();
    let (old, new) = (ports(4), tail.replace("shop", "other"));
    let ports_line = new.split("ports = \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let new = new.replace(&ports_line, &format!("{}-{}", old.0, old.1));
    std::fs::write(&config, format!("{head}[pool.other]{new}")).unwrap();
    let _second = first_place.start("second", &[]);
    sentry.has("other", 2);
    until(PATIENCE, "the old ones are gone", || !pids.iter().any(|&pid| is_alive(pid)));
}

#[test]
fn a_sentry_that_began_anew_is_told_again() {
    let sentry = Sentry::start(&["shop"]);
    let place = place(&sentry);
    let _controller = place.start("log", &[]);
    let servers = sentry.has("shop", 2);
    sentry.state().servers.insert("shop".to_owned(), Vec::new());
    assert_eq!(sentry.has("shop", 2), servers);
}
