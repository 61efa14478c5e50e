//! What the process tests need: a sentry of their own on ports of its own, a server behind it, and clients that keep
//! their connections and notice every failure.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Nothing here takes this long, on any machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A directory that is removed with its contents.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("plimsoll-process-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that answers every request after a pause with its path, and knows how many it had at once.
pub struct Upstream {
    pub address: SocketAddr,
    at_once: Arc<AtomicU32>,
    peak: Arc<AtomicU32>,
}

impl Upstream {
    /// Pauses for as many milliseconds as the path says: `/250`.
    pub fn start() -> Upstream {
        Upstream::working(|ms| std::thread::sleep(Duration::from_millis(ms)))
    }

    /// Works on each request, on a thread of its connection, with what the path says.
    pub fn working(work: fn(u64)) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (at_once, peak) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (counted, highest) = (Arc::clone(&at_once), Arc::clone(&peak));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (at_once, peak) = (Arc::clone(&counted), Arc::clone(&highest));
                std::thread::spawn(move || Upstream::serve(stream, work, &at_once, &peak));
            }
        });
        Upstream { address, at_once, peak }
    }

    fn serve(stream: TcpStream, work: fn(u64), at_once: &AtomicU32, peak: &AtomicU32) {
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(&stream);
        while let Some(head) = read_head(&mut reader) {
            let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
            peak.fetch_max(at_once.fetch_add(1, SeqCst) + 1, SeqCst);
            work(path[1..].parse().unwrap_or(0));
            at_once.fetch_sub(1, SeqCst);
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len());
            if (&stream).write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Most requests that it ever worked on at once.
    pub fn peak(&self) -> u32 {
        self.peak.load(SeqCst)
    }

    /// Requests that it works on.
    pub fn at_once(&self) -> u32 {
        self.at_once.load(SeqCst)
    }
}

/// The lines up to the empty one, or nothing where the other side has closed before the first.
fn read_head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        match reader.read_line(&mut head) {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
    Some(head)
}

/// A response as the tests need it.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
    pub closes: bool,
}

/// A connection that is kept.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn open(address: SocketAddr) -> std::io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection(BufReader::new(stream)))
    }

    pub fn get(&mut self, path: &str) -> Result<Answer, String> {
        self.send(path, "")?;
        self.receive()
    }

    pub fn send(&mut self, path: &str, headers: &str) -> Result<(), String> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n{headers}\r\n");
        self.0.get_mut().write_all(request.as_bytes()).map_err(|e| format!("write: {e}"))
    }

    pub fn receive(&mut self) -> Result<Answer, String> {
        let head = read_head(&mut self.0).ok_or("closed instead of a response")?;
        let lower = head.to_ascii_lowercase();
        let header = |name: &str| {
            let line = lower.lines().find(|l| l.starts_with(name));
            line.map(|l| l[name.len()..].trim().to_owned())
        };
        let length = header("content-length:").map_or(0, |n| n.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).map_err(|e| format!("body: {e}"))?;
        Ok(Answer {
            status: head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or("not a status line")?,
            closes: header("connection:").is_some_and(|v| v == "close"),
            body: String::from_utf8(body).map_err(|e| e.to_string())?,
            head,
        })
    }
}

/// One request on a connection of its own.
pub fn get(address: SocketAddr, path: &str) -> Result<Answer, String> {
    Connection::open(address).map_err(|e| format!("connect: {e}"))?.get(path)
}

/// One PUT of a text on a connection of its own.
pub fn put(address: SocketAddr, path: &str, body: &str) -> Answer {
    put_with(address, path, "", body)
}

/// The same, with headers, each with its line end.
pub fn put_with(address: SocketAddr, path: &str, headers: &str, body: &str) -> Answer {
    let mut connection = Connection::open(address).unwrap();
    let length = body.len();
    let request =
        format!("PUT {path} HTTP/1.1\r\nhost: test\r\n{headers}content-length: {length}\r\n\r\n{body}");
    connection.0.get_mut().write_all(request.as_bytes()).unwrap();
    connection.receive().unwrap()
}

/// Clients that send one request after the other, on connections that they keep, and open a new one now and then.
pub struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn start(address: SocketAddr, clients: usize, path: &'static str) -> Load {
        // Some renew their connection often, so that accepting is tested as much as keeping.
        Load::renewing(address, clients, path, |n| if n.is_multiple_of(2) { 3 } else { 1_000 })
    }

    /// The same; says of each client after how many requests it renews its connection.
    pub fn renewing(
        address: SocketAddr,
        clients: usize,
        path: &'static str,
        after: fn(usize) -> usize,
    ) -> Load {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let failures = Arc::new(Mutex::new(Vec::new()));
        let client = |n: usize| {
            let (stop, sent, failures) = (Arc::clone(&stop), Arc::clone(&sent), Arc::clone(&failures));
            std::thread::spawn(move || {
                let fail = |what: String| failures.lock().unwrap().push(what);
                let renew = after(n);
                while !stop.load(SeqCst) {
                    let mut connection = match Connection::open(address) {
                        Ok(connection) => connection,
                        Err(error) => {
                            fail(format!("connect: {error}"));
                            continue;
                        }
                    };
                    for _ in 0..renew {
                        if stop.load(SeqCst) {
                            break;
                        }
                        let answer = connection.get(path);
                        sent.fetch_add(1, SeqCst);
                        match answer {
                            Ok(answer) if answer.status == 200 && answer.body == path => {
                                if answer.closes {
                                    break;
                                }
                            }
                            Ok(answer) => fail(format!("{answer:?}")),
                            Err(error) => {
                                fail(error);
                                break;
                            }
                        }
                    }
                }
            })
        };
        let clients = (0..clients).map(client).collect();
        Load { stop, sent, failures, clients }
    }

    /// Requests so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(SeqCst)
    }

    /// Waits until so many more requests have been sent.
    pub fn more(&self, requests: u64) {
        let until = self.sent() + requests;
        wait_for("requests to be answered", || self.sent() >= until);
    }

    /// Ends it: how many requests there were, all of which succeeded.
    pub fn stop(self) -> u64 {
        let (sent, failures) = self.end();
        assert!(
            failures.is_empty(),
            "{} of {sent} failed: {:#?}",
            failures.len(),
            &failures[..failures.len().min(5)]
        );
        sent
    }

    /// Ends it: how many requests there were, and what went wrong.
    pub fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, SeqCst);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        (self.sent.load(SeqCst), std::mem::take(&mut *self.failures.lock().unwrap()))
    }
}

