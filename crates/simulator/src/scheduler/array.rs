//! A priority array: the ready tasks of a CPU by priority, first come first served within one.

use std::collections::VecDeque;

use super::machine::Task;

/// Priorities of tasks that are not real-time, best first: nice -20 at its best to nice 19 at its worst (100 to 139 in Linux).
pub const PRIORITIES: usize = 40;

/// Ready tasks by priority.
#[derive(Clone, Debug)]
pub struct PriorityArray {
    queues: Vec<VecDeque<Task>>,
    /// Bit `i` says whether queue `i` has somebody: finding the best takes as long whatever their number, hence O(1).
    bitmap: u64,
    len: usize,
}

impl Default for PriorityArray {
    fn default() -> PriorityArray {
        PriorityArray { queues: vec![VecDeque::new(); PRIORITIES], bitmap: 0, len: 0 }
    }
}

impl PriorityArray {
    /// How many tasks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Behind all others of its priority.
    pub fn push(&mut self, task: Task, priority: usize) {
        self.queues[priority].push_back(task);
        self.bitmap |= 1 << priority;
        self.len += 1;
    }

    /// Takes out a task that is in it.
    pub fn remove(&mut self, task: Task, priority: usize) {
        let queue = &mut self.queues[priority];
        let place = queue.iter().position(|&other| other == task);
        queue.remove(place.expect("a task is in the array that it says")).expect("just found");
        if queue.is_empty() {
            self.bitmap &= !(1 << priority);
        }
        self.len -= 1;
    }

    /// The first of the best.
    pub fn first(&self) -> Option<Task> {
        self.queues.get(self.bitmap.trailing_zeros() as usize)?.front().copied()
    }

    /// All, the best priority first, within one the last to come first: the order in which a balancer takes them.
    pub fn for_balancer(&self) -> impl Iterator<Item = Task> + '_ {
        self.queues.iter().flat_map(|queue| queue.iter().rev().copied())
    }
}
