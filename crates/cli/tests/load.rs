//! `plimsoll load` as scripts use it: the JSON, the exit codes, what goes where.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;

/// Answers every request on every connection with 200 and says when one has come.
fn server() -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (came, coming) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let came = came.clone();
            thread::spawn(move || {
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|read| read > 0) {
                    // The test may have learnt enough already.
                    let _ = came.send(());
                    if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, coming)
}

fn load(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("load").args(args).output().unwrap()
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn the_json_has_what_the_contract_says() {
    let (address, _coming) = server();
    let mix = file(
        "load-mix.toml",
        "[request.search]\npath = \"/search?q=1\"\nshare = 3\ndeadline = \"30s\"\n\
         [request.order]\nmethod = \"POST\"\npath = \"/orders\"\nshare = 1\nbody = \"{}\"\n\
         headers = { content-type = \"application/json\" }\n",
    );
    let target = format!("http://{address}");
    let arguments =
        ["--target", &target, "--mix", mix.to_str().unwrap(), "--rate", "200", "--duration", "1s"];
    let run = load(&[&arguments[..], &["--seed", "7", "--json"]].concat());
    assert!(run.status.success());
    // A busy machine makes the generator late, which it says; without a terminal there is no live line.
    let stderr = String::from_utf8(run.stderr).unwrap();
    assert!(stderr.lines().all(|line| line.starts_with("warning: ")), "{stderr}");
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    let (search, order) = (&report["requests"]["search"], &report["requests"]["order"]);
    let counts = ["sent", "ok", "rejected", "refused_other", "errors"];
    let latencies = ["p50_ms", "p90_ms", "p99_ms", "max_ms", "late_ms_p99", "goodput_per_s"];
    for row in [&report["total"], search, order] {
        assert!(counts.iter().all(|key| row[key].is_u64()), "{row}");
        assert!(latencies.iter().all(|key| row[key].as_f64().is_some_and(|ms| ms > 0.0)), "{row}");
        assert_eq!(row["sent"], row["ok"]);
        assert!(row["rejected_p99_ms"].is_null() && row["error_kinds"] == serde_json::json!({}));
    }
    assert!(search["sent"].as_u64() > order["sent"].as_u64());
    for (key, value) in [("seed", 7.0), ("rate", 200.0), ("duration_s", 1.0)] {
        assert_eq!(report[key].as_f64(), Some(value));
    }

    let table = String::from_utf8(load(&arguments).stdout).unwrap();
    for word in ["request", "search", "order", "total", "late p99", "rate 200, seed 1"] {
        assert!(table.contains(word), "{table}");
    }
}

#[test]
fn what_is_wrong_is_said_on_stderr() {
    let bad = file("load-bad-mix.toml", "[request.search]\npath = \"/search\"\nsharing = 3\n");
    let bad = bad.to_str().unwrap();
    let expectations = [
        (vec!["--target", "http://127.0.0.1:1", "--mix", bad, "--rate", "1"], 1, format!("{bad}:3:1")),
        (vec!["--target", "127.0.0.1:1", "--rate", "1"], 1, "http://".to_owned()),
        (
            vec!["--target", "http://127.0.0.1:1", "--rate", "1", "--mix", "none.toml"],
            1,
            "none.toml".to_owned(),
        ),
        (vec!["--target", "http://127.0.0.1:1", "--rate", "quick"], 2, "quick".to_owned()),
        (vec!["--target", "http://127.0.0.1:1", "--rate", "1", "--pin", "9999"], 1, "9999".to_owned()),
    ];
    for (arguments, code, words) in expectations {
        let run = load(&arguments);
        let stderr = String::from_utf8(run.stderr).unwrap();
        assert_eq!((run.status.code(), run.stdout.len()), (Some(code), 0), "{stderr}");
        assert!(stderr.contains(&words), "{stderr}");
    }
}

#[test]
fn an_interrupted_run_still_reports() {
    let (address, coming) = server();
    let target = format!("http://{address}");
    let arguments = ["load", "--target", &target, "--rate", "100", "--duration", "1h", "--json"];
    let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    coming.recv().unwrap();
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["interrupted"], true);
    assert!(report["duration_s"].as_f64().unwrap() < 3_600.0);
}

#[test]
fn the_log_has_a_line_a_request_and_a_place_that_cannot_be_written_is_said() {
    let (address, _coming) = server();
    let target = format!("http://{address}/some,%22thing");
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("load-log.csv");
    let arguments = ["--target", &target, "--rate", "300", "--duration", "1s", "--json", "--log"];
    let run = load(&[&arguments[..], &[log.to_str().unwrap()]].concat());
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    let text = std::fs::read_to_string(&log).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("at_s,request,outcome,latency_ms"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len() as u64, report["total"]["sent"].as_u64().unwrap());
    let mut slowest: f64 = 0.0;
    for line in lines {
        let (at, rest) = line.split_once(',').unwrap();
        let latency: f64 = rest.strip_prefix("\"/some,%22thing\",ok,").unwrap().parse().unwrap();
        assert!((0.0..1.0).contains(&at.parse::<f64>().unwrap()), "{line}");
        slowest = slowest.max(latency);
    }
    assert!((slowest - report["total"]["max_ms"].as_f64().unwrap()).abs() < 0.002);

    let refused = load(&[&arguments[..], &["/no/such/place.csv"]].concat());
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && stderr.contains("/no/such/place.csv: No such file"), "{stderr}");
}
