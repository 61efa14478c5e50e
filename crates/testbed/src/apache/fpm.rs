//! A private php-fpm with one pool, on a Unix socket, as Debian has it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use plimsoll_core::Nanos;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::httpd::{write, write_pages};
use super::install;
use crate::child::{self, ends_with_this_thread};
use crate::clock::Clock;
use crate::ports::free_ports;

/// How long it may take to be ready, and to end before a harsher means is tried.
const STARTS_WITHIN: Nanos = Nanos::from_secs(10);
const STOPS_WITHIN: Nanos = Nanos::from_secs(10);
const LOOK: Nanos = Nanos::from_millis(20);
/// The last lines of its log that are worth showing.
const LAST_LINES: usize = 5;
/// What it says when it takes requests.
const READY: &str = "ready to handle connections";
const LOG: &str = "log";

/// How a pool is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Workers, all of them at once.
    pub workers: u32,
    /// Lines of its configuration, as name and value; the last of a name counts.
    pub settings: Vec<(String, String)>,
    /// Pages of its own: names, and what is there. A web server in front has others.
    pub pages: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Options {
        Options { workers: 4, settings: Vec::new(), pages: Vec::new() }
    }
}

/// A running pool. Dropping it ends it and removes its directory.
///
/// It blocks the thread while it starts and stops. The kernel ends it with the *thread* that started it, so that thread has to live as long.
pub struct Fpm {
    program: PathBuf,
    status: String,
    process: Option<Child>,
    // Last, for it goes when the process has gone.
    directory: TempDir,
}

impl Fpm {
    /// Whether this machine has one.
    ///
    /// # Errors
    /// What is missing, and the command that installs it.
    pub fn is_there() -> Result<(), String> {
        install::fpm().map(drop)
    }

    /// Starts one.
    ///
    /// # Errors
    /// Where it is not installed, and how to; where it does not start, with the last lines of its log.
    pub fn start(options: &Options) -> Result<Fpm, String> {
        let program = install::fpm()?;
        let directory = tempfile::Builder::new().prefix("plimsoll-fpm-").tempdir();
        let directory = directory.map_err(|e| format!("cannot make a directory: {e}"))?;
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
        write_pages(&directory.path().join("pages"), &options.pages)?;
        let status = format!("127.0.0.1:{}", free_ports(1)?.start);
        let mut fpm = Fpm { program, status, process: None, directory };
        fpm.configure(options.workers, &options.settings)?;
        fpm.resume()?;
        Ok(fpm)
    }

    fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes its configuration, which counts from its next start on.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn configure(&self, workers: u32, settings: &[(String, String)]) -> Result<(), String> {
        let place = |name: &str| self.place(name).display().to_string();
        let mut lines = vec![
            "[global]".to_owned(),
            "daemonize = no".to_owned(),
            format!("error_log = {}", place(LOG)),
            "[www]".to_owned(),
            format!("listen = {}\nlisten.mode = 0666", place("socket")),
            format!("pm = static\npm.max_children = {workers}"),
            format!("pm.status_path = /status\npm.status_listen = {}", self.status),
        ];
        lines.extend(install::user().map(|user| format!("user = {user}\ngroup = {user}")));
        lines.extend(settings.iter().map(|(name, value)| format!("{name} = {value}")));
        write(&self.place("conf"), &(lines.join("\n") + "\n"))
    }

    /// Starts it again after it was stopped, and waits until it answers.
    ///
    /// # Errors
    /// Where it does not, with the last lines of its log.
    pub fn resume(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            return Ok(());
        }
        // What it said before is not what it says now.
        let _ = fs::remove_file(self.place(LOG));
        let mut command = Command::new(&self.program);
        // Without the machine's php.ini.
        command.args(["-n", "--nodaemonize", "--fpm-config"]).arg(self.place("conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        ends_with_this_thread(&mut command, Signal::TERM);
        command.process_group(0);
        let mut process = command.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))?;
        let clock = Clock::start();
        let is_ready = || fs::read_to_string(self.place(LOG)).unwrap_or_default().contains(READY);
        while !is_ready() {
            if child::has_ended(&mut process) || clock.now() > STARTS_WITHIN {
                let why = format!("php-fpm did not start: {}", self.said());
                self.process = Some(process);
                self.stop(true);
                return Err(why);
            }
            clock.sleep_until(clock.now() + LOOK);
        }
        self.process = Some(process);
        Ok(())
    }

    /// Ends it: in order, or `at_once`, as in a crash, with its workers.
    pub fn stop(&mut self, at_once: bool) {
        let Some(mut process) = self.process.take() else { return };
        if !at_once && child::stop(&mut process, &[Signal::TERM], STOPS_WITHIN) {
            return;
        }
        // Its workers are of its group, and would go on without it.
        if let Some(group) = Pid::from_raw(process.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = process.wait();
    }

    /// Where it takes requests.
    pub fn socket(&self) -> PathBuf {
        self.place("socket")
    }

    /// Where it tells its status, as the agent's config has it.
    pub fn status(&self) -> &str {
        &self.status
    }

    /// What it calls itself.
    ///
    /// # Errors
    /// Where it does not say.
    pub fn version(&self) -> Result<String, String> {
        install::version(&self.program)
    }

    /// A page of its own.
    pub fn page(&self, name: &str) -> PathBuf {
        self.place("pages").join(name)
    }

    /// Where it keeps its files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The last lines of its log.
    pub fn said(&self) -> String {
        child::last_lines(&[self.place(LOG)], LAST_LINES)
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        self.stop(true);
    }
}
