//! Whatever happens, the job goes on and everything is put back.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use common::{
    HOG, Running, groups_of, is_root, name, pause, raising_nice, ran_s, state, wait_for, without_rights,
    yields,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_empathy::levers::autogroup;
use plimsoll_empathy::levers::scheduling::Scheduling;
use plimsoll_empathy::process::Process;

fn guard(job: &Running) -> Process {
    wait_for("the guard", || job.below().into_iter().find(|process| name(process.pid) == "plimsoll-guard"))
}

fn own_groups(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap()
}

fn must_run(pid: i32) {
    let before = ran_s(pid);
    wait_for("the job to run", || (ran_s(pid) > before + 0.02).then_some(()));
}

#[test]
fn a_running_job_is_put_back_when_yield_ends_and_when_it_is_killed() {
    for end in [Signal::SIGTERM, Signal::SIGKILL] {
        let job = Running::start(Command::new("sh").args(["-c", &format!("sh -c '{HOG}' & wait")]));
        let child = job.find("while");
        let before = [job.pid(), child.pid].map(|pid| (own_groups(pid), Scheduling::of(pid).unwrap()));

        let mut yielding =
            Running::start(&mut yields(&["--idle-only", "--quiet", "--pid", &job.pid().to_string()]));
        let changed = || [job.pid(), child.pid].map(|pid| (own_groups(pid), Scheduling::of(pid).unwrap()));
        wait_for("both to be held back", || {
            changed().iter().zip(&before).all(|(now, before)| now != before).then_some(())
        });
        let guard = guard(&yielding);
        yielding.signal(end);
        wait_for("the end of yield", || yielding.0.try_wait().unwrap());
        wait_for("the end of the guard", || (!guard.lives()).then_some(()));
        assert_eq!(changed(), before, "after {end}");
        assert_eq!(groups_of(yielding.pid()), Vec::<String>::new());
        must_run(child.pid);
    }
}

#[test]
fn a_job_whose_own_group_has_gone_meanwhile_goes_to_the_one_above() {
    let cpu = "/sys/fs/cgroup/cpu";
    if !is_root() || !fs::exists(format!("{cpu}/cpu.shares")).unwrap() {
        eprintln!("not tested: needs root, and control groups of version 1");
        return;
    }
    let home = format!("{cpu}/plimsoll-test-{}", std::process::id());
    fs::create_dir_all(format!("{home}/inner")).unwrap();
    let job = Running::start(Command::new("sleep").arg("60"));
    fs::write(format!("{home}/inner/cgroup.procs"), job.pid().to_string()).unwrap();
    let pid = job.pid().to_string();
    let mut yielding = Running::start(&mut yields(&["--idle-only", "--quiet", "--pid", &pid]));
    wait_for("hold", || own_groups(job.pid()).contains("plimsoll-yield-").then_some(()));
    let other = yields(&["--idle-only", "--pid", &pid]).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(other.stderr).unwrap();
    assert_eq!(other.status.code(), Some(125), "{said}");
    assert!(said.contains("another plimsoll yield"), "{said}");

    wait_for("an empty group", || fs::remove_dir(format!("{home}/inner")).ok());
    yielding.signal(Signal::SIGTERM);
    assert_eq!(yielding.code(), 128 + 15);
    assert_eq!(groups_of(yielding.pid()), Vec::<String>::new());
    assert!(own_groups(job.pid()).contains("cpu:/plimsoll-test-"), "{}", own_groups(job.pid()));
    drop(job);
    wait_for("an empty group", || fs::remove_dir(&home).ok());
}

#[test]
fn what_a_running_job_starts_meanwhile_is_put_back_too() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let script = format!("until test -e {}; do sleep 0.05; done; sh -c '{HOG}' & wait", go.display());
    let job = Running::start(Command::new("sh").args(["-c", &script]));
    let before = (own_groups(job.pid()), Scheduling::of(job.pid()).unwrap());
    let mut yielding =
        Running::start(&mut yields(&["--idle-only", "--quiet", "--pid", &job.pid().to_string()]));
    wait_for("hold", || {
        (own_groups(job.pid()) != before.0 || Scheduling::of(job.pid()).unwrap() != before.1).then_some(())
    });
    fs::write(&go, "").unwrap();
    let child = job.find("while");
    let held = |pid| (own_groups(pid), Scheduling::of(pid).unwrap());
    assert_ne!(held(child.pid), before, "it inherits");
    yielding.signal(Signal::SIGINT);
    assert_eq!(yielding.code(), 130);
    assert_eq!(held(child.pid), before);
}

