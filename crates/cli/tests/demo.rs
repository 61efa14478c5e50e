//! `plimsoll demo` from start to end, and interrupted: nothing of it stays.
#![allow(clippy::disallowed_types)] // Tests wait for each other.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Demos keep the machine busy, and what they show is about time: one at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A short demo of some kind whose temporary files are in a directory of its own.
fn demo(name: &str, arguments: &[&str]) -> (Command, PathBuf) {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["demo", "--json"]).args(arguments).env("TMPDIR", &directory);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    (command, directory)
}

/// The processes that were started with this directory for their temporary files.
fn started_with(directory: &Path) -> HashSet<u32> {
    let wanted = format!("TMPDIR={}", directory.display());
    let of_demo = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let names =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).filter(of_demo).collect()
}

fn nothing_stays(directory: &Path) {
    let files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.is_empty(), "{files:?}");
    // The sentry's worker may end a moment after its parent does.
    for _ in 0..100 {
        if started_with(directory).is_empty() {
            return;
        }
        #[allow(clippy::disallowed_methods)] // waits for processes that are not its children
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{:?} still run", started_with(directory));
}

/// Reads what it says until a line holds this.
fn until(child: &mut Child, part: &str) {
    let stderr = child.stderr.as_mut().unwrap();
    let said: Vec<String> = BufReader::new(stderr)
        .lines()
        .map(Result::unwrap)
        .scan(false, |found, line| {
            let more = !*found;
            *found |= line.contains(part);
            more.then_some(line)
        })
        .collect();
    assert!(said.last().is_some_and(|line| line.contains(part)), "{said:?}");
}

const SURGE: [&str; 4] = ["--duration", "2s", "--factor", "2"];

#[test]
fn the_demo_ends_with_both_sides_and_leaves_nothing() {
    let _turn = turn();
    let (mut command, directory) = demo("demo-whole", &SURGE);
    let run = command.output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let outcome: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(outcome["capacity_per_s"].as_f64().unwrap() > 0.0);
    for side in ["without", "with"] {
        assert!(outcome[side]["total"]["ok"].as_u64().unwrap() > 0, "{outcome}");
    }
    assert_eq!(outcome["without"]["total"]["rejected"], 0);
    assert!(outcome["with"]["total"]["rejected"].as_u64().unwrap() > 0, "{outcome}");
    let program = env!("CARGO_BIN_EXE_plimsoll");
    for part in
        ["admission is off", "an allowance of 0.05", &format!("{program} sentry --config plimsoll.toml")]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    nothing_stays(&directory);
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let _turn = turn();
    let (mut command, directory) = demo("demo-interrupted", &SURGE);
    let mut child = command.spawn().unwrap();
    until(&mut child, "Live page:");
    // Itself, three web services, the sentry's parent and its worker.
    assert!(started_with(&directory).len() >= 6, "{:?}", started_with(&directory));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "its config");
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    nothing_stays(&directory);
}

/// Twice as long as all that a crowd is made of: calm, crowd, lull.
const CROWD: [&str; 5] = ["--crowd", "--duration", "6s", "--factor", "4"];

