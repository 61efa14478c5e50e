//! How much slower programs run that only compute while a herald reads this host ten times a second: pairs of runs with it and without, in
//! turns, and the upper bound of the mean at 95 %. Prints JSON.
//!
//! ```text
//! cargo run --release -p plimsoll-herald --example slowdown -- [PAIRS] [ROUNDS] [IDLE]
//! ```
//! By default 30 pairs of 8 rounds of the suite (a few seconds a run), beside 200 idle threads. The suite runs on every CPU at once; the
//! herald is a process of its own, at its default budget. What counts is how long a run takes, so the machine should be calm.
#![allow(clippy::disallowed_methods)] // it measures time

use std::hash::{DefaultHasher, Hasher};
use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::thread::{Builder, available_parallelism, scope};
use std::time::{Duration, Instant};

use plimsoll_herald::{Herald, Options};

fn main() {
    let mut numbers = std::env::args().skip(1);
    if std::env::args().nth(1).as_deref() == Some("--herald") {
        return herald();
    }
    let mut next = |default: usize| numbers.next().map_or(default, |text| text.parse().expect("a number"));
    let (pairs, rounds, idle) = (next(30), next(8), next(200));
    for _ in 0..idle {
        let thread = Builder::new().stack_size(32 * 1024).spawn(|| {
            loop {
                std::thread::park();
            }
        });
        drop(thread.expect("a thread"));
    }
    suite(rounds);
    let slowdowns: Vec<f64> = (0..pairs)
        .map(|pair| {
            // Each goes first in turn, so that nothing that drifts is taken for a slowdown.
            let run = |with: bool| {
                let beside = with.then(Beside::start);
                std::thread::sleep(Duration::from_millis(300));
                let took = suite(rounds);
                drop(beside);
                took
            };
            let (with, without) = if pair % 2 == 0 {
                let with = run(true);
                (with, run(false))
            } else {
                let without = run(false);
                (run(true), without)
            };
            100.0 * (with / without - 1.0)
        })
        .collect();
    let count = pairs as f64;
    let mean = slowdowns.iter().sum::<f64>() / count;
    let variance = slowdowns.iter().map(|slowdown| (slowdown - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let error = (variance / count).sqrt();
    let mut sorted = slowdowns.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    // Student's t at 97.5 % for 29 degrees of freedom is 2.05; for fewer pairs the bound is somewhat too low.
    println!(
        "{{\"pairs\":{pairs},\"mean_pct\":{mean:.3},\"median_pct\":{:.3},\"upper_95_pct\":{:.3},\"worst_pct\":{:.3}}}",
        sorted[pairs / 2],
        mean + 2.05 * error,
        sorted[pairs - 1],
    );
}

/// The herald, beside the suite.
struct Beside(Child);

impl Beside {
    fn start() -> Beside {
        let program = std::env::current_exe().expect("this program");
        Beside(
            Command::new(program).arg("--herald").stdin(Stdio::piped()).spawn().expect("the herald starts"),
        )
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn herald() {
    let mut herald = Herald::new(Options::default()).expect("a herald");
    loop {
        herald.wait();
        herald.sample();
    }
}

/// How long the suite takes on every CPU at once, in seconds.
fn suite(rounds: usize) -> f64 {
    let began = Instant::now();
    scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(move || {
                for round in 0..rounds as u64 {
                    black_box((sort(round), sieve(), multiply(round), hash(round)));
                }
            });
        }
    });
    began.elapsed().as_secs_f64()
}

fn numbers(seed: u64, count: usize) -> impl Iterator<Item = u64> {
    let step = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(*state >> 16)
    };
    std::iter::repeat_n((), count).scan(seed, move |state, ()| step(state))
}

fn sort(seed: u64) -> u64 {
    let mut all: Vec<u64> = numbers(seed, 1_000_000).collect();
    all.sort();
    all[all.len() / 2]
}

fn sieve() -> usize {
    let mut prime = vec![true; 8_000_000];
    for number in 2..2_829 {
        if prime[number] {
            (number * number..prime.len()).step_by(number).for_each(|multiple| prime[multiple] = false);
        }
    }
    prime.iter().filter(|prime| **prime).count()
}

fn multiply(seed: u64) -> f64 {
    const SIDE: usize = 320;
    let matrix: Vec<f64> = numbers(seed, SIDE * SIDE).map(|number| number as f64 / 1e12).collect();
    let cell = |row: usize, column: usize| -> f64 {
        (0..SIDE).map(|at| matrix[row * SIDE + at] * matrix[at * SIDE + column]).sum()
    };
    (0..SIDE * SIDE).map(|at| cell(at / SIDE, at % SIDE)).sum()
}

fn hash(seed: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    numbers(seed, 12_000_000).for_each(|number| hasher.write_u64(number));
    hasher.finish()
}
