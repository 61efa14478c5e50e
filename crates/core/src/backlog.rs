//! The work that waits, kept incrementally so that a decision reads one number.
//!
//! Bouncer (Eq. 2) asks, for every request, for `sum over classes of count(class) * mean(class)`. The counts
//! change with every request, the means once an interval. The backlog keeps the counts, which are
//! authoritative, and beside them the sum for the means of the current *snapshot*. Publishing a new snapshot
//! recomputes the sum from the counts.
//!
//! The hard part is to do that while requests come and go, without a lock and without losing one. Every
//! class's count carries the *epoch* of the snapshot that it has been handed over to, in one word, so a
//! single addition both counts a request and learns whether the new snapshot has already taken this class's
//! count or has yet to. In the first case the request adds itself to the new sum, in the second the
//! publisher's reading of the count includes it. Until the new snapshot is published the old sum is kept up
//! as well. Every decision therefore sees the sum of Eq. 2 for the old snapshot or for the new one, never a
//! mixture; `tests/backlog_interleavings.rs` explores this.

use crate::ClassId;
use crate::sync::{AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Work is counted in units of 256 ns, so that length and work fit one word.
pub const WORK_UNIT_NS: u64 = 256;
/// The work takes the lower 47 bits of the word (over a year of it), the length the upper 17.
const WORK_BITS: u32 = 47;
/// Most requests that may wait: the length's 17 bits, less room for the threads that overshoot a limit together.
pub const MAX_QUEUE: u32 = (1 << 17) - 4096;
/// A class's count takes the lower 48 bits of its word, the epoch the rest.
const COUNT_BITS: u32 = 48;
/// Snapshots kept. A thread that sleeps between the two additions of one request for this many publications adds the
/// second to the wrong sum; the next publication mends that.
const RING: usize = 16;
/// The largest mean a class may have, 275 s: with a full queue of it the work still fits its bits.
const MAX_MEAN_UNITS: u64 = 1 << (WORK_BITS - 17);

/// What a snapshot says about one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Mean processing time in nanoseconds, the class's weight in the sum.
    pub mean_ns: u64,
    /// The most work in nanoseconds, over all slots, that a request of the class may find waiting; below zero it may not
    /// even find an empty queue, `i64::MAX` is no limit.
    pub allowed_ns: i64,
}

/// What waits at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Requests in the queue.
    pub length: u32,
    /// Their expected processing time in nanoseconds, summed over them (Eq. 2 before the division by P).
    pub work_ns: u64,
    /// The most work that the class asked for may find, in nanoseconds.
    pub allowed_ns: i64,
}

impl Waiting {
    /// Whether the class asked for meets its objectives behind this queue.
    #[inline]
    pub fn is_within(&self) -> bool {
        self.work_ns as i64 <= self.allowed_ns
    }
}

/// One class's count and epoch, on a cache line of its own.
#[repr(align(64))]
struct Lane(AtomicU64);

struct Snapshot {
    /// Length and work of the queue under this snapshot's means.
    line: AtomicU64,
    means: Box<[AtomicU64]>,
    allowed_ns: Box<[AtomicU64]>,
}

/// Per-class counts of what waits, and the expected work in it.
pub struct Backlog {
    lanes: Box<[Lane]>,
    ring: [Snapshot; RING],
    published: AtomicUsize,
}

impl Backlog {
    /// An empty queue for this many classes, whose means are zero and whose limits are none until the first
    /// [`Backlog::publish`].
    pub fn new(classes: usize) -> Backlog {
        let words = |value: u64| (0..classes).map(|_| AtomicU64::new(value)).collect();
        let snapshot =
            |_| Snapshot { line: AtomicU64::new(0), means: words(0), allowed_ns: words(i64::MAX as u64) };
        Backlog {
            lanes: (0..classes).map(|_| Lane(AtomicU64::new(0))).collect(),
            ring: std::array::from_fn(snapshot),
            published: AtomicUsize::new(0),
        }
    }

    /// What waits now, and what `class` may find waiting.
    #[inline]
    pub fn waiting(&self, class: ClassId) -> Waiting {
        let snapshot = &self.ring[self.published.load(Acquire) % RING];
        let line = snapshot.line.load(Acquire);
        Waiting {
            length: (line >> WORK_BITS) as u32,
            work_ns: (line & ((1 << WORK_BITS) - 1)) * WORK_UNIT_NS,
            allowed_ns: snapshot.allowed_ns[class.index()].load(Relaxed) as i64,
        }
    }

    /// Requests of `class` that wait.
    pub fn count(&self, class: ClassId) -> u64 {
        self.lanes[class.index()].0.load(Relaxed) & ((1 << COUNT_BITS) - 1)
    }

    /// The mean that the published snapshot has for `class`, in nanoseconds, as the sum uses it.
    pub fn mean_ns(&self, class: ClassId) -> u64 {
        self.ring[self.published.load(Acquire) % RING].means[class.index()].load(Relaxed) * WORK_UNIT_NS
    }

    /// A request of `class` joins the queue.
    #[inline]
    pub fn enqueue(&self, class: ClassId) {
        let epoch = self.lanes[class.index()].0.fetch_add(1, AcqRel) >> COUNT_BITS;
        self.contribute(epoch as usize, |snapshot| {
            snapshot.line.fetch_add(snapshot.share_of(class), AcqRel);
        });
    }

    /// A request of `class` leaves the queue, to be served or not. It must have joined.
    #[inline]
    pub fn dequeue(&self, class: ClassId) {
        let word = self.lanes[class.index()].0.fetch_sub(1, AcqRel);
        debug_assert!(word & ((1 << COUNT_BITS) - 1) > 0, "{class:?} left a queue that it was not in");
        self.contribute((word >> COUNT_BITS) as usize, |snapshot| {
            snapshot.line.fetch_sub(snapshot.share_of(class), AcqRel);
        });
    }

