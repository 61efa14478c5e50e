//! `plimsoll testbed` as processes: ready lines, signals, and nothing left behind.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_testbed::graph::study::{self, StudyOptions};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// A testbed that has said where it listens.
struct Testbed {
    child: Child,
    ready: Value,
}

impl Testbed {
    fn start(args: &[&str]) -> Testbed {
        Testbed::start_with(args, &[])
    }

    fn start_with(args: &[&str], environment: &[(&str, &OsStr)]) -> Testbed {
        let mut command = Command::new(PLIMSOLL);
        command.arg("testbed").args(args).args(["--json", "--listen", "127.0.0.1:0"]);
        command.envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Testbed { child, ready: serde_json::from_str(&line).unwrap() }
    }

    fn addr(&self) -> SocketAddr {
        self.ready["addr"].as_str().unwrap().parse().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

/// For tests that fail before their testbed has ended.
impl Drop for Testbed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(addr: SocketAddr, target: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nhost: testbed\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn wait_until_gone(addr: SocketAddr) {
    for _ in 0..200 {
        if TcpStream::connect(addr).is_err() {
            return;
        }
        #[allow(clippy::disallowed_methods)] // waits for another process, about which nothing can be awaited
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{addr} still listens after ten seconds");
}

#[test]
fn pages_end_cleanly_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut pages = Testbed::start(&["pages", "--work", "wait", "--workers", "2", "--cost", "cheap=1ms"]);
        assert_eq!((&pages.ready["ready"], &pages.ready["workers"]), (&"pages".into(), &2.into()));
        assert_eq!(pages.ready["service_ms"]["cheap"], 1.0);
        assert!(get(pages.addr(), "/cheap").starts_with("HTTP/1.1 200"));
        pages.signal(signal);
        assert!(pages.child.wait().unwrap().success());
    }
}

#[test]
fn hogs_say_what_they_are_called_in_their_ledger_and_end_cleanly() {
    let ledgers = tempfile::tempdir().unwrap();
    let directory = ledgers.path().join("ledgers");
    let mut hogs = Testbed::start_with(&["hogs"], &[("PLIMSOLL_DIR", directory.as_os_str())]);
    assert_eq!(hogs.ready["ready"], "hogs");
    assert!(get(hogs.addr(), "/item").starts_with("HTTP/1.1 200"));
    let ledger = format!("{}.{}.ledger", hogs.ready["app"].as_str().unwrap(), hogs.child.id());
    assert!(directory.join(&ledger).exists(), "{ledger}");
    hogs.signal(Signal::TERM);
    assert!(hogs.child.wait().unwrap().success());
    assert!(!directory.join(ledger).exists());
}

#[test]
fn pages_that_die_are_a_failure() {
    let mut pages = Testbed::start(&["pages", "--work", "wait"]);
    let mut stream = TcpStream::connect(pages.addr()).unwrap();
    stream.write_all(b"POST /_fault?die HTTP/1.1\r\nhost: pages\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert_eq!(pages.child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_graph_store_leaves_nothing_behind() {
    let args = ["graph", "--shards", "2", "--vertices", "1000", "--policy", "none"];
    // However the process that started them ends.
    for signal in [Signal::TERM, Signal::KILL] {
        let mut store = Testbed::start(&args);
        let shards: Vec<SocketAddr> = store.ready["shards"]
            .as_array()
            .unwrap()
            .iter()
            .map(|addr| addr.as_str().unwrap().parse().unwrap())
            .collect();
        assert_eq!(shards.len(), 2);
        let answer = get(store.addr(), "/q/QT11?src=1&dst=1");
        assert!(answer.ends_with(r#"{"distance":0,"type":"QT11"}"#), "{answer}");
        store.signal(signal);
        assert_eq!(store.child.wait().unwrap().success(), signal == Signal::TERM);
        shards.into_iter().chain([store.addr()]).for_each(wait_until_gone);
    }
}

#[test]
fn a_graph_store_whose_shard_dies_is_a_failure() {
    let mut store = Testbed::start(&["graph", "--shards", "1", "--vertices", "1000"]);
    let parent = Pid::from_child(&store.child);
    let shard = child_with_argument(parent, "shard");
    kill_process(shard, Signal::KILL).unwrap();
    assert_eq!(store.child.wait().unwrap().code(), Some(1));
    wait_until_gone(store.addr());
}

/// The child of a process that was started with this argument.
fn child_with_argument(parent: Pid, argument: &str) -> Pid {
    let parent = parent.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let has_it = |pid: &&str| {
        let cmdline = std::fs::read(Path::new("/proc").join(pid).join("cmdline")).unwrap_or_default();
        cmdline.split(|&byte| byte == 0).any(|arg| arg == argument.as_bytes())
    };
    let found = children.split_whitespace().find(has_it).expect("such a child");
    Pid::from_raw(found.parse().unwrap()).unwrap()
}

#[test]
fn bad_arguments_are_explained() {
    for (args, words) in [
        (&["graph", "--policy", "lottery"][..], "lottery"),
        (&["graph", "--role", "broker"], "--shard-addr"),
        (&["graph", "--role", "shard", "--index", "9"], "--index"),
        (&["pages", "--cost", "huge=5ms"], "huge"),
        (&["pages", "--cpu", "1000000"], "CPU 1000000"),
    ] {
        let mut command = Command::new(PLIMSOLL);
        let output = command.arg("testbed").args(args).args(["--listen", "127.0.0.1:0"]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(words), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

/// The figures themselves depend on the machine and are `reproduce`'s business.
#[test]
fn the_study_on_the_graph_store_runs() {
    let mut options = StudyOptions {
        loads: vec![0.5, 2.0],
        policies: vec!["bouncer".to_owned(), "maxql,limit=20".to_owned()],
        warm_up: Nanos::from_millis(300),
        measure: Nanos::from_millis(700),
        ..StudyOptions::quick(PLIMSOLL.into())
    };
    options.store.graph.vertices = 5_000;
    let result = study::run(options.clone(), &|_| {}).unwrap();
    assert!(result.capacity_per_s > 1.0);
    assert_eq!(result.runs.len(), 4);
    for run in &result.runs {
        assert!(run.sent > 0 && run.errors == 0, "{run:?}");
        assert_eq!(run.types.iter().map(|of| of.sent).sum::<u64>(), run.sent);
        assert!((run.rate_per_s - run.load * result.capacity_per_s).abs() < 0.01);
        assert_eq!(run.types[10].name, "QT11");
        // The one of which there are most: of the others a busy machine may answer none in 0.7 s.
        let most =
            run.types.iter().max_by_key(|of| of.sent - (of.sent as f64 * of.rejected_pct / 100.0) as u64);
        let [processing, response] = most.map(|of| [of.processing_ms.p50, of.response_ms.p50]).unwrap();
        assert!(processing > Some(0.0) && response >= processing, "{run:?}");
    }
    assert!(result.run("maxql,limit=20", 2.0).unwrap().rejected_pct > 1.0);
    let starvation = study::starvation(options, &|_| {}).unwrap();
    assert!(starvation.samples.len() > 5, "{}", starvation.samples.len());
}
