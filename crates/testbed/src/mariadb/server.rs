//! A private MariaDB as it comes, with a data directory of its own that goes when it goes.

use std::fs;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use mysql_async::{Opts, OptsBuilder};
use plimsoll_core::Nanos;
use rustix::process::Signal;
use tempfile::TempDir;

use super::install::Install;
use crate::child::{self, ends_with_this_thread};
use crate::clock::Clock;
use crate::disk_cap::{Disk, DiskCap};
use crate::installed::Certificate;
use crate::ports::free_ports;

/// How long it may take to be ready; after a crash it has to recover first.
const STARTS_WITHIN: Nanos = Nanos::from_secs(60);
/// How long a shutdown may take before a harsher one is tried.
const STOPS_WITHIN: Nanos = Nanos::from_secs(20);
const LOOK: Nanos = Nanos::from_millis(20);
/// The last lines of its log that are worth showing.
const LAST_LINES: usize = 5;
/// What it says when it takes connections.
const READY: &str = "ready for connections";
/// Its log; to a name without an extension it would add one.
const LOG: &str = "log.err";
/// Who has all rights in it.
const SUPERUSER: &str = "root";
/// Those who may come over the extra port at once, beside its superuser.
const EXTRA_CONNECTIONS: &str = "4";

/// How a server is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory with its programs; else those on the path, or where packages put them.
    pub bin: Option<PathBuf>,
    /// Who runs it, if this program runs as root: MariaDB refuses to.
    pub user: String,
    /// On 127.0.0.1; else one that is free.
    pub port: Option<u16>,
    /// Where its directory is made; else where temporary files are.
    pub parent: Option<PathBuf>,
    /// Lines of its configuration, as name and value; the last of a name counts.
    pub settings: Vec<(String, String)>,
    /// Whether `performance_schema` shows metadata locks, which a server as it comes does not.
    pub shows_metadata: bool,
    /// All the memory it may use, page cache included, in bytes; without, as much as there is. Needs control groups.
    pub memory_bytes: Option<u64>,
    /// What it shows to those who ask for TLS; without, what it makes itself, if it does.
    pub tls: Option<Certificate>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            bin: None,
            user: "mysql".to_owned(),
            port: None,
            parent: None,
            settings: Vec::new(),
            shows_metadata: true,
            memory_bytes: None,
            tls: None,
        }
    }
}

/// A running server. Dropping it ends it and removes its directory.
///
/// It blocks the thread while it starts and stops, for seconds. The kernel ends the server with the *thread* that started it, which makes
/// sure that none is left behind; so that thread has to live as long.
pub struct Server {
    install: Install,
    port: u16,
    /// Where connections have a thread of their own, if elsewhere they have none.
    extra_port: Option<u16>,
    process: Option<Child>,
    cap: Option<DiskCap>,
    // Last, for it goes when the process has gone.
    directory: TempDir,
}

