//! Long work: on all cores, with a progress bar on a terminal and the speed at the end.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::Nanos;

use crate::clock::thread_cpu_time;
use crate::parallel;

/// Work that counts the requests it simulates.
pub struct Work {
    bar: ProgressBar,
    requests: AtomicU64,
    cpu_ns: AtomicU64,
}

impl Work {
    /// Nothing yet. Where stderr is no terminal there is no bar.
    pub fn new() -> Work {
        let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {eta} left");
        let bar = ProgressBar::new(0).with_style(style.expect("a valid template"));
        Work { bar, requests: AtomicU64::new(0), cpu_ns: AtomicU64::new(0) }
    }

    /// Runs jobs that simulate so many requests in all. Each tells how many it has simulated since it last told.
    pub fn map<T: Sync, R: Send>(
        &self,
        requests: u64,
        jobs: &[T],
        run: impl Fn(&T, &dyn Fn(u64)) -> R + Sync,
    ) -> Vec<R> {
        self.bar.inc_length(requests);
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

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Says on stderr how fast it was.
    pub fn tell_speed(&self) {
        let (requests, cpu) = (self.requests.load(Relaxed), Nanos(self.cpu_ns.load(Relaxed)));
        if cpu > Nanos::ZERO {
            let per_s = requests as f64 / cpu.as_secs_f64();
            eprintln!("{requests} requests simulated, {:.2} M/s a core", per_s / 1e6);
        }
    }
}
