//! What a tool that needs real processes starts, and how it ends them: web services, a sentry, its config.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::Uri;
use plimsoll_testbed::control_group::family;
use plimsoll_testbed::ports::free_ports;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long a role may take to be ready.
const READY_TRIES: u32 = 100;
const READY_PAUSE: Duration = Duration::from_millis(100);
/// The config of the roles in a directory.
const CONFIG: &str = "plimsoll.toml";
/// The last lines of a log that are worth showing, at most.
const LAST_LINES: usize = 5;

/// A child that ends when it is dropped, or when this program is killed.
pub struct Process(Child);

impl Process {
    /// Starts it, with no input.
    pub fn start(mut command: Command) -> Result<Process, String> {
        let parent = rustix::process::getpid();
        let orphan = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
            // This program may have died before that took effect.
            if rustix::process::getppid() != Some(parent) {
                return Err(std::io::Error::other("orphaned"));
            }
            Ok(())
        };
        // SAFETY: between fork and exec it makes two system calls and allocates nothing.
        unsafe { command.pre_exec(orphan) };
        // A group of its own: Ctrl-C reaches this program alone, which then ends its children in order.
        command.process_group(0);
        command
            .stdin(Stdio::null())
            .spawn()
            .map(Process)
            .map_err(|e| format!("cannot start {command:?}: {e}"))
    }
}

impl Process {
    /// Starts one of the testbed's servers, and waits for the line of JSON that it says when it is ready.
    pub fn start_testbed(mut command: Command, what: &str) -> Result<(Process, serde_json::Value), String> {
        command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::start(command)?;
        let stdout = process.0.stdout.take().ok_or_else(|| format!("{what} has no output"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(|e| e.to_string())?;
        let ready = serde_json::from_str(&line).map_err(|e| format!("{what} did not start: {e}"))?;
        Ok((process, ready))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }

    /// Sends it a signal; an error once it has ended.
    pub fn signal(&mut self, signal: Signal) -> std::io::Result<()> {
        // Once it is known to have ended its number may be somebody else's.
        let pid = Pid::from_raw(self.0.id() as i32).filter(|_| !self.has_ended());
        let pid = pid.ok_or_else(|| std::io::Error::other("it has ended"))?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended since.
        let _ = self.signal(Signal::TERM);
        let _ = self.0.wait();
    }
}

/// This program, to be started once more.
pub fn plimsoll() -> Result<Command, String> {
    std::env::current_exe().map(Command::new).map_err(|e| format!("cannot find this program: {e}"))
}

/// A web service that waits instead of computing.
pub struct Page {
    /// Where it is.
    pub addr: SocketAddr,
    /// Requests of its mix that it says it can answer a second.
    pub capacity_per_s: f64,
    _process: Process,
}

impl Page {
    /// Starts one with so many workers.
    pub fn start(workers: u32) -> Result<Page, String> {
        let mut command = plimsoll()?;
        command.args(["testbed", "pages", "--listen", "127.0.0.1:0", "--work", "wait"]);
        command.args(["--workers", &workers.to_string()]);
        let (process, ready) = Process::start_testbed(command, "the web service")?;
        let addr = ready["addr"].as_str().and_then(|addr| addr.parse().ok());
        match (addr, ready["capacity_per_s"].as_f64()) {
            (Some(addr), Some(capacity_per_s)) => Ok(Page { addr, capacity_per_s, _process: process }),
            _ => Err(format!("the web service did not say where it is: {ready}")),
        }
    }
}

/// CPU seconds of a process and its children.
pub fn cpu_s(root: u32) -> Result<f64, String> {
    let used = |pid: u32| {
        // One that has ended meanwhile has none. The name may hold anything, and ends with the last parenthesis.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    let ticks = family(root).into_iter().filter_map(used).reduce(|sum, ticks| sum + ticks);
    let ticks = ticks.ok_or_else(|| format!("process {root} is not there"))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Addresses with ports that are free now, and that no other program is given by itself.
pub fn free_addresses<const N: usize>() -> Result<[SocketAddr; N], String> {
    let ports = free_ports(N as u16)?;
    Ok(std::array::from_fn(|place| SocketAddr::from(([127, 0, 0, 1], ports.start + place as u16))))
}

/// A config file that is removed when this is dropped.
pub struct ConfigFile(PathBuf);

impl ConfigFile {
    /// A new one, told from others by its name.
    pub fn write(name: &str, text: &str) -> Result<ConfigFile, String> {
        let path = std::env::temp_dir().join(format!("plimsoll-{name}-{}.toml", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok(ConfigFile(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The root of what listens there.
pub fn uri(addr: SocketAddr) -> Uri {
    Uri::try_from(format!("http://{addr}/")).expect("an address makes a URI")
}

/// Waits until the sentry with this admin address says that it is ready.
pub async fn ready(admin: SocketAddr) -> Result<(), String> {
    answers(admin, "/readyz", "the sentry").await
}

/// Waits until an admin address answers at this path.
pub async fn answers(admin: SocketAddr, path: &str, who: &str) -> Result<(), String> {
    for _ in 0..READY_TRIES {
        if get(admin, path).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(READY_PAUSE).await;
    }
    Err(format!("{who} is not ready after 10 s"))
}

/// What an admin address answers with 200 at this path, within a second.
pub async fn get(admin: SocketAddr, path: &str) -> std::io::Result<String> {
    match tokio::time::timeout(Duration::from_secs(1), ask(admin, path)).await?? {
        (200, body) => Ok(body),
        _ => Err(std::io::Error::other("it does not answer with 200")),
    }
}

/// Has an admin address do what this path says, with nothing more to it; the error is what it answers otherwise.
pub async fn post(admin: SocketAddr, path: &str) -> std::io::Result<()> {
    match exchange(admin, "POST", path).await? {
        (200, _) => Ok(()),
        (status, why) => Err(std::io::Error::other(format!("{status} {}", why.trim()))),
    }
}

/// What is answered at this path, however long that takes: the status, and the text.
pub async fn ask(addr: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    exchange(addr, "GET", path).await
}

async fn exchange(addr: SocketAddr, method: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = tokio::net::TcpStream::connect(addr).await?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: plimsoll\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let parts = answer.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        Some((status, body.to_owned()))
    });
    parts.ok_or_else(|| std::io::Error::other("it does not answer in HTTP"))
}

/// A directory for what the roles of a tool share: their config, their logs.
pub fn directory() -> Result<TempDir, String> {
    let made = tempfile::Builder::new().prefix("plimsoll-").tempdir();
    made.map_err(|e| format!("cannot make a directory for temporary files: {e}"))
}

/// Writes the config of the roles in a directory.
pub fn configure(directory: &Path, config: &str) -> Result<(), String> {
    let file = directory.join(CONFIG);
    std::fs::write(&file, config).map_err(|e| format!("cannot write {}: {e}", file.display()))
}

/// Starts a role of this program with the config of a directory; its log goes there, too.
pub fn role(directory: &Path, role: &str, more: &[&str]) -> Result<Process, String> {
    let mut command = plimsoll()?;
    let log = directory.join(role);
    let log = File::create(&log).map_err(|e| format!("cannot write {}: {e}", log.display()))?;
    command.arg(role).arg("--config").arg(directory.join(CONFIG)).args(more);
    command.stdout(Stdio::null()).stderr(log);
    Process::start(command)
}

/// The last lines that a role in a directory has said.
pub fn said(directory: &Path, role: &str) -> String {
    let log = std::fs::read_to_string(directory.join(role)).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    last.iter().map(|line| format!("\n  {role}: {line}")).collect()
}
