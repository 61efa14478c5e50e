//! The same for a pool whose workers are of other processes, as those of a server that forks: whoever keeps their number is told how many
//! may work at once, and has to see to it.

use std::ops::RangeInclusive;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Following, sheepdog};

use super::threads::Threads;
use super::{SoFar, judge, policy};
use crate::clock;

/// Sizes a pool of workers that it does not keep.
#[derive(Debug)]
pub struct Herd {
    dog: sheepdog::SheepDog,
    following: Following,
    threads: Threads,
    looked_at: Nanos,
}

impl Herd {
    /// For a pool of which so many may work at once, none of them slowed more than `max_slowdown` times (above 1). To begin with, as many as
    /// keep all CPUs busy.
    pub fn new(workers: RangeInclusive<u32>, max_slowdown: f64) -> Herd {
        Herd {
            dog: policy(workers, max_slowdown),
            following: Following::default(),
            threads: Threads::default(),
            looked_at: clock::now(),
        }
    }

    /// How many may work at once from now on. To be called a few times a second, with all workers by their thread's number and whether they are at
    /// work; whether anybody has had to wait for a place since the last time; and how much was ever done.
    pub fn look(
        &mut self,
        workers: impl IntoIterator<Item = (i32, bool)>,
        held_back: bool,
        done: u64,
    ) -> u32 {
        let now = clock::now();
        let mut at_work = 0;
        for (tid, working) in workers {
            at_work += i64::from(working);
            self.threads.note(tid, working);
        }
        let fare = self.threads.look(now.since(self.looked_at));
        self.looked_at = now;
        let so_far = SoFar { at_work, held_back, done };
        let workers = judge(&mut self.dog, &mut self.following, &mut self.threads, now, fare, so_far);
        u32::try_from(workers).unwrap_or(u32::MAX)
    }
}
