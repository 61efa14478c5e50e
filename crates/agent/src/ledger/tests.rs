//! An application with a ledger, and the agent, in one process: what is found, cancelled, told and left alone.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plimsoll_core::config::{self, Config, parse};
use plimsoll_ledger::layout::{CANCELLABLE, Kind, Shape};
use plimsoll_ledger::{Begin, Create, Ledger, Writer};
use rand::RngExt as _;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use super::{control, scan};
use crate::clock;
use crate::events::Events;
use crate::status::{Board, Status};
use crate::watch::Outlets;

mod changes;
mod many;

/// Nothing here takes longer, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn pause(ms: u64) {
    thread::park_timeout(Duration::from_millis(ms));
}

/// An agent over a directory, for as long as `body` runs; what it told.
fn with_agent(
    dir: &Path,
    mode: &str,
    body: impl AsyncFnOnce(tokio::sync::watch::Receiver<Status>),
) -> Vec<serde_json::Value> {
    with_agent_of(dir, &tokio::sync::watch::Sender::new(apps(mode)), body)
}

/// Of a config that has the application in this mode.
fn apps(mode: &str) -> Rc<[config::App]> {
    let text = format!("[app.shop]\nslo = {{ p99 = \"50ms\" }}\nmode = \"{mode}\"");
    parse::<Config>(&text, "").unwrap().0.apps.into()
}

/// The same, of whose config something else can be said while it runs.
fn with_agent_of(
    dir: &Path,
    apps: &tokio::sync::watch::Sender<Rc<[config::App]>>,
    body: impl AsyncFnOnce(tokio::sync::watch::Receiver<Status>),
) -> Vec<serde_json::Value> {
    let file = dir.join("events.jsonl");
    let (events, writer) = Events::open(Some(&file)).unwrap();
    let (board, status) = Board::new();
    let outlets = Outlets { events, board, recorder: None, sentry: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        tokio::task::spawn_local(scan(dir.to_owned(), apps.subscribe(), outlets));
        timeout(PATIENCE, body(status)).await.expect("it takes too long");
    });
    drop((tasks, runtime));
    writer.finish();
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn create(dir: &Path) -> Writer {
    let shape = Shape { resources: 4, lanes: 1, tasks: 256, accounts: 256 };
    let now_ns = clock::now().0;
    Writer::create(&Create { app: "shop", shape, ..Create::in_directory(dir, now_ns) }).unwrap()
}

/// An application: requests of 2 ms, one every 2 ms on each of four threads, all of which need one lock. A dump takes that lock and keeps
/// it until it is cancelled.
struct App {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl App {
    fn start(writer: Arc<Writer>, flags: u32) -> App {
        App::start_unconnected(writer, flags, Arc::new(AtomicBool::new(true)))
    }

    /// One that connects to the agent only once it may.
    fn start_unconnected(writer: Arc<Writer>, flags: u32, may_connect: Arc<AtomicBool>) -> App {
        let stop = Arc::new(AtomicBool::new(false));
        let cancelled = Arc::new(AtomicBool::new(false));
        let lock = Arc::new(spin::Lock::default());
        let table = writer.resource(Kind::Lock, 1, "table").unwrap();
        let mut threads = Vec::new();
        for _ in 0..4 {
            let (writer, stop, lock) = (Arc::clone(&writer), Arc::clone(&stop), Arc::clone(&lock));
            threads.push(thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    request(&writer, table, &lock, &stop);
                    pause(2);
                }
            }));
        }
        {
            let (writer, stop, lock, cancelled) =
                (Arc::clone(&writer), Arc::clone(&stop), Arc::clone(&lock), Arc::clone(&cancelled));
            threads.push(thread::spawn(move || {
                pause(1_000);
                let label = "POST /dump";
                let started_ns = clock::now().0;
                let begin = Begin { key: 77, flags, label, started_ns, ..Begin::default() };
                let task = writer.begin(&begin).unwrap();
                let account = writer.account(task, table).unwrap();
                while !stop.load(Ordering::Relaxed) && !lock.take() {
                    pause(1);
                }
                account.get(1, || clock::now().0);
                while !stop.load(Ordering::Relaxed) && !cancelled.load(Ordering::Relaxed) {
                    pause(1);
                }
                account.free(1, || clock::now().0);
                lock.give();
                account.end(clock::now().0);
                writer.end(task);
                writer.complete(0, clock::now().0 - started_ns, true);
            }));
        }
        {
            let stop = Arc::clone(&stop);
            threads.push(thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) && !may_connect.load(Ordering::Relaxed) {
                    pause(1);
                }
                converse(&writer, &stop, &cancelled);
            }));
        }
        App { stop, threads }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// A lock that is asked for again and again, so that nobody who waits needs waking.
