//! What it costs to know: how much slower programs run that only compute while `plimsoll top --record` reads this host ten times a second,
//! and how long it takes to ask how a task fares.
//!
//! Pairs of runs, with it and without; the suite runs on every CPU at once. A machine that shares its cores with others is half as fast for
//! some seconds, then as fast as it is again. So the two of a pair take turns every tenth of a second, while the recording goes on or is
//! stopped, and of the differences between two turns the middle half counts: who else came or went in between is not among it. How long a run
//! takes by the clock is shown without that, and says little where others use the machine or its host. What counts is processor time: what the
//! suite takes more of it, for caches that were cooled, and all that the recording takes of the CPUs, which the suite would have had. On a
//! machine of which nobody else wants anything the sum is the time by which a run is longer.
#![allow(clippy::disallowed_methods)] // it measures time

use std::hash::{DefaultHasher, Hasher};
use std::hint::black_box;
use std::path::Path;
use std::process::Stdio;
use std::thread::{Builder, available_parallelism, scope};
use std::time::{Duration, Instant};

use plimsoll_herald::{Herald, Options};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};
use rustix::process::Signal;

use super::turns::{mean, middle_half};
use crate::processes::{Process, directory, plimsoll};
use crate::reproduce::machine::ran_s;

const PAIRS: usize = 30;
/// Turns of each run of a pair: the suite once, and with it the reading that has come due meanwhile, and perhaps another. Not longer: between
/// neighbours of half a second a machine that others share differs by five times as much, for the same time in all, as between neighbours of a
/// tenth.
const TURNS: usize = 120;
/// Threads of a host that have nothing to do.
const IDLE: usize = 200;
/// It has found them by then, and knows that they sleep.
const BEGINS: Duration = Duration::from_secs(12);
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
    let record = directory.path().join("record");
    // By BPF where that can be.
    let reader = Herald::new(Options::default())?.cost().reader;
    let mut recording = Recording::start(reader, &record)?;
    // Its memory is there from now on.
    suite(0);
    let (mut slowdowns, mut recorded, mut longer) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=PAIRS {
        let pair = one_pair(&mut recording)?;
        eprintln!("cost: pair {number} of {PAIRS}, slowdown {:.2} %", 100.0 * pair.slowdown);
        slowdowns.push(100.0 * pair.slowdown);
        recorded.push(100.0 * pair.recording);
        longer.push(100.0 * pair.longer);
    }
    drop(recording);
    if !record.exists() {
        return Err(format!("plimsoll top has recorded nothing into {}", record.display()));
    }
    let query = query_us()?;
    let rows = vec![
        Row::at_most(
            format!("slowdown of a suite that computes, mean of pairs, read by {reader}, %"),
            PAPER_SLOWDOWN_PCT,
            mean(&slowdowns),
        ),
        Row::no_more("its upper 95 % bound", SLOWDOWN_PCT, upper(&slowdowns)),
        Row::beside("of the mean, what the recording takes itself", None, Some(mean(&recorded))),
        Row::beside("by the clock, mean, %", None, Some(mean(&longer))),
        Row::beside("by the clock, upper 95 % bound", None, Some(upper(&longer))),
        Row::at_most("a query, us", PAPER_QUERY_US, query),
        Row::no_more("a query, us: our limit", QUERY_US, query),
    ];
    Ok(Findings { rows, figures: Vec::new() })
}

/// The upper bound of the mean at 95 %.
fn upper(slowdowns: &[f64]) -> f64 {
    let (count, mean) = (slowdowns.len() as f64, mean(slowdowns));
    let variance = slowdowns.iter().map(|slowdown| (slowdown - mean).powi(2)).sum::<f64>() / (count - 1.0);
    mean + T * (variance / count).sqrt()
}

/// How much more it was with the recording, as parts of what it was without.
struct Pair {
    /// Processor time.
    slowdown: f64,
    /// Of that, what the recording has had.
    recording: f64,
    /// Time by the clock.
    longer: f64,
}