/// What a program logs.
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn of(stderr: ChildStderr) -> Log {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                kept.lock().unwrap().push(line);
            }
        });
        Log(lines)
    }

    /// So far.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Waits for the `nth` line, from 1, that contains `part`.
    pub fn line(&self, part: &str, nth: usize) -> String {
        let find = || self.lines().into_iter().filter(|line| line.contains(part)).nth(nth - 1);
        let start = Instant::now();
        loop {
            if let Some(line) = find() {
                return line;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "no {nth}. line with `{part}` in\n{}",
                self.lines().join("\n")
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A running sentry.
pub struct Sentry {
    parent: Child,
    log: Log,
    pub address: SocketAddr,
    pub admin: SocketAddr,
    pub config: PathBuf,
    pub scratch: Scratch,
}

impl Sentry {
    /// With this text after `[sentry]` and its addresses.
    pub fn start(config: &str) -> Sentry {
        Sentry::start_binary(Path::new(env!("CARGO_BIN_EXE_plimsoll")), config, &[])
    }

    pub fn start_binary(binary: &Path, config: &str, arguments: &[&str]) -> Sentry {
        Sentry::start_by(binary, &on_free_ports(config), arguments)
    }

    /// Another one on the same port, with an admin address of its own.
    pub fn beside(&self, config: &str) -> Sentry {
        let config = on_free_ports(config).replacen("127.0.0.1:0", &self.address.to_string(), 1);
        let binary = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
        Sentry::start_by(binary, &config, &["--admin", "127.0.0.1:0"])
    }

    /// With the whole text of its config.
    pub fn start_by(binary: &Path, config: &str, arguments: &[&str]) -> Sentry {
        let scratch = Scratch::new();
        let path = scratch.0.join("plimsoll.toml");
        std::fs::write(&path, config).unwrap();
        let mut parent = Command::new(binary)
            .args(["sentry", "--config"])
            .arg(&path)
            .args(arguments)
            .current_dir(&scratch.0)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Log::of(parent.stderr.take().unwrap());
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut sentry = Sentry { parent, log, address: nowhere, admin: nowhere, config: path, scratch };
        sentry.log("msg=\"worker ready\"", 1);
        let address = |line: String| field(&line, "address").parse().unwrap();
        sentry.address = address(sentry.log("msg=listening", 1));
        sentry.admin = address(sentry.log("msg=\"admin listening\"", 1));
        sentry
    }

    /// The log so far.
    pub fn lines(&self) -> Vec<String> {
        self.log.lines()
    }

    /// Waits for the `nth` line, from 1, that contains `part`.
    pub fn log(&self, part: &str, nth: usize) -> String {
        self.log.line(part, nth)
    }

    /// The process id of the `nth` worker that was started.
    pub fn worker(&self, nth: usize) -> u32 {
        field(&self.log("msg=\"worker started\"", nth), "worker").parse().unwrap()
    }

    pub fn parent(&self) -> u32 {
        self.parent.id()
    }

    pub fn signal(&self, signal: &str) {
        kill(self.parent.id(), signal);
    }

    /// Replaces the config in one step, as a deployment would.
    pub fn rewrite(&self, config: &str) {
        let new = self.scratch.0.join("new.toml");
        std::fs::write(&new, on_free_ports(config)).unwrap();
        std::fs::rename(new, &self.config).unwrap();
    }

    /// Waits for the parent to end.
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.parent.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the parent does not end:\n{}", self.lines().join("\n"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        // The worker ends with its parent, if not at once.
        let _ = self.parent.kill();
        let _ = self.parent.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the sentry\n{}", self.lines().join("\n"));
        }
    }
}

fn on_free_ports(config: &str) -> String {
    format!("[sentry]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{config}")
}

pub fn kill(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill {signal} {pid}");
}

/// Whether a process exists and is no zombie.
pub fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The value of a field of a log line.
pub fn field(line: &str, name: &str) -> String {
    let start = line.find(&format!(" {name}=")).unwrap_or_else(|| panic!("no {name} in {line}"));
    line[start + name.len() + 2..].split(' ').next().unwrap().trim_matches('"').to_owned()
}
