//! What a look costs: tasks that all live, each with accounts at some resources, one of which it holds and one it waits for.
//!
//! ```text
//! cargo bench -p plimsoll-ledger --bench scan          # microseconds a look: least, median, worst
//! ```
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use plimsoll_ledger::layout::{Kind, Shape};
use plimsoll_ledger::{Begin, Create, Ledger, Look, Writer};

const RESOURCES: u32 = 64;
const CASES: [(u32, u32); 4] = [(64, 4), (4096, 4), (4096, 16), (100_000, 4)];

fn main() {
    // `cargo test --benches` runs this without `--bench`: enough that nothing panics.
    let looks = if std::env::args().any(|argument| argument == "--bench") { 300 } else { 3 };
    for (tasks, accounts) in CASES {
        let directory =
            tempfile::Builder::new().tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let shape =
            Shape { resources: RESOURCES, lanes: 8, tasks: tasks.max(4096), accounts: tasks * accounts };
        let create = Create { app: "scan", shape, ..Create::in_directory(directory.path(), 1) };
        let app = Writer::create(&create).unwrap();
        fill(&app, tasks, accounts);
        let mut ledger = Ledger::open(app.path()).unwrap();
        let mut look = Look::default();
        let mut us: Vec<f64> = (0..looks)
            .map(|i| {
                let before = Instant::now();
                ledger.look(10_000_000 * (i + 1), &mut look).unwrap();
                black_box(&look);
                before.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        assert_eq!((look.tasks.len(), look.uses.len()), (tasks as usize, (tasks * accounts) as usize));
        us.sort_by(f64::total_cmp);
        let (least, median, worst) = (us[0], us[us.len() / 2], us[us.len() - 1]);
        println!(
            "{tasks:>6} tasks x {accounts:>2} accounts: {least:>7.0} {median:>7.0} {worst:>7.0} us a look"
        );
    }
}

fn fill(app: &Writer, tasks: u32, accounts: u32) {
    for i in 0..RESOURCES {
        app.resource(Kind::Lock, 1, &format!("resource {i}")).unwrap();
    }
    let begun: Vec<_> = (0..tasks)
        .map(|key| {
            app.begin(&Begin { key: key.into(), started_ns: 1, label: "GET /item", ..Begin::default() })
                .unwrap()
        })
        .collect();
    // As they come in life: accounts of one task are not neighbours.
    for j in 0..accounts {
        for (i, &task) in begun.iter().enumerate() {
            let account = app.account(task, ((i as u32 * 7 + j * 5) % RESOURCES) as u16).unwrap();
            if j == 0 {
                account.get(1, || 1);
            } else if j == 1 {
                account.wait(|| 1);
            }
        }
    }
}
