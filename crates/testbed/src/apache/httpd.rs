//! A private Apache httpd 2.4 on a port of loopback.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_core::Nanos;
use rustix::process::Signal;
use tempfile::TempDir;

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
/// Threads of a process, where threads answer.
const THREADS: u32 = 32;

/// Who answers requests.
#[derive(Clone, Debug)]
pub enum Workers {
    /// So many processes, with PHP in each of them (the MPM `prefork`): all of them at once, since how a pool grows when a server starts is
    /// nobody's question here.
    Processes(u32),
    /// So many threads (the MPM `event`), which hand on what is PHP to the php-fpm at this socket.
    Threads(u32, PathBuf),
}

/// How a server is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who answers requests.
    pub workers: Workers,
    /// Our module holds its workers above this slowdown.
    pub max_slowdown: Option<f64>,
    /// Our module says what its workers do.
    pub status: bool,
    /// Its pages: paths, and what is there.
    pub pages: Vec<(String, String)>,
    /// Lines of its configuration.
    pub settings: Vec<(String, String)>,
}

impl Options {
    /// Nothing but workers.
    pub fn new(workers: Workers) -> Options {
        Options { workers, max_slowdown: None, status: false, pages: Vec::new(), settings: Vec::new() }
    }
}

/// A running server. Dropping it ends it and removes its directory.
///
/// It blocks the thread while it starts and stops. The kernel ends the server with the *thread* that started it, so that thread has to live as
/// long.
pub struct Httpd {
    addr: SocketAddr,
    process: Child,
    // Last, for it goes when the process has gone.
    directory: TempDir,
}

impl Httpd {
    /// Whether this machine has what these options need.
    ///
    /// # Errors
    /// What is missing, and the command that installs it.
    pub fn is_there(options: &Options) -> Result<(), String> {
        install::httpd()?;
        if let Workers::Processes(_) = options.workers {
            install::php()?;
        }
        if options.max_slowdown.is_some() || options.status { install::ours().map(drop) } else { Ok(()) }
    }

    /// Starts one.
    ///
    /// # Errors
    /// Where something is not installed, and how to; where it does not start, with the last lines of its log.
    pub fn start(options: &Options) -> Result<Httpd, String> {
        let program = install::httpd()?;
        let directory = tempfile::Builder::new().prefix("plimsoll-httpd-").tempdir();
        let directory = directory.map_err(|e| format!("cannot make a directory: {e}"))?;
        let root = directory.path();
        // Workers that are another user's must be able to read the pages.
        fs::set_permissions(root, Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
        write_pages(&root.join("pages"), &options.pages)?;
        let addr = SocketAddr::from(([127, 0, 0, 1], free_ports(1)?.start));
        write(&root.join("httpd.conf"), &conf(root, addr, options)?)?;
        let mut command = Command::new(program);
        command.arg("-f").arg(root.join("httpd.conf")).args(["-D", "FOREGROUND"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        ends_with_this_thread(&mut command, Signal::TERM);
        // It ends its whole process group, which is its own.
        command.process_group(0);
        let process = command.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))?;
        let mut httpd = Httpd { addr, process, directory };
        httpd.await_ready()?;
        Ok(httpd)
    }

    fn await_ready(&mut self) -> Result<(), String> {
        let clock = Clock::start();
        while clock.now() < STARTS_WITHIN {
            if answers(self.addr).is_ok() {
                return Ok(());
            }
            if child::has_ended(&mut self.process) {
                break;
            }
            clock.sleep_until(clock.now() + LOOK);
        }
        Err(format!("httpd did not start: {}", self.said()))
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The process whose children answer requests.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it calls itself.
    ///
    /// # Errors
    /// Where there is none.
    pub fn version() -> Result<String, String> {
        install::version(&install::httpd()?)
    }

    /// Where our module says what its workers do.
    pub fn status(&self) -> PathBuf {
        status(self.directory.path())
    }

    /// The last lines of its log.
    pub fn said(&self) -> String {
        child::last_lines(&[self.directory.path().join("errors")], LAST_LINES)
    }
}

impl Drop for Httpd {
    fn drop(&mut self) {
        child::stop(&mut self.process, &[Signal::TERM, Signal::KILL], STOPS_WITHIN);
    }
}

fn status(root: &Path) -> PathBuf {
    root.join("status.sock")
}

/// Whether it answers at all.
fn answers(addr: SocketAddr) -> std::io::Result<()> {
    let patience = Some(Duration::from_secs(1));
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(patience)?;
    stream.write_all(b"HEAD / HTTP/1.0\r\n\r\n")?;
    stream.read_exact(&mut [0; 8])
}

/// Puts pages where a server reads them.
pub(super) fn write_pages(directory: &Path, pages: &[(String, String)]) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|e| format!("cannot make {}: {e}", directory.display()))?;
    for (path, text) in pages {
        let name = path.trim_start_matches('/');
        if name.is_empty() || name.contains("..") || name.contains('/') {
            return Err(format!("{path} is no page; write for example /page.php"));
        }
        write(&directory.join(name), text)?;
    }
    Ok(())
}

pub(super) fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))
}

fn conf(root: &Path, addr: SocketAddr, options: &Options) -> Result<String, String> {
    let mut lines = Vec::new();
    let load = |name: &str| format!("LoadModule {name}_module {}", install::module(name).display());
    lines.push(format!("ServerRoot \"{0}\"\nDefaultRuntimeDir \"{0}\"", root.display()));
    lines.push(format!("PidFile \"{0}/pid\"\nErrorLog \"{0}/errors\"", root.display()));
    lines.push(format!("ServerName localhost\nListen {addr}"));
    // Who is not root answers under its own name.
    lines.extend(install::user().map(|user| format!("User {user}\nGroup {user}")));
    let handler = match &options.workers {
        Workers::Processes(count) => {
            lines.push(load("mpm_prefork"));
            lines.push(format!("LoadModule php_module {}", install::php()?.display()));
            lines.push(format!("ServerLimit {count}\nMaxRequestWorkers {count}\nStartServers {count}"));
            lines.push(format!("MinSpareServers 1\nMaxSpareServers {count}"));
            "application/x-httpd-php".to_owned()
        }
        Workers::Threads(count, fpm) => {
            let processes = count.div_ceil(THREADS);
            let count = processes * THREADS;
            lines.extend(["mpm_event", "proxy", "proxy_fcgi"].map(load));
            lines.push(format!(
                "ServerLimit {processes}\nStartServers {processes}\nMaxRequestWorkers {count}"
            ));
            lines.push(format!("ThreadsPerChild {THREADS}\nThreadLimit {THREADS}\nMaxSpareThreads {count}"));
            format!("proxy:unix:{}|fcgi://localhost", fpm.display())
        }
    };
    lines.push(load("authz_core"));
    if options.max_slowdown.is_some() || options.status {
        lines.push(format!("LoadModule plimsoll_module {}", install::ours()?.display()));
    }
    lines.extend(options.max_slowdown.map(|bound| format!("PlimsollMaxSlowdown {bound}")));
    if options.status {
        lines.push(format!("PlimsollStatus \"{}\"", status(root).display()));
    }
    lines.push(format!("DocumentRoot \"{}/pages\"", root.display()));
    lines.push(format!("<FilesMatch \"\\.php$\">\n  SetHandler \"{handler}\"\n</FilesMatch>"));
    lines.extend(options.settings.iter().map(|(name, value)| format!("{name} {value}")));
    Ok(lines.join("\n") + "\n")
}
