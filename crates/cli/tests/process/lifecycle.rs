//! Starting, dying, stopping.

use std::process::Command;
use std::time::Instant;

use crate::harness::{Connection, Scratch, Sentry, Upstream, alive, field, get, kill, wait_for};
use crate::pool;

#[test]
fn a_killed_worker_is_replaced_within_the_blink_of_an_eye() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 8));
    let mut worst = 0.0_f64;
    for nth in 1..=5 {
        let worker = sentry.worker(nth);
        // A good life, so that the parent does not count it as an early death.
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        kill(worker, "-9");
        let killed = Instant::now();
        // It arrives while nobody serves, and waits in the socket.
        let answer = get(sentry.address, "/0").unwrap();
        let away = killed.elapsed().as_secs_f64() * 1_000.0;
        assert_eq!((answer.status, &*answer.body), (200, "/0"));
        let unserved: f64 = field(&sentry.log("unserved_ms=", nth), "unserved_ms").parse().unwrap();
        eprintln!(
            "worker killed: back after {away:.1} ms for a client, {unserved:.1} ms by the parent's log"
        );
        worst = worst.max(away);
    }
    // The objective is 200 ms. The limit here leaves room for a machine that does other things.
    assert!(worst < 2_000.0, "{worst} ms");
}

#[test]
fn a_worker_that_dies_while_the_file_is_broken_is_replaced_by_one_with_the_last_good_config() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 8));
    sentry.rewrite("nonsense = 1\n");
    sentry.log("msg=\"not reloaded; the running config stays\"", 1);
    kill(sentry.worker(1), "-9");
    assert_eq!(get(sentry.address, "/0").unwrap().status, 200);
    sentry.log("going on with the last good one", 1);
}

#[test]
fn stopping_finishes_what_has_begun_and_takes_nothing_new() {
    let upstream = Upstream::start();
    let mut sentry = Sentry::start(&pool(&upstream, 8));
    let mut slow = Connection::open(sentry.address).unwrap();
    slow.send("/600", "").unwrap();
    wait_for("the request to arrive", || upstream.at_once() == 1);
    let worker = sentry.worker(1);
    sentry.signal("-TERM");
    wait_for("new connections to be refused", || Connection::open(sentry.address).is_err());
    assert!(alive(worker), "it still works");
    let answer = slow.receive().unwrap();
    assert_eq!((answer.status, answer.closes), (200, true));
    assert!(sentry.wait().success());
    assert!(!alive(worker));
}

#[test]
fn the_second_signal_ends_at_once() {
    let upstream = Upstream::start();
    let mut sentry = Sentry::start(&pool(&upstream, 8));
    let mut slow = Connection::open(sentry.address).unwrap();
    slow.send("/8000", "").unwrap();
    wait_for("the request to arrive", || upstream.at_once() == 1);
    let worker = sentry.worker(1);
    let start = Instant::now();
    sentry.signal("-INT");
    sentry.log("msg=stopping", 1);
    sentry.signal("-INT");
    assert!(!sentry.wait().success());
    wait_for("the worker to end", || !alive(worker));
    assert!(start.elapsed().as_secs() < 6, "it did not wait for the request");
}

#[test]
fn a_worker_whose_parent_is_killed_drains_and_leaves_the_address_to_the_next_sentry() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 8));
    let mut slow = Connection::open(sentry.address).unwrap();
    slow.send("/500", "").unwrap();
    wait_for("the request to arrive", || upstream.at_once() == 1);
    let worker = sentry.worker(1);
    kill(sentry.parent(), "-9");
    assert_eq!(slow.receive().unwrap().status, 200, "what had begun is finished");
    wait_for("the worker to end", || !alive(worker));
    std::net::TcpListener::bind(sentry.address).unwrap();
}

#[test]
fn an_address_that_is_taken_is_said_so() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let scratch = Scratch::new();
    let path = scratch.0.join("plimsoll.toml");
    let config = format!(
        "[sentry]\nlisten = \"{address}\"\nadmin = \"127.0.0.1:0\"\n[pool.a]\nservers = [\"127.0.0.1:1\"]\n"
    );
    std::fs::write(&path, config).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["sentry", "--config"])
        .arg(&path)
        .output()
        .unwrap();
    let error = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1));
    assert!(error.contains(&format!("cannot listen on {address}")), "{error}");
}

#[test]
fn a_config_that_is_wrong_is_said_so_with_line_and_column() {
    let scratch = Scratch::new();
    let path = scratch.0.join("plimsoll.toml");
    std::fs::write(&path, "[sentry]\nlisten = \"127.0.0.1:99999\"\n[pool.a]\nservers = [\"127.0.0.1:1\"]\n")
        .unwrap();
    for command in [&["sentry", "--config"][..], &["check"], &["check", "--config"]] {
        let run = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(command).arg(&path).output().unwrap();
        let error = String::from_utf8(run.stderr).unwrap();
        assert_eq!((run.status.code(), run.stdout.len()), (Some(1), 0));
        assert!(error.starts_with(&format!("{}:2:10: ", path.display())), "{error}");
    }
    let check = || Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("check").arg(&path).output().unwrap();
    std::fs::write(&path, "[pool.a]\nservers = [\"127.0.0.1:1\"]\n").unwrap();
    let run = check();
    assert!(run.status.success(), "{run:?}");

    // What is only wrong once it is used: a file that is not there, and one that holds something else.
    let pool = "[pool.a]\nservers = [\"https://127.0.0.1:1\"]\n";
    let this = path.display();
    for (config, at, why) in [
        (
            format!("{pool}[sentry.tls]\nkey = \"/none.key\"\ncert = \"/none.pem\"\n"),
            "5:8",
            "/none.pem: No such",
        ),
        (format!("{pool}[sentry]\ntls = {{ cert = \"{this}\", key = \"/\" }}\n"), "4:", "/: Is a directory"),
        (format!("{pool}tls_ca = \"{this}\"\n"), "3:10", "no certificate in PEM"),
        (format!("{pool}tls_ca = \"/none.pem\"\n"), "3:10", "/none.pem: No such"),
    ] {
        std::fs::write(&path, config).unwrap();
        let error = String::from_utf8(check().stderr).unwrap();
        assert!(error.starts_with(&format!("{this}:{at}")) && error.contains(why), "{at}: {error}");
    }
}