#[test]
fn what_outlives_the_first_process_of_a_running_job_is_put_back_too() {
    if !is_root() {
        eprintln!("not tested: needs root, to do without all rights but one");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let [go, end] = ["go", "end"].map(|file| dir.path().join(file));
    let until = |file: &std::path::Path| format!("until test -e {}; do sleep 0.05; done", file.display());
    let script = format!("{}; sleep 600 & {}", until(&go), until(&end));
    let mut job = Command::new("sh");
    job.args(["-c", &script]);
    let mut job = Running::start(&mut without_rights(job));
    let before = Scheduling::of(job.pid()).unwrap();
    let pid = job.pid().to_string();
    let mut yielding = Running::start(&mut raising_nice(&yields(&["--idle-only", "--quiet", "--pid", &pid])));
    wait_for("hold", || Scheduling::of(job.pid()).unwrap().is_idle().then_some(()));
    fs::write(&go, "").unwrap();
    // The other sleeps end soon.
    let is_child = |process: &Process| {
        fs::read_to_string(format!("/proc/{}/cmdline", process.pid))
            .is_ok_and(|line| line == "sleep\x00600\x00")
    };
    let child = wait_for("the child", || job.below().into_iter().find(is_child));
    assert!(Scheduling::of(child.pid).unwrap().is_idle(), "it inherits");
    // It is known by now.
    pause(500);
    fs::write(&end, "").unwrap();
    job.code();
    assert_eq!(yielding.code(), 0);
    let after = Scheduling::of(child.pid).unwrap();
    kill(Pid::from_raw(child.pid), Signal::SIGKILL).unwrap();
    assert_eq!(after, before);
}

/// A job that stands still most of the time, for want of any other means; what holds it back, and its guard.
fn stopped_job() -> (Running, Running, Process) {
    // Without any right there is no share to set, so that a slowdown is kept by stopping: a command might get a session of its own, but
    // that of a job which runs already is others' too. Several burn beside it, or it never is stopped.
    let mut hog = Command::new("sh");
    hog.args(["-c", HOG]);
    let hog = Running::start(&mut without_rights(hog));
    let pid = hog.pid().to_string();
    let mut command = without_rights(yields(&["--max-slowdown", "50", "--quiet", "--pid", &pid]));
    let yielding = Running::start(command.stderr(Stdio::null()));
    wait_for("a pause", || (state(hog.pid()) == Some('T')).then_some(()));
    let guard = guard(&yielding);
    (hog, yielding, guard)
}

#[test]
fn a_stopped_job_goes_on_when_yield_is_killed() {
    if !is_root() {
        eprintln!("not tested: needs root, to do without rights");
        return;
    }
    let _beside: Vec<Running> =
        (0..4).map(|_| Running::start(Command::new("sh").args(["-c", HOG]))).collect();
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let (hog, yielding, guard) = stopped_job();
        yielding.signal(signal);
        if signal == Signal::SIGKILL {
            wait_for("the guard's end", || (!guard.lives()).then_some(()));
        }
        // Stopped by hand, yield may have been about to let it go on: so it is asked for more than once.
        wait_for("the job to go on", || {
            let going = (0..10).all(|_| {
                pause(5);
                matches!(state(hog.pid()), Some('R' | 'S'))
            });
            going.then_some(())
        });
        must_run(hog.pid());
        if signal == Signal::SIGSTOP {
            yielding.signal(Signal::SIGCONT);
        }
    }
}

