//! A controller of one's own, on ports of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub use crate::ports::ports;

/// Nothing here takes this long, on any machine.
pub const PATIENCE: Duration = Duration::from_secs(40);

pub const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// Waits until it is so.
pub fn until(patience: Duration, what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A directory with the config and the state; what was started from it ends with it.
pub struct Place {
    pub directory: tempfile::TempDir,
    config: PathBuf,
    admin: SocketAddr,
}

impl Place {
    /// `config` is completed by `[controller]` and whatever `settings` it has.
    pub fn new(settings: &str, config: &str) -> Place {
        let directory = tempfile::tempdir().unwrap();
        let (admin, _) = ports(1);
        let admin = SocketAddr::from(([127, 0, 0, 1], admin));
        let state = directory.path().join("state");
        let text = format!(
            "[controller]\nadmin = \"{admin}\"\nstate = \"{}\"\ninterval = \"100ms\"\n{settings}\n{config}",
            state.display()
        );
        let config = directory.path().join("plimsoll.toml");
        std::fs::write(&config, text).unwrap();
        Place { directory, config, admin }
    }

    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }

    /// Starts a controller whose log is the file of this name.
    pub fn start(&self, log: &str, arguments: &[&str]) -> Controller {
        self.start_role("controller", log, arguments)
    }

    /// Starts another role with the same config.
    pub fn start_role(&self, role: &str, log: &str, arguments: &[&str]) -> Controller {
        let log = File::create(self.directory.path().join(log)).unwrap();
        let child = Command::new(PLIMSOLL)
            .args([role, "--config"])
            .arg(&self.config)
            .args(arguments)
            // Whatever cluster whoever runs this has, is not touched.
            .env("KUBECONFIG", self.directory.path().join("kubeconfig"))
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Controller(child)
    }

    /// The body at a path of the admin address; nothing while it does not answer.
    pub fn get(&self, path: &str) -> Option<String> {
        get(self.admin, path)
    }

    /// What `/plan` says of the first pool.
    pub fn pool(&self) -> Value {
        let plan = self.get("/plan").unwrap_or_default();
        serde_json::from_str::<Value>(&plan).map_or(Value::Null, |plan| plan["pools"][0].clone())
    }

    /// Process ids of what was started and noted.
    pub fn pids(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        visit(&self.directory.path().join("state"), &mut |text| {
            let note: Value = serde_json::from_str(text).unwrap_or_default();
            pids.extend(note["pid"].as_i64().map(|pid| pid as i32));
        });
        pids.sort_unstable();
        pids
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.pids() {
            signal(-pid, "KILL");
        }
    }
}

fn visit(directory: &Path, found: &mut impl FnMut(&str)) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            visit(&entry.path(), found);
        } else if entry.path().extension().is_some_and(|extension| extension == "json") {
            found(&std::fs::read_to_string(entry.path()).unwrap_or_default());
        }
    }
}

/// The body of what is answered at an address; nothing while nobody does.
pub fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// A process, or where it is negative a group.
pub fn signal(pid: i32, name: &str) {
    let _ = Command::new("kill").args(["-s", name, "--", &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Whether it runs: a process that has ended and was not waited for does not.
pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// A controller, another role, or a tool; killed when it goes out of scope.
pub struct Controller(Child);

impl Controller {
    pub fn signal(&self, name: &str) {
        signal(self.0.id() as i32, name);
    }

    pub fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A tool with these arguments.
pub fn tool(arguments: &[&str]) -> Controller {
    let mut command = Command::new(PLIMSOLL);
    Controller(command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// A pool `shop` for this sentry whose servers are `command`, with more of `provision`.
pub fn shop(sentry: SocketAddr, command: &[&str], ports: (u16, u16), provision: &str) -> (String, String) {
    let settings = format!("sentries = [\"{sentry}\"]");
    let (first, last) = ports;
    let config = format!(
        "[pool.shop]\nworkers = 4\nprovision = {{ ports = \"{first}-{last}\", command = {command:?}, {provision} }}\n\
         [class.default]\nslo = {{ mean = \"100ms\" }}\n"
    );
    (settings, config)
}

/// The command of a small real server.
pub const PAGES: [&str; 5] = [PLIMSOLL, "testbed", "pages", "--listen", "127.0.0.1:{port}"];
