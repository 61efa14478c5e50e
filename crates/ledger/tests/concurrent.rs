//! A reader that comes at any moment sees less than happened, never more: threads write at random while one looks.
//!
//! Time is a counter that every event moves on, so what really happened is known exactly.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plimsoll_ledger::layout::{Kind, Shape};
use plimsoll_ledger::{Activity, Begin, Create, Ledger, Look, Writer};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const RESOURCES: usize = 3;
const THREADS: u64 = 4;
const ROUNDS: u64 = 3_000;

/// Time that passes with what is done.
struct Clock(AtomicU64);

impl Clock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn passes(&self, ns: u64) -> u64 {
        self.0.fetch_add(ns, Ordering::SeqCst) + ns
    }
}

/// What one thread does, and what it did.
fn work(app: &Writer, clock: &Clock, seed: u64) -> [Activity; RESOURCES] {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut did = [Activity::default(); RESOURCES];
    for key in 0..ROUNDS {
        let started_ns = clock.passes(1);
        let begin = Begin { key, flags: 1, started_ns, label: "task", ..Begin::default() };
        let Some(task) = app.begin(&begin) else { continue };
        let resource = random.random_range(0..RESOURCES);
        let did = &mut did[resource];
        if let Some(account) = app.account(task, resource as u16) {
            let (mut held, mut holding_since, mut waiting_since) = (0, 0, 0);
            // A thread may sleep between taking the time and saying so: what ends has ended when that is said.
            let mut end_wait = |waiting_since: &mut u64| {
                if *waiting_since != 0 {
                    did.wait_ns += clock.now() - *waiting_since;
                    *waiting_since = 0;
                }
            };
            for _ in 0..random.random_range(0..8) {
                let now = clock.passes(random.random_range(1..1_000));
                let n = random.random_range(1..4);
                match random.random_range(0..4) {
                    0 if waiting_since == 0 => {
                        account.wait(|| now);
                        waiting_since = now;
                        did.slows += 1;
                    }
                    1 => {
                        account.unwait(|| now);
                        end_wait(&mut waiting_since);
                    }
                    2 => {
                        account.get(n, || now);
                        end_wait(&mut waiting_since);
                        did.gets += n;
                        if held == 0 {
                            holding_since = now;
                        }
                        held += n;
                    }
                    _ if held > 0 => {
                        account.free(n, || now);
                        let n = n.min(held);
                        held -= n;
                        did.frees += n;
                        if held == 0 {
                            did.hold_ns += clock.now() - holding_since;
                        }
                    }
                    _ => {}
                }
            }
            account.end(clock.passes(1));
            end_wait(&mut waiting_since);
            if held > 0 {
                did.frees += held;
                did.hold_ns += clock.now() - holding_since;
            }
        }
        app.end(task);
        app.complete(seed as u32, clock.passes(1) - started_ns, key % 7 == 0);
    }
    did
}

fn plus(a: Activity, b: Activity) -> Activity {
    Activity {
        gets: a.gets + b.gets,
        frees: a.frees + b.frees,
        slows: a.slows + b.slows,
        wait_ns: a.wait_ns + b.wait_ns,
        hold_ns: a.hold_ns + b.hold_ns,
    }
}

#[test]
fn a_reader_sees_less_than_happened_and_never_more() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(4);
    println!("SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    // Fewer records than threads would like.
    let shape = Shape { resources: 4, lanes: 2, tasks: 3, accounts: 6 };
    let app =
        Writer::create(&Create { app: "a", shape, ..Create::in_directory(directory.path(), 1) }).unwrap();
    for (i, name) in ["lock", "queue", "cache"].into_iter().enumerate() {
        assert_eq!(app.resource(Kind::Lock, 1, name), Some(i as u16));
    }
    let (clock, done) = (Clock(AtomicU64::new(1)), AtomicBool::new(false));
    let mut ledger = Ledger::open(app.path()).unwrap();
    let mut look = Look::default();
    ledger.look(1, &mut look).unwrap();

    let mut did = [Activity::default(); RESOURCES];
    let mut looks = 0;
    std::thread::scope(|scope| {
        let (app, clock, done) = (&app, &clock, &done);
        let threads: Vec<_> =
            (0..THREADS).map(|i| scope.spawn(move || work(app, clock, seed * THREADS + i))).collect();
        let looker = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                // Before what is read: what is counted up to now has happened when it is read.
                let now = clock.now();
                ledger.look(now, &mut look).unwrap();
                looks += 1;
                for one in &look.uses {
                    let task = &look.tasks[one.task as usize];
                    assert!(
                        one.window.hold_ns <= look.since_ns.min(now - task.started_ns),
                        "{one:?} of {task:?}"
                    );
                    assert!(one.total.hold_ns <= now - task.started_ns, "{one:?} of {task:?}");
                    assert!(task.started_ns <= now && one.holding_since_ns <= now, "{one:?} of {task:?}");
                }
            }
        });
        for thread in threads {
            for (sum, more) in did.iter_mut().zip(thread.join().unwrap()) {
                *sum = plus(*sum, more);
            }
        }
        done.store(true, Ordering::Release);
        looker.join().unwrap();
    });
    ledger.look(clock.passes(1), &mut look).unwrap();

    println!("{looks} looks; refused: {:?}", app.refused());
    assert!(look.tasks.is_empty() && look.uses.is_empty());
    for (resource, did) in look.resources.iter().zip(did) {
        let saw = resource.total;
        assert_eq!((saw.gets, saw.frees, saw.slows), (did.gets, did.frees, did.slows), "{resource:?}");
        assert!(saw.hold_ns <= did.hold_ns && saw.wait_ns <= did.wait_ns, "saw {saw:?}, did {did:?}");
        assert!(saw.hold_ns > 0 && saw.wait_ns > 0, "{saw:?}");
    }
    let (tasks_refused, ..) = app.refused();
    assert_eq!(look.total.completed + tasks_refused, THREADS * ROUNDS);
    assert_eq!(look.total.completed, look.total.cancelled + look.total.bins.iter().sum::<u64>());
}
