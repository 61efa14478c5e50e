//! What is written into the ledger: by tasks, by guards, by what wraps locks; and that nothing is where there is no room.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Agent, Place};
use plimsoll_sdk::{App, Kind, sync};

#[test]
fn a_task_is_in_the_ledger_as_long_as_it_lives() {
    let place = Place::new();
    let app = place.open("shop");
    let table = app.resource(Kind::Lock, 1, "table");
    let task = app.task("GET /report").key(7).cancellable().deadline(Duration::from_secs(1)).begin();
    task.get(table, 1);
    task.progress(3, 9);
    let look = place.look(&app);
    let seen = &look.tasks[0];
    assert_eq!((seen.key, seen.done, seen.total, &*seen.label.show()), (7, 3, 9, "GET /report"));
    assert!(seen.cancellable() && !seen.background() && !seen.rerunnable());
    assert_eq!(seen.deadline_ns - seen.started_ns, 1_000_000_000);
    assert_eq!((look.uses[0].held, look.resource(0).unwrap().held), (1, 1));
    drop(task);
    let look = place.look(&app);
    assert!(look.tasks.is_empty());
    assert_eq!(look.resource(0).unwrap().held, 0);
}

#[test]
fn all_events_do_what_they_say() {
    let place = Place::new();
    let app = place.open("events");
    let task = app.task("t").begin();
    let many: Vec<_> = (0..40).map(|i| app.resource(Kind::Memory, 0, &format!("resource {i}"))).collect();
    for (&resource, n) in many.iter().zip(1..) {
        task.get(resource, n);
        task.free(resource, n / 2);
        task.at(resource).slow(n, Duration::from_millis(1));
        task.wait(resource);
    }
    task.unwait(many[3]);
    let look = place.look(&app);
    assert_eq!(look.uses.len(), 40);
    for (one, n) in look.uses.iter().zip(1..) {
        assert_eq!((one.held, one.waiting), (n - n / 2, u32::from(n != 4)), "{one:?}");
    }
    drop(task);
    let dump = place.dump(&app);
    let fourth = dump.lines().find(|line| line.contains("resource=3 ")).unwrap();
    assert!(fourth.contains("task=- turn=0 resource=3 gets=4 frees=4 slows=5 "), "{fourth}");
    // What was measured elsewhere, and how long it waited by the coarse clock: nothing, or a tick or more.
    let wait_ns = fourth.split_whitespace().find_map(|word| word.strip_prefix("wait_ns=")).unwrap();
    assert!(wait_ns.parse::<u64>().unwrap() >= 1_000_000, "{fourth}");
}

#[test]
fn guards_give_back_and_never_to_the_wrong_task() {
    let place = Place::new();
    let app = place.open("guards");
    let table = app.resource(Kind::Lock, 1, "table");
    let task = app.task("first").begin();
    let held = task.hold(table, 2);
    let waiting = task.waiting(table);
    assert_eq!((place.look(&app).uses[0].held, place.look(&app).uses[0].waiting), (2, 1));
    let more = waiting.got(3);
    assert_eq!((place.look(&app).uses[0].held, place.look(&app).uses[0].waiting), (5, 0));
    drop(held);
    assert_eq!(place.look(&app).uses[0].held, 3);
    drop(task);
    // The next has the first's account.
    let task = app.task("second").begin();
    task.get(table, 4);
    drop(more);
    assert_eq!(place.look(&app).uses[0].held, 4);
    drop(task);
}

