//! `plimsoll top` on a real host and in a real (pseudo) terminal: what it measures, and that it leaves nothing behind.

use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;

/// How long anything may take that has to happen: the machine may be busy.
const PATIENCE_TRIES: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);

fn top(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("top").args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    top(arguments).output().unwrap()
}

fn pause() {
    #[allow(clippy::disallowed_methods)] // waits for processes
    std::thread::sleep(PAUSE);
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..PATIENCE_TRIES {
        if done() {
            return;
        }
        pause();
    }
    panic!("never: {what}");
}

/// A process that ends when the test does.
struct Killed(Child);

impl Killed {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that wants all of one CPU, the same for all.
fn hog() -> Killed {
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]);
    let pinned = || {
        let mut first = CpuSet::new();
        first.set(0);
        Ok(sched_setaffinity(None, &first)?)
    };
    // SAFETY: between fork and exec it makes one system call and allocates nothing.
    unsafe { command.pre_exec(pinned) };
    Killed(command.spawn().unwrap())
}

#[test]
fn two_hogs_on_one_cpu_are_twice_as_slow() {
    let hogs = [hog(), hog()];
    let mut seen = Value::Null;
    // Others may take the CPU from both for a while.
    for _ in 0..10 {
        let run = output(&["--once", "--json"]);
        assert!(run.status.success() && run.stderr.is_empty(), "{run:?}");
        let outcome: Value = serde_json::from_slice(&run.stdout).expect("nothing but JSON");
        assert!(outcome["interval_s"].as_f64().unwrap() >= 0.9, "{}", outcome["interval_s"]);
        let tasks = outcome["tasks"].as_array().unwrap();
        assert!(
            tasks.iter().any(|task| task["pid"] == std::process::id()),
            "lists every task: this one, too"
        );
        let fields = [
            "actual_ms_per_s",
            "desired_ms_per_s",
            "predicted_ms_per_s",
            "potential_ms_per_s",
            "slowdown",
            "predicted_slowdown",
        ];
        for task in tasks {
            assert!(task["pid"].is_u64() && task["tid"].is_u64() && task["comm"].is_string(), "{task}");
            assert!(fields.iter().all(|field| task[field].is_f64() || task[field].is_i64()), "{task}");
            assert!(task["slowdown"].as_f64().unwrap() >= 1.0, "{task}");
        }
        let of = |hog: &Killed| tasks.iter().find(|task| task["tid"] == hog.0.id()).cloned().unwrap();
        let both = hogs.each_ref().map(of);
        let near = |field: &str, least: f64, most: f64| {
            both.iter().all(|task| (least..=most).contains(&task[field].as_f64().unwrap()))
        };
        let got: f64 = both.iter().map(|task| task["actual_ms_per_s"].as_f64().unwrap()).sum();
        // Where others take part of the CPU, too, hogs are slower than that.
        let most = if got > 800.0 { 2.6 } else { f64::INFINITY };
        if near("slowdown", 1.6, most)
            && near("predicted_slowdown", 1.6, most)
            && near("desired_ms_per_s", 850.0, 1010.0)
        {
            return;
        }
        seen = Value::from(both.to_vec());
    }
    panic!("{seen:#}");
}

#[test]
fn only_the_processes_that_were_asked_for_are_told_of() {
    let own = std::process::id().to_string();
    let run = output(&["--once", "--json", "--pid", &own]);
    let outcome: Value = serde_json::from_slice(&run.stdout).expect("nothing but JSON");
    let tasks = outcome["tasks"].as_array().unwrap();
    assert!(!tasks.is_empty() && tasks.iter().all(|task| task["pid"] == std::process::id()), "{tasks:?}");
    let table = String::from_utf8(output(&["--once", "--pid", &own, "--pid", "1"]).stdout).unwrap();
    assert!(table.contains("SLOWER") && table.lines().count() <= 4, "{table}");
}

