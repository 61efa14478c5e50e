//! SheepDog: as many workers at once as run without any of them being slowed more than a bound (section 5.3).
//!
//! One implementation for whoever has workers: a gateway, a server's process manager, a thread pool.

use std::ops::RangeInclusive;

use plimsoll_core::Nanos;

use crate::search::{Search, Verdict};

/// The part of the slowing that the bound lets which is aimed at. CPUs are not shared evenly at every moment, and one worker too many is
/// tried now and then; that the pool is somewhat smaller costs nothing while it keeps all CPUs busy.
const AIM: f64 = 0.7;

/// Who wants all of a CPU leaves so many of them no doubt that all CPUs are busy.
const MOST_FIRST: f64 = 4.0;

/// How many workers to begin with on so many CPUs: as many as are slowed to what is aimed at if each wants all of a CPU, or as many as keep all
/// CPUs busy, if those are fewer. Where workers want less, they are as many as may be after a few looks; from too many it takes longer, as each
/// has to end its work first.
pub fn first(cpus: usize, bound: f64) -> i64 {
    (cpus as f64 * aim(bound).min(MOST_FIRST)).round() as i64
}

/// Sizes a pool of workers.
#[derive(Clone, Debug)]
pub struct SheepDog {
    bound: f64,
    search: Search,
}

impl SheepDog {
    /// For a pool of so many workers, from `start` on, none of which is to be slowed more than `bound` times (above 1).
    pub fn new(workers: RangeInclusive<i64>, start: i64, bound: f64) -> SheepDog {
        SheepDog { bound, search: Search::new(workers, start) }
    }

    /// The number of workers that is to be in force.
    pub fn workers(&self) -> i64 {
        self.search.value()
    }

    /// There are to be so many, whatever was found before.
    pub fn resize(&mut self, workers: i64) -> i64 {
        self.search = Search::new(self.search.range(), workers);
        self.workers()
    }

    /// Whether a worker that is slowed so much is slowed more than is aimed at.
    pub fn is_beyond(&self, slowdown: f64) -> bool {
        slowdown > aim(self.bound)
    }

    /// Takes the slowdowns of all workers, with [`SheepDog::workers`] of them in force for long enough to show (predicted ones show it
    /// at once), and returns how many there are to be next. When no worker has anything to do, nothing is learnt. Nor are there to be more while
    /// `more_would_help` is false: where no CPU is idle, more workers only share it.
    pub fn measured(
        &mut self,
        now: Nanos,
        slowdowns: impl IntoIterator<Item = f64>,
        more_would_help: bool,
    ) -> i64 {
        let Some(worst) = slowdowns.into_iter().reduce(f64::max) else { return self.workers() };
        match judge(worst, self.bound) {
            (Verdict::TooLow, _) if !more_would_help => self.workers(),
            (verdict, cost) => self.search.measured(now, verdict, cost),
        }
    }
}

fn aim(bound: f64) -> f64 {
    1.0 + AIM * (bound - 1.0)
}

/// Too many if the worst is beyond what is aimed at, else too few; of two neighbours the one that is not beyond is better.
fn judge(worst: f64, bound: f64) -> (Verdict, f64) {
    let aim = aim(bound);
    if worst > aim { (Verdict::TooHigh, worst / aim - 1.0) } else { (Verdict::TooLow, 0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers that want all of a CPU on `cpus` of them.
    fn run(dog: &mut SheepDog, cpus: f64, from_ms: u64, steps: u64) -> Vec<i64> {
        (0..steps)
            .map(|step| {
                let workers = dog.workers();
                let slowdown = (workers as f64 / cpus).max(1.0);
                dog.measured(
                    Nanos::from_millis(from_ms + 100 * step),
                    (0..workers).map(|w| if w == 0 { slowdown } else { 1.0 }),
                    true,
                )
            })
            .collect()
    }

    #[test]
    fn finds_nearly_as_many_workers_as_the_bound_lets_and_follows_when_that_changes() {
        let mut dog = SheepDog::new(1..=256, 256, 5.0);
        let found = run(&mut dog, 2.0, 0, 60);
        assert!(found[30..].iter().all(|&w| w == 7 || w == 8), "{found:?}");
        let kept = found[30..].iter().filter(|&&w| w == 7).count();
        assert!(kept >= 25, "one too many only for a look: {found:?}");
        let found = run(&mut dog, 4.0, 6_000, 60);
        assert!(found[40..].iter().all(|&w| w == 15 || w == 16), "{found:?}");
        let found = run(&mut dog, 1.0, 12_000, 60);
        assert!(found[40..].iter().all(|&w| w == 3 || w == 4), "{found:?}");
    }

    #[test]
    fn begins_with_about_as_many_as_it_comes_to_where_all_want_cpus() {
        assert_eq!((first(2, 5.0), first(1, 2.0), first(64, 50.0)), (8, 2, 256));
        let mut dog = SheepDog::new(1..=256, first(2, 5.0), 5.0);
        assert!(run(&mut dog, 2.0, 0, 30).iter().all(|&w| (7..=9).contains(&w)));
    }

    #[test]
    fn nothing_to_do_changes_nothing() {
        let mut dog = SheepDog::new(1..=256, 8, 5.0);
        assert_eq!(dog.measured(Nanos::ZERO, [], true), 8);
    }

    #[test]
    fn more_than_keep_all_cpus_busy_only_where_that_helps() {
        let mut dog = SheepDog::new(1..=256, 8, 50.0);
        let mut look = |at_ms, worst, helps| dog.measured(Nanos::from_millis(at_ms), [worst], helps);
        assert!((0..10).all(|i| look(100 * i, 4.0, false) == 8));
        assert_eq!(look(1_000, 4.0, true), 9);
        assert_eq!(look(1_100, 99.0, false), 8, "too many are always too many");
    }
}
