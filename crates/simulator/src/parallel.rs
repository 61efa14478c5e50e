//! Independent jobs on all cores, their results in the order of the jobs.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Runs every job, as many at once as there are cores.
pub fn map<T: Sync, R: Send>(jobs: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((i, job)) = Some(next.fetch_add(1, Relaxed)).and_then(|i| Some((i, jobs.get(i)?))) {
            done.push((i, run(job)));
        }
        done
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    });
    results.sort_unstable_by_key(|&(i, _)| i);
    results.into_iter().map(|(_, result)| result).collect()
}