#[test]
fn a_recording_survives_a_kill_and_its_bill_names_who_took_the_cpu() {
    let hogs = [hog(), hog()];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history");
    let name = path.to_str().unwrap();
    let bill = || -> Option<Value> {
        let run = output(&["--bill", name, "--json"]);
        // Until it has begun there is nothing to read.
        run.status.success().then(|| serde_json::from_slice(&run.stdout).expect("nothing but JSON"))
    };
    // What a hog is billed, and what share of its wait is the other one's doing.
    let billed = |bill: &Value, hog: &Killed, by: &Killed| -> Option<(Value, f64)> {
        let find = |of: &Value, pid: u32| of.as_array()?.iter().find(|item| item["pid"] == pid).cloned();
        let item = find(&bill["processes"], hog.0.id())?;
        let share = find(&item["takers"], by.0.id())?["share_pct"].as_f64()?;
        Some((item, share))
    };
    let both = |bill: &Value| Some([billed(bill, &hogs[0], &hogs[1])?, billed(bill, &hogs[1], &hogs[0])?]);
    let mut recorder = Killed(top(&["--record", name]).stdout(Stdio::null()).spawn().unwrap());
    until("each has waited for the other", || {
        let both = bill().and_then(|bill| both(&bill));
        both.is_some_and(|both| both.iter().all(|(item, _)| item["waited_s"].as_f64().unwrap() > 1.0))
    });
    recorder.0.kill().unwrap();
    recorder.0.wait().unwrap();
    // As the kernel leaves it where it was killed while it wrote.
    let length = fs::metadata(&path).unwrap().len();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 5).unwrap();

    let bill = bill().expect("it can be read");
    for (item, share) in both(&bill).expect("both are in it") {
        assert!(item["slowdown"].as_f64().unwrap() > 1.5 && share > 0.0, "{item}");
        let takers = item["takers"].as_array().unwrap().iter();
        let known: f64 = takers.map(|taker| taker["share_pct"].as_f64().unwrap()).sum();
        assert!((known + item["unknown_pct"].as_f64().unwrap() - 100.0).abs() < 1.0, "{item}");
    }
    let table = String::from_utf8(output(&["--bill", name]).stdout).unwrap();
    assert!(table.contains("WAITED BECAUSE OF") && table.contains(&hogs[0].0.id().to_string()), "{table}");
}

#[test]
fn what_cannot_be_done_is_said_with_what_to_do_instead() {
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let run = output(arguments);
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words) && run.stdout.is_empty(), "{arguments:?}: {said}");
    };
    refused(&[], 1, "are not a terminal; `plimsoll top --once`");
    refused(&["--once", "--pid", "many"], 2, "invalid value");
    refused(&["--once", "--pid", "4194303"], 1, "there is no process 4194303");
    refused(&["--json"], 2, "--json goes with --once or --bill");
    refused(&["--period", "1ms"], 2, "from 100ms to 1m");
    refused(&["--once", "--reader", "tea-leaves"], 2, "tea-leaves");
    refused(&["--bill", "/nowhere"], 1, "cannot read /nowhere");
    refused(&["--record", "/nowhere/history"], 1, "cannot write /nowhere/history");
}

#[test]
fn a_disk_that_fills_up_fails_the_recording_and_what_is_in_it_is_billed() {
    let _hogs = [hog(), hog()];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history");
    // A limit on the size of files stands for the full disk: the kernel refuses what goes beyond, in the middle of a line.
    let script = "trap '' XFSZ; ulimit -f 6; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_plimsoll"), "top", "--for", "5m", "--record"]);
    command.arg(&path).stdin(Stdio::null());
    let run = command.output().unwrap();
    let (said, printed) = (String::from_utf8_lossy(&run.stderr), String::from_utf8_lossy(&run.stdout));
    assert_eq!(run.status.code(), Some(1), "{said}{printed}");
    assert!(said.contains("the recording ends here: ") && said.lines().count() == 1, "{said}");
    assert!(printed.contains("WAITED BECAUSE OF"), "{printed}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 6 * 512, "it was cut off in the middle of a line");
}

#[test]
fn an_output_that_is_full_is_a_failure() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let run = top(&["--once", "--json"]).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.code() == Some(1) && said.contains("cannot write: "), "{said}");
}

/// A pseudo terminal with a program in it.
struct Pty {
    controller: OwnedFd,
    terminal: File,
    before: Termios,
    program: Killed,
    said: String,
    screen: vt100::Parser,
}

