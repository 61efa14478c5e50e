//! An agent orders, and the application's actions do as they like: return, panic, never return. The agent dies, refuses, or is none.

mod common;

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar};
use std::time::Duration;

use common::{Agent, Place, until};
use plimsoll_sdk::{App, Kind, Second, Task};

/// Record and turn of a task's only record in the ledger.
fn named(place: &Place, app: &App, key: u64) -> String {
    let look = place.look(app);
    let task = look.tasks.iter().find(|task| task.key == key).unwrap();
    format!("{} {}", task.index, task.turn)
}

fn open(place: &Place, name: &str) -> (App, Agent) {
    let mut agent = Agent::listen(place);
    let app = place.open(name);
    let hello = agent.welcome();
    assert_eq!(hello, format!("hello 1 {name}.{}.ledger", std::process::id()));
    (app, agent)
}

#[test]
fn a_task_that_asks_finds_out_and_its_end_is_told() {
    let place = Place::new();
    let (app, mut agent) = open(&place, "asks");
    let table = app.resource(Kind::Lock, 1, "table");
    let task = app.task("report").key(1).cancellable().begin();
    task.get(table, 1);
    let token = task.token();
    agent.say(&format!("cancel 10 {} 0 it holds table for 1.2 s", named(&place, &app, 1)));
    assert_eq!(agent.hear(), "acknowledge 10");
    until(|| token.is_cancelled());
    assert_eq!(task.reason().as_deref(), Some("it holds table for 1.2 s"));
    // A task is cancelled once.
    agent.say(&format!("cancel 11 {} 0 again", named(&place, &app, 1)));
    assert_eq!(agent.hear(), "outcome 11 failed it was cancelled before");
    drop(task);
    assert_eq!(agent.hear(), "outcome 10 cancelled");
    assert!(token.is_cancelled());
    assert!(place.dump(&app).contains("cancelled=1"), "{}", place.dump(&app));
}

#[test]
fn actions_are_told_whom_and_why() {
    let place = Place::new();
    let mut agent = Agent::listen(&place);
    let (told, hears) = channel();
    let all = told.clone();
    let app = place
        .options()
        .on_cancel(move |cancel| {
            all.send((cancel.key(), cancel.resource(), cancel.reason().to_owned())).unwrap()
        })
        .open("actions");
    agent.welcome();
    let one = app.task("one").key(1).cancellable().begin();
    let other = app.task("other").key(2).on_cancel(move |_| told.send((0, 0, "own".into())).unwrap()).begin();
    for (id, key) in [(1, 1), (2, 2)] {
        agent.say(&format!("cancel {id} {} 3 why {key}", named(&place, &app, key)));
        assert_eq!(agent.hear(), format!("acknowledge {id}"));
    }
    assert_eq!(hears.recv().unwrap(), (1, 3, "why 1".to_owned()));
    assert_eq!(hears.recv().unwrap(), (0, 0, "own".to_owned()));
    one.finish();
    assert_eq!(agent.hear(), "outcome 1 finished");
    drop(other);
    assert_eq!(agent.hear(), "outcome 2 cancelled");
}

#[test]
fn who_is_not_there_or_not_to_be_cancelled_is_not() {
    let place = Place::new();
    let (app, mut agent) = open(&place, "absent");
    let safe = app.task("safe").key(1).begin();
    let ended = app.task("ended").key(2).cancellable().begin();
    let (safe_at, ended_at) = (named(&place, &app, 1), named(&place, &app, 2));
    drop(ended);
    for (order, answer) in [
        (format!("cancel 1 {safe_at} 0 x"), "outcome 1 failed it cannot be cancelled"),
        (format!("cancel 2 {ended_at} 0 x"), "outcome 2 finished"),
        ("cancel 3 5 1 0 x".to_owned(), "outcome 3 gone"),
        ("cancel 4 131071 1 0 x".to_owned(), "outcome 4 gone"),
        ("cancel 5 0 99 0 x".to_owned(), "outcome 5 gone"),
    ] {
        agent.say("nonsense");
        agent.say("cancel 1 2");
        agent.say(&order);
        assert_eq!(agent.hear(), answer);
    }
    assert!(!safe.is_cancelled());
}

