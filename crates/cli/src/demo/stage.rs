//! What the demo starts: two web services, a sentry and its config. Dropping the stage ends them all.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Says to which copy a request goes.
pub const SIDE_HEADER: &str = "x-demo-side";
/// Requests that one copy works on at once.
const WORKERS: u32 = 8;
/// How long the sentry may take to be ready.
const READY_TRIES: u32 = 100;
const READY_PAUSE: Duration = Duration::from_millis(100);

/// What is promised, for every route: half of the answers within the first, nine of ten within the second.
pub const P50_MS: u64 = 80;
pub const P90_MS: u64 = 160;
/// The share of every route that gets in whatever the estimate says, so that the heavy one does not starve.
pub const ALLOWANCE: f64 = 0.05;

/// One route of the web service.
pub struct Route {
    pub name: &'static str,
    pub path: &'static str,
    pub share: f64,
}

pub const ROUTES: [Route; 3] = [
    Route { name: "cheap", path: "/cheap", share: 0.5 },
    Route { name: "middling", path: "/middling", share: 0.3 },
    Route { name: "heavy", path: "/heavy", share: 0.2 },
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Without,
    With,
}

impl Side {
    pub const fn as_str(self) -> &'static str {
        match self {
            Side::Without => "without",
            Side::With => "with",
        }
    }
}

/// The processes of the demo.
pub struct Stage {
    sentry_addr: SocketAddr,
    admin: SocketAddr,
    probe: Page,
    _without: Page,
    _with: Page,
    _sentry: Process,
    _config: ConfigFile,
}

impl Stage {
    /// Starts everything and waits until it is ready.
    pub async fn set() -> Result<Stage, String> {
        let [probe, without, with] = [Page::start()?, Page::start()?, Page::start()?];
        let [sentry_addr, admin] = free_addresses()?;
        let config = ConfigFile::write(&config(sentry_addr, admin, without.addr, with.addr))?;
        let mut command = plimsoll()?;
        command.args(["sentry", "--config"]).arg(&config.0).stdout(Stdio::null()).stderr(Stdio::null());
        let sentry = Process::start(command)?;
        ready(admin).await?;
        Ok(Stage {
            sentry_addr,
            admin,
            probe,
            _without: without,
            _with: with,
            _sentry: sentry,
            _config: config,
        })
    }

    pub fn sentry(&self) -> Uri {
        uri(self.sentry_addr)
    }

    /// A third copy, alone, to measure.
    pub fn bare_server(&self) -> Uri {
        uri(self.probe.addr)
    }

    pub fn live_page(&self) -> Uri {
        uri(self.admin)
    }

    /// What the web service says of its own capacity.
    pub fn stated_capacity(&self) -> f64 {
        self.probe.capacity_per_s
    }
}

fn uri(addr: SocketAddr) -> Uri {
    Uri::try_from(format!("http://{addr}/")).expect("an address makes a URI")
}

fn config(sentry: SocketAddr, admin: SocketAddr, without: SocketAddr, with: SocketAddr) -> String {
    let mut text = format!(
        r#"[sentry]
listen = "{sentry}"
admin  = "{admin}"

[pool.without]
servers   = ["{without}"]
workers   = {WORKERS}
admission = {{ policy = "bouncer", mode = "off" }}

[pool.with]
servers   = ["{with}"]
workers   = {WORKERS}
admission = {{ policy = "bouncer", allowance = {ALLOWANCE} }}

[slo.promised]
p50 = "{P50_MS}ms"
p90 = "{P90_MS}ms"
"#
    );
    for side in [Side::Without, Side::With] {
        for Route { name, path, .. } in ROUTES {
            let side = side.as_str();
            text += &format!(
                r#"
[class.{name}-{side}]
match = [{{ path = "{path}", header = {{ name = "{SIDE_HEADER}", value = "{side}" }} }}]
slo   = "promised"
pool  = "{side}"
"#
            );
        }
    }
    text + "\n[class.default]\npool = \"with\"\n"
}

/// A child that ends when it is dropped, or when the demo is killed.
struct Process(Child);

impl Process {
    fn start(mut command: Command) -> Result<Process, String> {
        let parent = rustix::process::getpid();
        let orphan = move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
            // The demo may have died before that took effect.
            if rustix::process::getppid() != Some(parent) {
                return Err(std::io::Error::other("orphaned"));
            }
            Ok(())
        };
        // SAFETY: between fork and exec it makes two system calls and allocates nothing.
        unsafe { command.pre_exec(orphan) };
        // A group of its own: Ctrl-C reaches the demo alone, which then ends its children in order.
        command.process_group(0);
        command
            .stdin(Stdio::null())
            .spawn()
            .map(Process)
            .map_err(|e| format!("cannot start {command:?}: {e}"))
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

fn plimsoll() -> Result<Command, String> {
    std::env::current_exe().map(Command::new).map_err(|e| format!("cannot find this program: {e}"))
}

struct Page {
    addr: SocketAddr,
    capacity_per_s: f64,
    _process: Process,
}

impl Page {
    fn start() -> Result<Page, String> {
        let mut command = plimsoll()?;
        command.args(["testbed", "pages", "--listen", "127.0.0.1:0", "--work", "wait", "--json"]);
        command.args(["--workers", &WORKERS.to_string()]);
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

/// Ports that are free now. Held both at once, so that they differ.
fn free_addresses() -> Result<[SocketAddr; 2], String> {
    let bind = || TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no free port: {e}"));
    let (one, two) = (bind()?, bind()?);
    let addr = |l: &TcpListener| l.local_addr().map_err(|e| e.to_string());
    Ok([addr(&one)?, addr(&two)?])
}

struct ConfigFile(PathBuf);

impl ConfigFile {
    fn write(text: &str) -> Result<ConfigFile, String> {
        let path = std::env::temp_dir().join(format!("plimsoll-demo-{}.toml", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok(ConfigFile(path))
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Waits until the sentry says that it is ready.
async fn ready(admin: SocketAddr) -> Result<(), String> {
    let ask = async || -> std::io::Result<bool> {
        let mut stream = tokio::net::TcpStream::connect(admin).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: demo\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    };
    for _ in 0..READY_TRIES {
        if let Ok(Ok(true)) = tokio::time::timeout(Duration::from_secs(1), ask()).await {
            return Ok(());
        }
        tokio::time::sleep(READY_PAUSE).await;
    }
    Err("the sentry is not ready after 10 s".to_owned())
}
