//! `plimsoll yield` as a process, and others beside it. All end with the test.
#![allow(dead_code)] // Not every test needs all of it.
#![allow(clippy::disallowed_methods)] // Tests wait for real processes.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, kill};
use nix::unistd::Pid;
use plimsoll_empathy::process::{self, Process};
use plimsoll_empathy::tree::Tree;

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Whoever has no rights at all.
pub const NOBODY: u32 = 65_534;
/// A loop that only burns.
pub const HOG: &str = "while :; do :; done";

/// `plimsoll yield` with these arguments.
pub fn yields(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-yield"));
    command.args(args).stdin(Stdio::null());
    heeding_signals(&mut command);
    command
}

/// Has a command begin as from a terminal: whoever started the tests may ignore signals, as `nohup` and shells for what runs in the
/// background do, and what is ignored when a shell begins it never heeds.
pub fn heeding_signals(command: &mut Command) {
    let heed = || {
        for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP, Signal::SIGTERM, Signal::SIGTSTP] {
            // SAFETY: the default needs no handler.
            unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl)? };
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes a few system calls and allocates nothing.
    unsafe { command.pre_exec(heed) };
}

/// Reads what comes next; nothing at the end.
pub fn read(from: &mut (impl Read + AsFd), bytes: &mut [u8]) -> usize {
    let mut ready = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    let most = PollTimeout::try_from(PATIENCE).unwrap();
    assert!(poll(&mut ready, most).unwrap() > 0, "nothing was said for {PATIENCE:?}");
    from.read(bytes).unwrap()
}

/// Reads until the end.
pub fn read_all(from: &mut (impl Read + AsFd)) -> String {
    let (mut text, mut bytes) = (String::new(), [0; 256]);
    loop {
        match read(from, &mut bytes) {
            0 => return text,
            read => text += &String::from_utf8_lossy(&bytes[..read]),
        }
    }
}

/// Whether this test may act for others, and make control groups.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The same without any right.
pub fn without_rights(mut command: Command) -> Command {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// The same with the right to raise priorities alone.
pub fn raising_nice(command: &Command) -> Command {
    let user = NOBODY.to_string();
    let mut raising = Command::new("setpriv");
    raising.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    raising.args(["--inh-caps", "+sys_nice", "--ambient-caps", "+sys_nice"]);
    raising.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    raising
}

/// A process and all that it starts, killed when this is dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Running {
        Running(command.spawn().unwrap())
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits for its end.
    pub fn code(&mut self) -> i32 {
        wait_for("the exit code", || self.0.try_wait().unwrap()).code().unwrap()
    }

    /// Those below it, the guard among them.
    pub fn below(&self) -> Vec<Process> {
        let mut tree = Tree::below(self.pid(), &[]);
        tree.refresh();
        tree.processes().collect()
    }

    /// The process below it that runs a command.
    pub fn find(&self, command: &str) -> Process {
        // The guard is a fork of what runs the command, and has its command line.
        let runs = |process: &Process| {
            name(process.pid) != "plimsoll-guard"
                && command_line(process.pid).contains(command)
                && !is_yield(process.pid)
        };
        wait_for(command, || self.below().into_iter().find(runs))
    }

    /// The process below it that has become a program, whatever the command lines around it say.
    pub fn find_program(&self, program: &str) -> Process {
        wait_for(program, || self.below().into_iter().find(|process| name(process.pid) == program))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let below = self.below();
        let _ = self.0.kill();
        let _ = self.0.wait();
        for process in below.into_iter().filter(|process| name(process.pid) != "plimsoll-guard") {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
    }
}

pub fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn command_line(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// A child that has not become the job yet.
fn is_yield(pid: i32) -> bool {
    command_line(pid).contains("plimsoll-yield")
}

/// `R`, `S`, `T`, ...
pub fn state(pid: i32) -> Option<char> {
    process::stat(pid).map(|stat| stat.state as char)
}

/// How long a process's first thread has run, in seconds.
pub fn ran_s(pid: i32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Waits until there is something.
pub fn wait_for<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(got) = get() {
            return got;
        }
        assert!(start.elapsed() < PATIENCE, "{what} in vain");
        pause(10);
    }
}

pub fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Puts a command on the last CPU alone.
pub fn on_one_cpu(command: &mut Command) {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let last = (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu)).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set(last);
    // SAFETY: between fork and exec it makes one system call and allocates nothing.
    unsafe { command.pre_exec(move || Ok(rustix::thread::sched_setaffinity(None, &one)?)) };
}

/// A loop that burns on that CPU.
pub fn hog() -> Running {
    let mut command = Command::new("sh");
    command.args(["-c", HOG]);
    on_one_cpu(&mut command);
    Running::start(&mut command)
}

/// The control groups that were made for a `plimsoll yield`.
pub fn groups_of(pid: i32) -> Vec<String> {
    let tops = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified"];
    let all = tops.iter().filter_map(|top| fs::read_dir(top).ok()).flatten().flatten();
    let own = all
        .filter(|group| group.file_name().to_string_lossy().starts_with(&format!("plimsoll-yield-{pid}-")));
    own.map(|group| group.path().display().to_string()).collect()
}