    /// Applies a change to the snapshot that the class has been handed over to, and to the published one where that is
    /// still its predecessor.
    #[inline]
    fn contribute(&self, epoch: usize, change: impl Fn(&Snapshot)) {
        change(&self.ring[epoch % RING]);
        let published = self.published.load(Acquire);
        if published & 0xFFFF != epoch && (published + 1) & 0xFFFF == epoch {
            change(&self.ring[published % RING]);
        }
    }

    /// Replaces every class's mean and limit. Decisions go on meanwhile. One caller at a time.
    pub fn publish(&self, terms: impl Fn(ClassId) -> Terms) {
        let next = self.published.load(Acquire).wrapping_add(1);
        let snapshot = &self.ring[next % RING];
        snapshot.line.store(0, Relaxed);
        for (i, lane) in self.lanes.iter().enumerate() {
            let class = ClassId(i as u16);
            let Terms { mean_ns, allowed_ns } = terms(class);
            let mean = (mean_ns / WORK_UNIT_NS).min(MAX_MEAN_UNITS);
            snapshot.means[i].store(mean, Relaxed);
            snapshot.allowed_ns[i].store(allowed_ns as u64, Relaxed);
            // The hand-over of this class: who counts after this adds itself, who counted before is in `count`.
            let count = lane.0.fetch_add(1 << COUNT_BITS, AcqRel) & ((1 << COUNT_BITS) - 1);
            snapshot.line.fetch_add(count * snapshot.share_of(class), AcqRel);
        }
        self.published.store(next, crate::sync::Ordering::Release);
    }
}

impl Snapshot {
    /// What one request of `class` adds to the line: one to the length, its mean to the work.
    #[inline]
    fn share_of(&self, class: ClassId) -> u64 {
        (1 << WORK_BITS) + self.means[class.index()].load(Relaxed)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Enqueue(u16),
        Dequeue(u16),
        Publish(Vec<u64>),
    }

    fn steps(classes: u16) -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..classes).prop_map(Step::Enqueue),
            3 => (0..classes).prop_map(Step::Dequeue),
            1 => prop::collection::vec(0u64..1_000_000_000, classes as usize).prop_map(Step::Publish),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        /// Against Eq. 2 as the paper writes it.
        #[test]
        fn the_sum_is_the_papers(steps in steps(5)) {
            let backlog = Backlog::new(5);
            let (mut counts, mut means) = ([0u64; 5], [0u64; 5]);
            for step in steps {
                match step {
                    Step::Enqueue(c) => {
                        backlog.enqueue(ClassId(c));
                        counts[c as usize] += 1;
                    }
                    Step::Dequeue(c) if counts[c as usize] > 0 => {
                        backlog.dequeue(ClassId(c));
                        counts[c as usize] -= 1;
                    }
                    Step::Dequeue(_) => {}
                    Step::Publish(new) => {
                        backlog.publish(|c| Terms { mean_ns: new[c.index()], allowed_ns: 0 });
                        means.iter_mut().zip(&new).for_each(|(m, n)| *m = n / WORK_UNIT_NS * WORK_UNIT_NS);
                    }
                }
                let waiting = backlog.waiting(ClassId(0));
                let sum: u64 = counts.iter().zip(&means).map(|(c, m)| c * m).sum();
                prop_assert_eq!(waiting.work_ns, sum);
                prop_assert_eq!(u64::from(waiting.length), counts.iter().sum::<u64>());
            }
        }
    }

    /// Real threads, many publications: when everyone is done the sum is exactly the counts'.
    #[test]
    fn nothing_drifts_under_concurrency() {
        let backlog = Backlog::new(3);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3u16)
                .map(|t| {
                    let backlog = &backlog;
                    scope.spawn(move || {
                        for i in 0..50_000u16 {
                            backlog.enqueue(ClassId((t + i) % 3));
                            backlog.dequeue(ClassId((t + i) % 3));
                        }
                        backlog.enqueue(ClassId(t));
                    })
                })
                .collect();
            let mut mean = 1_000;
            while workers.iter().any(|w| !w.is_finished()) {
                mean += WORK_UNIT_NS;
                backlog.publish(|c| Terms { mean_ns: mean * (1 + c.0 as u64), allowed_ns: i64::MAX });
                std::thread::yield_now();
            }
        });
        let waiting = backlog.waiting(ClassId(0));
        let sum: u64 = (0..3).map(|c| backlog.count(ClassId(c)) * backlog.mean_ns(ClassId(c))).sum();
        assert_eq!(waiting.length, 3);
        // A worker that slept through a whole ring of publications may have left a trace; one more mends it.
        backlog.publish(|c| Terms { mean_ns: 256 * (1 + c.0 as u64), allowed_ns: i64::MAX });
        let mended = backlog.waiting(ClassId(0));
        assert_eq!((mended.length, mended.work_ns), (3, 256 + 512 + 768));
        assert!(waiting.work_ns == sum || waiting.work_ns.abs_diff(sum) < 1_000_000_000);
    }

    #[test]
    fn a_full_queue_of_the_slowest_class_fits() {
        let backlog = Backlog::new(1);
        backlog.publish(|_| Terms { mean_ns: u64::MAX, allowed_ns: 0 });
        (0..MAX_QUEUE).for_each(|_| backlog.enqueue(ClassId(0)));
        let waiting = backlog.waiting(ClassId(0));
        assert_eq!(waiting.length, MAX_QUEUE);
        assert_eq!(waiting.work_ns, u64::from(MAX_QUEUE) * MAX_MEAN_UNITS * WORK_UNIT_NS);
        assert!(!waiting.is_within());
    }
}
