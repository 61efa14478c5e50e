//! Every decision taken while requests come and go and a snapshot is published is the paper's decision for the
//! old snapshot or for the new one, under every interleaving that the model checker finds.

use std::sync::Arc;

use plimsoll_core::ClassId;
use plimsoll_core::backlog::{Backlog, Terms};
use shuttle::thread;

const FAST: ClassId = ClassId(0);
const SLOW: ClassId = ClassId(1);
const OLD: [u64; 2] = [256, 25_600];
const NEW: [u64; 2] = [5_120, 512_000];

fn publish(backlog: &Backlog, means: [u64; 2]) {
    backlog.publish(|class| Terms { mean_ns: means[class.index()], allowed_ns: 0 });
}

fn one_of_each_while_publishing() {
    let backlog = Arc::new(Backlog::new(2));
    publish(&backlog, OLD);
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
        spawn(|b| publish(b, NEW)),
    ];
    let decider = {
        let backlog = backlog.clone();
        thread::spawn(move || {
            backlog.enqueue(FAST);
            let seen = backlog.waiting(FAST).work_ns;
            backlog.dequeue(FAST);
            // Its own request and the resident one must be in the sum; of the two that come and go, any may be.
            let mut possible = [OLD, NEW]
                .iter()
                .flat_map(|m| (1..3).flat_map(move |fast| (1..3).map(move |slow| fast * m[0] + slow * m[1])));
            assert!(possible.any(|sum| sum == seen), "a decision saw {seen} ns of work");
        })
    };
    threads.into_iter().for_each(|t| t.join().unwrap());
    decider.join().unwrap();
    let waiting = backlog.waiting(FAST);
    assert_eq!((waiting.length, waiting.work_ns), (2, 2 * NEW[1]));
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
        publish(&backlog, OLD);
        backlog.enqueue(SLOW);
        let publisher = {
            let backlog = backlog.clone();
            thread::spawn(move || {
                publish(&backlog, NEW);
                publish(&backlog, OLD);
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
        assert_eq!((waiting.length, waiting.work_ns), (1, OLD[0]));
    };
    shuttle::check_random(run, 20_000);
}
