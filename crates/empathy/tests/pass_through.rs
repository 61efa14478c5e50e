//! What is the job's stays the job's: exit codes, signals, input and output, the terminal.

mod common;

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::{Running, heeding_signals, is_root, read, read_all, state, wait_for, without_rights, yields};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn exit_codes_are_those_of_a_shell() {
    let code = |args: &[&str]| yields(&["--idle-only", "--quiet"]).args(args).status().unwrap().code();
    assert_eq!(code(&["--", "true"]), Some(0));
    assert_eq!(code(&["--", "sh", "-c", "exit 42"]), Some(42));
    assert_eq!(code(&["--", "sh", "-c", "kill -TERM $$"]), Some(128 + 15));
    assert_eq!(code(&["--", "sh", "-c", "kill -KILL $$"]), Some(128 + 9));
    assert_eq!(code(&["--", "/etc/passwd"]), Some(126));
    assert_eq!(code(&["--", "plimsoll-no-such-command"]), Some(127));
    assert_eq!(code(&["--pid", "2147483647"]), Some(125));
    assert_eq!(code(&[]), Some(2), "no target");
    // The arguments of the job are its own, with or without the dashes.
    assert_eq!(code(&["sh", "-c", "test $1 = --quiet", "sh", "--quiet"]), Some(0));
}

#[test]
fn only_the_job_writes_to_the_output_and_reads_the_input() {
    let mut cat = yields(&["--max-slowdown", "5", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    cat.stdin.take().unwrap().write_all(b"left to right\n").unwrap();
    let output = cat.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.stdout, b"left to right\n", "{}: {said}", output.status);
    assert!(said.lines().all(|line| line.starts_with("plimsoll yield: ")), "{said}");
    assert!(said.contains("slower than alone"), "{said}");

    let quiet = yields(&["--idle-only", "--quiet", "--", "true"]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(String::from_utf8(quiet.stderr).unwrap(), "");
}

#[test]
fn signals_reach_the_job() {
    // Its words are the names of the signals that it got.
    let script = "trap 'echo INT' INT; trap 'echo USR1' USR1; trap 'echo WINCH' WINCH; trap 'echo TERM; exit 3' TERM; \
                  trap 'echo HUP' HUP; trap 'echo USR2' USR2; echo ready; while :; do sleep 0.05; done";
    let mut job = yields(&["--idle-only", "--quiet", "--", "sh", "-c", script]);
    let mut job = Running::start(job.stdout(Stdio::piped()));
    let mut output = job.0.stdout.take().unwrap();
    let mut line = || {
        let mut text = Vec::new();
        let mut byte = [0];
        while read(&mut output, &mut byte) == 1 && byte[0] != b'\n' {
            text.push(byte[0]);
        }
        String::from_utf8(text).unwrap()
    };
    assert_eq!(line(), "ready");
    let signal = |name: &str| job.signal(name.parse().unwrap());
    for name in ["INT", "USR1", "WINCH", "HUP", "USR2", "TERM"] {
        signal(&format!("SIG{name}"));
        assert_eq!(line(), name);
    }
    assert_eq!(job.code(), 3);
}

#[test]
fn what_was_ignored_at_the_start_stays_ignored() {
    let mut sleep = Command::new("sleep");
    let sleep = Running::start(sleep.arg("600"));
    let pid = sleep.pid().to_string();
    let ignoring = |mut command: Command| {
        let ignore = || {
            for signal in [Signal::SIGHUP, Signal::SIGCHLD] {
                // SAFETY: to ignore needs no handler.
                unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigIgn)? };
            }
            Ok(())
        };
        // SAFETY: between fork and exec it makes two system calls and allocates nothing.
        unsafe { command.pre_exec(ignore) };
        command
    };
    let mut job = ignoring(yields(&["--idle-only", "--pid", &pid]));
    let mut job = Running::start(job.stderr(Stdio::piped()));
    // It says so once it listens.
    let mut said = [0];
    assert_eq!(read(job.0.stderr.as_mut().unwrap(), &mut said), 1);
    job.signal(Signal::SIGHUP);
    job.signal(Signal::SIGTERM);
    assert_eq!(job.code(), 128 + 15, "the one that is not ignored");

    let script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut job = ignoring(yields(&["--idle-only", "--quiet", "--", "sh", "-c", script]));
    let mut job = Running::start(job.stdout(Stdio::piped()));
    let mut ready = [0; 6];
    assert_eq!(read(job.0.stdout.as_mut().unwrap(), &mut ready), 6);
    job.signal(Signal::SIGHUP);
    job.signal(Signal::SIGTERM);
    assert_eq!(job.code(), 3);
}

#[test]
fn signals_from_outside_of_a_container_reach_the_job() {
    if !is_root() {
        eprintln!("not tested: needs root, to make a pid namespace");
        return;
    }
    let script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut container = Command::new("unshare");
    container.args(["--pid", "--fork", "--kill-child", "--mount-proc", env!("CARGO_BIN_EXE_plimsoll-yield")]);
    container.args(["--idle-only", "--quiet", "--", "sh", "-c", script]);
    heeding_signals(&mut container);
    let mut container = Running::start(container.stdin(Stdio::null()).stdout(Stdio::piped()));
    let mut output = container.0.stdout.take().unwrap();
    let mut ready = [0; 6];
    assert_eq!(read(&mut output, &mut ready), 6);
    let first = container.find_program("plimsoll-yield");
    kill(Pid::from_raw(first.pid), Signal::SIGTERM).unwrap();
    assert_eq!(read_all(&mut output), "asked\n");
    assert_eq!(container.code(), 3);
}