/// With the recording, and without it.
fn one_pair(recording: &mut Recording) -> Result<Pair, String> {
    let (mut took_s, mut suite_s, mut recording_s) = ([0.0; 2], [0.0; 2], 0.0);
    let mut more = Vec::new();
    for turn in 0..TURNS {
        // Each goes first in turn, so that nothing that drifts is taken for a slowdown.
        let with_first = turn % 2 == 0;
        let mut of_turn = [0.0; 2];
        for reads in [with_first, !with_first] {
            recording.goes_on(reads)?;
            let used_before = recording.used_s();
            let (took, suite) = suite(turn as u64);
            recording_s += recording.used_s() - used_before;
            took_s[usize::from(reads)] += took;
            suite_s[usize::from(reads)] += suite;
            of_turn[usize::from(reads)] = suite;
        }
        more.push(of_turn[1] / of_turn[0] - 1.0);
    }
    let recording = recording_s / suite_s[0];
    Ok(Pair { slowdown: middle_half(more) + recording, recording, longer: took_s[1] / took_s[0] - 1.0 })
}

/// `plimsoll top --record`.
struct Recording(Process);

impl Recording {
    fn start(reader: &str, into: &Path) -> Result<Recording, String> {
        let mut command = plimsoll()?;
        command.args(["top", "--for", "1h", "--reader", reader, "--record"]).arg(into);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(command)?;
        std::thread::sleep(BEGINS);
        Ok(Recording(process))
    }

    /// Lets it read on, or stops it.
    fn goes_on(&mut self, goes_on: bool) -> Result<(), String> {
        let signal = if goes_on { Signal::CONT } else { Signal::STOP };
        self.0.signal(signal).map_err(|e| format!("cannot stop plimsoll top, or let it go on: {e}"))
    }

    /// Processor time that it has had, in seconds.
    fn used_s(&self) -> f64 {
        ran_s(self.0.id()).unwrap_or(0.0)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // One that is stopped does not end.
        let _ = self.goes_on(true);
    }
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

/// How long it takes on every CPU at once, and the processor time that it has had, in seconds.
fn suite(seed: u64) -> (f64, f64) {
    let began = Instant::now();
    let of_one = |_| {
        black_box((sort(seed), sieve(), multiply(seed), hash(seed)));
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
    };
    let used_s = scope(|scope| {
        let cpus = 0..available_parallelism().map_or(1, usize::from);
        let running: Vec<_> = cpus.map(|cpu| scope.spawn(move || of_one(cpu))).collect();
        running.into_iter().map(|one| one.join().unwrap_or(f64::NAN)).sum()
    });
    (began.elapsed().as_secs_f64(), used_s)
}

fn numbers(seed: u64, count: usize) -> impl Iterator<Item = u64> {
    let step = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(*state >> 16)
    };
    std::iter::repeat_n((), count).scan(seed, move |state, ()| step(state))
}

fn sort(seed: u64) -> u64 {
    let mut all: Vec<u64> = numbers(seed, 700_000).collect();
    all.sort();
    all[all.len() / 2]
}

fn sieve() -> usize {
    let mut prime = vec![true; 6_000_000];
    for number in 2..2_450 {
        if prime[number] {
            (number * number..prime.len()).step_by(number).for_each(|multiple| prime[multiple] = false);
        }
    }
    prime.iter().filter(|prime| **prime).count()
}

fn multiply(seed: u64) -> f64 {
    const SIDE: usize = 280;
    let matrix: Vec<f64> = numbers(seed, SIDE * SIDE).map(|number| number as f64 / 1e12).collect();
    let cell = |row: usize, column: usize| -> f64 {
        (0..SIDE).map(|at| matrix[row * SIDE + at] * matrix[at * SIDE + column]).sum()
    };
    (0..SIDE * SIDE).map(|at| cell(at / SIDE, at % SIDE)).sum()
}

fn hash(seed: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    numbers(seed, 8_000_000).for_each(|number| hasher.write_u64(number));
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