#[test]
fn without_its_guard_it_puts_back_itself() {
    let job = Running::start(Command::new("sleep").arg("60"));
    let before = own_groups(job.pid());
    let was = Scheduling::of(job.pid()).unwrap();
    let mut command = yields(&["--idle-only", "--pid", &job.pid().to_string()]);
    let mut yielding = Running::start(command.stderr(Stdio::null()));
    wait_for("hold", || {
        (own_groups(job.pid()) != before || Scheduling::of(job.pid()).unwrap() != was).then_some(())
    });
    kill(Pid::from_raw(guard(&yielding).pid), Signal::SIGKILL).unwrap();
    wait_for("the guard's end", || {
        yielding.below().iter().all(|process| name(process.pid) != "plimsoll-guard").then_some(())
    });
    yielding.signal(Signal::SIGTERM);
    assert_eq!(yielding.code(), 128 + 15);
    assert_eq!((own_groups(job.pid()), Scheduling::of(job.pid()).unwrap()), (before, was));
}

#[test]
fn a_command_goes_on_when_yield_is_killed_and_nothing_is_left_behind() {
    let mut yielding = Running::start(&mut yields(&["--idle-only", "--quiet", "--", "sleep", "60"]));
    let (job, guard) = (yielding.find_program("sleep"), guard(&yielding));
    yielding.signal(Signal::SIGKILL);
    wait_for("the end of yield", || yielding.0.try_wait().unwrap());
    wait_for("the end of the guard", || (!guard.lives()).then_some(()));
    assert_eq!(groups_of(yielding.pid()), Vec::<String>::new());
    assert!(job.lives() && job.state() != Some(b'T') && !own_groups(job.pid).contains("plimsoll-yield-"));
    kill(Pid::from_raw(job.pid), Signal::SIGKILL).unwrap();
}

#[test]
fn a_terminals_session_is_weighed_as_before_once_yield_is_killed() {
    if !autogroup::enabled() {
        eprintln!("not tested: needs autogroups");
        return;
    }
    let terminal = nix::pty::openpty(None, None).unwrap();
    let slave = || Stdio::from(terminal.slave.try_clone().unwrap());
    // The shell goes on, as one does to which a command is lost; without rights, or a control group would be made.
    let script =
        format!("{} --idle-only --quiet -- sleep 60; sleep 61", env!("CARGO_BIN_EXE_plimsoll-yield"));
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "sh", "-c", &script]);
    let mut shell = without_rights(shell);
    let shell = Running::start(shell.stdin(slave()).stdout(slave()).stderr(slave()));
    let job = shell.find_program("sleep");
    wait_for("its least weight", || {
        (autogroup::nice(shell.pid()).unwrap() == autogroup::LOWEST).then_some(())
    });
    let yielding = shell.find_program("plimsoll-yield");
    kill(Pid::from_raw(yielding.pid), Signal::SIGKILL).unwrap();
    wait_for("its weight of before", || (autogroup::nice(shell.pid()).unwrap() == 0).then_some(()));
    assert!(job.lives(), "and the job goes on");
    kill(Pid::from_raw(job.pid), Signal::SIGKILL).unwrap();
}

#[test]
fn a_job_whose_first_thread_has_ended_is_held_too() {
    let script = "import ctypes, os, threading\n\
                  def burn():\n while True: pass\n\
                  threading.Thread(target=burn).start()\n\
                  ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)";
    let mut job = Command::new("python3");
    job.args(["-c", script]);
    let Ok(job) = without_rights(job).spawn().map(Running) else {
        eprintln!("not tested: needs python3");
        return;
    };
    wait_for("the end of its first thread", || (state(job.pid()) == Some('Z')).then_some(()));
    let process = Process::of(job.pid()).unwrap();
    assert!(process.lives());

    let _beside: Vec<Running> =
        (0..4).map(|_| Running::start(Command::new("sh").args(["-c", HOG]))).collect();
    let command = yields(&["--max-slowdown", "50", "--quiet", "--pid", &job.pid().to_string()]);
    let mut yielding = Running::start(&mut without_rights(command));
    wait_for("a pause", || (process.state() == Some(b'T')).then_some(()));
    yielding.signal(Signal::SIGTERM);
    assert_eq!(yielding.code(), 128 + 15);
    assert!(matches!(process.state(), Some(b'R' | b'S')), "{:?}", process.state());
}

