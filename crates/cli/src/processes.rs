//! What a tool that needs real processes starts, and how it ends them: web services, a sentry, its config.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_testbed::cpu_cap::family;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long a sentry may take to be ready.
const READY_TRIES: u32 = 100;
const READY_PAUSE: Duration = Duration::from_millis(100);

/// A child that ends when it is dropped, or when this program is killed.
pub struct Process(Child);

impl Process {
    /// Starts it, with no input.
    pub fn start(mut command: Command) -> Result<Process, String> {
        let parent = rustix::process::getpid();
        let orphan = move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
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
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            // It may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
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
        command.args(["testbed", "pages", "--listen", "127.0.0.1:0", "--work", "wait", "--json"]);
        command.args(["--workers", &workers.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::start(command)?;
        let stdout = process.0.stdout.take().ok_or("the web service has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(|e| e.to_string())?;
        let ready: serde_json::Value =
            serde_json::from_str(&line).map_err(|e| format!("the web service did not start: {e}"))?;
        let addr = ready["addr"].as_str().and_then(|addr| addr.parse().ok());
        match (addr, ready["capacity_per_s"].as_f64()) {
            (Some(addr), Some(capacity_per_s)) => Ok(Page { addr, capacity_per_s, _process: process }),
            _ => Err(format!("the web service did not say where it is: {line}")),
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
    let ticks: Vec<u64> = family(root).into_iter().filter_map(used).collect();
    if ticks.is_empty() {
        return Err(format!("process {root} is not there"));
    }
    Ok(ticks.iter().sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Addresses with ports that are free now. Held all at once, so that they differ.
pub fn free_addresses<const N: usize>() -> Result<[SocketAddr; N], String> {
    let failed = |e: std::io::Error| format!("no free port: {e}");
    let mut held = Vec::new();
    let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); N];
    for address in &mut addresses {
        let listener = TcpListener::bind(*address).map_err(failed)?;
        *address = listener.local_addr().map_err(failed)?;
        held.push(listener);
    }
    Ok(addresses)
}

/// So many ports in a row that are free now. They are below those that connections are given by themselves, lest a load take them.
pub fn free_ports(count: u16) -> Result<Range<u16>, String> {
    const ALL: Range<u16> = 15_000..30_000;
    let places = (ALL.end - ALL.start) / count.max(1);
    // Elsewhere than another such program that looks at the same time.
    let start = (std::process::id() % u32::from(places.max(1))) as u16;
    let mut ranges =
        (0..places).map(|i| ALL.start + (start + i) % places * count).map(|first| first..first + count);
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let free = ranges.find(|ports| ports.clone().all(is_free));
    free.ok_or_else(|| format!("there are no {count} free ports in a row"))
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

/// Waits until the sentry with this admin address says that it is ready.
pub async fn ready(admin: SocketAddr) -> Result<(), String> {
    for _ in 0..READY_TRIES {
        if get(admin, "/readyz").await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(READY_PAUSE).await;
    }
    Err("the sentry is not ready after 10 s".to_owned())
}

/// What an admin address answers with 200 at this path, within a second.
pub async fn get(admin: SocketAddr, path: &str) -> std::io::Result<String> {
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(admin).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: plimsoll\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
            _ => Err(std::io::Error::other("it does not answer with 200")),
        }
    };
    tokio::time::timeout(Duration::from_secs(1), ask).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_are_taken_are_left_out() {
        let ports = free_ports(4).unwrap();
        assert_eq!(ports.len(), 4);
        let last = ports.end - 1;
        let _taken = TcpListener::bind(("127.0.0.1", last)).unwrap();
        let others = free_ports(4).unwrap();
        assert!(!others.contains(&last), "{others:?}");
        assert!(free_ports(u16::MAX).is_err());
    }
}