#[test]
fn branches_have_accounts_of_their_own_and_the_task_ends_with_the_last() {
    let place = Place::new();
    let app = place.open("branches");
    let table = app.resource(Kind::Queue, 8, "workers");
    let task = app.task("t").begin();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let branch = task.branch();
            scope.spawn(move || {
                for _ in 0..10_000 {
                    branch.get(table, 1);
                    branch.free(table, 1);
                }
                branch.get(table, 1);
                std::mem::forget(branch.hold(table, 1));
            });
        }
        task.get(table, 1);
    });
    let branch = task.branch();
    drop(task);
    assert_eq!(place.look(&app).tasks.len(), 1);
    drop(branch);
    assert!(place.look(&app).tasks.is_empty());
    let dump = place.dump(&app);
    let sum = |word: &str| -> u64 {
        let words = dump.split_whitespace().filter_map(|w| w.strip_prefix(word));
        words.map(|n| n.parse::<u64>().unwrap()).sum()
    };
    assert_eq!((sum("gets="), sum("frees=")), (4 * 10_002 + 1, 4 * 10_002 + 1));
}

#[test]
fn wrapped_locks_account_for_the_current_task() {
    let place = Place::new();
    let app = place.open("locks");
    let mutex = sync::Mutex::new(app, "mutex", 0);
    let rwlock = sync::RwLock::new(app, "rwlock", 0);
    let semaphore = sync::Semaphore::new(app, "semaphore", 3);
    let pool = sync::Pool::new(app, "pool", ["a", "b"]);
    let task = app.task("t").begin();
    task.run(|| {
        let guards = (
            mutex.lock().unwrap(),
            rwlock.read().unwrap(),
            rwlock.read().unwrap(),
            semaphore.acquire_many(2),
            pool.get(),
        );
        let held: Vec<_> = place.look(&app).resources.iter().map(|r| (r.capacity, r.held)).collect();
        assert_eq!(held, [(1, 1), (0, 2), (3, 2), (2, 1)]);
        assert!(mutex.try_lock().is_err() && semaphore.try_acquire().is_some() && pool.try_get().is_some());
        drop(guards);
        *rwlock.write().unwrap() += 1;
    });
    // Nobody's.
    *mutex.lock().unwrap() += 1;
    let held: Vec<_> = place.look(&app).resources.iter().map(|r| r.held).collect();
    assert_eq!(held, [0, 0, 0, 0]);
    assert_eq!(semaphore.available(), 3);
    drop(task);
    assert!(place.dump(&app).contains("resource=0 gets=1 frees=1"), "{}", place.dump(&app));
}

#[test]
fn who_waits_for_a_lock_is_seen_waiting() {
    let place = Place::new();
    let app = place.open("waits");
    let mutex = Arc::new(sync::Mutex::new(app, "mutex", 0));
    let semaphore = Arc::new(sync::Semaphore::new(app, "semaphore", 1));
    let pool = Arc::new(sync::Pool::new(app, "pool", [1]));
    let (guard, permit, one) = (mutex.lock().unwrap(), semaphore.acquire(), pool.get());
    let waiters: Vec<std::thread::JoinHandle<()>> = {
        let (mutex, semaphore, pool) = (Arc::clone(&mutex), Arc::clone(&semaphore), Arc::clone(&pool));
        let works: [Box<dyn FnOnce() + Send>; 3] = [
            Box::new(move || drop(mutex.lock())),
            Box::new(move || drop(semaphore.acquire())),
            Box::new(move || drop(pool.get())),
        ];
        works.map(|work| std::thread::spawn(move || app.task("waiter").begin().run(work))).into()
    };
    place.until(&app, |look| look.resources.iter().all(|r| r.waiting == 1));
    drop((guard, permit, one));
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    let look = place.look(&app);
    assert!(
        look.tasks.is_empty() && look.resources.iter().all(|r| (r.waiting, r.held) == (0, 0)),
        "{look:?}"
    );
    assert_eq!(place.dump(&app).matches("gets=1 frees=1 slows=1").count(), 3);
}

