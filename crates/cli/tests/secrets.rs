//! Passwords stand in the config and nowhere else: not in what a running agent logs, tells as an event, shows or is started with, even where a
//! server says them back to it.

#[path = "common/ports.rs"]
mod ports;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::process::{Pid, Signal, kill_process};

const PASSWORD: &str = "stapled-horse-7351";
const TOKEN: &str = "battery-of-tokens-9482";

/// Listens, and has `answer` speak with whoever comes, for as long as the test runs.
fn server(answer: fn(TcpStream) -> std::io::Result<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                stream.set_read_timeout(Some(Duration::from_secs(2)))?;
                answer(stream)
            });
        }
    });
    address
}

/// Says back whatever it was sent, as a proxy that was told to help with debugging may.
fn refuse_over_http(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = vec![0; 4_096];
    let read = stream.read(&mut request)?;
    let said = format!(
        "no: {} of plimsoll:{PASSWORD}",
        String::from_utf8_lossy(&request[..read]).replace("\r\n", " ")
    );
    write!(
        stream,
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{said}",
        said.len()
    )
}

/// Asks for the password in the clear, and says that it is wrong, and what it was.
fn refuse_as_postgres(mut stream: TcpStream) -> std::io::Result<()> {
    let mut read = [0; 1_024];
    let _startup = stream.read(&mut read)?;
    stream.write_all(&[b'R', 0, 0, 0, 8, 0, 0, 0, 3])?;
    let length = stream.read(&mut read)?;
    let sent =
        String::from_utf8_lossy(read.get(5..length.saturating_sub(1)).unwrap_or_default()).into_owned();
    let text = format!("SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for {sent}\0\0");
    stream.write_all(b"E")?;
    stream.write_all(&(text.len() as u32 + 4).to_be_bytes())?;
    stream.write_all(text.as_bytes())
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

#[test]
fn passwords_are_in_no_log_event_page_or_argument() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (http, postgres) = (server(refuse_over_http), server(refuse_as_postgres));
    let (admin, closed) = ports::ports(2);
    let admin = SocketAddr::from(([127, 0, 0, 1], admin));
    let slo = "slo = { p99 = \"50ms\" }";
    let config = format!(
        "[agent]\nadmin = \"{admin}\"\nadmin_token = \"{TOKEN}\"\n\
         [postgres.db]\ndsn = \"postgres://plimsoll:{PASSWORD}@{postgres}/x\"\n{slo}\n\
         [postgres.db2]\ndsn = \"host=127.0.0.1 port={closed} user=plimsoll password={PASSWORD}\"\n{slo}\n\
         [mariadb.db3]\ndsn = \"mariadb://plimsoll:{PASSWORD}@127.0.0.1:{closed}\"\n{slo}\n\
         [opensearch.s1]\nurl = \"http://plimsoll:{PASSWORD}@{http}\"\n{slo}\n\
         [elasticsearch.s2]\nurl = \"http://plimsoll:{PASSWORD}@{http}\"\n{slo}\n\
         [pool.search]\nservers = [\"{http}\"]\nsolr = {{}}\n\
         [solr.s3]\nurl = \"http://plimsoll:{PASSWORD}@{http}\"\npool = \"search\"\n{slo}\n"
    );
    fs::write(at("plimsoll.toml"), config).unwrap();
    let mut agent = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["agent", "--events", "-", "--config"])
        .arg(at("plimsoll.toml"))
        .env("PLIMSOLL_DEBUG", "1")
        .stdout(File::create(at("events")).unwrap())
        .stderr(File::create(at("log")).unwrap())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let text = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
    let troubles = || text("events").lines().filter(|line| line.contains("adapter_error")).count();
    #[allow(clippy::disallowed_methods)] // waits for a process
    for _ in 0..600 {
        if troubles() >= 6 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let of = |name: &str| fs::read(format!("/proc/{}/{name}", agent.id())).unwrap_or_default();
    let started = ["cmdline", "environ"].map(|name| String::from_utf8_lossy(&of(name)).into_owned());
    let pages = ["/status", "/metrics"].map(|path| get(admin, path).unwrap_or_else(|| panic!("no {path}")));
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    assert!(agent.wait().unwrap().success(), "{}", text("log"));
    assert!(troubles() >= 6, "all of them are in trouble:\n{}\n{}", text("events"), text("log"));

    let told = [("log", text("log")), ("events", text("events"))];
    let shown =
        ["cmdline", "environ", "/status", "/metrics"].into_iter().zip(started.into_iter().chain(pages));
    for (place, said) in told.into_iter().chain(shown) {
        assert!(!said.is_empty(), "{place} says nothing");
        let encoded = BASE64_STANDARD.encode(format!("plimsoll:{PASSWORD}"));
        for secret in [PASSWORD, TOKEN, &encoded] {
            assert!(!said.contains(secret), "{place} has {secret}:\n{said}");
        }
    }
}
