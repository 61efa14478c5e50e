//! The same for a pool whose workers are of other processes, as those of a server that forks: whoever keeps their number is told how many
//! may work at once, and has to see to it.

use std::ops::RangeInclusive;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::sheepdog;

use super::threads::Threads;
use crate::clock;

/// Sizes a pool of workers that it does not keep.
#[derive(Debug)]
pub struct Herd {
    dog: sheepdog::SheepDog,
    max_slowdown: f64,
    threads: Threads,
    looked_at: Nanos,
}

impl Herd {
    /// For a pool of which so many may work at once, none of them slowed more than `max_slowdown` times (above 1). All may, to begin with.
    pub fn new(workers: RangeInclusive<u32>, max_slowdown: f64) -> Herd {
        let (least, most) = ((*workers.start()).max(1), (*workers.end()).max(1));
        let range = i64::from(least.min(most))..=i64::from(most);
        Herd {
            dog: sheepdog::SheepDog::new(range, i64::from(most), max_slowdown),
            max_slowdown,
            threads: Threads::default(),
            looked_at: clock::now(),
        }
    }

    /// How many may work at once from now on. To be called a few times a second, with all workers by their thread's number and whether they are at
    /// work; and whether anybody has had to wait for a place since the last time.
    pub fn look(&mut self, workers: impl IntoIterator<Item = (i32, bool)>, held_back: bool) -> u32 {
        let now = clock::now();
        workers.into_iter().for_each(|(tid, working)| self.threads.note(tid, working));
        let worst = self.threads.look(now.since(self.looked_at));
        self.looked_at = now;
        // While nobody has to wait for a place, nothing follows from nobody being slowed.
        let told = worst.filter(|&worst| held_back || worst > self.max_slowdown);
        let workers = told.map_or(self.dog.workers(), |worst| self.dog.measured(now, [worst]));
        u32::try_from(workers).unwrap_or(u32::MAX)
    }
}