#[test]
fn the_crowd_is_policed_by_class_and_servers_come_and_go_with_it() {
    let _turn = turn();
    let (mut command, directory) = demo("demo-crowd", &CROWD);
    let picture = directory.join("crowd.svg");
    let run = command.arg("--svg").arg(&picture).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let outcome: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&outcome["seed"], &outcome["factor"]), (&Value::from(1), &Value::from(4.0)));
    let crowd = &outcome["phases"]["crowd"];
    let admitted = |class: &str| crowd[class]["admitted_pct"].as_f64().unwrap();
    assert!(admitted("gold") >= admitted("silver") && admitted("silver") > admitted("bronze"), "{crowd}");
    assert!(crowd["bronze"]["refused"].as_u64().unwrap() > 0, "{crowd}");
    assert_eq!(crowd["gold"]["promise_kept"], true, "{crowd}");
    for (phase, classes) in outcome["phases"].as_object().unwrap() {
        for (class, of) in classes.as_object().unwrap() {
            assert_eq!(of["errors"], 0, "{phase} {class}: {of}");
        }
    }
    // What the phases tell is all that the generator sent.
    let sent: u64 = outcome["load"]["total"]["sent"].as_u64().unwrap();
    let told =
        outcome["phases"].as_object().unwrap().values().flat_map(|of| of.as_object().unwrap().values());
    let refused: u64 = told.clone().map(|of| of["refused"].as_u64().unwrap()).sum();
    assert_eq!(refused, outcome["load"]["total"]["rejected"].as_u64().unwrap());
    assert!(refused < sent);
    let servers = &outcome["servers"];
    let count = |of: &str| servers[of].as_u64().unwrap();
    assert!(count("start") == 1 && count("most") > 1 && count("most") <= 6, "{servers}");
    assert!(count("end") < count("most") && servers["first_returned_after_s"].is_number(), "{servers}");
    assert!(said.contains("refused  by policing") && said.contains("seed 1"), "{said}");
    assert!(fs::read_to_string(&picture).unwrap().starts_with("<svg"));
    fs::remove_file(picture).unwrap();
    nothing_stays(&directory);
}

#[test]
fn an_interrupted_crowd_leaves_nothing() {
    let _turn = turn();
    let (mut command, directory) = demo("demo-crowd-interrupted", &CROWD);
    let mut child = command.spawn().unwrap();
    until(&mut child, "Live page:");
    // Itself, the sentry's parent and its worker, the controller, the server.
    assert!(started_with(&directory).len() >= 5, "{:?}", started_with(&directory));
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    nothing_stays(&directory);
}

/// The calm before it takes four seconds more.
const FLEET: [&str; 3] = ["--fleet", "--duration", "8s"];

#[test]
fn a_fleet_is_let_in_what_it_can_do_and_who_needs_nothing_scarce_is_not_limited() {
    let _turn = turn();
    let (mut command, directory) = demo("demo-fleet", &FLEET);
    let picture = directory.join("fleet.svg");
    let run = command.arg("--svg").arg(&picture).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let outcome: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&outcome["seed"], &outcome["factor"]), (&1.into(), &4.0.into()));
    let in_time = |of: &str| outcome["in_time_per_s"][of].as_f64().unwrap();
    assert!((in_time("optimum") - 240.0).abs() < 0.01, "{outcome}");
    assert!(in_time("with") > in_time("without"), "{outcome}");
    let api = |name: &str| &outcome["apis"][name];
    for name in ["checkout", "product"] {
        assert!(api(name)["with"]["refused"].as_u64().unwrap() > 0, "{outcome}");
        // Which of the two services that are too little is up to the last step.
        let is_scarce = |why: &str| why.contains("checkout") || why.contains("recommendation");
        assert!(api(name)["why"].as_str().is_some_and(is_scarce), "{}", api(name));
    }
    for name in ["cart", "home"] {
        assert_eq!(api(name)["with"]["refused"], 0, "{name}: {}", api(name));
        assert!(api(name)["limit_per_s"].is_null(), "{name}: {}", api(name));
        assert!(said.contains(&format!("{name} was not limited")), "{said}");
    }
    for name in ["checkout", "product", "cart", "home"] {
        assert_eq!(api(name)["without"]["refused"], 0, "nobody decides there");
    }
    assert!(said.contains("may enter") && said.contains("reproduce topfull"), "{said}");
    assert!(fs::read_to_string(&picture).unwrap().starts_with("<svg"));
    fs::remove_file(picture).unwrap();
    nothing_stays(&directory);
}

#[test]
fn an_interrupted_fleet_leaves_nothing() {
    let _turn = turn();
    let (mut command, directory) = demo("demo-fleet-interrupted", &FLEET);
    let mut child = command.spawn().unwrap();
    until(&mut child, "Live page:");
    // Itself, two shops, the sentry's parent and its worker, the controller.
    assert!(started_with(&directory).len() >= 6, "{:?}", started_with(&directory));
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    nothing_stays(&directory);
}