#[test]
fn a_poisoned_lock_is_as_in_std_and_given_back() {
    let place = Place::new();
    let app = place.open("poison");
    let mutex = sync::Mutex::new(app, "mutex", 0);
    let task = app.task("t").begin();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        task.run(|| {
            let _guard = mutex.lock().unwrap();
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err() && mutex.lock().is_err());
    assert_eq!(place.look(&app).uses[0].held, 0);
}

#[test]
fn requests_end_in_lanes_and_background_tasks_do_not() {
    let place = Place::new();
    let app = place.open("lanes");
    drop(app.task("job").background().begin());
    drop(app.task("request").begin());
    app.task("request").cancellable().begin().finish();
    let dump = place.dump(&app);
    let completed: u64 = dump
        .lines()
        .filter(|line| line.starts_with("lane "))
        .filter_map(|line| line.split_whitespace().find_map(|word| word.strip_prefix("completed=")))
        .map(|n| n.parse::<u64>().unwrap())
        .sum();
    assert_eq!(completed, 2);
}

#[test]
fn what_finds_no_room_goes_on_without() {
    let place = Place::new();
    let app = place.options().room(1, 1, 1).open("full");
    let (first, second) = (app.resource(Kind::Lock, 1, "first"), app.resource(Kind::Lock, 1, "second"));
    assert_eq!((first.index(), second.index()), (Some(0), None));
    let task = app.task("first").begin();
    let refused = app.task("second").on_cancel(|_| ()).begin();
    for task in [&task, &refused] {
        for resource in [first, second] {
            let _held = task.hold(resource, 1);
            task.get(resource, 1);
            task.slow(resource, 1, Duration::MAX);
            task.progress(1, 2);
        }
    }
    assert!(!refused.is_cancelled() && refused.reason().is_none());
    assert!(place.dump(&app).contains("tasks_refused=1 accounts_refused=0 resources_refused=1"));
    drop((task, refused));
    // Another application's resource is not ours.
    let other = place.open("other");
    other.task("t").begin().get(first, 1);
    assert!(!place.dump(&other).contains("gets=1"));
}

/// Whoever may write to the file may write nonsense: the numbers are wrong then, and nothing else is.
#[test]
fn random_bytes_in_the_ledger_do_not_reach_the_application() {
    use std::os::unix::fs::FileExt;
    let seed: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(4);
    println!("SEED={seed}");
    let place = Place::new();
    let app = place.options().room(4, 8, 16).open("spoiled");
    let resources = ["a", "b", "c"].map(|name| app.resource(Kind::Queue, 2, name));
    let file = std::fs::OpenOptions::new().write(true).open(app.ledger().unwrap()).unwrap();
    let length = file.metadata().unwrap().len();
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 20
    };
    for _ in 0..5_000 {
        let task = app.task("t").cancellable().begin();
        for _ in 0..6 {
            let resource = resources[(random() % 3) as usize];
            let held = task.hold(resource, random() % 5);
            let waiting = task.waiting(resource);
            file.write_all_at(&(random() << 20).to_le_bytes(), random() % (length - 8)).unwrap();
            task.get(resource, random());
            task.progress(random(), random());
            drop(waiting.got(1));
            drop(held);
        }
        assert!(!task.is_cancelled());
    }
    assert!(app.problem().is_none());
}

#[test]
fn where_there_can_be_no_ledger_everything_works() {
    let nowhere = Place::new();
    std::fs::write(nowhere.path().join("file"), "").unwrap();
    let app = App::options().directory(nowhere.path().join("file")).open("nowhere");
    assert!(app.problem().is_some_and(|why| why.contains("no directory")), "{:?}", app.problem());
    let wrong = nowhere.options().open("no/name");
    assert!(wrong.problem().is_some_and(|why| why.contains("cannot be the name of an application")));
    for app in [app, wrong, App::unaccounted()] {
        let mutex = sync::Mutex::new(app, "mutex", 1);
        let task = app.task("t").cancellable().rerunnable(|_| ()).begin();
        task.run(|| *mutex.lock().unwrap() += 1);
        task.get(app.resource(Kind::Cpu, 0, "cpu"), 1);
        task.branch().progress(1, 1);
        assert!(!task.is_cancelled() && app.ledger().is_none());
    }
}

