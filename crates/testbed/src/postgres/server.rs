//! A private PostgreSQL as it comes, with a data directory of its own that goes when it goes.

mod standby;

use std::fs;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use plimsoll_core::Nanos;
use rustix::process::Signal;
use tempfile::TempDir;

use super::install::Install;
use super::tables::OWNER;
use crate::child::{self, ends_with_this_thread};
use crate::clock::Clock;
use crate::disk_cap::{Disk, DiskCap};
use crate::installed::Certificate;
use crate::ports::free_ports;

/// How long it may take to be ready; after a crash it has to recover first.
const STARTS_WITHIN: Nanos = Nanos::from_secs(60);
/// How long a shutdown may take before a harsher one is tried.
const STOPS_WITHIN: Nanos = Nanos::from_secs(10);
/// From one look at it to the next.
const LOOK: Nanos = Nanos::from_millis(20);
/// The last lines of its log that are worth showing.
const LAST_LINES: usize = 5;
/// Who has all rights in it.
const SUPERUSER: &str = "postgres";

/// How a server is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory with `initdb` and `postgres`; else those on the path, or the newest that the system's packages have installed.
    pub bin: Option<PathBuf>,
    /// Who runs it, if this program runs as root: PostgreSQL refuses to.
    pub user: String,
    /// On 127.0.0.1; else one that is free.
    pub port: Option<u16>,
    /// Where its directory is made; else where temporary files are. It is to be on a disk where that is to be slow.
    pub parent: Option<PathBuf>,
    /// Lines of its `postgresql.conf`, as name and value; the last of a name counts.
    pub settings: Vec<(String, String)>,
    /// Libraries to preload, where they are installed. What is not is left out.
    pub preload: Vec<String>,
    /// All the memory it may use, page cache included, in bytes; without, as much as there is. Needs control groups.
    pub memory_bytes: Option<u64>,
    /// What it shows to those who ask for TLS; without, there is none.
    pub tls: Option<Certificate>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            bin: None,
            user: "postgres".to_owned(),
            port: None,
            parent: None,
            settings: Vec::new(),
            preload: vec!["pg_stat_statements".to_owned()],
            memory_bytes: None,
            tls: None,
        }
    }
}

/// How a server is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Sessions are ended, and all is written: SIGINT.
    Fast,
    /// At once, as in a crash; the next start recovers: SIGQUIT.
    Immediate,
}

/// A running server. Dropping it ends it and removes its directory.
///
/// It blocks the thread while it starts and stops, for seconds. The kernel ends the server with the *thread* that started it, which makes
/// sure that none is left behind; so that thread has to live as long.
pub struct Server {
    install: Install,
    port: u16,
    process: Option<Child>,
    cap: Option<DiskCap>,
    preloaded: Vec<String>,
    // Last, for it goes when the process has gone.
    directory: TempDir,
}

