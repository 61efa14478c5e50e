//! Long work: on all cores, with a progress bar on a terminal and the speed at the end.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::Nanos;

use super::clock::thread_cpu_time;
use crate::parallel;

/// Requests that take about a second; less needs no bar.
const WORTH_A_BAR: u64 = 10_000_000;

/// Work that counts the requests it simulates.
pub struct Work {
    bar: ProgressBar,
    requests: AtomicU64,
    cpu_ns: AtomicU64,
}

impl Work {
    /// Of about this many requests in all.
    pub fn new(requests: u64) -> Work {
        let bar = if requests >= WORTH_A_BAR && std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {eta} left");
            ProgressBar::new(requests).with_style(style.expect("a valid template"))
        } else {
            ProgressBar::hidden()
        };
        Work { bar, requests: AtomicU64::new(0), cpu_ns: AtomicU64::new(0) }
    }

    /// Runs the jobs, each of which tells how many requests it has simulated since it last told.
    pub fn map<T: Sync, R: Send>(&self, jobs: &[T], run: impl Fn(&T, &dyn Fn(u64)) -> R + Sync) -> Vec<R> {
        parallel::map(jobs, |job| {
            let began = thread_cpu_time();
            let result = run(job, &|requests| {
                self.requests.fetch_add(requests, Relaxed);
                self.bar.inc(requests);
            });
            self.cpu_ns.fetch_add((thread_cpu_time() - began).0, Relaxed);
            result
        })
    }

    /// Takes the bar away and says how fast it was, on stderr.
    pub fn finish(self) {
        self.bar.finish_and_clear();
        let (requests, cpu) = (self.requests.into_inner(), Nanos(self.cpu_ns.into_inner()));
        if cpu > Nanos::ZERO {
            let per_s = requests as f64 / cpu.as_secs_f64();
            eprintln!("{requests} requests simulated, {:.2} M/s a core", per_s / 1e6);
        }
    }
}