impl Pty {
    fn start(arguments: &[&str]) -> Pty {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let path = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        let terminal = OpenOptions::new().read(true).write(true).open(path).unwrap();
        tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let before = tcgetattr(&terminal).unwrap();
        let mut command = top(arguments);
        let end = || Stdio::from(terminal.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let session = || {
            setsid()?;
            Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
        };
        // SAFETY: between fork and exec it makes two system calls and allocates nothing.
        unsafe { command.pre_exec(session) };
        let program = Killed(command.spawn().unwrap());
        let screen = vt100::Parser::new(24, 100, 0);
        Pty { controller, terminal, before, program, said: String::new(), screen }
    }

    /// What it has said since it was last asked for something, up to this.
    fn until(&mut self, part: &str) {
        for _ in 0..PATIENCE_TRIES {
            if let Some(at) = self.said.find(part) {
                self.said.drain(..at + part.len());
                return;
            }
            self.listen();
        }
        panic!("never said {part:?}, but {:?}", self.said);
    }

    /// Waits until the screen shows this. What is said is not enough for that: only what changes is drawn anew.
    fn shows(&mut self, part: &str) {
        for _ in 0..PATIENCE_TRIES {
            if self.screen.screen().contents().contains(part) {
                return;
            }
            self.listen();
        }
        panic!("never showed {part:?}, but\n{}", self.screen.screen().contents());
    }

    fn listen(&mut self) {
        let mut ready = [PollFd::new(&self.controller, PollFlags::IN)];
        let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.as_nanos() as i64 };
        if poll(&mut ready, Some(&pause)).unwrap() > 0 {
            let mut buffer = [0; 16 * 1024];
            let read = rustix::io::read(&self.controller, &mut buffer[..]).unwrap();
            self.screen.process(&buffer[..read]);
            self.said += &String::from_utf8_lossy(&buffer[..read]);
        }
    }

    fn press(&self, keys: &str) {
        rustix::io::write(&self.controller, keys.as_bytes()).unwrap();
    }

    fn is_as_before(&self) -> bool {
        let (before, now) = (&self.before, tcgetattr(&self.terminal).unwrap());
        (before.local_modes, before.input_modes, before.output_modes, before.control_modes)
            == (now.local_modes, now.input_modes, now.output_modes, now.control_modes)
    }

    fn ended(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        for _ in 0..PATIENCE_TRIES {
            self.listen();
            status = self.program.0.try_wait().unwrap();
            if status.is_some() {
                break;
            }
        }
        status.expect("it ends")
    }

    /// The screen that was there before it came is shown again, with its cursor.
    fn assert_given_back(&mut self) {
        assert!(self.is_as_before());
        assert!(self.said.contains(LEFT) && self.said.contains(CURSOR), "{:?}", self.said);
    }
}

const TAKEN: &str = "\x1b[?1049h";
const LEFT: &str = "\x1b[?1049l";
const CURSOR: &str = "\x1b[?25h";

#[test]
fn keys_change_the_screen_and_q_gives_the_terminal_back() {
    let mut pty = Pty::start(&[]);
    pty.until(TAKEN);
    pty.shows("plimsoll top");
    // After the first second.
    pty.shows("who takes the CPU from");
    assert!(!pty.is_as_before());
    pty.press("t");
    pty.shows("TID");
    pty.press("?");
    pty.shows("any key goes back");
    pty.press(" ");
    pty.press("/no such name");
    pty.shows("filter: ");
    pty.press("\r");
    pty.press("q");
    assert!(pty.ended().success());
    pty.assert_given_back();
}

#[test]
fn signals_give_the_terminal_back() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut pty = Pty::start(&[]);
        pty.shows("plimsoll top");
        kill_process(pty.program.pid(), signal).unwrap();
        let status = pty.ended();
        assert!(status.success() && status.signal().is_none(), "{status:?}");
        pty.assert_given_back();
    }
}

#[test]
fn control_z_gives_the_terminal_back_until_it_is_continued() {
    let mut pty = Pty::start(&[]);
    pty.shows("plimsoll top");
    pty.press("\x1a");
    pty.until(LEFT);
    let pid = pty.program.0.id();
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next()
    };
    until("it is stopped", || state() == Some('T'));
    assert!(pty.is_as_before());
    kill_process(pty.program.pid(), Signal::CONT).unwrap();
    pty.until(TAKEN);
    pty.shows("plimsoll top");
    assert!(!pty.is_as_before());
    pty.press("\x03");
    assert!(pty.ended().success());
    pty.assert_given_back();
}

#[test]
fn it_ends_after_the_time_that_was_given_and_the_bill_follows_the_screen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history");
    let mut pty = Pty::start(&["--for", "2s", "--threads", "--record", path.to_str().unwrap()]);
    pty.until(TAKEN);
    assert!(pty.ended().success());
    pty.until(LEFT);
    pty.until("WAITED BECAUSE OF");
    assert!(pty.is_as_before());
}
