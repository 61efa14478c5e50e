//! Becoming another binary under load.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::harness::{Connection, Load, Scratch, Sentry, Upstream, alive, get, wait_for};
use crate::pool;

#[test]
fn an_upgrade_refuses_no_connection_and_fails_no_request() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 8));
    let load = Load::start(sentry.address, 8, "/1");
    let parent = sentry.parent();
    for nth in 1..=3 {
        load.more(200);
        let old = sentry.worker(nth);
        sentry.signal("-USR2");
        sentry.log("msg=\"worker ready\"", nth + 1);
        wait_for("the old worker to drain", || !alive(old));
    }
    load.more(200);
    let requests = load.stop();
    eprintln!("{requests} requests through three upgrades");
    assert!(alive(parent), "the parent is still the same process");
}

#[test]
fn a_kept_connection_learns_of_the_upgrade_in_a_response() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 8));
    let mut connection = Connection::open(sentry.address).unwrap();
    assert!(!connection.get("/0").unwrap().closes);
    sentry.signal("-USR2");
    wait_for("the last response of the old worker", || {
        let answer = connection.get("/0").unwrap();
        assert_eq!(answer.status, 200);
        answer.closes
    });
    sentry.log("msg=\"worker has drained\"", 1);
}

#[test]
fn the_new_worker_leaves_the_slots_alone_that_the_old_one_uses() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 2));
    let mut slow: Vec<_> = (0..2).map(|_| Connection::open(sentry.address).unwrap()).collect();
    slow.iter_mut().for_each(|connection| connection.send("/1500", "").unwrap());
    wait_for("the slots to be taken", || upstream.at_once() == 2);
    sentry.signal("-USR2");
    sentry.log("msg=\"worker ready\"", 2);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask =
            || (0..4).map(|_| scope.spawn(|| get(sentry.address, "/50").unwrap().status)).collect::<Vec<_>>();
        ask().into_iter().map(|request| request.join().unwrap()).collect()
    });
    assert_eq!(answers, [200; 4], "they waited for the slots");
    slow.iter_mut().for_each(|connection| assert_eq!(connection.receive().unwrap().status, 200));
    assert_eq!(upstream.peak(), 2, "the server never saw more than its two workers");
}

#[test]
fn a_binary_or_a_config_that_does_not_work_is_not_upgraded_to() {
    let upstream = Upstream::start();
    let scratch = Scratch::new();
    let binary = scratch.0.join("plimsoll");
    std::fs::copy(env!("CARGO_BIN_EXE_plimsoll"), &binary).unwrap();
    let sentry = Sentry::start_binary(&binary, &pool(&upstream, 8), &[]);
    let load = Load::start(sentry.address, 4, "/1");
    let worker = sentry.worker(1);

    sentry.rewrite("nonsense = 1\n");
    sentry.signal("-USR2");
    sentry.log("does not accept the config; no upgrade", 1);
    sentry.rewrite(&pool(&upstream, 8));

    replace(&binary, b"#!/bin/sh\nexit 1\n");
    sentry.signal("-USR2");
    sentry.log("does not accept the config; no upgrade", 2);

    replace(&binary, b"\x7fELF is not all there is to it");
    sentry.signal("-USR2");
    sentry.log("cannot start the binary on disk; no upgrade", 1);

    std::fs::remove_file(&binary).unwrap();
    sentry.signal("-USR2");
    sentry.log("cannot start the binary on disk; no upgrade", 2);

    // It says yes when asked and cannot be become: the worker must be the only one to notice nothing.
    replace(&binary, b"#!/bin/sh\nif [ \"$1\" = check ]; then chmod -x \"$0\"; exit 0; fi\nexit 1\n");
    sentry.signal("-USR2");
    sentry.log("cannot become the binary on disk; no upgrade", 1);
    load.more(100);

    // A worker that dies is still replaced, by the binary that runs and not by what lies on the disk.
    crate::harness::kill(worker, "-9");
    sentry.log("msg=\"worker ready\"", 2);
    wait_for("requests to succeed again", || get(sentry.address, "/0").is_ok_and(|a| a.status == 200));
}

/// Puts a file in the place of the binary that runs, as an installation does.
fn replace(binary: &Path, content: &[u8]) {
    let new = binary.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(new, binary).unwrap();
}