mod spin {
    use std::sync::atomic::{AtomicBool, Ordering};

    #[derive(Default)]
    pub struct Lock(AtomicBool);

    impl Lock {
        pub fn take(&self) -> bool {
            self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        }

        pub fn give(&self) {
            self.0.store(false, Ordering::Release);
        }
    }
}

fn request(writer: &Writer, table: u16, lock: &spin::Lock, stop: &AtomicBool) {
    let started_ns = clock::now().0;
    let begin = Begin { flags: CANCELLABLE, label: "GET /item", started_ns, ..Begin::default() };
    let task = writer.begin(&begin).unwrap();
    let account = writer.account(task, table).unwrap();
    if !lock.take() {
        account.wait(|| clock::now().0);
        while !lock.take() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            pause(1);
        }
    }
    account.get(1, || clock::now().0);
    account.free(1, || clock::now().0);
    lock.give();
    account.end(clock::now().0);
    writer.end(task);
    writer.complete(0, clock::now().0 - started_ns, false);
}

/// The SDK's side of the socket: cancels what it is told to.
fn converse(writer: &Writer, stop: &AtomicBool, cancelled: &AtomicBool) {
    let name = writer.path().file_name().unwrap().to_str().unwrap().to_owned();
    let socket = writer.path().with_file_name("agent.sock");
    while !stop.load(Ordering::Relaxed) {
        writer.beat(clock::now().0);
        let Ok(mut stream) = UnixStream::connect(&socket) else {
            pause(10);
            continue;
        };
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        writeln!(stream, "hello 1 {name}").unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while !stop.load(Ordering::Relaxed) {
            match lines.read_line(&mut line) {
                Ok(0) => break,
                Ok(_) => {
                    let words: Vec<&str> = line.split(' ').collect();
                    if words[0] == "cancel" {
                        writeln!(stream, "acknowledge {}", words[1]).unwrap();
                        cancelled.store(true, Ordering::Relaxed);
                        writeln!(stream, "outcome {} cancelled", words[1]).unwrap();
                    } else {
                        assert!(words[0] == "welcome", "{line}");
                    }
                    line.clear();
                }
                // Nothing came yet; what came of a line stays in it.
                Err(_) => writer.beat(clock::now().0),
            }
        }
    }
}

fn told<'a>(events: &'a [serde_json::Value], what: &str) -> Vec<&'a serde_json::Value> {
    events.iter().filter(|event| event["event"] == what).collect()
}

#[test]
fn who_holds_up_all_others_is_cancelled_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Arc::new(create(dir.path()));
    let app = App::start(Arc::clone(&writer), CANCELLABLE);
    let events = with_agent(dir.path(), "enforce", async |status| {
        while status.borrow().watched.values().all(|watched| watched.cancelled == 0) {
            sleep(Duration::from_millis(20)).await;
        }
        // Until its end has been told, too.
        while !fs::read_to_string(dir.path().join("events.jsonl")).unwrap().contains("released") {
            sleep(Duration::from_millis(20)).await;
        }
    });
    app.end();
    assert!(!dir.path().join("agent.sock").exists(), "its socket goes with the agent");
    let cancels = told(&events, "cancel");
    assert_eq!(cancels.len(), 1, "{events:#?}");
    assert_eq!(cancels[0]["task"], "task 77 (POST /dump)");
    assert_eq!((&cancels[0]["app"], &cancels[0]["resource"]), (&"shop".into(), &"table".into()));
    let released = told(&events, "released");
    assert_eq!(released[0]["outcome"], "cancelled");
    assert!(released[0]["after_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn in_shadow_nobody_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Arc::new(create(dir.path()));
    let app = App::start(Arc::clone(&writer), CANCELLABLE);
    let events = with_agent(dir.path(), "shadow", async |status| {
        while status.borrow().watched.values().all(|watched| watched.would_cancel == 0) {
            sleep(Duration::from_millis(20)).await;
        }
        sleep(Duration::from_secs(2)).await;
    });
    app.end();
    assert!(told(&events, "cancel").is_empty());
    let would = told(&events, "would_cancel");
    assert_eq!((would.len(), &would[0]["task"]), (1, &"task 77 (POST /dump)".into()), "{events:#?}");
}

#[test]
fn who_cannot_be_cancelled_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Arc::new(create(dir.path()));
    let app = App::start(Arc::clone(&writer), 0);
    let events = with_agent(dir.path(), "enforce", async |_| {
        while !fs::read_to_string(dir.path().join("events.jsonl")).unwrap().contains("escalate") {
            sleep(Duration::from_millis(20)).await;
        }
    });
    app.end();
    assert!(told(&events, "cancel").is_empty(), "{events:#?}");
    assert_eq!(told(&events, "escalate")[0]["task"], "task 77 (POST /dump)");
}