impl Server {
    /// Whether there is a MariaDB on this machine, and somebody who may run it.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn is_there(options: &Options) -> Result<(), String> {
        Install::find(options.bin.as_deref(), &options.user).map(drop)
    }

    /// Makes its first tables and starts it. Who is on this machine may connect to it as `root`, on its port of 127.0.0.1.
    ///
    /// # Errors
    /// Where MariaDB is not installed, and how to; where it does not start, with the last lines that it said.
    pub fn start(options: &Options) -> Result<Server, String> {
        let install = Install::find(options.bin.as_deref(), &options.user)?;
        let parent = options.parent.clone().unwrap_or_else(std::env::temp_dir);
        let directory = tempfile::Builder::new().prefix("plimsoll-mariadb-").tempdir_in(&parent);
        let directory =
            directory.map_err(|e| format!("cannot make a directory in {}: {e}", parent.display()))?;
        install.hand_over(directory.path())?;
        let ports = free_ports(2)?;
        let port = options.port.unwrap_or(ports.start);
        let in_pool = |(name, value): &(String, String)| {
            name.replace('-', "_") == "thread_handling" && value == "pool-of-threads"
        };
        let extra_port = options.settings.iter().any(in_pool).then_some(ports.start + 1);
        let cap = options.memory_bytes.map(DiskCap::new).transpose()?;
        let mut server = Server { install, port, extra_port, process: None, cap, directory };
        server.make(options)?;
        server.resume()?;
        Ok(server)
    }

    fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn make(&self, options: &Options) -> Result<(), String> {
        let mut installer = self.install.installer(self.directory.path());
        installer.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        // Where temporary files are usually put, another user may not write.
        installer.arg(format!("--tmpdir={}", self.directory.path().display()));
        installer.arg(format!("--datadir={}", self.place("data").display())).stdin(Stdio::null());
        let made = installer.output().map_err(|e| format!("cannot start {installer:?}: {e}"))?;
        if !made.status.success() {
            let [said, complained] = [&made.stdout, &made.stderr].map(|text| String::from_utf8_lossy(text));
            return Err(format!("{installer:?} failed: {}\n{}", said.trim_end(), complained.trim_end()));
        }
        let mut lines = vec![
            ("bind-address".to_owned(), "127.0.0.1".to_owned()),
            ("port".to_owned(), self.port.to_string()),
            ("skip-name-resolve".to_owned(), "ON".to_owned()),
        ];
        for (name, file) in [
            ("datadir", "data"),
            ("socket", "socket"),
            ("pid-file", "pid"),
            ("log-error", LOG),
            ("tmpdir", ""),
        ] {
            lines.push((name.to_owned(), self.place(file).display().to_string()));
        }
        if options.shows_metadata {
            lines.push(("performance-schema".to_owned(), "ON".to_owned()));
            let instrument = "performance-schema-instrument";
            lines.push((instrument.to_owned(), "'wait/lock/metadata/sql/mdl=ON'".to_owned()));
        }
        if let Some(port) = self.extra_port {
            lines.push(("extra-port".to_owned(), port.to_string()));
            lines.push(("extra-max-connections".to_owned(), EXTRA_CONNECTIONS.to_owned()));
        }
        if let Some(Certificate { cert, key }) = &options.tls {
            for (name, file, text) in [("ssl-cert", "cert.pem", cert), ("ssl-key", "key.pem", key)] {
                let file = self.place(file);
                self.install.put(&file, text)?;
                lines.push((name.to_owned(), file.display().to_string()));
            }
        }
        lines.extend(options.settings.iter().cloned());
        let text: String = lines.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
        let conf = self.place("my.cnf");
        fs::write(&conf, format!("[mariadbd]\n{text}"))
            .map_err(|e| format!("cannot write {}: {e}", conf.display()))
    }

    /// Starts it again after it was stopped, or has ended by itself, and waits until it answers.
    ///
    /// # Errors
    /// Where it does not within a minute, with the last lines that it said.
    pub fn resume(&mut self) -> Result<(), String> {
        if !self.has_ended() {
            return Ok(());
        }
        // What it said before is not what it says now.
        let _ = fs::rename(self.place(LOG), self.place("before.err"));
        let mut command = self.install.server(self.directory.path());
        command.arg(format!("--defaults-file={}", self.place("my.cnf").display()));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let errors = File::create(self.place("errors")).map_err(|e| format!("cannot write: {e}"))?;
        command.stderr(errors);
        ends_with_this_thread(&mut command, Signal::KILL);
        // A group of its own: Ctrl-C reaches this program alone, which then ends the server in order.
        command.process_group(0);
        let process = command.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))?;
        let pid = process.id();
        self.process = Some(process);
        if let Some(cap) = &self.cap {
            cap.hold(pid).map_err(|e| format!("cannot limit the server's memory: {e}"))?;
        }
        let clock = Clock::start();
        while clock.now() < STARTS_WITHIN {
            if fs::read_to_string(self.place(LOG)).unwrap_or_default().contains(READY) {
                return Ok(());
            }
            if self.has_ended() {
                self.process = None;
                return Err(format!("MariaDB did not start: {}", self.said()));
            }
            clock.sleep_until(clock.now() + LOOK);
        }
        Err(format!("MariaDB is not ready after {STARTS_WITHIN}: {}", self.said()))
    }

    /// Ends it: in order, or `at_once`, as in a crash. Its data stay.
    pub fn stop(&mut self, at_once: bool) {
        let signals = if at_once { &[Signal::KILL][..] } else { &[Signal::TERM, Signal::KILL] };
        let Some(process) = &mut self.process else { return };
        if child::stop(process, signals, STOPS_WITHIN) {
            self.process = None;
        }
    }

    fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(child::has_ended)
    }

    /// Makes its disk slow from now on. Needs [`Options::memory_bytes`], lest it read from the page cache.
    ///
    /// # Errors
    /// Where this machine does not let us, or its directory is on no disk.
    pub fn slow_down(&self, disk: Disk) -> Result<(), String> {
        let cap = self.cap.as_ref().ok_or("a server whose disk is to be slow needs a limit on its memory")?;
        cap.slow_down(self.directory.path(), disk)
    }

    /// The port that it listens on, at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id, while there is one.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// How its superuser connects.
    pub fn options(&self) -> Opts {
        self.options_of(SUPERUSER, None)
    }

    /// How a user connects, to a database if one is named.
    pub fn options_of(&self, user: &str, database: Option<&str>) -> Opts {
        OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.port)
            .user(Some(user))
            .db_name(database)
            .prefer_socket(false)
            .tcp_nodelay(true)
            .into()
    }

    /// How whoever watches it connects, as a URL: where a pool of threads serves clients, over the extra port, where none of them can keep
    /// others out.
    pub fn url(&self, user: &str) -> String {
        format!("mariadb://{user}@127.0.0.1:{}", self.extra_port.unwrap_or(self.port))
    }

    /// Where it keeps its data, its log (`log.err`) and its socket.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The last lines of its log.
    pub fn said(&self) -> String {
        child::last_lines(&[self.place(LOG), self.place("errors")], LAST_LINES)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody needs its data.
        self.stop(true);
    }
}
