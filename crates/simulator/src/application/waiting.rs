//! Those that wait for a lock or a permit, first come first served, by class where classes are held to a part.

use std::collections::VecDeque;

/// A place in a queue: by class, each in the order in which they came.
#[derive(Clone, Debug)]
pub struct Waiting<T> {
    queues: Vec<VecDeque<(u64, T)>>,
    order: u64,
    len: usize,
}

impl<T: Copy + PartialEq> Waiting<T> {
    /// For so many classes.
    pub fn new(classes: usize) -> Waiting<T> {
        Waiting { queues: vec![VecDeque::new(); classes], order: 0, len: 0 }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// At the end.
    pub fn push(&mut self, class: u32, who: T) {
        self.queues[class as usize].push_back((self.order, who));
        self.order += 1;
        self.len += 1;
    }

    /// The first of a class that may.
    pub fn first(&self, may: impl Fn(u32) -> bool) -> Option<(u32, T)> {
        let fronts = self.queues.iter().enumerate().filter(|&(class, _)| may(class as u32));
        let fronts =
            fronts.filter_map(|(class, queue)| queue.front().map(|&(order, who)| (order, class as u32, who)));
        fronts.min_by_key(|&(order, ..)| order).map(|(_, class, who)| (class, who))
    }

    /// The first of a class goes.
    pub fn pop(&mut self, class: u32) {
        if self.queues[class as usize].pop_front().is_some() {
            self.len -= 1;
        }
    }

    /// One of a class goes, wherever it waits.
    pub fn remove(&mut self, class: u32, who: T) {
        let queue = &mut self.queues[class as usize];
        if let Some(at) = queue.iter().position(|&(_, other)| other == who) {
            queue.remove(at);
            self.len -= 1;
        }
    }

    /// All that are like this go; they are returned in order.
    pub fn take(&mut self, like: impl Fn(T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for queue in &mut self.queues {
            queue.retain(|&(order, who)| {
                let take = like(who);
                if take {
                    taken.push((order, who));
                }
                !take
            });
        }
        self.len -= taken.len();
        taken.sort_unstable_by_key(|&(order, _)| order);
        taken.into_iter().map(|(_, who)| who).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served_among_those_that_may() {
        let mut waiting = Waiting::new(2);
        [(0, 'a'), (1, 'b'), (0, 'c'), (1, 'd')].iter().for_each(|&(class, who)| waiting.push(class, who));
        assert_eq!(waiting.first(|_| true), Some((0, 'a')));
        assert_eq!(waiting.first(|class| class == 1), Some((1, 'b')));
        assert_eq!(waiting.first(|_| false), None);
        waiting.remove(0, 'a');
        waiting.pop(1);
        assert_eq!((waiting.first(|_| true), waiting.is_empty()), (Some((0, 'c')), false));
        assert_eq!(waiting.take(|who| who != 'x'), ['c', 'd']);
        assert!(waiting.is_empty());
    }
}
