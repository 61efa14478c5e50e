//! How fast this machine is from moment to moment. One that shares its cores with others may be half as fast for some seconds, and no counter
//! of its own tells: time that others have is counted as this machine's.
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

/// Steps of a task: half a millisecond or so, two per cent of a CPU.
const STEPS: u64 = 300_000;
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
    black_box((0..black_box(STEPS)).fold(1_u64, |x, step| (x * 31 + step) % 1_000_003));
    own_ns() - before
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
}
