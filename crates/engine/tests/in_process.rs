//! An application that is watched from within: who is cancelled, who is not, what is told, and what becomes of the application when the engine cannot
//! do its work.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{JoinHandle, park_timeout, spawn};
use std::time::Duration;

use plimsoll_engine::Engine;
use plimsoll_ledger::{Ledger, Refusal};
use plimsoll_sdk::App;
use plimsoll_sdk::sync::Mutex;
use serde_json::Value;

fn pause(ms: u64) {
    park_timeout(Duration::from_millis(ms));
}

/// Waits for a condition, for a minute at most.
fn until(mut good: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if good() {
            return;
        }
        pause(1);
    }
    panic!("it takes too long");
}

fn engine(app: &str, mode: &str) -> Engine {
    let config = format!("[app.{app}]\nslo = {{ p99 = \"100ms\" }}\nmode = \"{mode}\"");
    Engine::of_config(&config, app).unwrap()
}

fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last one may still be being written.
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn told(events: &[Value], what: &str) -> Vec<Value> {
    events.iter().filter(|event| event["event"] == what).cloned().collect()
}

/// Four threads with a request every few milliseconds that needs the table for a moment, and a slow one that needs something else. After a while
/// a dump takes the table and keeps it until it is cancelled.
struct Shop {
    stop: Arc<AtomicBool>,
    victims: Vec<JoinHandle<()>>,
    /// Whether each was cancelled.
    slow: JoinHandle<bool>,
    dump: JoinHandle<bool>,
}

impl Shop {
    fn open(app: App) -> Shop {
        let stop = Arc::new(AtomicBool::new(false));
        let table = Arc::new(Mutex::new(app, "table", ()));
        let archive = Mutex::new(app, "archive", ());
        let victims = (0..4).map(|_| {
            let (stop, table) = (Arc::clone(&stop), Arc::clone(&table));
            spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let task = app.task("GET /item").cancellable().begin();
                    task.run(|| {
                        let _rows = table.lock().unwrap();
                        pause(1);
                    });
                    drop(task);
                    pause(2);
                }
            })
        });
        let victims = victims.collect();
        let stopped = Arc::clone(&stop);
        let slow = spawn(move || {
            let task = app.task("GET /archive").key(4).cancellable().begin();
            task.run(|| {
                let _archive = archive.lock().unwrap();
                while !stopped.load(Ordering::Relaxed) && !task.is_cancelled() {
                    pause(1);
                }
                task.is_cancelled()
            })
        });
        let stopped = Arc::clone(&stop);
        let dump = spawn(move || {
            pause(1_000);
            let task = app.task("POST /dump").key(77).cancellable().begin();
            task.run(|| {
                let _rows = table.lock().unwrap();
                while !stopped.load(Ordering::Relaxed) && !task.is_cancelled() {
                    pause(1);
                }
                task.is_cancelled()
            })
        });
        Shop { stop, victims, slow, dump }
    }

    /// Whether the slow request and the dump were cancelled.
    fn close(self) -> (bool, bool) {
        self.stop.store(true, Ordering::Relaxed);
        self.victims.into_iter().for_each(|thread| thread.join().unwrap());
        (self.slow.join().unwrap(), self.dump.join().unwrap())
    }
}

#[test]
fn who_holds_up_all_others_is_cancelled_and_who_is_merely_slow_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.jsonl");
    let (app, engine) =
        engine("enforced", "enforce").events(&path).open(App::options().directory(dir.path()));
    assert_eq!((app.problem(), engine.problem()), (None, None));
    let shop = Shop::open(app);
    until(|| shop.dump.is_finished());
    // On a busy machine somebody else may have been in the way for a moment before.
    let is_dump = |event: &Value| event["task"] == "task 77 (POST /dump)";
    until(|| told(&events(&path), "released").iter().any(is_dump));
    assert_eq!(shop.close(), (false, true));
    assert_eq!(engine.problem(), None);
    drop(engine);
    let events = events(&path);
    let cancels = told(&events, "cancel");
    let dump: Vec<_> = cancels.iter().filter(|cancel| is_dump(cancel)).collect();
    assert_eq!(dump.len(), 1, "{events:#?}");
    assert_eq!((&dump[0]["app"], &dump[0]["resource"]), (&"enforced".into(), &"table".into()));
    // Nobody looks any more, and nobody minds.
    let task = app.task("GET /item").begin();
    drop(task);
    app.close();
}

