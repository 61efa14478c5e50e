//! `plimsoll simulate`, `suggest` and `reproduce` as scripts use them: the JSON, the exit codes, what goes where.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const WORKLOAD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../paper/bouncer.toml");

fn plimsoll(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(args).output().unwrap()
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn simulate(args: &[&str]) -> Output {
    let run = plimsoll(&[&["simulate", WORKLOAD, "--queries", "30000"], args].concat());
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    run
}

fn error(args: &[&str]) -> String {
    let run = plimsoll(args);
    assert!(!run.status.success() && run.stdout.is_empty(), "{args:?}");
    String::from_utf8(run.stderr).unwrap()
}

#[test]
fn the_json_has_what_the_contract_says() {
    let run = simulate(&[
        "--policy",
        "bouncer,allowance=0.1",
        "--policy",
        "maxql,limit=400",
        "--load",
        "0.9:1.5:0.3",
        "--load",
        "2",
        "--seed",
        "7",
        "--json",
    ]);
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    let runs = report["runs"].as_array().unwrap();
    let expected = ["bouncer,allowance=0.1", "maxql,limit=400"].map(|p| [0.9, 1.2, 1.5, 2.0].map(|l| (p, l)));
    let found: Vec<_> =
        runs.iter().map(|r| (r["policy"].as_str().unwrap(), r["load"].as_f64().unwrap())).collect();
    assert_eq!(found, expected.concat());
    for run in runs {
        assert_eq!((run["seed"].as_u64(), run["queries"].as_u64()), (Some(7), Some(30_000)));
        assert!((0.0..=100.0).contains(&run["utilization_pct"].as_f64().unwrap()));
        let classes = run["classes"].as_object().unwrap();
        assert_eq!(classes.keys().collect::<Vec<_>>(), ["fast", "medium_fast", "medium_slow", "slow"]);
        let received: u64 = classes.values().map(|class| class["received"].as_u64().unwrap()).sum();
        assert_eq!(received, 30_000);
        let rejected: f64 = classes
            .values()
            .map(|class| class["received"].as_f64().unwrap() * class["rejected_pct"].as_f64().unwrap())
            .sum();
        assert!((rejected / 30_000.0 - run["rejected_pct"].as_f64().unwrap()).abs() < 1e-9);
        for class in classes.values() {
            let ms = ["rt_p50_ms", "rt_p90_ms", "rt_p99_ms"].map(|key| class[key].as_f64().unwrap());
            assert!(0.0 < ms[0] && ms[0] < ms[1] && ms[1] < ms[2]);
            assert!(class["slo_met"].is_boolean());
        }
    }
    // At twice the load a queue of 400 breaks the slow class's median of 18 ms, and Bouncer keeps it.
    let slow = |run: usize| &runs[run]["classes"]["slow"];
    assert_eq!(slow(7)["slo_met"], false);
    assert!(slow(3)["overridden"].as_u64().unwrap() > 0);
    assert_eq!(runs[3]["classes"]["fast"]["slo_met"], true);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let run =
        |seed| simulate(&["--policy", "bouncer,underserved=1", "--load", "1.3", "--seed", seed, "--json"]);
    assert_eq!(run("1").stdout, run("1").stdout);
    assert_ne!(run("1").stdout, run("2").stdout);
}

#[test]
fn people_get_a_table_and_files_on_demand() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (csv, svg) = (directory.join("runs.csv"), directory.join("runs.svg"));
    let (csv, svg) = (csv.to_str().unwrap(), svg.to_str().unwrap());
    let run = simulate(&["--load", "1:1.2:0.1", "--csv", csv, "--svg", svg]);
    let table = String::from_utf8(run.stdout).unwrap();
    assert!(table.contains("bouncer at load 1.1") && table.contains("medium_slow"));
    assert!(String::from_utf8(run.stderr).unwrap().contains("M/s a core"));
    let csv = std::fs::read_to_string(csv).unwrap();
    assert_eq!(csv.lines().count(), 1 + 3 * 4, "{csv}");
    assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
}

#[test]
fn a_log_is_replayed_and_suggests_a_workload() {
    let line = |i: u32| {
        let (path, ms) = if i.is_multiple_of(10) { ("/report", 30 + i % 7) } else { ("/item", 3 + i % 3) };
        format!("{},{path}/{i},{ms}\n", f64::from(i) / 1_000.0)
    };
    let log = file(
        "access.csv",
        &format!("timestamp,path,service_ms\n{}", (0..5_000).map(line).collect::<String>()),
    );
    let log = log.to_str().unwrap();
    let suggested = plimsoll(&["suggest", log]);
    assert!(suggested.status.success());
    let workload = file("suggested.toml", &String::from_utf8(suggested.stdout).unwrap());
    let workload = workload.to_str().unwrap();
    let arguments = ["simulate", workload, "--replay", log, "--load", "1", "--load", "20", "--json"];
    let run = plimsoll(&arguments);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    let [calm, busy] = report["runs"].as_array().unwrap().as_slice() else { panic!("{report}") };
    for run in [calm, busy] {
        assert_eq!(run["queries"], 5_000);
        assert_eq!(run["classes"]["item-id"]["received"], 4_500);
        assert_eq!(run["classes"]["report-id"]["received"], 500);
    }
    // At its own pace the log fits the server that it was seen on; twenty times as fast it does not.
    assert_eq!(calm["rejected_pct"], 0.0);
    assert!(busy["rejected_pct"].as_f64().unwrap() > 10.0, "{busy}");
    assert_eq!(plimsoll(&arguments).stdout, run.stdout);
}

