//! What it costs to know: how much slower programs run that only compute while `plimsoll top --record` reads this host ten times a second,
//! and how long it takes to ask how a task fares.
//!
//! Pairs of runs, with it and without, in turns; the suite runs on every CPU at once. What counts is how long a run takes, so the machine
//! should be calm.
#![allow(clippy::disallowed_methods)] // it measures time

use std::hash::{DefaultHasher, Hasher};
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{Builder, available_parallelism, scope};
use std::time::{Duration, Instant};

use plimsoll_herald::{Herald, Options};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};

use crate::processes::{Process, directory};

const PAIRS: usize = 30;
/// Of the suite in a run: a few seconds.
const ROUNDS: u64 = 8;
/// Threads of a host that have nothing to do.
const IDLE: usize = 200;
/// It has begun to read by then.
const BEGINS: Duration = Duration::from_millis(300);
/// Student's t for the mean of so many pairs, at 95 % from both sides.
const T: f64 = 2.05;
const QUERIES: u32 = 100_000;

/// The paper's (section 4.3), and ours, in per cent and microseconds. Its kernel answers a query by looking at all tasks; here they have been
/// looked at when it comes.
const PAPER_SLOWDOWN_PCT: f64 = 0.5;
const PAPER_QUERY_US: f64 = 400.0;
const SLOWDOWN_PCT: f64 = 0.5;
const QUERY_US: f64 = 20.0;

/// The slowdown of a suite that computes, and a query.
pub fn cost(_: Settings) -> Result<Findings, String> {
    for _ in 0..IDLE {
        let thread = Builder::new().stack_size(32 * 1024).spawn(|| {
            loop {
                std::thread::park();
            }
        });
        thread.map_err(|e| format!("cannot start a thread: {e}"))?;
    }
    let directory = directory()?;
    suite();
    let mut slowdowns = Vec::new();
    for pair in 0..PAIRS {
        eprintln!("cost: pair {} of {PAIRS}", pair + 1);
        let record = directory.path().join(pair.to_string());
        // Each goes first in turn, so that nothing that drifts is taken for a slowdown.
        let (with, without) = if pair % 2 == 0 {
            let with = run(Some(&record))?;
            (with, run(None)?)
        } else {
            let without = run(None)?;
            (run(Some(&record))?, without)
        };
        slowdowns.push(100.0 * (with / without - 1.0));
    }
    let mean = slowdowns.iter().sum::<f64>() / PAIRS as f64;
    let query = query_us()?;
    let rows = vec![
        Row::at_most("slowdown of a suite that computes, mean of pairs, %", PAPER_SLOWDOWN_PCT, mean),
        Row::no_more("its upper 95 % bound", SLOWDOWN_PCT, upper(&slowdowns)),
        Row::at_most("a query, us", PAPER_QUERY_US, query),
        Row::no_more("a query, us: our limit", QUERY_US, query),
    ];
    Ok(Findings { rows, figures: Vec::new() })
}

/// The upper bound of the mean at 95 %.
fn upper(slowdowns: &[f64]) -> f64 {
    let count = slowdowns.len() as f64;
    let mean = slowdowns.iter().sum::<f64>() / count;
    let variance = slowdowns.iter().map(|slowdown| (slowdown - mean).powi(2)).sum::<f64>() / (count - 1.0);
    mean + T * (variance / count).sqrt()
}

/// How long the suite takes, in seconds, beside a recording into a new file.
fn run(record: Option<&Path>) -> Result<f64, String> {
    let beside = record.map(recording).transpose()?;
    std::thread::sleep(BEGINS);
    let took = suite();
    drop(beside);
    if let Some(record) = record.filter(|record| !record.exists()) {
        return Err(format!("plimsoll top has recorded nothing into {}", record.display()));
    }
    Ok(took)
}

fn recording(into: &Path) -> Result<Process, String> {
    let program = std::env::current_exe().map_err(|e| format!("where is this program? {e}"))?;
    let mut command = Command::new(program);
    command.args(["top", "--for", "1h", "--record"]).arg(into);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Process::start(command)
}

/// What it takes to ask about one task, in microseconds, of all that there are here.
fn query_us() -> Result<f64, String> {
    let mut herald = Herald::new(Options::default())?;
    for _ in 0..10 {
        herald.wait();
        herald.sample();
    }
    let tasks: Vec<_> = herald.futures().iter().map(|(id, _)| id).collect();
    let began = Instant::now();
    for query in 0..QUERIES as usize {
        black_box(herald.futures().of(&tasks[query * 97 % tasks.len()]));
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(QUERIES))
}

/// How long it takes on every CPU at once, in seconds.
fn suite() -> f64 {
    let began = Instant::now();
    scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(move || {
                for round in 0..ROUNDS {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_grows_with_what_is_uncertain() {
        assert!((upper(&[0.1, 0.1, 0.1]) - 0.1).abs() < 1e-9);
        let even = upper(&[-1.0, 1.0, -1.0, 1.0]);
        assert!((even - 2.05 * (4.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-9, "{even}");
        assert!(upper(&[-3.0, 3.0, -3.0, 3.0]) > even);
    }
}
