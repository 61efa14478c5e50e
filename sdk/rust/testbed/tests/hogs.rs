//! The testbed, driven as a user would: items come while a hog hogs, until it is cancelled over the control socket.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use common::{Agent, Place, until};
use plimsoll_ledger::{Ledger, Look};

/// A testbed that runs until this is dropped.
struct Server {
    child: Child,
    port: u16,
    ledger: PathBuf,
}

impl Server {
    fn start(place: &Place) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll-sdk-testbed"))
            .args(["--port", "0"])
            .env("PLIMSOLL_DIR", place.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("ready ").unwrap().parse().unwrap();
        let ledger = place.path().join(format!("testbed-rust.{}.ledger", child.id()));
        Server { child, port, ledger }
    }

    /// What it answers: the status, and the text.
    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        (status, text.split("\r\n\r\n").nth(1).unwrap().to_owned())
    }

    fn look(&self) -> Look {
        let mut look = Look::default();
        Ledger::peek(&self.ledger).unwrap().look(u64::MAX, &mut look).unwrap();
        look
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How much of the named resource requests with this label hold.
fn held(look: &Look, resource: &str, label: &str) -> u64 {
    let named = look.resources.iter().find(|r| &*r.name.show() == resource).map(|r| r.index);
    let uses = look.uses.iter().filter(|one| Some(one.resource) == named);
    uses.filter(|one| &*look.tasks[one.task as usize].label.show() == label).map(|one| one.held).sum()
}

fn cancelled(path: &str, resource: &str, hogged: u64) {
    let place = Place::new();
    let mut agent = Agent::listen(&place);
    let server = Server::start(&place);
    agent.welcome();
    assert_eq!(server.get("/item?id=3"), (200, "ok\n".to_owned()));
    let label = format!("GET {path}");
    std::thread::scope(|scope| {
        let hog = scope.spawn(|| server.get(&format!("{path}?seconds=3600")));
        let slow = scope.spawn(|| server.get("/slow?seconds=0.2"));
        until(|| held(&server.look(), resource, &label) >= hogged);
        let look = server.look();
        let culprit = look.tasks.iter().find(|task| *task.label.show() == *label).unwrap();
        assert!(culprit.cancellable() && culprit.total == 3_600_000, "{culprit:?}");
        let item = scope.spawn(|| server.get("/item?id=3"));
        agent.say(&format!("cancel 1 {} {} 0 it hogs {resource}", culprit.index, culprit.turn));
        assert_eq!(agent.hear(), "acknowledge 1");
        assert_eq!(hog.join().unwrap(), (503, format!("cancelled: it hogs {resource}\n")));
        assert_eq!(agent.hear(), "outcome 1 cancelled");
        assert_eq!(item.join().unwrap(), (200, "ok\n".to_owned()));
        assert_eq!(slow.join().unwrap(), (200, "ok\n".to_owned()));
    });
    let look = server.look();
    assert!(look.tasks.is_empty(), "{:?}", look.tasks);
    assert!(look.resources.iter().all(|r| (r.held, r.waiting) == (0, 0)), "{:?}", look.resources);
}

#[test]
fn a_lock_hog_is_cancelled() {
    cancelled("/hog/lock", "table", 1);
}

#[test]
fn a_pool_hog_is_cancelled() {
    cancelled("/hog/pool", "workers", 1);
}

#[test]
fn a_cache_hog_is_cancelled() {
    cancelled("/hog/cache", "pages", 200);
}

#[test]
fn what_is_not_there_is_said() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_eq!(server.get("/nothing").0, 404);
    assert_eq!(server.get("/item").0, 200);
}

#[test]
fn it_takes_its_ledger_with_it() {
    let place = Place::new();
    let mut server = Server::start(&place);
    assert!(server.ledger.exists());
    let asked = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().unwrap();
    assert!(asked.success() && server.child.wait().unwrap().success());
    assert!(!server.ledger.exists());
    let wrong = Command::new(env!("CARGO_BIN_EXE_plimsoll-sdk-testbed")).arg("--prot").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
