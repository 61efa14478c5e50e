//! `plimsoll fleet` as scripts use it: the JSON, the exit codes, what goes where.

use std::process::{Command, Output};

use serde_json::Value;

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../paper/topfull/starvation.toml");

fn plimsoll(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(args).output().unwrap()
}

fn error(args: &[&str]) -> String {
    let run = plimsoll(args);
    assert!(!run.status.success() && run.stdout.is_empty(), "{args:?}");
    String::from_utf8(run.stderr).unwrap()
}

#[test]
fn a_run_prints_json_and_nothing_else() {
    let run = plimsoll(&["fleet", "run", SCENARIO, "--controller", "dagor", "--json"]);
    assert!(run.status.success() && run.stderr.is_empty(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(report["controller"], "dagor");
    assert!((report["optimum_per_s"].as_f64().unwrap() - 10_000.0).abs() < 1.0);
    assert_eq!(report["apis"].as_object().unwrap().keys().collect::<Vec<_>>(), ["first", "second"]);
    let again = plimsoll(&["fleet", "run", SCENARIO, "--controller", "dagor", "--json"]);
    assert_eq!(run.stdout, again.stdout, "the same seed gives the same bytes");
}

#[test]
fn without_a_name_the_default_decides() {
    let run = plimsoll(&["fleet", "run", SCENARIO, "--json"]);
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(report["controller"], "model");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bad-fleet.toml");
    std::fs::write(&path, "[service.a]\ncapacity = \"1/s\"\n[api.x]\npath = [\"b\"]\noffered = \"1/s\"\n")
        .unwrap();
    let path = path.to_str().unwrap();
    assert!(error(&["fleet", "run", path]).contains(&format!("{path}:4:9: there is no [service.b]")));
    assert!(error(&["fleet", "run", "/nonexistent.toml"]).contains("cannot be read"));
    let unknown = error(&["fleet", "run", SCENARIO, "--controller", "lerned"]);
    assert!(unknown.contains("no such controller") && unknown.contains("model, learned, mimd"), "{unknown}");
    let weights = error(&["fleet", "run", SCENARIO, "--controller", "learned", "--weights", path]);
    assert!(weights.contains(&format!("{path}: this is no safetensors file")), "{weights}");
    let training = error(&["fleet", "train", SCENARIO, "--python", "/nonexistent/python"]);
    assert!(
        training.contains("`/nonexistent/python` has no plimsoll_training; run training/run.sh --setup"),
        "{training}"
    );
}

#[test]
fn what_was_learned_decides_and_other_weights_may_be_named() {
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../ratecontrol/models/base.safetensors");
    let learned = |more: &[&str]| {
        let run =
            plimsoll(&[&["fleet", "run", SCENARIO, "--controller", "learned", "--json"], more].concat());
        assert!(run.status.success() && run.stderr.is_empty(), "{}", String::from_utf8_lossy(&run.stderr));
        run.stdout
    };
    let report: Value = serde_json::from_slice(&learned(&[])).unwrap();
    assert_eq!(report["controller"], "learned");
    assert!(report["share_of_optimum"].as_f64().unwrap() > 0.8, "{report}");
    assert_eq!(learned(&[]), learned(&["--weights", base]));
}

#[test]
fn a_drawn_fleet_runs_and_a_study_is_the_same_again() {
    let drawn = plimsoll(&["fleet", "draw", "--seed", "3"]);
    assert!(drawn.status.success());
    let study = |json: &str| {
        plimsoll(&["fleet", "study", "--fleets", "2", "--duration", "6s", "--controller", "dagor", json])
            .stdout
    };
    let report: Value = serde_json::from_slice(&study("--json")).unwrap();
    assert_eq!(
        (report["fleets"].as_u64(), report["controllers"][0]["shares"].as_array().map(Vec::len)),
        (Some(2), Some(2))
    );
    assert_eq!(study("--json"), study("--json"));
}
