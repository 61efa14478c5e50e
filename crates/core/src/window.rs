//! Sliding windows: sums over the last `D` of time, moving on in steps of `delta`.

use crate::Nanos;
use crate::sync::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Sums of `K` quantities over a sliding window. Adding is two relaxed additions a quantity; reading a sum is one load.
///
/// The window moves in [`SlidingWindow::advance`], which one caller at a time drives. A sum always equals what
/// its cells hold plus what is being added at this moment: an addition that races with a step lands in the
/// old cell or the new one, never in neither.
pub struct SlidingWindow<const K: usize> {
    step: Nanos,
    cells: Box<[[AtomicU64; K]]>,
    sums: [AtomicU64; K],
    current: AtomicUsize,
    next_step: AtomicU64,
    started: AtomicU64,
}

impl<const K: usize> SlidingWindow<K> {
    /// A window of `steps` steps of length `step` that begins at `now`.
    pub fn new(step: Nanos, steps: usize, now: Nanos) -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        SlidingWindow {
            step: Nanos(step.0.max(1)),
            cells: (0..steps.max(1)).map(|_| zeros()).collect(),
            sums: zeros(),
            current: AtomicUsize::new(0),
            next_step: AtomicU64::new((now + step).0),
            started: AtomicU64::new(now.0),
        }
    }

    /// Adds to quantity `k`.
    #[inline]
    pub fn add(&self, k: usize, amount: u64) {
        let cell = &self.cells[self.current.load(Relaxed)][k];
        // The sum first: a step that empties the cell in between then never takes more than was added.
        self.sums[k].fetch_add(amount, Relaxed);
        cell.fetch_add(amount, Relaxed);
    }

    /// What was added to quantity `k` within the window.
    #[inline]
    pub fn sum(&self, k: usize) -> u64 {
        self.sums[k].load(Relaxed)
    }

    /// How much time the window covers at `now`: the full steps behind it and what has passed of the current one, or
    /// its whole life while it is young.
    pub fn covered(&self, now: Nanos) -> Nanos {
        let full = Nanos(self.step.0.saturating_mul(self.cells.len() as u64 - 1));
        let current_began = Nanos(self.next_step.load(Relaxed)).since(self.step);
        now.since(Nanos(self.started.load(Relaxed))).min(full + now.since(current_began))
    }

    /// Moves the window up to `now`; returns when its next step is due.
    pub fn advance(&self, now: Nanos) -> Nanos {
        let due = self.next_step.load(Relaxed);
        if now.0 < due {
            return Nanos(due);
        }
        let behind = (now.0 - due) / self.step.0 + 1;
        for _ in 0..behind.min(self.cells.len() as u64) {
            let current = (self.current.load(Relaxed) + 1) % self.cells.len();
            for (cell, sum) in self.cells[current].iter().zip(&self.sums) {
                sum.fetch_sub(cell.swap(0, Relaxed), Relaxed);
            }
            self.current.store(current, Relaxed);
        }
        let next = due + behind * self.step.0;
        self.next_step.store(next, Relaxed);
        Nanos(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the definition: the sum of what was added in the last `steps` steps.
        #[test]
        fn agrees_with_the_naive_window(
            events in prop::collection::vec((0u64..40, 0u64..5), 0..200),
            steps in 1usize..20,
        ) {
            let step = Nanos(10);
            let window = SlidingWindow::<1>::new(step, steps, Nanos::ZERO);
            let mut log: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (gap, amount) in events {
                now += gap;
                window.advance(Nanos(now));
                window.add(0, amount);
                log.push((now / step.0, amount));
                let oldest = (now / step.0 + 1).saturating_sub(steps as u64);
                let naive: u64 = log.iter().filter(|&&(s, _)| s >= oldest).map(|&(_, a)| a).sum();
                prop_assert_eq!(window.sum(0), naive);
            }
        }
    }

    #[test]
    fn forgets_after_its_length() {
        let window = SlidingWindow::<2>::new(Nanos(10), 3, Nanos::ZERO);
        window.add(0, 7);
        window.add(1, 1);
        for (now, left) in [(9, 7), (10, 7), (29, 7), (30, 0), (500, 0)] {
            window.advance(Nanos(now));
            assert_eq!(window.sum(0), left, "at {now}");
        }
        assert_eq!(window.covered(Nanos(503)), Nanos(23));
        assert_eq!(SlidingWindow::<1>::new(Nanos(10), 3, Nanos(7)).covered(Nanos(9)), Nanos(2));
    }

    #[test]
    fn nothing_is_lost_or_invented_while_it_moves() {
        let window = SlidingWindow::<1>::new(Nanos(1), 4, Nanos::ZERO);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..50_000).for_each(|_| window.add(0, 1)));
            }
            (1..2_000).for_each(|now| {
                window.advance(Nanos(now));
                assert!(window.sum(0) <= 150_000, "a sum went below zero");
            });
        });
        window.advance(Nanos(1_000_000));
        window.advance(Nanos(2_000_000));
        assert_eq!(window.sum(0), 0);
    }
}
