//! `plimsoll top` and `yield` where `/proc` does not show all: hidden processes, a pid namespace, somebody else's `/proc`, none.
//!
//! Each case is a shell in namespaces of its own, so that nothing outside of it changes. Where none may be made, it says so.

use std::process::{Command, Output};

use serde_json::Value;

/// What a shell ends with that could not prepare the case.
const NOT_HERE: i32 = 77;
/// The user that is nobody.
const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

/// Runs a script in namespaces of its own, `$PLIMSOLL` being this program; nothing where it may not.
fn within(unshare: &[&str], script: &str) -> Option<Output> {
    let mut command = Command::new("unshare");
    command.args(unshare).args(["sh", "-c", script]).env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"));
    let Ok(output) = command.output() else {
        println!("not tried: there is no unshare here");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NOT_HERE) || said.contains("unshare failed") || said.contains("unshare: ")
    {
        println!("not tried: {}", said.trim());
        return None;
    }
    Some(output)
}

fn tasks(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    outcome["tasks"].as_array().unwrap().clone()
}

fn refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains(words) && output.stdout.is_empty(),
        "{output:?}"
    );
}

#[test]
fn what_hidepid_hides_is_left_out_and_said_to_be_hidden() {
    let hidden = "mount -t proc -o hidepid=2 proc /proc 2>/dev/null || exit 77; setpriv --version >/dev/null || exit 77;";
    let mount = ["--mount", "--propagation", "private"];
    let script = format!("{hidden} exec {NOBODY} \"$PLIMSOLL\" top --once --json");
    let Some(output) = within(&mount, &script) else { return };
    let found = tasks(&output);
    // Itself at least, and nobody who is not nobody's.
    assert!(found.iter().any(|task| task["comm"] == "plimsoll"), "{found:?}");
    assert!(found.iter().all(|task| task["pid"] != 1 && task["pid"] != std::process::id()), "{found:?}");
    let script = format!("{hidden} exec {NOBODY} \"$PLIMSOLL\" top --once --pid 1");
    refused(&within(&mount, &script).expect("as before"), "hidepid");
    // Whom it cannot see it cannot hold back, and it says what is missing.
    let script = format!("{hidden} exec {NOBODY} \"$PLIMSOLL\" yield --idle-only --pid 1");
    let output = within(&mount, &script).expect("as before");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(125) && said.contains("CAP_KILL"), "{said}");
}

#[test]
fn in_a_pid_namespace_its_own_threads_are_all_that_there_is() {
    let own = ["--pid", "--fork", "--mount-proc"];
    let Some(output) = within(&own, "sleep 600 & \"$PLIMSOLL\" top --once --json; kill $!") else { return };
    let found = tasks(&output);
    let pids: Vec<u64> = found.iter().map(|task| task["pid"].as_u64().unwrap()).collect();
    // The shell, `sleep` and this program.
    assert!(pids.contains(&1) && pids.len() >= 3 && pids.iter().all(|&pid| pid < 100), "{pids:?}");
    assert!(found.iter().any(|task| task["comm"] == "sleep"), "{found:?}");
    // BPF would number them as the host does.
    let output = within(&own, "exec \"$PLIMSOLL\" top --once --reader bpf").expect("as before");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("pid namespace") || said.contains("without the feature `bpf`"), "{said}");
    // A job is held there, too, whatever numbers it has outside.
    let script = "\"$PLIMSOLL\" yield --idle-only --quiet -- sh -c 'exit 7'";
    assert_eq!(within(&own, script).expect("as before").status.code(), Some(7));
}

#[test]
fn a_proc_of_other_processes_is_refused_with_what_to_do() {
    let outer = within(&["--pid", "--fork"], "exec \"$PLIMSOLL\" top --once");
    let Some(output) = outer else { return };
    refused(&output, "another pid namespace; mount one with `mount -t proc proc /proc`");
    let script = "mount -t tmpfs none /proc 2>/dev/null || exit 77; exec \"$PLIMSOLL\" top --once";
    let Some(output) = within(&["--mount", "--propagation", "private"], script) else { return };
    refused(&output, "mount one with `mount -t proc proc /proc`");
}