#[test]
fn in_shadow_nobody_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, lines) = mpsc::channel();
    let engine = engine("shadowed", "shadow").on_event(move |line| sender.send(line.to_owned()).unwrap());
    let (app, engine) = engine.open(App::options().directory(dir.path()));
    let shop = Shop::open(app);
    let is_dump = |line: &String| line.contains("would_cancel") && line.contains("task 77 (POST /dump)");
    assert!(lines.iter().any(|line| is_dump(&line)), "the dump is named");
    // For as many looks as would have been enough.
    pause(1_000);
    assert!(!shop.dump.is_finished());
    assert_eq!(shop.close(), (false, false));
    drop(engine);
    assert!(lines.iter().all(|line| !line.contains(r#""event":"cancel""#)));
    app.close();
}

#[test]
fn when_it_is_off_nobody_looks() {
    let dir = tempfile::tempdir().unwrap();
    let (app, engine) = engine("off", "off").open(App::options().directory(dir.path()));
    assert_eq!((app.problem(), engine.problem()), (None, None));
    assert!(Ledger::open(app.ledger().unwrap()).is_ok(), "the ledger is free");
    app.close();
}

#[test]
fn where_an_agent_is_already_the_engine_stands_back() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let app = App::options().directory(dir.path()).control(theirs).open("taken");
    let agent = Ledger::open(app.ledger().unwrap()).unwrap();
    agent.sign(4_711).unwrap();
    let late = engine("taken", "enforce").start(app.ledger().unwrap(), ours);
    let why = late.problem().unwrap();
    assert!(why.contains("another agent has it, process 4711"), "{why}");
    drop(app.task("GET /item").begin());
    app.close();
}

#[test]
fn where_the_engine_is_an_agent_stands_back_and_so_does_a_second_engine() {
    let dir = tempfile::tempdir().unwrap();
    let (app, first) = engine("first", "enforce").open(App::options().directory(dir.path()));
    let pid = u64::from(std::process::id());
    let agent = Ledger::open(app.ledger().unwrap()).err().unwrap();
    assert!(matches!(agent, Refusal::Taken { pid: by } if by == pid), "{agent}");
    let (same, second) = engine("first", "enforce").open(App::options().directory(dir.path()));
    assert_eq!(same.ledger(), app.ledger());
    assert!(second.problem().unwrap().contains(&format!("process {pid}")), "{:?}", second.problem());
    drop(second);
    assert_eq!(first.problem(), None);
    drop(first);
    assert!(Ledger::open(app.ledger().unwrap()).is_ok(), "it is free again");
    app.close();
}

#[test]
fn an_application_that_was_open_before_or_is_closed_first_is_not_watched() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::options().directory(dir.path()).open("early");
    let (same, late) = engine("early", "enforce").open(App::options());
    assert_eq!(same.ledger(), app.ledger());
    until(|| late.problem().is_some_and(|why| why.contains("was open before")));
    app.close();
    let (app, engine) = engine("closed", "enforce").open(App::options().directory(dir.path()));
    // Once it has been watched for a moment.
    until(|| Ledger::peek(app.ledger().unwrap()).is_ok());
    app.close();
    until(|| engine.problem().is_some_and(|why| why.contains("closed")));
}

#[test]
fn what_cannot_be_is_said_and_the_application_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (app, none) = engine("nowhere", "enforce").open(App::options().directory("/proc/nowhere"));
    assert!(none.problem().unwrap().contains("there is no ledger"), "{:?}", none.problem());
    drop(app.task("GET /item").begin());
    let wrong = engine("mute", "enforce").events("/proc/nowhere/events");
    let (app, mute) = wrong.open(App::options().directory(dir.path()));
    assert!(mute.problem().unwrap().contains("/proc/nowhere/events"), "{:?}", mute.problem());
    drop(app.task("GET /item").begin());
    app.close();
    let wrong = Engine::of_config("[app.shop]\nslo = { p99 = \"50\" }", "shop").err().unwrap();
    assert!(wrong.contains("slo = { p99 = \"50\" }"), "it shows where: {wrong}");
    let wrong = Engine::of_config("[app.shop]\nslo = { p99 = \"50ms\" }", "cart").err().unwrap();
    assert_eq!(wrong, "there is no [app.cart] in the config");
}
