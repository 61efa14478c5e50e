//! What a task does, step by step: programs, compiled from what a case writes into operations with jumps.

use plimsoll_core::{Nanos, Rng};
use rand::RngExt;
use rand_distr::StandardNormal;

/// Most loops in each other.
pub const DEPTH: usize = 4;

/// A number that is drawn anew each time: constant, or lognormal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amount {
    /// The mean.
    pub mean: f64,
    /// Of the lognormal's exponent; 0 for a constant.
    pub sigma: f64,
}

impl Amount {
    /// Always the same.
    pub const fn of(mean: f64) -> Amount {
        Amount { mean, sigma: 0.0 }
    }

    /// Draws one.
    #[inline]
    pub fn draw(self, rng: &mut Rng) -> f64 {
        if self.sigma == 0.0 {
            return self.mean;
        }
        let normal: f64 = rng.sample(StandardNormal);
        self.mean * (self.sigma * normal - self.sigma * self.sigma / 2.0).exp()
    }
}

/// Which resource, by its place in the case.
pub type ResourceIndex = u32;

/// One operation. Those that find something taken wait for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Takes a permit of a pool.
    Enter(ResourceIndex),
    /// Gives it back.
    Leave(ResourceIndex),
    /// Takes a lock.
    Lock {
        /// Which.
        lock: ResourceIndex,
        /// To itself, or shared with others that share it.
        exclusive: bool,
    },
    /// Gives it back.
    Unlock(ResourceIndex),
    /// Takes a lock to itself, writes what it has to write and what all that wait to do the same have, and gives it back (group
    /// commit).
    Commit {
        /// Which lock.
        lock: ResourceIndex,
        /// Where it is written.
        device: ResourceIndex,
        /// How much of it is its own.
        bytes: Amount,
    },
    /// Reads pages of a pool, which costs what the pool says where they are not there.
    Touch {
        /// Which pool.
        pool: ResourceIndex,
        /// How many.
        pages: Amount,
        /// Which.
        reads: Reads,
    },
    /// Takes memory of a heap and keeps it until its end, or drops it at once.
    Allocate {
        /// Which heap.
        heap: ResourceIndex,
        /// How much.
        units: Amount,
        /// Whether it is kept.
        keep: bool,
    },
    /// Works on a processor.
    Cpu {
        /// Which processors.
        cpu: ResourceIndex,
        /// Nanoseconds of work.
        work: Amount,
        /// On so many at once.
        threads: f64,
    },
    /// Reads or writes.
    Io {
        /// Which device.
        device: ResourceIndex,
        /// How much.
        bytes: Amount,
        /// So many requests are under way at once.
        depth: f64,
    },
    /// Does nothing for so many nanoseconds.
    Sleep(Amount),
    /// Reports so many more units of its total as done.
    Done(u64),
    /// Begins a loop of so many rounds; goes on behind `end` if that is none.
    Begin {
        /// Rounds.
        times: Amount,
        /// The operation behind the loop.
        end: u32,
    },
    /// Ends a loop's body.
    Again {
        /// The body's first operation.
        body: u32,
    },
}

/// Which pages are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reads {
    /// The first that it may be.
    pub first: u32,
    /// Of so many.
    pub among: u32,
    /// One after the other, instead of any.
    pub in_order: bool,
    /// What one costs that is not there, as a multiple of what the pool says.
    pub cost: f64,
    /// So many are fetched at once.
    pub depth: f64,
}

/// What a task does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// In order.
    pub ops: Vec<Op>,
    /// Units of progress in all; 0 if it reports none.
    pub total: u64,
    /// Where it goes on when it is cancelled and has to put back what it did; behind the last operation if it need not.
    pub undo: u32,
}

/// A time as an amount, in nanoseconds.
pub fn nanos(mean: Nanos, sigma: f64) -> Amount {
    Amount { mean: mean.0 as f64, sigma }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::rng::seeded;

    use super::*;

    #[test]
    fn an_amount_has_its_mean() {
        let mut rng = seeded(1, 0);
        let mut mean = |amount: Amount| (0..100_000).map(|_| amount.draw(&mut rng)).sum::<f64>() / 1e5;
        assert_eq!(mean(Amount::of(7.0)), 7.0);
        let drawn = mean(Amount { mean: 7.0, sigma: 0.5 });
        assert!((drawn - 7.0).abs() < 0.07, "{drawn}");
    }
}