#[test]
fn stop_and_continue_reach_the_job() {
    // In a group of its own beside this one: a group with nobody beside it whom a stop could be told is not stopped at all.
    let mut job = yields(&["--idle-only", "--quiet", "--", "sleep", "60"]);
    let job = Running::start(job.process_group(0));
    let sleep = job.find("sleep 60").pid;
    job.signal(Signal::SIGTSTP);
    wait_for("both stopped", || (state(sleep) == Some('T') && state(job.pid()) == Some('T')).then_some(()));
    job.signal(Signal::SIGCONT);
    wait_for("both going on", || (state(sleep) == Some('S') && state(job.pid()) != Some('T')).then_some(()));
}

#[test]
fn a_terminal_is_the_jobs() {
    let terminal = nix::pty::openpty(None, None).unwrap();
    let mut master = File::from(terminal.master);
    let slave = || Stdio::from(terminal.slave.try_clone().unwrap());
    // A session of its own with the terminal as its own, as a terminal emulator makes it.
    let script = format!(
        "{} --idle-only --quiet -- sh -c 'test -t 0 && test -t 1 && echo at a terminal; read line < /dev/tty; echo got $line; sleep 60'; echo code $?",
        env!("CARGO_BIN_EXE_plimsoll-yield")
    );
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "sh", "-c", &format!("trap : INT; {script}")]);
    heeding_signals(&mut shell);
    let mut shell = Running::start(shell.stdin(slave()).stdout(slave()).stderr(slave()));
    let mut seen = String::new();
    let mut until = |master: &mut File, words: &str| {
        let mut bytes = [0; 256];
        while !seen.contains(words) {
            let read = read(master, &mut bytes);
            seen += &String::from_utf8_lossy(&bytes[..read]);
        }
    };
    until(&mut master, "at a terminal");
    master.write_all(b"hello\n").unwrap();
    until(&mut master, "got hello");
    // Not the shell around it, which would only take note of a Ctrl-C that comes before.
    shell.find_program("sleep");
    // Ctrl-C: once, by the terminal, to all in the foreground.
    master.write_all(&[3]).unwrap();
    until(&mut master, "code 130");
    shell.code();
}

#[test]
fn it_works_without_any_right() {
    let mut job = without_rights(yields(&["--idle-only", "--", "sh", "-c", "sleep 0.3; exit 5"]));
    let output = job.stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("SCHED_IDLE"), "{said}");
    if is_root() {
        assert!(said.contains("not used: a control group"), "{said}");
        let other = without_rights(yields(&["--idle-only", "--pid", &std::process::id().to_string()]))
            .output()
            .unwrap();
        let said = String::from_utf8(other.stderr).unwrap();
        assert_eq!(other.status.code(), Some(125), "{said}");
        assert!(said.contains("CAP_KILL") && said.contains("CAP_SYS_NICE"), "{said}");
    }
}

#[test]
fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let said = |command: &mut Command| String::from_utf8(command.output().unwrap().stderr).unwrap();
    let text = said(&mut yields(&[
        "--max-slowdown",
        "5",
        "--dry-run",
        "--",
        "touch",
        "/tmp/plimsoll-yield-dry-run",
    ]));
    assert!(text.contains("would use"), "{text}");
    assert!(!std::fs::exists("/tmp/plimsoll-yield-dry-run").unwrap());
    let text = said(&mut without_rights(yields(&["--max-slowdown", "5", "--dry-run", "--", "true"])));
    if is_root() {
        let missing = |means: &str| text.contains(&format!("not used: {means}: "));
        assert!(missing("a control group") && missing("the freezer"), "{text}");
        // Where sessions are weighed, that needs no right.
        assert!(text.contains("session") || text.contains("CAP_SYS_NICE"), "{text}");
    }
}

#[test]
fn a_report_is_json() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.json");
    let path = file.to_str().unwrap();
    let code =
        yields(&["--max-slowdown", "4", "--quiet", "--report", path, "--", "sh", "-c", "sleep 2; exit 6"]);
    assert_eq!({ code }.status().unwrap().code(), Some(6));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&report["policy"], &report["limit"]), (&"max-slowdown".into(), &4.0.into()));
    assert_eq!(report["exit_code"], 6);
    assert!(report["elapsed_s"].as_f64().unwrap() > 0.1, "{report}");
    assert!(report["job"]["slowdown"].as_f64().unwrap() >= 1.0, "{report}");
    assert!(report["others"]["taken_s"].is_number(), "{report}");
}

#[test]
fn what_the_job_sends_to_its_own_group_does_not_come_back_to_it() {
    // The usual way of tidying up: whoever passes that on sends the job what it has sent itself.
    let script = "trap 'echo asked; trap \"echo by itself\" TERM; kill -TERM 0' TERM; echo ready; \
                  i=0; while test $i -lt 20; do sleep 0.05; i=$((i+1)); done";
    let mut job = yields(&["--idle-only", "--quiet", "--", "sh", "-c", script]);
    // In a group of its own, or the test would end with it.
    let mut job = Running::start(job.process_group(0).stdout(Stdio::piped()));
    let mut output = job.0.stdout.take().unwrap();
    let mut ready = [0; 6];
    assert_eq!(read(&mut output, &mut ready), 6);
    job.signal(Signal::SIGTERM);
    assert_eq!(read_all(&mut output), "asked\nby itself\n");
    job.code();
}