#[test]
fn who_cannot_be_told_yet_is_cancelled_once_its_application_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Arc::new(create(dir.path()));
    let may_connect = Arc::new(AtomicBool::new(false));
    let app = App::start_unconnected(Arc::clone(&writer), CANCELLABLE, Arc::clone(&may_connect));
    // On a busy machine somebody else may be in the way for a moment, too.
    let is_of_dump = |what: &str| {
        let lines = fs::read_to_string(dir.path().join("events.jsonl")).unwrap();
        let event = format!(r#""event":"{what}""#);
        lines.lines().any(|line| line.contains(&event) && line.contains("task 77 (POST /dump)"))
    };
    let events = with_agent(dir.path(), "enforce", async |_| {
        while !is_of_dump("escalate") {
            sleep(Duration::from_millis(20)).await;
        }
        may_connect.store(true, Ordering::Relaxed);
        while !is_of_dump("released") {
            sleep(Duration::from_millis(20)).await;
        }
    });
    app.end();
    let of_dump = |what: &str| {
        let mut events = told(&events, what);
        events.retain(|event| event["task"] == "task 77 (POST /dump)");
        events
    };
    assert_eq!(of_dump("escalate")[0]["reason"], "not cancellable: its application is not connected");
    assert_eq!(of_dump("cancel").len(), 1, "{events:#?}");
    assert_eq!(of_dump("released")[0]["outcome"], "cancelled", "{events:#?}");
}

#[test]
fn ledgers_that_are_none_are_left_alone_and_those_of_the_dead_removed() {
    let dir = tempfile::tempdir().unwrap();
    let own = std::process::id();
    let good = create(dir.path());
    let bytes = fs::read(good.path()).unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut other = bytes.clone();
    other[8] = 2;
    fs::write(path(&format!("shop.{own}0.ledger")), &bytes).unwrap();
    // Of this process, so that it is alive.
    fs::rename(good.path(), path("kept")).unwrap();
    fs::write(path(&format!("shop.{own}.ledger")), &other).unwrap();
    fs::write(path(&format!("cart.{own}.ledger")), &bytes).unwrap();
    fs::write(path("shop.1.ledger"), &bytes[..100]).unwrap();
    std::os::unix::fs::symlink("/dev/zero", path("shop.2.ledger")).unwrap();
    let seen = RefCell::new(Status::default());
    with_agent(dir.path(), "enforce", async |status| {
        sleep(Duration::from_millis(1_500)).await;
        seen.borrow_mut().left_alone = status.borrow().left_alone.clone();
    });
    let left = &seen.borrow().left_alone;
    let why = |name: String| left.get(&path(&name).display().to_string()).cloned().unwrap_or_default();
    assert!(why(format!("shop.{own}.ledger")).contains("version 2"), "{left:?}");
    assert!(why(format!("cart.{own}.ledger")).contains("no [app.cart]"), "{left:?}");
    assert!(why("shop.1.ledger".to_owned()).contains("100 bytes"), "{left:?}");
    assert!(!path(&format!("shop.{own}0.ledger")).exists(), "its process is gone");
    assert!(path(&format!("shop.{own}.ledger")).exists());
}

#[test]
fn a_ledger_that_is_closed_and_opened_again_is_watched_again() {
    let dir = tempfile::tempdir().unwrap();
    let first = create(dir.path());
    with_agent(dir.path(), "enforce", async |status| {
        while first.agent_beat_ns() == 0 {
            sleep(Duration::from_millis(20)).await;
        }
        first.remove();
        while !status.borrow().watched.is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
        let second = create(dir.path());
        while second.agent_beat_ns() == 0 {
            sleep(Duration::from_millis(20)).await;
        }
        second.remove();
        // Before anybody saw that it was closed.
        let third = create(dir.path());
        while third.agent_beat_ns() == 0 {
            sleep(Duration::from_millis(20)).await;
        }
        assert!(Ledger::peek(third.path()).is_ok(), "what is closed is not what has taken its place");
    });
}

#[test]
fn a_second_agent_leaves_the_ledger_to_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(dir.path());
    let first = Ledger::open(writer.path()).unwrap();
    first.sign(4_711).unwrap();
    let why = RefCell::new(String::new());
    with_agent(dir.path(), "enforce", async |status| {
        while status.borrow().left_alone.is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
        *why.borrow_mut() = status.borrow().left_alone.values().next().unwrap().clone();
        drop(first);
        // It is gone, and the second takes over.
        while status.borrow().watched.is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
        assert!(status.borrow().left_alone.is_empty());
    });
    assert!(why.borrow().contains("process 4711"), "{why:?}");
    assert!(Ledger::peek(writer.path()).is_ok());
}