/// On the testbed's server, which is always there. The culprit stays for half of it.
const CULPRIT: [&str; 5] = ["--culprit", "--server", "testbed", "--duration", "12s"];

#[test]
fn the_culprit_is_cancelled_and_nobody_else() {
    let _turn = turn();
    let (mut command, directory) = demo("demo-culprit", &CULPRIT);
    let picture = directory.join("culprit.svg");
    let run = command.arg("--svg").arg(&picture).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let outcome: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&outcome["server"], &outcome["seed"]), (&"testbed".into(), &1.into()));
    only_the_culprit(&outcome, &said);
    assert!(fs::read_to_string(&picture).unwrap().starts_with("<svg"));
    fs::remove_file(picture).unwrap();
    nothing_stays(&directory);
}

/// What has to be so on whichever server.
fn only_the_culprit(outcome: &Value, said: &str) {
    let [without, with] = ["without", "with"].map(|side| &outcome[side]);
    assert_eq!(
        (&without["culprit"]["ended"], &with["culprit"]["ended"]),
        (&"finished".into(), &"was cancelled".into())
    );
    for side in [without, with] {
        assert_eq!(
            (&side["requests_cancelled"], &side["bystander"]["ended"]),
            (&0.into(), &"finished".into()),
            "{side}"
        );
    }
    let cancels = outcome["events"].as_array().unwrap().iter().filter(|event| event["event"] == "cancel");
    let whom: Vec<&str> = cancels.map(|event| event["task"].as_str().unwrap()).collect();
    let culprit = with["culprit"]["name"].as_str().unwrap();
    assert!(!whom.is_empty() && whom.iter().all(|task| task.contains(culprit)), "{whom:?}: {culprit}");
    let held = |side: &Value| side["standstill_ms"].as_f64().unwrap();
    assert!(held(with) < held(without) / 2.0, "{outcome}");
    assert!(
        said.contains(&format!("the agent cancels {}", whom[0])) && said.contains("was cancelled"),
        "{said}"
    );
}

#[test]
fn an_interrupted_culprit_leaves_nothing() {
    let _turn = turn();
    let (mut command, directory) = demo("demo-culprit-interrupted", &CULPRIT);
    let mut child = command.spawn().unwrap();
    until(&mut child, "Without help");
    // Itself, two servers, the agent.
    assert!(started_with(&directory).len() >= 4, "{:?}", started_with(&directory));
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    nothing_stays(&directory);
}

#[test]
fn a_migration_that_stops_a_postgresql_is_cancelled() {
    let _turn = turn();
    let (mut command, directory) = demo("demo-culprit-postgresql", &[]);
    // Who runs the server must be able to come here.
    let temporary =
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    command.env("TMPDIR", temporary.path());
    let run = command.args(["--culprit", "--server", "postgresql", "--duration", "16s"]).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    if said.contains("apt-get install postgresql") {
        assert!(std::env::var_os("PLIMSOLL_REQUIRE_POSTGRES").is_none_or(|it| it != "1"), "{said}");
        assert_eq!(run.status.code(), Some(1));
        eprintln!("SKIPPED: {said}");
        return;
    }
    assert!(run.status.success(), "{said}");
    let outcome: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(outcome["server"], "postgresql");
    only_the_culprit(&outcome, &said);
    assert!(said.contains("alter table account"), "{said}");
    nothing_stays(temporary.path());
    nothing_stays(&directory);
}

#[test]
fn what_a_culprit_cannot_do_is_said() {
    let _turn = turn();
    for (arguments, words) in [
        (&["--culprit", "--crowd"][..], "--crowd"),
        (&["--culprit", "--factor", "2"], "--factor"),
        (&["--culprit", "--fleet"], "--fleet"),
        (&["--server", "testbed"], "--culprit"),
        (&["--culprit", "--server", "oracle"], "postgresql, testbed"),
        (&["--culprit", "--duration", "2s"], "--duration 8s or more"),
    ] {
        let run = demo("demo-culprit-wrong", arguments).0.output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && said.contains(words), "{arguments:?}: {said}");
    }
}
