//! What the tests stand on: a place for ledgers, a look into them, and an agent that does as it is told.
#![allow(dead_code, reason = "each test takes what it needs")]
#![allow(clippy::disallowed_methods, reason = "waits for other threads, about which nothing can be awaited")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_ledger::{Ledger, Look, dump};
use plimsoll_sdk::{App, Options};

/// Waits until it is so; far longer than it can take.
pub fn until(mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(30), "it never was");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A directory for ledgers.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn options(&self) -> Options {
        App::options().directory(self.path())
    }

    /// An application here; named by the test, as all tests are one process.
    pub fn open(&self, name: &str) -> App {
        self.options().open(name)
    }

    pub fn look(&self, app: &App) -> Look {
        let mut look = Look::default();
        Ledger::peek(app.ledger().unwrap()).unwrap().look(u64::MAX, &mut look).unwrap();
        look
    }

    pub fn until(&self, app: &App, is: impl Fn(&Look) -> bool) {
        until(|| is(&self.look(app)));
    }

    pub fn dump(&self, app: &App) -> String {
        dump::dump(&std::fs::read(app.ledger().unwrap()).unwrap()).unwrap()
    }

    /// The dump's line of an account.
    pub fn account(&self, app: &App, index: u32) -> String {
        let begins = format!("account {index} ");
        self.dump(app).lines().find(|line| line.starts_with(&begins)).unwrap().to_owned()
    }
}

/// An agent that does as it is told.
pub struct Agent {
    listener: Option<UnixListener>,
    stream: Option<BufReader<UnixStream>>,
}

impl Agent {
    /// Nobody.
    pub fn absent() -> Agent {
        Agent { listener: None, stream: None }
    }

    /// Listens there.
    pub fn listen(place: &Place) -> Agent {
        let path = place.path().join("agent.sock");
        let _ = std::fs::remove_file(&path);
        Agent { listener: Some(UnixListener::bind(path).unwrap()), stream: None }
    }

    /// Talks over this.
    pub fn over(stream: UnixStream) -> Agent {
        let mut agent = Agent::absent();
        agent.take(stream);
        agent
    }

    fn take(&mut self, stream: UnixStream) {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        self.stream = Some(BufReader::new(stream));
    }

    /// Waits for somebody, who says hello, and welcomes him.
    pub fn welcome(&mut self) -> String {
        let hello = self.hello();
        self.say("welcome 1 enforce");
        hello
    }

    pub fn hello(&mut self) -> String {
        if let Some(listener) = &self.listener {
            let (stream, _) = listener.accept().unwrap();
            self.take(stream);
        }
        self.hear()
    }

    pub fn say(&mut self, line: &str) {
        self.stream.as_mut().unwrap().get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next line; empty at the end.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stream.as_mut().unwrap().read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    pub fn hang_up(&mut self) {
        self.stream = None;
    }
}