impl Server {
    /// Whether there is a PostgreSQL on this machine, and somebody who may run it.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn is_there(options: &Options) -> Result<(), String> {
        Install::find(options.bin.as_deref(), &options.user).map(drop)
    }

    /// Makes a database cluster and starts it. Everybody on this machine may connect to it as anybody, on its port of 127.0.0.1.
    ///
    /// # Errors
    /// Where PostgreSQL is not installed, and how to; where it does not start, with the last lines that it said.
    pub fn start(options: &Options) -> Result<Server, String> {
        let mut server = Server::new(Install::find(options.bin.as_deref(), &options.user)?, options)?;
        server.make(options)?;
        server.resume()?;
        Ok(server)
    }

    /// One with a directory and a port, and no data yet.
    fn new(install: Install, options: &Options) -> Result<Server, String> {
        let parent = options.parent.clone().unwrap_or_else(std::env::temp_dir);
        let directory = tempfile::Builder::new().prefix("plimsoll-postgres-").tempdir_in(&parent);
        let directory =
            directory.map_err(|e| format!("cannot make a directory in {}: {e}", parent.display()))?;
        install.hand_over(directory.path())?;
        let port = match options.port {
            Some(port) => port,
            None => free_ports(1)?.start,
        };
        let cap = options.memory_bytes.map(DiskCap::new).transpose()?;
        let preloaded = options.preload.iter().filter(|name| install.has_library(name)).cloned().collect();
        Ok(Server { install, port, process: None, cap, preloaded, directory })
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn make(&self, options: &Options) -> Result<(), String> {
        let mut initdb = self.install.command("initdb", self.directory.path());
        initdb.args(["--auth=trust", "--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C"]);
        initdb.arg(format!("--username={SUPERUSER}")).arg("-D").arg(self.data()).stdin(Stdio::null());
        let made = initdb.output().map_err(|e| format!("cannot start {initdb:?}: {e}"))?;
        if !made.status.success() {
            return Err(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr).trim_end()));
        }
        let mut ours = vec![
            ("listen_addresses".to_owned(), "127.0.0.1".to_owned()),
            ("track_io_timing".to_owned(), "on".to_owned()),
            ("shared_preload_libraries".to_owned(), self.preloaded.join(",")),
        ];
        if let Some(Certificate { cert, key }) = &options.tls {
            ours.push(("ssl".to_owned(), "on".to_owned()));
            for (name, file, text) in [("ssl_cert_file", "cert.pem", cert), ("ssl_key_file", "key.pem", key)]
            {
                let file = self.directory.path().join(file);
                self.install.put(&file, text)?;
                ours.push((name.to_owned(), file.display().to_string()));
            }
        }
        self.set(&[&ours[..], &self.places()[..], &options.settings[..]].concat())
    }

    /// Where it is to be reached.
    fn places(&self) -> [(String, String); 2] {
        let sockets = self.directory.path().display().to_string();
        [("port".to_owned(), self.port.to_string()), ("unix_socket_directories".to_owned(), sockets)]
    }

    /// Adds lines to its `postgresql.conf`.
    fn set(&self, settings: &[(String, String)]) -> Result<(), String> {
        let lines: String = settings.iter().map(|line| setting(line) + "\n").collect();
        let conf = self.data().join("postgresql.conf");
        File::options()
            .append(true)
            .open(&conf)
            .and_then(|mut file| file.write_all(lines.as_bytes()))
            .map_err(|e| format!("cannot write {}: {e}", conf.display()))
    }

    /// Starts it again after [`Server::stop`], or after it has ended by itself, and waits until it answers.
    ///
    /// # Errors
    /// Where it does not within a minute, with the last lines that it said.
    pub fn resume(&mut self) -> Result<(), String> {
        if !self.has_ended() {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.map_err(|e| format!("cannot write {}: {e}", self.log().display()))?;
        let mut command = self.install.command("postgres", self.directory.path());
        command.arg("-D").arg(self.data()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        ends_with_this_thread(&mut command, Signal::QUIT);
        // A group of its own: Ctrl-C reaches this program alone, which then ends the server in order.
        command.process_group(0);
        let process = command.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))?;
        let pid = process.id();
        self.process = Some(process);
        if let Some(cap) = &self.cap {
            cap.hold(pid).map_err(|e| format!("cannot limit the server's memory: {e}"))?;
        }
        self.wait_until_ready(pid)
    }

    fn wait_until_ready(&mut self, pid: u32) -> Result<(), String> {
        let (clock, status) = (Clock::start(), self.data().join("postmaster.pid"));
        while clock.now() < STARTS_WITHIN {
            let status = fs::read_to_string(&status).unwrap_or_default();
            if is_ready(&status, pid) {
                return Ok(());
            }
            if self.has_ended() {
                self.process = None;
                return Err(format!("PostgreSQL did not start: {}", self.said()));
            }
            clock.sleep_until(clock.now() + LOOK);
        }
        Err(format!("PostgreSQL is not ready after {STARTS_WITHIN}: {}", self.said()))
    }

    /// Shuts it down. Its data stay. Where it does not end as it should, it is ended harshly.
    pub fn stop(&mut self, how: Shutdown) {
        let harsh = [Signal::QUIT, Signal::KILL];
        let signals = match how {
            Shutdown::Fast => [&[Signal::INT][..], &harsh].concat(),
            Shutdown::Immediate => harsh.to_vec(),
        };
        let Some(process) = &mut self.process else { return };
        if child::stop(process, &signals, STOPS_WITHIN) {
            self.process = None;
        }
    }

    /// Shuts it down and starts it again, on the same port.
    ///
    /// # Errors
    /// As [`Server::resume`].
    pub fn restart(&mut self, how: Shutdown) -> Result<(), String> {
        self.stop(how);
        self.resume()
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

    /// The process id of the postmaster, while there is one.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// How its superuser connects.
    pub fn dsn(&self) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/postgres", self.port)
    }

    /// The same for a client of this name.
    pub fn config(&self, application: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.port).user(SUPERUSER).dbname("postgres");
        config.application_name(application);
        config
    }

    /// How an application connects that calls itself this: as the owner of the tables, once they are there.
    pub fn client(&self, application: &str) -> tokio_postgres::Config {
        let mut config = self.config(application);
        config.user(OWNER);
        config
    }

    /// Of the libraries that were to be preloaded those that are installed.
    pub fn preloaded(&self) -> &[String] {
        &self.preloaded
    }

    /// Where it keeps its data, its log (`log`) and its socket.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The last lines of its log.
    pub fn said(&self) -> String {
        child::last_lines(&[self.log()], LAST_LINES)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody needs its data.
        self.stop(Shutdown::Immediate);
    }
}

/// The first line of `postmaster.pid` says whose it is (one that was killed leaves its own), and the eighth whether it takes connections.
fn is_ready(status: &str, pid: u32) -> bool {
    let mut lines = status.lines().map(str::trim_end);
    lines.next() == Some(&pid.to_string()) && lines.nth(6) == Some("ready")
}

/// A line of `postgresql.conf`.
fn setting((name, value): &(String, String)) -> String {
    format!("{name} = '{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_itself_says_that_it_is_ready() {
        let status = |last| format!("812\n/data\n1700000000\n15999\n/socket\n127.0.0.1\n  1234  5\n{last}\n");
        assert!(is_ready(&status("ready   "), 812));
        assert!(!is_ready(&status("ready   "), 81));
        assert!(!is_ready(&status("starting"), 812) && !is_ready("812\n/data\n", 812) && !is_ready("", 812));
    }

    #[test]
    fn a_setting_keeps_its_quotes_and_backslashes() {
        let line = ("log_line_prefix".to_owned(), r"it's \%".to_owned());
        assert_eq!(setting(&line), r"log_line_prefix = 'it''s \\%'");
    }
}
