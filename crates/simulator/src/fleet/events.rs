//! What is to happen, in the order in which it does.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use plimsoll_core::Nanos;

/// What is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A user sends a request of this API.
    Arrive {
        /// Which.
        api: u32,
    },
    /// A worker is done with a visit.
    Done {
        /// Of which service,
        service: u32,
        /// which instance,
        instance: u32,
        /// in which of its lives,
        life: u32,
        /// which worker.
        worker: u32,
    },
    /// A client tries again.
    Retry {
        /// What.
        request: u32,
    },
    /// A client has waited long enough.
    Timeout {
        /// For what,
        request: u32,
        /// and which use of its place that was.
        generation: u32,
    },
    /// Instances of a service end, by the index of the failure.
    Fail {
        /// Which service.
        service: u32,
        /// Which of its failures.
        failure: u32,
    },
    /// An instance has started.
    Start {
        /// Of which service.
        service: u32,
    },
    /// The autoscaler of a service looks.
    Scale {
        /// Which.
        service: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    at: Nanos,
    /// At one instant, in the order in which they were put in.
    order: u64,
    event: Event,
}

impl Ord for Entry {
    /// The heap yields the greatest first.
    fn cmp(&self, other: &Entry) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What is to happen.
#[derive(Clone, Default)]
pub struct Events {
    heap: BinaryHeap<Entry>,
    put: u64,
}

impl Events {
    /// Something happens then.
    #[inline]
    pub fn put(&mut self, at: Nanos, event: Event) {
        self.heap.push(Entry { at, order: self.put, event });
        self.put += 1;
    }

    /// What happens next, if it does before `until`.
    #[inline]
    pub fn next_before(&mut self, until: Nanos) -> Option<(Nanos, Event)> {
        if self.heap.peek()?.at >= until {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}
