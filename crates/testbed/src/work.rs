//! What serving costs: CPU time or waiting time.

use std::hint::black_box;

use plimsoll_core::Nanos;

use crate::clock::{self, Clock};

/// How a server spends its service times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum WorkKind {
    /// Computes, so that servers compete for the machine's CPUs.
    Cpu,
    /// Sleeps, so that a machine can hold more servers than it has CPUs.
    Wait,
}

impl WorkKind {
    /// As the command line and the ready line write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            WorkKind::Cpu => "cpu",
            WorkKind::Wait => "wait",
        }
    }
}

/// Spends service times on the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    clock: Clock,
    /// Of the calibrated loop; `None` waits.
    rounds_per_ns: Option<f64>,
}

impl Work {
    /// Work of this kind. `Cpu` first measures the machine for some 50 ms.
    ///
    /// The amount is fixed here once, not timed at each request: on a CPU that is shared or slowed down, a
    /// request then takes longer, as real work does.
    pub fn new(kind: WorkKind) -> Work {
        let rounds_per_ns = match kind {
            WorkKind::Cpu => Some(calibrate()),
            WorkKind::Wait => None,
        };
        Work { clock: Clock::start(), rounds_per_ns }
    }

    /// Takes `span` of CPU time (at the speed found by calibration) or of waiting.
    pub fn spend(&self, span: Nanos) {
        match self.rounds_per_ns {
            Some(rate) => compute((span.0 as f64 * rate) as u64),
            None => self.clock.sleep_until(self.clock.now() + span),
        }
    }
}

/// Rounds of [`compute`] a nanosecond of CPU time. The fastest of several samples is the one that was
/// disturbed least by caches, clocks stepping up and neighbours.
fn calibrate() -> f64 {
    const SAMPLES: u32 = 8;
    const SAMPLE: Nanos = Nanos::from_millis(6);
    let mut rounds = 10_000;
    let mut best = 0.0_f64;
    let mut taken = 0;
    while taken < SAMPLES {
        let start = clock::thread_cpu();
        compute(rounds);
        let cpu = clock::thread_cpu().since(start);
        if cpu < SAMPLE {
            rounds *= 2;
        } else {
            best = best.max(rounds as f64 / cpu.0 as f64);
            taken += 1;
        }
    }
    best
}

/// A chain of dependent integer operations: no memory, no vectors, nothing to optimise away.
pub(crate) fn compute(rounds: u64) {
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..rounds {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x = black_box(x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_takes_the_cpu_time_it_was_calibrated_for() {
        let work = Work::new(WorkKind::Cpu);
        let span = Nanos::from_millis(20);
        let start = clock::thread_cpu();
        work.spend(span);
        let used = clock::thread_cpu().since(start).as_millis_f64();
        assert!((10.0..200.0).contains(&used), "20 ms of work took {used} ms of CPU");
    }

    #[test]
    fn waiting_takes_time_but_no_cpu() {
        let work = Work::new(WorkKind::Wait);
        let (clock, cpu) = (Clock::start(), clock::thread_cpu());
        work.spend(Nanos::from_millis(20));
        assert!(clock.now() >= Nanos::from_millis(20));
        assert!(clock::thread_cpu().since(cpu) < Nanos::from_millis(10));
    }
}