#[test]
fn one_name_is_one_application_until_it_is_closed() {
    let place = Place::new();
    let (app, same) = (place.open("once"), place.open("once"));
    assert_eq!(app.resource(Kind::Lock, 1, "a"), same.resource(Kind::Lock, 1, "a"));
    let path = app.ledger().unwrap().to_owned();
    assert!(path.exists());
    app.close();
    assert!(!path.exists());
    let again = place.open("once");
    assert!(again.problem().is_none() && path.exists());
}

#[test]
fn the_clock_ticks_and_exact_is_cleared_while_no_agent_lives() {
    let place = Place::new();
    let app = place.open("clock");
    let ledger = plimsoll_ledger::Ledger::open(app.ledger().unwrap()).unwrap();
    ledger.set_exact(true).unwrap();
    ledger.tick(0).unwrap();
    common::until(|| {
        let dump = place.dump(&app);
        dump.contains("exact=0") && !dump.contains("clock ns=0\n")
    });
}

#[test]
fn a_forked_child_writes_nothing_into_its_parents_ledger() {
    let place = Place::new();
    let app = place.open("fork");
    let table = app.resource(Kind::Lock, 1, "table");
    let task = app.task("parent").begin();
    task.get(table, 1);
    let before = place.account(&app, 0);
    // SAFETY: the child does nothing but writing to memory, and ends without running anybody's handlers.
    match unsafe { libc::fork() } {
        0 => {
            for _ in 0..1_000 {
                task.get(table, 5);
                task.free(table, 2);
            }
            // SAFETY: it ends.
            unsafe { libc::_exit(0) };
        }
        child => {
            let mut status = 1;
            // SAFETY: it is our child.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    assert_eq!(place.account(&app, 0), before);
    task.free(table, 1);
    assert!(place.account(&app, 0).contains("gets=1 frees=1"), "{}", place.account(&app, 0));
}

/// What the next test starts: it ends in order, or does not.
#[test]
#[ignore = "a program for another test"]
fn child_that_ends() {
    let app = App::open("ends");
    println!("LEDGER {}", app.ledger().unwrap().display());
    assert!(app.ledger().unwrap().exists());
}

#[test]
fn the_file_goes_when_the_process_ends() {
    let place = Place::new();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["child_that_ends", "--exact", "--ignored", "--nocapture"])
        .env("PLIMSOLL_DIR", place.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let ledger = text.split("LEDGER ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    assert!(ledger.contains("/ends."), "{ledger}");
    assert!(!std::path::Path::new(&ledger).exists());
}

#[test]
fn many_threads_at_once() {
    let place = Place::new();
    let app = place.options().room(4, 64, 256).open("many");
    let mutex = Arc::new(sync::Mutex::new(app, "mutex", 0_u64));
    let pool = Arc::new(sync::Pool::new(app, "pool", 0..3));
    let _agent = Agent::absent();
    std::thread::scope(|scope| {
        for key in 0..6 {
            let (mutex, pool) = (Arc::clone(&mutex), Arc::clone(&pool));
            scope.spawn(move || {
                for i in 0..2_000 {
                    let task = app.task("t").key(key).cancellable().begin();
                    task.run(|| {
                        let _worker = pool.get();
                        *mutex.lock().unwrap() += 1;
                    });
                    if i % 100 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(*mutex.lock().unwrap(), 12_000);
    let look = place.look(&app);
    assert!(
        look.tasks.is_empty() && look.resources.iter().all(|r| (r.held, r.waiting) == (0, 0)),
        "{look:?}"
    );
    let dump = place.dump(&app);
    for resource in 0..2 {
        let word = format!("resource={resource} ");
        let lines = dump.lines().filter(|line| line.starts_with("account ") && line.contains(&word));
        let sum = |name: &str| -> u64 {
            let words = lines.clone().flat_map(str::split_whitespace);
            words.filter_map(|w| w.strip_prefix(name)).map(|n| n.parse::<u64>().unwrap()).sum()
        };
        assert_eq!((sum("gets="), sum("frees=")), (12_000, 12_000));
    }
}