#[test]
fn an_action_that_panics_has_failed_and_the_next_is_called() {
    let place = Place::new();
    let (app, mut agent) = open(&place, "panics");
    let first = app.task("first").key(1).on_cancel(|_| panic!("on purpose")).begin();
    agent.say(&format!("cancel 1 {} 0 x", named(&place, &app, 1)));
    assert_eq!(agent.hear(), "acknowledge 1");
    assert_eq!(agent.hear(), "outcome 1 failed the cancel action panicked: on purpose");
    let second = app.task("second").key(2).cancellable().begin();
    agent.say(&format!("cancel 2 {} 0 x", named(&place, &app, 2)));
    assert_eq!(agent.hear(), "acknowledge 2");
    until(|| second.is_cancelled());
    drop((first, second));
    assert_eq!(agent.hear(), "outcome 2 cancelled");
}

/// A door that actions stand before.
#[derive(Clone, Default)]
#[expect(clippy::disallowed_types, reason = "a test's")]
struct Door(Arc<(std::sync::Mutex<bool>, Condvar)>);

impl Door {
    fn wait(&self) {
        let (open, opened) = &*self.0;
        drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

#[test]
fn an_action_that_does_not_return_has_failed_and_so_have_all_until_it_does() {
    let place = Place::new();
    let mut agent = Agent::listen(&place);
    let door = Door::default();
    let behind = door.clone();
    let app = place
        .options()
        .patience(Duration::from_secs(1), Duration::from_secs(30))
        .on_cancel(move |cancel| {
            if cancel.key() == 1 {
                behind.wait()
            }
        })
        .open("hangs");
    agent.welcome();
    let tasks: Vec<Task> = (1..=3).map(|key| app.task("t").key(key).cancellable().begin()).collect();
    agent.say(&format!("cancel 1 {} 0 x", named(&place, &app, 1)));
    assert_eq!(agent.hear(), "acknowledge 1");
    assert_eq!(agent.hear(), "outcome 1 failed the cancel action has not returned for 1 s");
    agent.say(&format!("cancel 2 {} 0 x", named(&place, &app, 2)));
    assert_eq!(agent.hear(), "outcome 2 failed an earlier cancel action has not returned");
    assert!(!tasks[1].is_cancelled());
    door.open();
    // Now and then it takes a moment until that is known.
    let mut id = 3;
    loop {
        agent.say(&format!("cancel {id} {} 0 x", named(&place, &app, 3)));
        match agent.hear() {
            said if said == format!("acknowledge {id}") => break,
            said => {
                assert_eq!(said, format!("outcome {id} failed an earlier cancel action has not returned"))
            }
        }
        id += 1;
    }
    until(|| tasks[2].is_cancelled());
    drop(tasks);
    assert_eq!(agent.hear(), format!("outcome {id} cancelled"));
}

fn rerunnable(app: &App, key: u64) -> (Task, Receiver<Second>) {
    rerunnable_until(app, key, None)
}

fn rerunnable_until(app: &App, key: u64, deadline: Option<Duration>) -> (Task, Receiver<Second>) {
    let (told, hears) = channel();
    let task = app
        .task("export")
        .key(key)
        .background()
        .cancellable()
        .rerunnable(move |second| told.send(second).unwrap());
    let task = deadline.into_iter().fold(task, |task, deadline| task.deadline(deadline));
    (task.begin(), hears)
}

/// Cancels a task and hears that it has ended for it.
fn cancel(place: &Place, app: &App, agent: &mut Agent, id: u64, task: Task, key: u64) {
    agent.say(&format!("cancel {id} {} 0 x", named(place, app, key)));
    assert_eq!(agent.hear(), format!("acknowledge {id}"));
    let token = task.token();
    until(|| token.is_cancelled());
    drop(task);
    assert_eq!(agent.hear(), format!("outcome {id} cancelled"));
}

#[test]
fn what_was_cancelled_is_run_again_when_there_is_room_and_dropped_when_it_is_too_late() {
    let place = Place::new();
    let (app, mut agent) = open(&place, "reruns");
    let (task, second) = rerunnable(&app, 1);
    cancel(&place, &app, &mut agent, 1, task, 1);
    assert!(second.try_recv().is_err());
    agent.say("rerun 1");
    let Second::Again(again) = second.recv().unwrap() else { panic!("it was dropped") };
    assert_eq!(agent.hear(), "reran 1");
    let again = again.task().cancellable().rerunnable(|_| ()).begin();
    {
        let look = place.look(&app);
        let seen = &look.tasks[0];
        assert!(seen.rerun() && !seen.cancellable() && !seen.rerunnable() && seen.background());
        assert_eq!((seen.key, &*seen.label.show()), (1, "export"));
    }
    agent.say(&format!("cancel 2 {} 0 x", named(&place, &app, 1)));
    assert_eq!(agent.hear(), "outcome 2 failed it cannot be cancelled");
    drop(again);

    let (task, second) = rerunnable(&app, 3);
    cancel(&place, &app, &mut agent, 3, task, 3);
    agent.say("drop 3");
    assert_eq!(agent.hear(), "dropped 3");
    assert!(matches!(second.recv().unwrap(), Second::Dropped(why) if why == "its deadline has passed"));
    // What is known no more is ignored.
    agent.say("rerun 3");
    agent.say("drop 77");
    let (task, _second) = rerunnable(&app, 4);
    cancel(&place, &app, &mut agent, 4, task, 4);
}

#[test]
fn what_was_cancelled_is_run_again_when_nobody_says_anything() {
    let place = Place::new();
    let mut agent = Agent::listen(&place);
    let app = place.options().patience(Duration::from_secs(5), Duration::from_millis(100)).open("silence");
    agent.welcome();
    let (task, second) = rerunnable(&app, 1);
    cancel(&place, &app, &mut agent, 1, task, 1);
    assert!(matches!(second.recv().unwrap(), Second::Again(_)));
    assert_eq!(agent.hear(), "reran 1");
}

#[test]
fn what_is_of_no_use_any_more_is_not_run_again() {
    let place = Place::new();
    let mut agent = Agent::listen(&place);
    let app = place.options().patience(Duration::from_secs(5), Duration::from_millis(100)).open("late");
    agent.welcome();
    let is_late = |second: Second| matches!(second, Second::Dropped(why) if why == "its deadline has passed");
    // Nobody says anything.
    let (task, second) = rerunnable_until(&app, 1, Some(Duration::ZERO));
    cancel(&place, &app, &mut agent, 1, task, 1);
    assert!(is_late(second.recv().unwrap()));
    assert_eq!(agent.hear(), "dropped 1");
    // Before it has passed, and for the second run, too.
    let (task, second) = rerunnable_until(&app, 2, Some(Duration::from_secs(3_600)));
    let deadline_ns = place.look(&app).tasks[0].deadline_ns;
    cancel(&place, &app, &mut agent, 2, task, 2);
    let Second::Again(again) = second.recv().unwrap() else { panic!("it was dropped") };
    assert_eq!(agent.hear(), "reran 2");
    let again = again.task().begin();
    assert_eq!(place.look(&app).tasks[0].deadline_ns, deadline_ns);
    drop(again);
    app.close();

    // The agent says that there is room, or dies.
    let (app, mut agent) = open(&place, "later");
    for (key, dies) in [(1, false), (2, true)] {
        let (task, second) = rerunnable_until(&app, key, Some(Duration::ZERO));
        cancel(&place, &app, &mut agent, key, task, key);
        match dies {
            true => agent.hang_up(),
            false => agent.say(&format!("rerun {key}")),
        }
        assert!(is_late(second.recv().unwrap()));
        if !dies {
            assert_eq!(agent.hear(), format!("dropped {key}"));
        }
    }
}

#[test]
fn an_agent_that_dies_is_found_again_and_what_waits_is_run() {
    let place = Place::new();
    let (app, mut agent) = open(&place, "dies");
    let (task, second) = rerunnable(&app, 1);
    cancel(&place, &app, &mut agent, 1, task, 1);
    // One that is being cancelled when the agent dies, and one that nobody asked for.
    let (going_on, later) = rerunnable(&app, 2);
    let untouched = app.task("t").key(3).cancellable().begin();
    agent.say(&format!("cancel 2 {} 0 x", named(&place, &app, 2)));
    assert_eq!(agent.hear(), "acknowledge 2");
    until(|| going_on.is_cancelled());
    agent.hang_up();
    assert!(matches!(second.recv().unwrap(), Second::Again(_)));
    let hello = agent.welcome();
    assert!(hello.starts_with("hello 1 dies."), "{hello}");
    drop(going_on);
    // The new agent knows nothing of it, so nothing is said; its numbers begin anew.
    agent.say(&format!("cancel 1 {} 0 x", named(&place, &app, 3)));
    assert_eq!(agent.hear(), "acknowledge 1");
    until(|| untouched.is_cancelled());
    drop(untouched);
    assert_eq!(agent.hear(), "outcome 1 cancelled");
    agent.hang_up();
    assert!(matches!(later.recv().unwrap(), Second::Again(_)));
}

#[test]
fn no_thread_of_ours_takes_a_signal_of_the_applications() {
    let place = Place::new();
    let (app, mut agent) = open(&place, "signals");
    let (task, second) = rerunnable(&app, 1);
    cancel(&place, &app, &mut agent, 1, task, 1);
    agent.say("rerun 1");
    assert!(matches!(second.recv().unwrap(), Second::Again(_)));
    let status = |name: &str| {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let mut statuses = threads
            .filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).ok())
            .filter(|status| status.starts_with(&format!("Name:\t{name}\n")));
        statuses.next()
    };
    for name in ["plimsoll", "plimsoll-cancel", "plimsoll-rerun"] {
        // Its name it has a moment after it has begun.
        until(|| status(name).is_some());
        let status = status(name).unwrap();
        let (_, blocked) = status.split_once("SigBlk:\t").unwrap();
        // SIGTERM and SIGINT.
        let blocked = u64::from_str_radix(&blocked[..16], 16).unwrap();
        assert_eq!(blocked & 0x4002, 0x4002, "{name}: {status}");
    }
}

