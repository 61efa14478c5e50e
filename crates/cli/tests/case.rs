//! `plimsoll case`: what there is, what is missing, and that an interrupted one leaves nothing. That each case works is `./test`'s step "cases".

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn case(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("case").args(arguments);
    command
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_cases_are_listed_with_what_is_missing() {
    let output = case(&["list", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = list["cases"].as_array().unwrap();
    let names: HashSet<&str> = cases.iter().map(|case| case["case"].as_str().unwrap()).collect();
    assert!(names.contains("c1") && names.contains("c6"), "{names:?}");
    for case in cases {
        let words = ["apt-get install", "mvn ", "control group"];
        let missing = case["missing"].as_str();
        assert!(missing.is_none_or(|missing| words.iter().any(|it| missing.contains(it))), "{case}");
    }
    let text = case(&["list"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&text.stdout).lines().count(), cases.len());
}

#[test]
fn what_cannot_be_is_said() {
    for (arguments, said) in [
        (&["run", "c99"][..], "there is no case `c99`; write one of c1, "),
        (&["run", "c6", "--length", "1s"], "--length is to be from 8s to 1h"),
        (&["run", "c6", "--warm-up", "0s"], "--warm-up is to be from 1s to 10m"),
        (&["run", "c6", "--remedy", "prayer"], "invalid value 'prayer'"),
        (&["run"], "<CASE>..."),
        (&["run", "c6", "--all"], "cannot be used with"),
        (
            &["report", "/proc/self/fdinfo"],
            "there is nothing in /proc/self/fdinfo; `plimsoll case run --all --out",
        ),
    ] {
        let output = case(arguments).output().unwrap();
        // Where the server is missing, that is said first.
        let missing = words(&output).contains("apt-get install");
        assert!(!output.status.success() && (missing || words(&output).contains(said)), "{}", words(&output));
    }
}

/// The processes that have this directory on their command line or among what they were started with.
fn started_with(directory: &Path) -> HashSet<String> {
    let wanted = directory.display().to_string();
    let of_it = |pid: &String| {
        let text = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        ["environ", "cmdline"].map(text).iter().any(|text| String::from_utf8_lossy(text).contains(&wanted))
    };
    let entries = fs::read_dir("/proc").unwrap();
    let names = entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|b| b.is_ascii_digit())).filter(of_it).collect()
}

#[test]
fn an_interrupted_case_leaves_nothing() {
    interrupted(&[("c6", Signal::INT, Some(130)), ("c1", Signal::TERM, Some(143))]);
}

#[test]
fn a_case_that_is_killed_leaves_no_process() {
    interrupted(&[("c6", Signal::KILL, None), ("c1", Signal::KILL, None)]);
}

/// Runs cases, each until it gets a signal, with which code it ends then.
fn interrupted(cases: &[(&str, Signal, Option<i32>)]) {
    // Who runs the server must be able to come here.
    let temporary =
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    for &(name, signal, code) in cases {
        let mut command = case(&["run", name, "--quick"]);
        command.env("TMPDIR", temporary.path()).stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let last =
            said.find(|line| line.as_ref().is_ok_and(|line| line.contains("plimsoll"))).unwrap().unwrap();
        if last.contains("apt-get install") {
            eprintln!("SKIPPED: {last}");
            let _ = child.wait();
            continue;
        }
        // The run with an agent has begun: its server, and perhaps the agent.
        #[allow(clippy::disallowed_methods)] // waits for processes that are not its children
        for _ in 0..1_000 {
            if started_with(temporary.path()).len() >= 3 {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), code);
        let files: Vec<_> =
            fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        // One that is killed can neither remove its files nor wait for who is to end.
        let killed = signal == Signal::KILL;
        assert!(files.is_empty() || killed, "{files:?}");
        let looks = if killed { 400 } else { 100 };
        #[allow(clippy::disallowed_methods)] // waits for processes that are not its children
        for _ in 0..looks {
            if started_with(temporary.path()).is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(started_with(temporary.path()), HashSet::new());
    }
}
