//! How fast this machine is from moment to moment. One that shares its cores with others may be half as fast for some seconds, and no counter
//! of its own tells: time that others have is counted as this machine's.
//!
//! What others take depends on the work. A chain of multiplications, each of which waits for the one before, hardly notices who runs on the
//! other half of its core; an interpreter loses a third. So the small task is what an interpreter does: over 80 s in which PHP's speed differed
//! by 5.4 % (the standard deviation of windows of 10 s), speed times the task differed by 0.7 %; with such a chain by 4.9 %.
#![allow(clippy::disallowed_methods)] // it takes turns with what is measured

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_herald::clock;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Loops of a task: half a millisecond or so, two per cent of a CPU.
const LOOPS: u64 = 30_000;
const BETWEEN: Duration = Duration::from_millis(25);

/// When each task was done, and how much CPU time it took, in nanoseconds.
type Tasks = Vec<(Nanos, u64)>;

/// A thread on each CPU that does the same small task again and again.
pub struct Probe {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Tasks>>,
}

impl Probe {
    /// Begins.
    ///
    /// # Errors
    /// Where no threads can be had.
    pub fn start() -> Result<Probe, String> {
        let mut probe = Probe { ends: Arc::default(), threads: Vec::new() };
        for cpu in 0..available_parallelism().map_or(1, usize::from) {
            let ends = Arc::clone(&probe.ends);
            let thread = Builder::new().spawn(move || {
                // Where it may not choose its CPU, one is as good as the other.
                let mut own = CpuSet::new();
                own.set(cpu);
                let _ = sched_setaffinity(None, &own);
                let mut tasks = Tasks::new();
                while !ends.load(Ordering::Relaxed) {
                    tasks.push((clock::now(), task_ns()));
                    std::thread::sleep(BETWEEN);
                }
                tasks
            });
            probe.threads.push(thread.map_err(|e| format!("cannot start a thread: {e}"))?);
        }
        Ok(probe)
    }

    /// Ends, and tells how fast it was.
    pub fn end(mut self) -> Speed {
        self.ends.store(true, Ordering::Relaxed);
        Speed(self.threads.drain(..).filter_map(|thread| thread.join().ok()).flatten().collect())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// How fast the machine was.
pub struct Speed(Tasks);

impl Speed {
    /// CPU time of a task that was begun from one moment to another, the mean of all CPUs', in nanoseconds.
    pub fn task_ns(&self, from: Nanos, to: Nanos) -> f64 {
        let within =
            self.0.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, took_ns)| *took_ns as f64);
        let (count, sum) = within.fold((0.0, 0.0), |(count, sum), took_ns| (count + 1.0, sum + took_ns));
        sum / count
    }
}

/// What the task takes now.
fn task_ns() -> u64 {
    let own_ns = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let before = own_ns();
    interpret(black_box(&PROGRAM), black_box(LOOPS));
    own_ns() - before
}

/// An instruction: what comes of two values goes into the first place.
#[derive(Clone, Copy)]
enum Op {
    Multiply(usize, usize, usize),
    Add(usize, usize, usize),
    Remainder(usize, usize, usize),
    Less(usize, usize, usize),
    /// Begins anew where this place is not 0.
    Again(usize),
}

/// `do { x = (x * 31 + i) % 1000003; i = i + 1; } while (i < n);`, with x, i, 31, 1000003, 1 and n at the first places.
const PROGRAM: [Op; 6] = [
    Op::Multiply(6, 0, 2),
    Op::Add(6, 6, 1),
    Op::Remainder(0, 6, 3),
    Op::Add(1, 1, 4),
    Op::Less(7, 1, 5),
    Op::Again(7),
];

/// A value, and that it is a number.
#[derive(Clone, Copy)]
struct Value {
    is_number: bool,
    value: u64,
}

/// Returns x.
fn interpret(program: &[Op], n: u64) -> u64 {
    let number = |value| Value { is_number: true, value };
    let mut places = [1, 0, 31, 1_000_003, 1, n, 0, 0].map(number);
    let mut next = 0;
    while let Some(op) = program.get(next) {
        next += 1;
        let (into, value) = match *op {
            Op::Again(place) => {
                if places[place].value != 0 {
                    next = 0;
                }
                continue;
            }
            Op::Multiply(into, a, b) => (into, both(&places, a, b, u64::wrapping_mul)),
            Op::Add(into, a, b) => (into, both(&places, a, b, u64::wrapping_add)),
            Op::Remainder(into, a, b) => (into, both(&places, a, b, |a, b| a.checked_rem(b).unwrap_or(0))),
            Op::Less(into, a, b) => (into, both(&places, a, b, |a, b| u64::from(a < b))),
        };
        places[into] = value;
    }
    black_box(places)[0].value
}

fn both(places: &[Value; 8], a: usize, b: usize, of: impl Fn(u64, u64) -> u64) -> Value {
    let (a, b) = (places[a], places[b]);
    Value { is_number: a.is_number && b.is_number, value: of(a.value, b.value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_moment_has_a_speed_while_it_is_looked_at() {
        let from = clock::now();
        let probe = Probe::start().unwrap();
        std::thread::sleep(4 * BETWEEN);
        let to = clock::now();
        let speed = probe.end();
        assert!(speed.task_ns(from, to) > 0.0);
        assert!(speed.task_ns(Nanos::ZERO, from).is_nan(), "it had not begun");
    }

    #[test]
    fn the_program_is_interpreted() {
        let x = (0..1_000).fold(1, |x, i| (x * 31 + i) % 1_000_003);
        assert_eq!(interpret(&PROGRAM, 1_000), x);
    }
}
