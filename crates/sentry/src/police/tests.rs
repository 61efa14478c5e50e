use std::task::{Context, Poll, Waker};

use plimsoll_core::ClassId;
use plimsoll_core::config::{self, Config};

use super::*;
use crate::admit::Admission;
use crate::admit::tests::{Waiting, arrival, arrive_as, run};
use crate::state::Shared;

const GOLD: ClassId = ClassId(0);
const LESSER: ClassId = ClassId(1);

/// Two slots, pages of 10 ms, and a mean of 100 ms owed: of which three quarters are used.
fn thread() -> Rc<Thread> {
    let text = "[sentry]\n[pool.p]\nservers = [\"127.0.0.1:1\"]\nworkers = 2\npolicing = { policy = \"batch\" }\n\
                admission = { policy = \"none\" }\n[slo.owed]\nmean = \"100ms\"\n\
                [class.gold]\nmatch = [{ path = \"/gold\" }]\nslo = \"owed\"\npriority = 1\nservice_time = \"10ms\"\n\
                [class.default]\nslo = \"owed\"\npriority = 2\nservice_time = \"10ms\"\n";
    Thread::new(0, Shared::altered(config::parse::<Config>(text, "test").unwrap().0, |_| {}), 1)
}

fn arrive(thread: &Rc<Thread>, class: ClassId) -> (Waiting, Poll<Admission>) {
    arrive_as(thread, Arrival { class, ..arrival() })
}

/// So many of the lesser class that all have to wait.
fn wait(thread: &Rc<Thread>, requests: usize, why: &str) -> Vec<Waiting> {
    let wait = |_| {
        let (request, polled) = arrive(thread, LESSER);
        assert!(polled.is_pending(), "{why}");
        request
    };
    (0..requests).map(wait).collect()
}

/// Serves gold often enough for its time to be known. Then fills the servers and the queue with it until it is refused, by which
/// lesser classes have to wait.
fn crowd(thread: &Rc<Thread>) -> Vec<(Waiting, Poll<Admission>)> {
    for _ in 0..200 {
        match arrive(thread, GOLD).1 {
            Poll::Ready(Admission::In(ticket)) => ticket.complete(clock::now() + Nanos::from_millis(10)),
            _ => panic!("a server is idle"),
        }
    }
    let mut inside = Vec::new();
    loop {
        match arrive(thread, GOLD) {
            (_, Poll::Ready(Admission::Refused(_))) => return inside,
            other => inside.push(other),
        }
        assert!(inside.len() < 100, "nobody is refused");
    }
}

#[test]
fn who_is_let_in_and_has_not_heard_of_it_is_not_overlooked() {
    run(async {
        let thread = thread();
        let gold = crowd(&thread);
        let view = thread.view();
        let pool = view.pool(LESSER);
        let first = wait(&thread, 20, "gold was refused a moment ago");
        drop(gold);
        // Of 75 ms this class's delay of 25 leaves five turns on two servers: ten of those who wait are let in when the next one comes.
        // That one finds the servers idle, and so do all after it until somebody has heard.
        let second = wait(&thread, 30, "an idle server is theirs who wait");
        assert_eq!((pool.slots.taken(), pool.slots.waiting()), (0, 0), "nobody has heard of it");
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = |mut request: Waiting| {
            let polled = request.as_mut().poll(&mut cx);
            (request, polled)
        };
        let first: Vec<_> = first.into_iter().map(&mut poll).collect();
        let refused = |polled: &Poll<Admission>| matches!(polled, Poll::Ready(Admission::Refused(_)));
        assert_eq!(first.iter().filter(|(_, polled)| refused(polled)).count(), 10);
        assert_eq!((pool.slots.taken(), pool.slots.waiting()), (2, 8));
        let second: Vec<_> = second.into_iter().map(&mut poll).collect();
        assert!(second.iter().all(|(_, polled)| polled.is_pending()));
    });
}
