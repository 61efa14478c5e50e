//! What an event costs: a get and a free in calm (over and over at one resource, at two nested ones, and where the account is looked up) and with
//! exact times, a task with nothing in it, and a mutex with and without
//! an account, for scale. One thread, nobody else at the ledger.
//!
//! ```text
//! cargo bench -p plimsoll-sdk --bench events          # one line of JSON: nanoseconds, the median of 201 short runs
//! ```
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads the clock, and compares with std"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll_ledger::Ledger;
use plimsoll_sdk::{App, Kind, sync};

const RUNS: usize = 201;

/// Nanoseconds that one call of `work` takes: the median of runs.
fn ns(calls: u32, mut work: impl FnMut()) -> f64 {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            for _ in 0..calls {
                work();
            }
            began.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

fn main() {
    // `cargo test --benches` runs this without `--bench`: enough that nothing panics.
    let timed = std::env::args().any(|argument| argument == "--bench");
    let (many, some) = if timed { (50_000, 5_000) } else { (10, 10) };
    let directory = tempfile::Builder::new().tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let app = App::options().directory(directory.path()).open("bench");
    let table = app.resource(Kind::Lock, 1, "table");
    let others: Vec<_> = (0..3).map(|i| app.resource(Kind::Queue, 8, &format!("other {i}"))).collect();
    let task = app.task("bench").begin();
    task.get(table, 1);
    task.free(table, 1);
    task.get(others[0], 1);
    task.free(others[0], 1);

    let at = task.at(table);
    let pair = || {
        at.get(1);
        at.free(1);
    };
    let looked_up = || {
        task.get(black_box(table), 1);
        task.free(black_box(table), 1);
    };
    // As in life: a worker, and a lock. In the loop above each event waits for the processor to give back what the one before it wrote.
    let worker = task.at(others[0]);
    let nested = || {
        worker.get(1);
        at.get(1);
        at.free(1);
        worker.free(1);
    };
    let calm_ns = ns(many, pair);
    let calm_nested_ns = ns(many, nested) / 2.0;
    let calm_looked_up_ns = ns(many, looked_up);
    let ledger = Ledger::open(app.ledger().expect("a ledger")).expect("its own");
    // As an agent that lives: nobody clears what it asks for.
    let exact = |exact| {
        ledger.beat(u64::MAX >> 1).expect("to write");
        ledger.set_exact(exact).expect("to write");
    };
    exact(true);
    if timed {
        // Until the exact clock has found its rate.
        std::thread::sleep(Duration::from_millis(1500));
    }
    let exact_ns = ns(many / 4, pair);
    exact(false);
    let task_ns = ns(some, || drop(black_box(app.task("GET /item").key(7).begin())));
    let task_with_use_ns = ns(some, || {
        let task = app.task("GET /item").key(7).cancellable().begin();
        for &resource in &others {
            task.get(resource, 1);
        }
        drop(black_box(task));
    });
    let plain = std::sync::Mutex::new(0_u64);
    let tracked = sync::Mutex::new(app, "tracked", 0_u64);
    let mutex_ns = ns(many, || *plain.lock().expect("nobody panics") += 1);
    let tracked_ns = task.run(|| ns(many, || *tracked.lock().expect("nobody panics") += 1));
    let nobody = sync::Mutex::new(App::unaccounted(), "nobody", 0_u64);
    let unaccounted_ns = task.run(|| ns(many, || *nobody.lock().expect("nobody panics") += 1));
    black_box((&plain, &tracked, &nobody));
    println!(
        "{{\"lang\":\"rust\",\"calm_ns\":{calm_ns:.2},\"calm_nested_ns\":{calm_nested_ns:.2},\"calm_looked_up_ns\":{calm_looked_up_ns:.2},\"exact_ns\":{exact_ns:.2},\"task_ns\":{task_ns:.1},\
         \"task_three_uses_ns\":{task_with_use_ns:.1},\"mutex_ns\":{mutex_ns:.2},\"tracked_mutex_ns\":{tracked_ns:.2},\
         \"tracked_mutex_unaccounted_ns\":{unaccounted_ns:.2}}}"
    );
    app.close();
}