#[test]
fn who_is_not_welcome_does_nothing() {
    let place = Place::new();
    let mut agent = Agent::listen(&place);
    let app = place.open("unwelcome");
    agent.hello();
    let task = app.task("t").key(1).cancellable().begin();
    agent.say(&format!("cancel 1 {} 0 x", named(&place, &app, 1)));
    agent.say("refused another agent has it");
    assert_eq!(agent.hear(), "");
    assert!(!task.is_cancelled());
}

#[test]
fn who_says_too_much_is_hung_up_on() {
    let place = Place::new();
    let (_app, mut agent) = open(&place, "long");
    agent.say(&"x".repeat(2_000));
    assert_eq!(agent.hear(), "");
    assert!(agent.welcome().starts_with("hello 1 long."));
}

#[test]
fn an_agent_within_the_process_needs_no_socket() {
    let place = Place::new();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let app = place.options().control(ours).open("within");
    let mut agent = Agent::over(theirs);
    assert!(agent.welcome().starts_with("hello 1 within."));
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let task = app.task("t").key(1).on_cancel(move |_| counted.store(1, Ordering::SeqCst)).begin();
    agent.say(&format!("cancel 1 {} 0 x", named(&place, &app, 1)));
    assert_eq!(agent.hear(), "acknowledge 1");
    until(|| calls.load(Ordering::SeqCst) == 1);
    drop(task);
    assert_eq!(agent.hear(), "outcome 1 cancelled");
    app.close();
    assert_eq!(agent.hear(), "");
}
