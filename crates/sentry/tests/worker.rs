//! A worker serves with all of its threads, or not at all.

mod common;

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{Sentry, config, eventually, parse};
use plimsoll_sentry::clock;
use plimsoll_sentry::state::Shared;
use plimsoll_sentry::worker::{self, WorkerSetup};

const IN_CHILD: &str = "PLIMSOLL_TEST_FAULT";

/// A worker of two threads, the second of which cannot accept connections, or whose `ready` panics.
fn faulty(fault: &str) {
    let shared =
        Arc::new(Shared::new(parse(&config("", &["127.0.0.1:1".parse().unwrap()], "")), 2, None).unwrap());
    let good = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    let second = if fault == "socket" { vec![TcpListener::from(file)] } else { Vec::new() };
    let panics = fault == "panic";
    let ready = Box::new(move || assert!(!panics, "as the test wants it"));
    let _ = worker::run(WorkerSetup { listeners: vec![vec![good], second], shared, seed: 1, ready });
}

#[tokio::test]
async fn a_thread_that_cannot_serve_ends_the_worker() {
    // In a process of its own, since that is what ends.
    if let Ok(fault) = std::env::var(IN_CHILD) {
        return tokio::task::spawn_blocking(move || faulty(&fault)).await.unwrap();
    }
    for fault in ["socket", "panic"] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_thread_that_cannot_serve_ends_the_worker"])
            .env(IN_CHILD, fault)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ended = None;
        let end = clock::now() + common::PATIENCE.into();
        while ended.is_none() && clock::now() < end {
            ended = child.try_wait().unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let _ = child.kill();
        let _ = child.wait();
        let ended = ended.unwrap_or_else(|| panic!("{fault}: it goes on with one thread"));
        assert_eq!(ended.signal(), Some(6), "{fault}: {ended}");
    }
}

#[tokio::test]
async fn a_worker_that_drains_ends_with_all_of_its_threads() {
    let sentry = Sentry::before(&["127.0.0.1:1".parse().unwrap()], "");
    sentry.shared.begin_drain();
    eventually(|| sentry.has_ended(), || "ended".to_owned()).await;
}
