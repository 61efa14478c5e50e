//! A private etcd as it comes, with a data directory of its own that goes when it goes.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_core::Nanos;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::child::{self, ends_with_this_thread};
use crate::clock::Clock;
use crate::ports::free_ports;

const STARTS_WITHIN: Nanos = Nanos::from_secs(40);
const STOPS_WITHIN: Nanos = Nanos::from_secs(10);
const LOOK: Nanos = Nanos::from_millis(20);
/// How long it may take to say whether it is well.
const PATIENCE: Duration = Duration::from_secs(1);
/// The last lines of its log that are worth showing.
const LAST_LINES: usize = 5;
const MISSING: &str = "there is no etcd on this machine; install it with: apt-get install etcd-server";

/// How a server is to be.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Flags, as name and value.
    pub settings: Vec<(String, String)>,
}

/// A running server of one member. Dropping it ends it and removes its directory.
///
/// It blocks the thread while it starts and stops. The kernel ends the server with the *thread* that started it, so that thread has to live as
/// long.
pub struct Server {
    options: Options,
    client: u16,
    peer: u16,
    /// Certificate and key, where it speaks TLS.
    tls: Option<(PathBuf, PathBuf)>,
    process: Option<Child>,
    // Last, for it goes when the process has gone.
    directory: TempDir,
}

impl Server {
    /// Whether there is an etcd on this machine.
    ///
    /// # Errors
    /// How to get it.
    pub fn is_there() -> Result<(), String> {
        let mut command = Command::new("etcd");
        let asked = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.map(drop).map_err(|_| MISSING.to_owned())
    }

    /// Starts one on a port of 127.0.0.1, to which anybody on this machine may connect.
    ///
    /// # Errors
    /// Where etcd is not installed, and how to; where it does not start, with the last lines that it said.
    pub fn start(options: &Options) -> Result<Server, String> {
        Server::is_there()?;
        let directory = tempfile::Builder::new().prefix("plimsoll-etcd-").tempdir();
        let directory = directory.map_err(|e| format!("cannot make a directory: {e}"))?;
        let ports = free_ports(2)?;
        let (client, peer) = (ports.start, ports.start + 1);
        let mut server =
            Server { options: options.clone(), client, peer, tls: None, process: None, directory };
        server.resume()?;
        Ok(server)
    }

    /// From the next start on it speaks TLS, with this certificate and key.
    pub fn secure(&mut self, certificate: &Path, key: &Path) {
        self.tls = Some((certificate.to_owned(), key.to_owned()));
    }

    /// Starts it again after it was stopped, with what it knew before, and waits until it answers.
    ///
    /// # Errors
    /// Where it does not, with the last lines that it said.
    pub fn resume(&mut self) -> Result<(), String> {
        if !self.has_ended() {
            return Ok(());
        }
        let peer = format!("http://127.0.0.1:{}", self.peer);
        let client =
            format!("{}://127.0.0.1:{}", if self.tls.is_some() { "https" } else { "http" }, self.client);
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(self.directory.path().join("data"));
        command.args(["--logger", "zap", "--log-level", "error"]);
        if let Some((certificate, key)) = &self.tls {
            command.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
        }
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg("--initial-cluster").arg(format!("default={peer}"));
        for (name, value) in &self.options.settings {
            command.arg(format!("--{name}={value}"));
        }
        let log = fs::File::create(self.log()).map_err(|e| format!("cannot write: {e}"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        ends_with_this_thread(&mut command, Signal::KILL);
        // A group of its own: Ctrl-C reaches this program alone, which then ends the server in order.
        command.process_group(0);
        self.process = Some(command.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))?);
        let clock = Clock::start();
        while clock.now() < STARTS_WITHIN {
            if self.is_well() {
                return Ok(());
            }
            if self.has_ended() {
                self.process = None;
                return Err(format!("etcd did not start: {}", self.said()));
            }
            clock.sleep_until(clock.now() + LOOK);
        }
        Err(format!("etcd is not ready after {STARTS_WITHIN}: {}", self.said()))
    }

    /// Ends it: in order, or `at_once`, as in a crash. Its data stay.
    pub fn stop(&mut self, at_once: bool) {
        let signals = if at_once { &[Signal::KILL][..] } else { &[Signal::TERM, Signal::KILL] };
        let Some(process) = &mut self.process else { return };
        if child::stop(process, signals, STOPS_WITHIN) {
            self.process = None;
        }
    }

    /// Where clients reach it.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.client))
    }

    /// The process id, while there is one.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Where it keeps its data and its log, and others may keep something, too.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What it calls itself.
    ///
    /// # Errors
    /// Where it does not say.
    pub fn version(&self) -> Result<String, String> {
        let said = self.get("/version").ok_or("etcd does not say which version it is")?;
        let body = said.split("\r\n\r\n").nth(1).unwrap_or_default();
        let version: serde_json::Value =
            serde_json::from_str(body.trim()).map_err(|e| format!("{e}: {body}"))?;
        Ok(format!("etcd {}", version["etcdserver"].as_str().unwrap_or_default()))
    }

    fn is_well(&self) -> bool {
        match self.tls {
            None => self.get("/health").is_some_and(|said| said.contains("\"true\"")),
            Some(_) => TcpStream::connect(self.address()).is_ok(),
        }
    }

    /// The answer to a GET, head and all.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address()).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: etcd\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(child::has_ended)
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// The last lines of its log.
    fn said(&self) -> String {
        child::last_lines(&[self.log()], LAST_LINES)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody needs its data.
        self.stop(true);
    }
}
