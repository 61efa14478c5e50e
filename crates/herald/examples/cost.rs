//! What the herald costs: starts idle threads and a few busy ones, reads them by both readers, and prints a line for each.
//!
//! `cargo run --release -p plimsoll-herald --features bpf --example cost -- [IDLE] [BUSY] [SECONDS] [BUDGET] [READER]`, by default 1000 idle threads,
//! 2 busy ones at the lowest priority, 5 seconds for each reader and a budget that never holds it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

use plimsoll_herald::{Herald, Options, Reader};

fn main() {
    let mut numbers = std::env::args().skip(1);
    let mut next = |default: f64| numbers.next().map_or(default, |text| text.parse().expect("a number"));
    let (idle, busy, seconds, budget) = (next(1_000.0) as usize, next(2.0) as usize, next(5.0), next(1.0));
    let period = Duration::from_secs_f64(
        std::env::var("PERIOD_MS").map_or(0.1, |ms| ms.parse::<f64>().unwrap() / 1e3),
    );
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for number in 0..idle + busy {
        let stop = Arc::clone(&stop);
        let thread = Builder::new().stack_size(32 * 1024).spawn(move || {
            // Nobody fails to run at a lower priority.
            let _ = rustix::process::setpriority_process(None, 19);
            while !stop.load(Ordering::Relaxed) {
                if number < idle { std::thread::park() } else { std::hint::spin_loop() }
            }
        });
        threads
            .push(thread.expect("a thread; `ulimit -u` and the cgroup's pids.max say how many there may be"));
    }
    println!("reader threads readings period_ms us_per_reading ns_per_thread cpu_pct");
    let only = std::env::args().nth(5);
    for (name, reader) in [("pread", Reader::Pread), ("bpf", Reader::Bpf)] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        match Herald::new(Options { reader, budget, period }) {
            Ok(herald) => measure(herald, seconds),
            Err(why) => println!("{reader:?}: {why}"),
        }
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.thread().unpark();
        let _ = thread.join();
    }
}

fn measure(mut herald: Herald, seconds: f64) {
    let (mut cpu, mut passed, mut readings) = (Duration::ZERO, Duration::ZERO, 0);
    // Until those who sleep are known to, and to have for long.
    for _ in 0..120 {
        herald.wait();
        herald.sample();
    }
    while passed.as_secs_f64() < seconds {
        herald.wait();
        herald.sample();
        let cost = herald.cost();
        (cpu, passed, readings) = (cpu + cost.last, passed + cost.period, readings + 1);
    }
    let threads = herald.tasks().len();
    let per_reading_us = cpu.as_secs_f64() * 1e6 / f64::from(readings);
    println!(
        "{} {threads} {readings} {:.1} {per_reading_us:.1} {:.0} {:.3}",
        herald.cost().reader,
        passed.as_secs_f64() * 1e3 / f64::from(readings),
        per_reading_us * 1e3 / threads as f64,
        100.0 * cpu.as_secs_f64() / passed.as_secs_f64(),
    );
}
