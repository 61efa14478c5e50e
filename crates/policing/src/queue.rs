//! A first-in-first-out queue in pieces of a fixed size, which many queues take from one store and give back. So no queue ever copies
//! what it holds to grow, what was used last is used next, and all of them together keep what the most that ever waited needed, not
//! what each of them did. The allocator gets nothing back: giving back a million at once would keep a host for milliseconds.

use std::collections::VecDeque;

/// Places in a piece: with two words a request, a kilobyte.
const PLACES: usize = 64;

type Piece<T> = VecDeque<T>;

/// Pieces that no queue uses.
pub struct Store<T> {
    pieces: Vec<Piece<T>>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Store { pieces: Vec::new() }
    }
}

impl<T> Store<T> {
    fn take(&mut self) -> Piece<T> {
        self.pieces.pop().unwrap_or_else(|| Piece::with_capacity(PLACES))
    }

    fn put(&mut self, piece: Piece<T>) {
        self.pieces.push(piece);
    }
}

/// The queue. Its last piece is apart, and empty only if all of it is.
pub struct Queue<T> {
    before: VecDeque<Piece<T>>,
    last: Piece<T>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue { before: VecDeque::new(), last: Piece::new() }
    }
}

impl<T> Queue<T> {
    /// Whether nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Puts something behind all else.
    #[inline]
    pub fn push(&mut self, item: T, store: &mut Store<T>) {
        if self.last.len() == self.last.capacity() {
            let full = std::mem::replace(&mut self.last, store.take());
            if !full.is_empty() {
                self.before.push_back(full);
            }
        }
        self.last.push_back(item);
    }

    /// Takes what is before all else.
    #[inline]
    pub fn pop(&mut self, store: &mut Store<T>) -> Option<T> {
        let piece = self.before.front_mut().unwrap_or(&mut self.last);
        let item = piece.pop_front()?;
        if piece.is_empty() {
            store.put(self.before.pop_front().unwrap_or_else(|| std::mem::take(&mut self.last)));
        }
        Some(item)
    }

    /// Takes what is before all else, up to so many; returns how many it were.
    #[inline]
    pub fn pop_many(&mut self, most: usize, store: &mut Store<T>, mut each: impl FnMut(T)) -> usize {
        let mut taken = 0;
        while taken < most && !self.is_empty() {
            let piece = self.before.front_mut().unwrap_or(&mut self.last);
            let some = piece.len().min(most - taken);
            piece.drain(..some).for_each(&mut each);
            taken += some;
            if piece.is_empty() {
                store.put(self.before.pop_front().unwrap_or_else(|| std::mem::take(&mut self.last)));
            }
        }
        taken
    }

    /// Takes what was put in last.
    pub fn pop_last(&mut self, store: &mut Store<T>) -> Option<T> {
        let item = self.last.pop_back()?;
        if self.last.is_empty() {
            store.put(std::mem::replace(&mut self.last, self.before.pop_back().unwrap_or_default()));
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Beside the standard library's, two of them over one store.
        #[test]
        fn what_goes_in_comes_out_in_order(
            steps in prop::collection::vec((0usize..2, 0u8..8, 1usize..3 * PLACES), 0..100),
        ) {
            let (mut store, mut next) = (Store::default(), 0);
            let mut queues: [Queue<u32>; 2] = Default::default();
            let mut models: [VecDeque<u32>; 2] = Default::default();
            for (which, kind, times) in steps {
                let (queue, model) = (&mut queues[which], &mut models[which]);
                for _ in 0..times {
                    match kind {
                        0..4 => {
                            queue.push(next, &mut store);
                            model.push_back(next);
                            next += 1;
                        }
                        4..6 => prop_assert_eq!(queue.pop(&mut store), model.pop_front()),
                        6 => {
                            let (mut some, most) = (Vec::new(), times.min(9));
                            let taken = queue.pop_many(most, &mut store, |item| some.push(item));
                            prop_assert_eq!(taken, most.min(model.len()));
                            prop_assert_eq!(some, model.drain(..taken).collect::<Vec<_>>());
                        }
                        _ => prop_assert_eq!(queue.pop_last(&mut store), model.pop_back()),
                    }
                    prop_assert_eq!(queue.is_empty(), model.is_empty());
                }
            }
            // Nothing but what is in use and what is kept: every piece that a queue left is in the store.
            for (queue, model) in queues.iter_mut().zip(&mut models) {
                while let Some(item) = model.pop_front() {
                    prop_assert_eq!(queue.pop(&mut store), Some(item));
                }
                prop_assert!(queue.last.capacity() == 0 && queue.before.is_empty());
            }
            prop_assert!(store.pieces.iter().all(|piece| piece.is_empty() && piece.capacity() == PLACES));
        }
    }

    #[test]
    fn what_one_queue_gives_back_another_uses() {
        let (mut store, mut queues) = (Store::default(), [Queue::default(), Queue::default()]);
        for queue in &mut queues {
            (0..10 * PLACES).for_each(|i| queue.push(i, &mut store));
            assert_eq!((0..10 * PLACES).filter(|&i| queue.pop(&mut store) == Some(i)).count(), 10 * PLACES);
            assert_eq!(store.pieces.len(), 10);
        }
    }
}
