//! What the engine's thread costs a program: the share of a processor that it took over ten seconds, at rest (nothing runs), in calm (requests and many
//! tasks that wait for nothing) and under an overload that lasts, because it is only watched in shadow.
//!
//! `cargo bench -p plimsoll-engine --bench cost`

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{park_timeout, spawn};
use std::time::Duration;

use plimsoll_engine::{Engine, clock};
use plimsoll_sdk::App;
use plimsoll_sdk::sync::Mutex;

fn pause(ms: u64) {
    park_timeout(Duration::from_millis(ms));
}

/// What the engine's thread ran so far, in ns.
fn ran_ns() -> u64 {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten().map(|thread| thread.path());
    let is_engine = |comm: String| comm.trim_end() == "plimsoll-engine";
    let mut engines = threads.filter(|thread| fs::read_to_string(thread.join("comm")).is_ok_and(is_engine));
    let schedstat = fs::read_to_string(engines.next().unwrap().join("schedstat")).unwrap();
    schedstat.split(' ').next().unwrap().parse().unwrap()
}

/// The share of a processor over the next ten seconds, in per cent.
fn share_pct() -> f64 {
    let (began, ran) = (clock::now(), ran_ns());
    pause(10_000);
    100.0 * (ran_ns() - ran) as f64 / clock::now().since(began).0 as f64
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[app.shop]\nslo = { p99 = \"50ms\" }\nmode = \"shadow\"";
    let engine = Engine::of_config(config, "shop").unwrap();
    let (app, engine) = engine.open(App::options().directory(dir.path()));
    pause(1_000);
    let rest = share_pct();

    let stop = Arc::new(AtomicBool::new(false));
    let table = Arc::new(Mutex::new(app, "table", ()));
    let idle: Vec<_> = (0..200).map(|_| app.task("WAIT /news").background().begin()).collect();
    let request = |stop: Arc<AtomicBool>, table: Arc<Mutex<()>>| {
        move || {
            while !stop.load(Ordering::Relaxed) {
                app.task("GET /item").cancellable().begin().run(|| drop(table.lock().unwrap()));
                pause(2);
            }
        }
    };
    let threads: Vec<_> = (0..4).map(|_| spawn(request(Arc::clone(&stop), Arc::clone(&table)))).collect();
    pause(1_000);
    let calm = share_pct();

    let dump = app.task("POST /dump").cancellable().begin();
    let overload = dump.run(|| {
        let _rows = table.lock().unwrap();
        pause(1_000);
        share_pct()
    });
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop((idle, dump, engine));
    app.close();
    println!("{{\"rest_pct\": {rest:.3}, \"calm_pct\": {calm:.3}, \"overload_pct\": {overload:.3}}}");
}