#[test]
fn it_ends_when_the_running_job_does() {
    let mut job = Running::start(Command::new("sleep").arg("0.5"));
    let mut yielding =
        Running::start(&mut yields(&["--idle-only", "--quiet", "--pid", &job.pid().to_string()]));
    job.code();
    let code = yielding.code();
    assert!(code == 0 || code == 125, "{code}: it may have been over before it began");
}

#[test]
fn sessions_are_weighed_however_many_begin_at_once() {
    if !autogroup::enabled() || fs::File::open("/dev/tty").is_ok() {
        eprintln!("not tested: needs autogroups, and no terminal");
        return;
    }
    // One change each tenth of a second is taken from all of them together.
    let jobs: Vec<Running> = (0..5)
        .map(|_| {
            let mut command = without_rights(yields(&["--idle-only", "--quiet", "--", "sleep", "60"]));
            Running::start(&mut command)
        })
        .collect();
    for job in &jobs {
        let sleep = job.find_program("sleep").pid;
        wait_for("its least weight", || (autogroup::nice(sleep).unwrap() == autogroup::LOWEST).then_some(()));
    }
}

#[test]
fn a_job_that_forks_wildly_is_held_and_let_go() {
    // Two hundred processes, and their parents gone: all are the job's.
    let script = "i=0; while test $i -lt 100; do (sleep 600 & sleep 600 &) ; i=$((i+1)); done; echo forked; read wait; exit 0";
    for rights in [true, false] {
        let mut command = yields(&["--idle-only", "--quiet", "--", "sh", "-c", script]);
        if !rights {
            command = without_rights(command);
        }
        let mut job = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut word = [0; 7];
        std::io::Read::read_exact(job.0.stdout.as_mut().unwrap(), &mut word).unwrap();
        let below = wait_for("all", || Some(job.below()).filter(|below| below.len() >= 201));
        for process in below.iter().filter(|process| name(process.pid) == "sleep") {
            assert!(Scheduling::of(process.pid).unwrap().is_idle());
            if rights && is_root() {
                assert!(own_groups(process.pid).contains("plimsoll-yield-"));
            }
        }
        drop(job.0.stdin.take());
        assert_eq!(job.code(), 0, "it ends with its command, whatever is left over");
        assert_eq!(groups_of(job.pid()), Vec::<String>::new());
        for process in below.iter().filter(|process| name(process.pid) == "sleep") {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
    }
}

#[test]
fn a_job_that_forks_without_end_is_put_back_to_its_last_process() {
    // A new process every few milliseconds, half of which outlive the one that started them.
    let script = "while :; do sh -c 'sleep 1 & sleep 1 & exit 0'; sleep 0.005; done";
    let mut job = Command::new("sh");
    let job = Running::start(std::os::unix::process::CommandExt::process_group(job.args(["-c", script]), 0));
    let before = (own_groups(job.pid()), Scheduling::of(job.pid()).unwrap());
    for end in [Signal::SIGKILL, Signal::SIGTERM] {
        let mut command = yields(&["--idle-only", "--quiet", "--pid", &job.pid().to_string()]);
        let mut yielding = Running::start(&mut command);
        wait_for("hold", || {
            let held = own_groups(job.pid()) != before.0 || Scheduling::of(job.pid()).unwrap() != before.1;
            held.then_some(())
        });
        let guard = guard(&yielding);
        yielding.signal(end);
        wait_for("the end of yield", || yielding.0.try_wait().unwrap());
        wait_for("the end of the guard", || (!guard.lives()).then_some(()));
        assert_eq!(groups_of(yielding.pid()), Vec::<String>::new(), "after {end}");
        for process in job.below() {
            // It may have ended since.
            let Ok(groups) = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)) else { continue };
            let Ok(scheduling) = Scheduling::of(process.pid) else { continue };
            if process.lives() {
                assert_eq!((groups, scheduling), before, "after {end}");
            }
        }
    }
}
