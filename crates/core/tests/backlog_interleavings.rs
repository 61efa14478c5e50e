//! Every decision taken while requests come and go and a snapshot is published is the paper's decision for the
//! old snapshot or for the new one, under every interleaving that the model checker finds.

use std::sync::Arc;

use plimsoll_core::ClassId;
use plimsoll_core::backlog::{Backlog, Terms};
use shuttle::thread;

const FAST: ClassId = ClassId(0);
const SLOW: ClassId = ClassId(1);

/// What is published: a mean for each class, and one limit. Each limit lets through some of its own snapshot's sums and
/// refuses others; every old sum is within the new limit and no new one within the old, so that a mixture shows.
struct Snapshot {
    means: [u64; 2],
    allowed_ns: i64,
}
const OLD: Snapshot = Snapshot { means: [256, 25_600], allowed_ns: 30_000 };
const NEW: Snapshot = Snapshot { means: [5_120, 512_000], allowed_ns: 600_000 };

impl Snapshot {
    fn publish(&self, backlog: &Backlog) {
        let Snapshot { means, allowed_ns } = *self;
        backlog.publish(|class| Terms { mean_ns: means[class.index()], allowed_ns });
    }

    /// Eq. 2, and what it is held against.
    fn decides(&self, fast: u64, slow: u64) -> (u64, i64, bool) {
        let sum = fast * self.means[0] + slow * self.means[1];
        (sum, self.allowed_ns, sum as i64 <= self.allowed_ns)
    }
}

fn one_of_each_while_publishing() {
    let backlog = Arc::new(Backlog::new(2));
    OLD.publish(&backlog);
    backlog.enqueue(SLOW); // stays
    let spawn = |work: fn(&Backlog)| {
        let backlog = backlog.clone();
        thread::spawn(move || work(&backlog))
    };
    let threads = [
        spawn(|b| {
            b.enqueue(FAST);
            b.dequeue(FAST);
        }),
        spawn(|b| b.enqueue(SLOW)),
        spawn(|b| NEW.publish(b)),
    ];
    let decider = {
        let backlog = backlog.clone();
        thread::spawn(move || {
            backlog.enqueue(FAST);
            let waiting = backlog.waiting(FAST);
            backlog.dequeue(FAST);
            let seen = (waiting.work_ns, waiting.allowed_ns, waiting.is_within());
            // Its own request and the resident one must be in the sum; of the two that come and go, any may be.
            let mut possible = [OLD, NEW].into_iter().flat_map(|snapshot| {
                [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(fast, slow)| snapshot.decides(fast, slow))
            });
            assert!(possible.any(|decision| decision == seen), "work, limit, verdict: {seen:?}");
        })
    };
    threads.into_iter().for_each(|t| t.join().unwrap());
    decider.join().unwrap();
    let waiting = backlog.waiting(FAST);
    assert_eq!((waiting.length, waiting.work_ns), (2, 2 * NEW.means[1]));
}

#[test]
fn decisions_are_the_papers_for_one_snapshot() {
    shuttle::check_random(one_of_each_while_publishing, 20_000);
    shuttle::check_pct(one_of_each_while_publishing, 10_000, 3);
}

/// A request that joined under one snapshot and leaves while the second next is being published.
#[test]
fn a_request_outlives_two_snapshots() {
    let run = || {
        let backlog = Arc::new(Backlog::new(2));
        OLD.publish(&backlog);
        backlog.enqueue(SLOW);
        let publisher = {
            let backlog = backlog.clone();
            thread::spawn(move || {
                NEW.publish(&backlog);
                OLD.publish(&backlog);
            })
        };
        let leaver = {
            let backlog = backlog.clone();
            thread::spawn(move || {
                backlog.dequeue(SLOW);
                backlog.enqueue(FAST);
            })
        };
        publisher.join().unwrap();
        leaver.join().unwrap();
        let waiting = backlog.waiting(FAST);
        assert_eq!((waiting.length, waiting.work_ns), (1, OLD.means[0]));
    };
    shuttle::check_random(run, 20_000);
}
