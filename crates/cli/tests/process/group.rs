//! Several sentries on one port.

use std::process::Command;

use crate::harness::{Connection, Load, Sentry, Upstream, field, get, put, wait_for};
use crate::pool;

#[test]
fn sentries_come_and_go_on_one_port_and_no_connection_is_lost() {
    let upstream = Upstream::start();
    let config = pool(&upstream, 50);
    let mut sentries = vec![Sentry::start(&config)];
    let address = sentries[0].address;
    // A connection for each request, so that the port is what is tested.
    let load = Load::renewing(address, 8, "/1", |_| 1);
    for turn in 0..6 {
        load.more(100);
        let newest = sentries[0].beside(&config);
        sentries.push(newest);
        if turn == 2 {
            let third = sentries[0].beside(&config);
            sentries.push(third);
        }
        load.more(200);
        // The oldest, the one in the middle, the newest.
        let leaver = [0, 1, 1, 1, 0, 1][turn];
        let mut leaver = sentries.remove(leaver);
        leaver.signal("-TERM");
        assert!(leaver.wait().success(), "turn {turn}");
        let line = leaver.log("msg=\"leaving the port to other sentries\"", 1);
        assert_ne!(field(&line, "new_connections"), "Late", "turn {turn}: {line}");
        load.more(200);
        if turn == 3 {
            // Back to one.
            let mut other = sentries.pop().unwrap();
            other.signal("-TERM");
            assert!(other.wait().success());
        }
    }
    load.more(100);
    eprintln!("{} connections while eight sentries came and seven went", load.stop());
    for sentry in &sentries {
        assert_eq!(get(sentry.address, "/0").unwrap().status, 200);
    }
}

#[test]
fn clients_that_keep_their_connections_find_a_sentry_that_came_later() {
    let upstream = Upstream::start();
    let config = pool(&upstream, 16);
    let first = Sentry::start(&config);
    let load = Load::renewing(first.address, 16, "/5", |_| usize::MAX);
    load.more(50);
    let second = first.beside(&config);
    for (part, sentry) in [&first, &second].into_iter().enumerate() {
        let share = format!("{{\"part\":{part},\"of\":2}}");
        assert_eq!(put(sentry.admin, "/share", &share).status, 200);
    }
    let served = |sentry: &Sentry| {
        let pools: serde_json::Value =
            serde_json::from_str(&get(sentry.admin, "/pools").unwrap().body).unwrap();
        pools["pools"][0]["classes"][0]["served"].as_u64().unwrap()
    };
    wait_for("the second one to be found", || served(&second) > 100);
    let before = served(&first);
    load.more(200);
    assert!(served(&first) > before, "not all of them have gone");
    load.stop();
}

#[test]
fn the_last_one_on_a_port_stops_as_if_there_had_never_been_another() {
    let upstream = Upstream::start();
    let config = pool(&upstream, 8);
    let mut first = Sentry::start(&config);
    let mut second = first.beside(&config);
    first.signal("-TERM");
    assert!(first.wait().success());
    let mut slow = Connection::open(second.address).unwrap();
    slow.send("/500", "").unwrap();
    wait_for("the request to arrive", || upstream.at_once() == 1);
    second.signal("-TERM");
    wait_for("new connections to be refused", || Connection::open(second.address).is_err());
    assert_eq!(slow.receive().unwrap().status, 200);
    assert!(second.wait().success());
    assert!(!second.lines().iter().any(|line| line.contains("leaving the port")));
}

#[test]
fn the_second_signal_ends_at_once_even_while_the_port_is_left() {
    let upstream = Upstream::start();
    let config = pool(&upstream, 8);
    let first = Sentry::start(&config);
    let mut second = first.beside(&config);
    second.signal("-TERM");
    second.log("msg=\"leaving the port to other sentries\"", 1);
    second.signal("-TERM");
    assert!(!second.wait().success());
    assert_eq!(get(first.address, "/0").unwrap().status, 200);
}

#[test]
fn a_sentry_that_is_started_twice_by_mistake_says_so() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 8));
    let config = format!(
        "[sentry]\nlisten = \"{}\"\nadmin = \"127.0.0.1:0\"\n[pool.a]\nservers = [\"127.0.0.1:1\"]\n",
        sentry.address
    );
    let path = sentry.scratch.0.join("again.toml");
    std::fs::write(&path, config).unwrap();
    let admin = sentry.admin.to_string();
    for (arguments, what) in [
        (&[][..], format!("cannot listen on {}", sentry.address)),
        (&["--admin", &admin][..], format!("cannot listen on the admin address {admin}")),
    ] {
        let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["sentry", "--config"])
            .arg(&path)
            .args(arguments)
            .output()
            .unwrap();
        let error = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(1), "{error}");
        assert!(error.contains(&what), "{error}");
    }
    for _ in 0..20 {
        assert_eq!(get(sentry.address, "/0").unwrap().status, 200, "it got in nobody's way");
    }
}