#[test]
fn a_log_alone_is_enough() {
    let line = |i: u32| {
        let (class, ms) = if i.is_multiple_of(10) { ("slow", 30 + i % 7) } else { ("fast", 3 + i % 3) };
        format!("{},{class},{ms}\n", f64::from(i) / 1_000.0)
    };
    let text = format!("timestamp,class,service_ms\n{}", (0..2_000).map(line).collect::<String>());
    let log = file("alone.csv", &text);
    let log = log.to_str().unwrap();
    let run = plimsoll(&["simulate", "--replay", log, "--load", "1", "--load", "20", "--json"]);
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(run.status.success(), "{said}");
    assert!(
        said.contains(&format!("`plimsoll suggest {log}` shows what is taken instead: 3 classes")),
        "{said}"
    );
    // What `suggest` prints gives the same bytes.
    let suggested = plimsoll(&["suggest", log]);
    let workload = file("alone.toml", &String::from_utf8(suggested.stdout).unwrap());
    let workload = workload.to_str().unwrap();
    let written = plimsoll(&["simulate", workload, "--replay", log, "--load", "1", "--load", "20", "--json"]);
    assert_eq!(String::from_utf8(written.stdout).unwrap(), String::from_utf8(run.stdout).unwrap());
    assert!(error(&["simulate", "--json"]).contains("WORKLOAD.toml"));
}

#[test]
fn a_figure_shows_what_the_objectives_are_about() {
    let class = |name: &str, slo: &str| {
        format!(
            "[class.{name}]\nshare = 0.5\nservice = {{ dist = \"exponential\", mean = \"5ms\" }}\n{slo}\n"
        )
    };
    let text = class("tail", "slo = { p95 = \"40ms\", p99 = \"90ms\" }") + &class("free", "");
    let workload = file("figure.toml", &text);
    let svg = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("objectives.svg");
    let arguments = ["--queries", "5000", "--load", "0.9", "--load", "1.2", "--svg", svg.to_str().unwrap()];
    let run = plimsoll(&[&["simulate", workload.to_str().unwrap()], &arguments[..]].concat());
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let svg = std::fs::read_to_string(svg).unwrap();
    let drawn = |title: &str| svg.contains(title);
    assert!(
        ["tail: response time, p95", "tail: response time, p99", "free: response time, p50"].map(drawn)
            == [true; 3]
    );
    assert!(["tail: response time, p50", "free: response time, p99"].map(drawn) == [false; 2]);
    assert_eq!(svg.matches("objective").count(), 2, "one a chart that has one");
}

#[test]
fn mistakes_are_told_with_their_place() {
    let workload = file("wrong.toml", "[engine]\nprocesses = 0\n[class.a]\nshare = 1.0\n");
    let workload = workload.to_str().unwrap();
    let told = error(&["simulate", workload]);
    assert!(told.contains("wrong.toml:2:13: ") && told.contains("from 1 to"), "{told}");
    let log = file("wrong.csv", "timestamp,class,service_ms\n1,fast,2\n2,fast,soon\n");
    let log = log.to_str().unwrap();
    for told in [error(&["simulate", WORKLOAD, "--replay", log]), error(&["suggest", log])] {
        assert!(told.contains("wrong.csv:3: `soon` is not a service time"), "{told}");
    }
    for (arguments, part) in [
        (["--policy", "bouncr"], "did you mean `bouncer`?"),
        (["--policy", "bouncer,mode=shadow"], "leave `mode` out"),
        (["--policy", "maxqwt,limit.slwo=5ms"], "no class `slwo`"),
        (["--load", "1.5:0.9:0.1"], "ends before it begins"),
        (["--load", "0"], "out of range"),
        (["--stall", "10s"], "start and length"),
        (["--replay", "/nowhere.csv"], "cannot be read"),
    ] {
        let told = error(&[&["simulate", WORKLOAD][..], &arguments].concat());
        assert!(told.contains(part), "{told}");
    }
    assert!(error(&["reproduce", "bouncer", "--experiment", "table9"]).contains("table3"));
}

#[test]
fn an_experiment_is_reproduced_and_drawn() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("figures");
    let run = plimsoll(&[
        "reproduce",
        "bouncer",
        "--experiment",
        "table4",
        "--experiment",
        "fig10",
        "--quick",
        "--json",
        "--out",
        directory.to_str().unwrap(),
    ]);
    let results: Value = serde_json::from_slice(&run.stdout).unwrap();
    let experiments = results["experiments"].as_array().unwrap();
    assert_eq!(
        experiments.iter().map(|e| e["id"].as_str().unwrap()).collect::<Vec<_>>(),
        ["table4", "fig10"]
    );
    let rows = experiments[0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12 * 3);
    for row in rows {
        assert_eq!(row["pass"], true, "{row}");
        assert!(row["what"].is_string() && row["paper"].is_number() && row["ours"].is_number());
        assert!(row["tolerance"]["value"].is_number(), "{row}");
    }
    assert!(run.status.success());
    assert!(directory.join("fig10.svg").exists());
}