#[test]
fn nobody_speaks_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(dir.path());
    let name = writer.path().file_name().unwrap().to_str().unwrap().to_owned();
    with_agent(dir.path(), "enforce", async |status| {
        while status.borrow().watched.is_empty() || !dir.path().join("agent.sock").exists() {
            sleep(Duration::from_millis(20)).await;
        }
        let socket = dir.path().join("agent.sock");
        let ask = |line: String| {
            let socket = socket.clone();
            tokio::task::spawn_blocking(move || {
                let mut stream = UnixStream::connect(socket).unwrap();
                stream.write_all(line.as_bytes()).unwrap();
                let mut answer = String::new();
                // Hung up on, with something still unread.
                let _ = BufReader::new(stream).read_line(&mut answer);
                answer
            })
        };
        assert_eq!(ask(format!("hello 1 {name}\n")).await.unwrap(), "welcome 1 enforce\n");
        assert!(ask(format!("hello 2 {name}\n")).await.unwrap().starts_with("refused this agent speaks"));
        assert!(ask("hello 1 ../etc/passwd\n".to_owned()).await.unwrap().starts_with("refused "));
        assert!(ask("hello 1 shop.1.ledger\n".to_owned()).await.unwrap().starts_with("refused there is no"));
        assert_eq!(ask("x".repeat(5_000)).await.unwrap(), "");
        let mut other = tokio::process::Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", "ledger::tests::speaks_from_another_process", "--ignored", "--nocapture"]);
        let other = other.env("SOCKET", &socket).env("HELLO", format!("hello 1 {name}\n"));
        let said = String::from_utf8(other.output().await.unwrap().stdout).unwrap();
        assert!(said.contains("refused that ledger is another process's"), "{said}");
    });
}

#[test]
fn who_may_connect_depends_on_whose_the_agent_is() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent.sock");
    with_agent(dir.path(), "enforce", async |_| {
        while !socket.exists() || !matches!(mode(&socket), 0o600 | 0o666) {
            sleep(Duration::from_millis(20)).await;
        }
    });
    let listener = UnixListener::bind(&socket).unwrap();
    control::open_up(&socket).unwrap();
    let all = rustix::process::geteuid().is_root();
    assert_eq!(mode(&socket), if all { 0o666 } else { 0o600 });
    // What lies in its place is left as it is.
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    fs::remove_file(&socket).unwrap();
    std::os::unix::fs::symlink(&file, &socket).unwrap();
    assert!(control::open_up(&socket).is_err());
    assert!(control::open_up(&file).is_err());
    assert_eq!(mode(&file), 0o640);
    drop(listener);
}

#[test]
#[ignore = "a process of its own for `nobody_speaks_for_another`"]
fn speaks_from_another_process() {
    let Some(socket) = std::env::var_os("SOCKET") else { return };
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(std::env::var("HELLO").unwrap().as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    println!("{answer}");
}

#[test]
fn whatever_a_ledger_holds_the_agent_goes_on() {
    let seed = clock::now().0;
    println!("seed {seed}");
    let mut rng = plimsoll_core::rng::seeded(seed, 0);
    let dir = tempfile::tempdir().unwrap();
    let writer = create(dir.path());
    writer.resource(Kind::Lock, 1, "table").unwrap();
    let task = writer.begin(&Begin { label: "x", started_ns: 1, ..Begin::default() }).unwrap();
    writer.account(task, 0).unwrap().get(1, || clock::now().0);
    with_agent(dir.path(), "enforce", async |status| {
        while status.borrow().watched.is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
        let file = fs::OpenOptions::new().write(true).open(writer.path()).unwrap();
        let length = file.metadata().unwrap().len();
        for _ in 0..40 {
            for _ in 0..500 {
                // Everything but the header's first line, without which it would be no ledger.
                let at = rng.random_range(0x80..length - 8);
                std::os::unix::fs::FileExt::write_all_at(&file, &rng.random::<u64>().to_le_bytes(), at)
                    .unwrap();
            }
            sleep(Duration::from_millis(10)).await;
        }
        assert!(!status.borrow().watched.is_empty());
        file.set_len(5_000).unwrap();
        while !status.borrow().watched.is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
        while status.borrow().left_alone.is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    std::mem::forget(writer); // Its pages are gone: to touch them would be a signal.
}
