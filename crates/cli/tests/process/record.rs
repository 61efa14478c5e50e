//! What decides in production is what the simulator drives: the events of a running sentry, put to a fresh gate,
//! give the same verdicts.

use std::path::Path;

use plimsoll_sentry::replay::replay;

use crate::harness::{Connection, Sentry, Upstream};

/// Runs clients against a sentry that cannot serve them all, under this policy, and returns the sentry with its record.
fn record(policy: &str) -> (Sentry, std::path::PathBuf) {
    record_with(&format!("admission = {policy}"), "")
}

/// The same with these keys of the pool, and these of its quick class.
fn record_with(pool: &str, quick: &str) -> (Sentry, std::path::PathBuf) {
    let upstream = Upstream::start();
    let config = format!(
        "threads = 2\n[pool.test]\nservers = [\"{}\"]\nworkers = 2\nmax_queue = 20\n{pool}\n\
         [class.quick]\nmatch = [{{ path = \"/2\" }}]\nslo = {{ p50 = \"8ms\", p90 = \"20ms\" }}\n{quick}\
         fair_share = \"address\"\n[class.default]\nslo = {{ p50 = \"30ms\", p90 = \"60ms\" }}\n",
        upstream.address
    );
    let binary = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    let mut sentry = Sentry::start_binary(binary, &config, &["--record", "record.jsonl"]);
    let address = sentry.address;
    let client = |n: usize| {
        std::thread::spawn(move || {
            let mut connection = Connection::open(address).unwrap();
            for i in 0..150 {
                let path = if (i + n).is_multiple_of(3) { "/12" } else { "/2" };
                let deadline = if i % 10 == 0 { "x-request-deadline-ms: 15\r\n" } else { "" };
                connection.send(path, deadline).unwrap();
                let answer = connection.receive().unwrap();
                assert!(matches!(answer.status, 200 | 503 | 504), "{answer:?}");
                if answer.status == 503 {
                    // As a client that is refused does; else a fast machine refuses all of them before any is served.
                    std::thread::sleep(std::time::Duration::from_millis(3));
                }
                if answer.closes {
                    connection = Connection::open(address).unwrap();
                }
            }
        })
    };
    let clients: Vec<_> = (0..12).map(client).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    sentry.signal("-TERM");
    assert!(sentry.wait().success());
    let path = sentry.scratch.0.join("record.jsonl");
    (sentry, path)
}

#[test]
fn every_policy_decides_the_same_in_production_and_in_replay() {
    for policy in [
        "{ policy = \"bouncer\", allowance = 0.1 }",
        "{ policy = \"bouncer\", underserved = 1.0 }",
        "{ policy = \"accept-fraction\" }",
        "{ policy = \"codel\" }",
        "{ policy = \"gradient2\" }",
    ] {
        let (_sentry, path) = record(policy);
        let summary = replay(&path).unwrap_or_else(|error| panic!("{policy}: {error}"));
        eprintln!("{policy}: {summary:?}");
        assert_eq!(summary.gates, 1);
        // How many depends on how busy the machine is.
        assert!(summary.admitted >= 50 && summary.refused > 0, "{policy}: {summary:?}");
    }
}

#[test]
fn policing_decides_the_same_in_production_and_in_replay() {
    for policy in ["batch", "threshold", "auto", "off"] {
        let pool = format!(
            "policing = {{ policy = \"{policy}\" }}\nadmission = {{ policy = \"bouncer\" }}\n\
             ladder = [{{ below = \"50/s\", mean = \"20ms\" }}, {{ mean = \"30ms\" }}]"
        );
        let (_sentry, path) = record_with(&pool, "priority = 1\nmin_rate = \"20/s\"\n");
        let summary = replay(&path).unwrap_or_else(|error| panic!("{policy}: {error}"));
        eprintln!("{policy}: {summary:?}");
        let text = std::fs::read_to_string(&path).unwrap();
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert!(summary.admitted >= 50, "{policy}: {summary:?}");
        assert!(count("\"answer\":\"admit promise\"") > 20 && count("\"promised\":true") > 20, "{policy}");
        let policed = count("\"answer\":\"refuse policing") + count("\"misfit\":[");
        assert!((policy == "off") == (policed == 0), "{policy}: {policed} were refused by the police");
        if policy == "batch" {
            assert!(count("\"event\":\"push\"") > 0 && count("\"event\":\"process\"") > 0);
        }
    }
}

#[test]
fn a_record_that_was_tampered_with_is_found_out() {
    let (_sentry, path) = record("{ policy = \"bouncer\" }");
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut lines, target) =
        (text.lines().map(str::to_owned).collect::<Vec<_>>(), "\"verdict\":\"admit estimate\"");
    let line = lines.iter().position(|line| line.contains(target) && line.contains("\"offer\"")).unwrap();
    lines[line] = lines[line].replace("admit estimate", "admit probe");
    std::fs::write(&path, lines.join("\n")).unwrap();
    let error = replay(&path).unwrap_err();
    assert!(
        error.contains(&format!(":{}: recorded `admit probe`, decided now `admit estimate`", line + 1)),
        "{error}"
    );

    // A sentry that was killed leaves half a line.
    std::fs::write(&path, &text[..text.len() - 9]).unwrap();
    replay(&path).unwrap();
}
