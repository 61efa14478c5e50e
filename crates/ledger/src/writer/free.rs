//! Stacks of free records that many threads push to and pop from without a lock.
//!
//! A Treiber stack over indices. Every change of the top raises its number, so that a thread that slept between reading the top
//! and replacing it does not take what was popped and pushed again meanwhile for unchanged; 2^32 changes within one such sleep would go unnoticed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What lies beneath each record, plus 1; 0 is the bottom.
pub struct Links(Box<[AtomicU32]>);

impl Links {
    /// For that many records. Pages that are never touched cost no memory.
    pub fn new(records: u32) -> Links {
        Links((0..records).map(|_| AtomicU32::new(0)).collect())
    }
}

/// The top of a stack: in its low half the index plus 1, in its high half how often it was changed.
#[derive(Default)]
pub struct Top(AtomicU64);

impl Top {
    /// The record that was pushed last.
    #[inline]
    pub fn pop(&self, links: &Links) -> Option<u32> {
        let mut top = self.0.load(Ordering::Acquire);
        loop {
            let index = (top as u32).checked_sub(1)?;
            let below = links.0.get(index as usize)?.load(Ordering::Relaxed);
            match self.0.compare_exchange_weak(top, next(top, below), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(changed) => top = changed,
            }
        }
    }

    /// Puts a record on top.
    #[inline]
    pub fn push(&self, links: &Links, index: u32) {
        let Some(link) = links.0.get(index as usize) else { return };
        let mut top = self.0.load(Ordering::Relaxed);
        loop {
            link.store(top as u32, Ordering::Relaxed);
            match self.0.compare_exchange_weak(
                top,
                next(top, index + 1),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(changed) => top = changed,
            }
        }
    }
}

fn next(top: u64, index_plus_1: u32) -> u64 {
    ((top >> 32).wrapping_add(1) << 32) | u64::from(index_plus_1)
}

/// The next record that was never used, of so many.
pub fn fresh(used: &AtomicU32, of: u32) -> Option<u32> {
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < of).then_some(n + 1)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_in_first_out() {
        let (top, links) = (Top::default(), Links::new(4));
        assert_eq!(top.pop(&links), None);
        top.push(&links, 2);
        top.push(&links, 0);
        assert_eq!((top.pop(&links), top.pop(&links), top.pop(&links)), (Some(0), Some(2), None));
    }

    #[test]
    fn no_record_is_had_twice_or_lost() {
        let (top, links, used) = (Top::default(), Links::new(64), AtomicU32::new(0));
        let taken: Vec<AtomicU32> = (0..64).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..20_000 {
                        let mine: Vec<u32> = (0..round % 5)
                            .filter_map(|_| top.pop(&links).or_else(|| fresh(&used, 64)))
                            .collect();
                        for &i in &mine {
                            assert_eq!(taken[i as usize].fetch_add(1, Ordering::Relaxed), 0);
                        }
                        for &i in &mine {
                            taken[i as usize].fetch_sub(1, Ordering::Relaxed);
                            top.push(&links, i);
                        }
                    }
                });
            }
        });
        let free = std::iter::from_fn(|| top.pop(&links)).count();
        assert_eq!(free as u32, used.load(Ordering::Relaxed));
    }
}
