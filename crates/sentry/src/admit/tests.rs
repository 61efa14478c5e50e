use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use plimsoll_core::config::{self, Config};
use plimsoll_core::rng::{Rng, seeded};
use rand::RngExt;
use tokio::runtime::{Builder, LocalOptions};

use super::*;
use crate::state::Shared;
use crate::stats::{ClassSnapshot, Failure};

const ONE: ClassId = ClassId(0);

fn thread(pool: &str) -> Rc<Thread> {
    let text = format!("[sentry]\n[pool.p]\nservers = [\"127.0.0.1:1\"]\n{pool}\n[class.default]\n");
    let config = config::parse::<Config>(&text, "test").unwrap().0;
    Thread::new(0, Shared::altered(config, |_| {}), 1)
}

pub(crate) fn arrival() -> Arrival {
    Arrival { at: clock::refresh(), class: ONE, deadline: None, client: None, kind: 0 }
}

pub(crate) type Waiting = Pin<Box<dyn Future<Output = Admission>>>;

/// A request that arrives, polled once.
fn arrive(thread: &Rc<Thread>) -> (Waiting, Poll<Admission>) {
    arrive_as(thread, arrival())
}

/// A request that arrives so, polled once.
pub(crate) fn arrive_as(thread: &Rc<Thread>, arrival: Arrival) -> (Waiting, Poll<Admission>) {
    let thread = Rc::clone(thread);
    let mut request: Waiting = Box::pin(async move {
        let view = thread.view();
        admit(&thread, &view, arrival, std::future::pending()).await
    });
    let poll = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    (request, poll)
}

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    // One task plays all requests here, which is more than tokio grants a task between two yields.
    runtime.block_on(tokio::task::unconstrained(test));
}

/// Ends a request in one of the ways that requests end.
fn end(ticket: Ticket, rng: &mut Rng) {
    match rng.random_range(0..4) {
        0 => drop(ticket),
        1 => ticket.fail(Failure::Timeout),
        _ => ticket.complete(clock::refresh()),
    }
}

/// Every request that was offered is counted once, and so is the end of every one that was let in.
fn counted_once(c: &ClassSnapshot, what: &str) {
    let (refused, failed) = (c.refused.iter().sum::<u64>(), c.failed.iter().sum::<u64>());
    let counts = (c.granted, c.unjudged, &c.would_refuse, &c.refused, c.gone);
    assert_eq!(c.offered, c.admitted() + refused + c.gone, "{what}: {counts:?}");
    assert_eq!(c.admitted(), c.served + failed, "{what}: {counts:?}");
}

/// Arrivals, ends, clients that give up and gates that tick, in a random order: at every moment the gate and the slots
/// must account for exactly the requests that there are, and those that wait must leave in the order they came.
async fn account(policy: &str, seed: u64) {
    let thread = thread(&format!("workers = 3\nmax_queue = 6\nadmission = {{ policy = \"{policy}\" }}"));
    let view = thread.view();
    let pool = view.pool(ONE);
    let mut rng = seeded(seed, 0);
    let mut waiting: VecDeque<Waiting> = VecDeque::new();
    let mut inside: Vec<Ticket> = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    for step in 0..2_000 {
        match rng.random_range(0..10) {
            0..5 => match arrive(&thread) {
                (_, Poll::Ready(Admission::In(ticket))) => {
                    assert!(waiting.is_empty(), "{policy} {seed} {step}: nobody overtakes");
                    inside.push(ticket);
                }
                (_, Poll::Ready(_)) => {}
                (request, Poll::Pending) => waiting.push_back(request),
            },
            5..8 if !inside.is_empty() => {
                end(inside.swap_remove(rng.random_range(0..inside.len())), &mut rng)
            }
            8 if !waiting.is_empty() => drop(waiting.remove(rng.random_range(0..waiting.len()))),
            _ => {
                pool.tick(0.0, clock::refresh());
            }
        }
        // Some policies refuse at the head of the queue; then the next one has its turn.
        while inside.len() < 3
            && let Some(mut first) = waiting.pop_front()
        {
            match first.as_mut().poll(&mut cx) {
                Poll::Ready(Admission::In(ticket)) => inside.push(ticket),
                Poll::Ready(_) => {}
                Poll::Pending => panic!("{policy} {seed} {step}: its turn has come"),
            }
        }
        for request in &mut waiting {
            assert!(request.as_mut().poll(&mut cx).is_pending(), "{policy} {seed} {step}: out of turn");
        }
        let counted = (pool.slots.taken(), pool.slots.waiting(), pool.gate.queued());
        assert_eq!(
            counted,
            (inside.len() as u32, waiting.len() as u32, waiting.len() as u32),
            "{policy} {seed} {step}"
        );
        assert!(waiting.len() <= 6, "{policy} {seed} {step}: max_queue");
    }
    drop(waiting);
    drop(inside);
    assert_eq!((pool.slots.taken(), pool.slots.waiting(), pool.gate.queued()), (0, 0, 0));
    counted_once(&view.class(ONE).stats.snapshot(), &format!("{policy} {seed}"));
}

#[test]
fn the_gate_and_the_slots_account_for_every_request() {
    run(async {
        for policy in ["none", "bouncer", "codel", "aimd", "accept-fraction"] {
            for seed in 0..10 {
                account(policy, seed).await;
            }
        }
    });
}

#[test]
fn a_shadow_accounts_for_every_request_as_well() {
    run(async {
        let thread =
            thread("workers = 2\nmax_queue = 4\nadmission = { policy = \"none\", mode = \"shadow\" }");
        let view = thread.view();
        let pool = view.pool(ONE);
        let mut rng = seeded(7, 0);
        let mut inside = Vec::new();
        for _ in 0..2_000 {
            if rng.random::<f64>() < 0.5 {
                match arrive(&thread) {
                    (_, Poll::Ready(Admission::In(ticket))) => inside.push(ticket),
                    _ => panic!("a shadow keeps nobody waiting"),
                }
            } else if !inside.is_empty() {
                end(inside.swap_remove(rng.random_range(0..inside.len())), &mut rng);
            }
            // Shadows are tasks.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let (taken, waiting) = (pool.slots.taken(), pool.slots.waiting());
            assert_eq!(pool.gate.queued(), waiting);
            assert!(taken <= 2 && waiting <= 4 && taken + waiting <= inside.len() as u32);
            assert!(waiting == 0 || taken == 2, "nobody waits beside a free slot");
        }
        inside.clear();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!((pool.slots.taken(), pool.slots.waiting(), pool.gate.queued()), (0, 0, 0));
        let c = view.class(ONE).stats.snapshot();
        assert!(c.would_refuse.iter().sum::<u64>() > 0 && c.refused.iter().sum::<u64>() == 0);
        counted_once(&c, "shadow");
    });
}

/// Ten times more than one slot can do, of which some have deadlines and some lose their clients.
async fn overload(policy: &str, mode: &str) -> ClassSnapshot {
    let ms = std::time::Duration::from_millis;
    let thread = thread(&format!(
        "workers = 1\nmax_queue = 30\nadmission = {{ policy = \"{policy}\", mode = \"{mode}\" }}"
    ));
    let request = |n: u64| {
        let thread = Rc::clone(&thread);
        tokio::task::spawn_local(async move {
            let view = thread.view();
            let arrival = arrival();
            let deadline = n.is_multiple_of(3).then(|| arrival.at + Nanos::from_millis(40));
            let patience = if n.is_multiple_of(7) { 20 } else { 60_000 };
            let gone = tokio::time::sleep(ms(patience));
            if let Admission::In(ticket) = admit(&thread, &view, Arrival { deadline, ..arrival }, gone).await
            {
                tokio::time::sleep(ms(10)).await;
                ticket.complete(clock::refresh());
            }
        })
    };
    let mut requests = Vec::new();
    for n in 0..300 {
        requests.push(request(n));
        tokio::time::sleep(ms(1)).await;
    }
    for request in requests {
        request.await.unwrap();
    }
    let view = thread.view();
    // The last shadows end after their requests.
    while view.pool(ONE).slots.taken() + view.pool(ONE).slots.waiting() > 0 {
        tokio::task::yield_now().await;
    }
    view.class(ONE).stats.snapshot()
}

#[test]
fn every_request_is_counted_once_whatever_refuses_it_and_where() {
    run(async {
        for mode in ["off", "shadow", "enforce"] {
            for policy in ["none", "codel", "bouncer"] {
                let c = overload(policy, mode).await;
                counted_once(&c, &format!("{policy} {mode}"));
                let of = |counts: &[u64], mechanism: Mechanism| counts[mechanism as usize];
                match (policy, mode) {
                    (_, "off") => assert_eq!(c.unjudged, 300),
                    // In shadow a request goes on at once and is done before CoDel has lost its patience, or not.
                    ("codel", "enforce") => assert!(of(&c.refused, Mechanism::Codel) > 0),
                    ("none", "enforce") => {
                        assert!(of(&c.refused, Mechanism::Deadline) > 0 && c.gone > 0)
                    }
                    _ => {}
                }
            }
        }
    });
}

#[test]
fn a_policy_that_panics_lets_requests_in() {
    run(async {
        let text =
            "[sentry]\n[pool.p]\nservers = [\"127.0.0.1:1\"]\nworkers = 1\nmax_queue = 2\n[class.default]\n";
        let config = config::parse::<Config>(text, "test").unwrap().0;
        // A class that the gate has never heard of is out of every bound that it knows.
        let shared = Shared::altered(config, |routing| routing.classes[0].in_pool = ClassId(999));
        let thread = Thread::new(0, shared, 1);
        let first = arrive(&thread).1;
        assert!(matches!(first, Poll::Ready(Admission::In(_))));
        let (second, third) = (arrive(&thread), arrive(&thread));
        assert!(second.1.is_pending() && third.1.is_pending(), "the slots still hold");
        let Poll::Ready(Admission::Refused(refusal)) = arrive(&thread).1 else {
            panic!("and so does max_queue")
        };
        assert_eq!(refusal.mechanism, Mechanism::MaxQueue);
        assert_eq!(thread.stats().policy_panics.get(), 4);
        drop((first, second, third));
        let view = thread.view();
        let pool = view.pool(ONE);
        assert_eq!((pool.slots.taken(), pool.slots.waiting(), pool.gate.queued()), (0, 0, 0));
    });
}

#[test]
fn a_gate_that_is_not_ticked_is_not_asked() {
    run(async {
        let thread = thread("workers = 1\nadmission = { policy = \"maxql\", limit = 1 }");
        let view = thread.view();
        let pool = view.pool(ONE);
        let (now, late) = (clock::now(), clock::now() + Nanos::from_secs(60));
        assert!(pool.judges(now) && !pool.judges(late));
        let from_there = |thread: &Rc<Thread>, at: Nanos| {
            let (thread, view) = (Rc::clone(thread), thread.view());
            let mut request: Waiting = Box::pin(async move {
                admit(&thread, &view, Arrival { at, ..arrival() }, std::future::pending()).await
            });
            let poll = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            (request, poll)
        };
        let mut all: Vec<_> = (0..5).map(|_| from_there(&thread, late)).collect();
        assert!(all.iter().all(|(_, poll)| !matches!(poll, Poll::Ready(Admission::Refused(_)))));
        assert_eq!((pool.slots.waiting(), pool.gate.queued()), (4, 4), "but it knows of them");
        pool.tick(0.0, late);
        let (_, poll) = from_there(&thread, late);
        assert!(matches!(poll, Poll::Ready(Admission::Refused(_))), "and judges again when it is");
        all.clear();
        assert_eq!((pool.slots.taken(), pool.gate.queued()), (0, 0));
    });
}

#[test]
fn whoever_leaves_or_is_late_is_dropped_from_the_queue() {
    run(async {
        let thread = thread("workers = 1\nadmission = { policy = \"none\" }");
        let view = thread.view();
        let Poll::Ready(Admission::In(_first)) = arrive(&thread).1 else { panic!("there is room") };
        let left = admit(&thread, &view, arrival(), std::future::ready(())).await;
        assert!(matches!(left, Admission::ClientGone));
        let deadline = Some(clock::now() + Nanos::from_millis(20));
        let late = admit(&thread, &view, Arrival { deadline, ..arrival() }, std::future::pending()).await;
        let Admission::Refused(refusal) = late else { panic!("its deadline has passed") };
        assert_eq!((refusal.mechanism, refusal.limit), (Mechanism::Deadline, Limit::Deadline));
        assert_eq!((view.pool(ONE).slots.waiting(), view.pool(ONE).gate.queued()), (0, 0));
        let c = view.class(ONE).stats.snapshot();
        assert_eq!((c.gone, c.refused.iter().sum::<u64>(), c.admitted()), (1, 1, 1));
    });
}

/// Three classes of different importance, policed, at several times what the servers can do; clients leave and deadlines pass.
/// However a request ends, it is counted once, and nothing stays behind.
async fn police_accounts(policy: &str, seed: u64) {
    let text = format!(
        "[sentry]\n[pool.p]\nservers = [\"127.0.0.1:1\"]\nworkers = 4\nmax_queue = 100\n\
         policing = {{ policy = \"{policy}\" }}\nadmission = {{ policy = \"none\" }}\n\
         [class.gold]\nmatch = [{{ path = \"/g\" }}]\npriority = 1\nslo = {{ mean = \"30ms\" }}\n\
         [class.silver]\nmatch = [{{ path = \"/s\" }}]\npriority = 2\nslo = {{ mean = \"30ms\" }}\nmin_rate = \"9/s\"\n\
         [class.default]\nslo = {{ mean = \"30ms\" }}\n"
    );
    let config = config::parse::<Config>(&text, "test").unwrap().0;
    let thread = Thread::new(0, Shared::altered(config, |_| {}), seed);
    let view = thread.view();
    let pool = Arc::clone(view.pool(ONE));
    let rng = Rc::new(std::cell::RefCell::new(seeded(seed, 0)));
    let mut all = tokio::task::JoinSet::new();
    for step in 0..3_000_u32 {
        let (thread, rng) = (Rc::clone(&thread), Rc::clone(&rng));
        let class = ClassId(rng.borrow_mut().random_range(0..3));
        let [leaves, deadline] = [30, 10].map(|of| rng.borrow_mut().random_ratio(1, of));
        all.spawn_local(async move {
            let (view, at) = (thread.view(), clock::refresh());
            let gone = async move {
                match leaves {
                    true => tokio::time::sleep(std::time::Duration::from_millis(3)).await,
                    false => std::future::pending().await,
                }
            };
            let deadline = deadline.then_some(at + Nanos::from_millis(15));
            let arrival = Arrival { at, class, deadline, client: None, kind: 0 };
            if let Admission::In(ticket) = admit(&thread, &view, arrival, gone).await {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                end(ticket, &mut rng.borrow_mut());
            }
        });
        if step % 8 == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            pool.tick(0.0, clock::refresh());
        }
    }
    while let Some(ended) = all.join_next().await {
        ended.unwrap();
    }
    assert_eq!((pool.slots.taken(), pool.slots.waiting(), pool.gate.queued()), (0, 0, 0), "{policy} {seed}");
    let counted = [0, 1, 2].map(|class| view.class(ClassId(class)).stats.snapshot());
    counted.iter().for_each(|class| counted_once(class, &format!("{policy} {seed}")));
    let refused =
        |class: &ClassSnapshot| class.refused[Mechanism::Policing as usize] as f64 / class.offered as f64;
    let [gold, silver, bronze] = [0, 1, 2].map(|class| refused(&counted[class]));
    assert!(bronze > 0.5 && gold < bronze && silver <= bronze, "{policy} {seed}: {gold} {silver} {bronze}");
    assert!(counted[1].granted[Grant::Promise as usize] > 0, "{policy} {seed}");
}

#[test]
fn whatever_the_police_does_every_request_is_accounted_for() {
    run(async {
        for policy in ["batch", "threshold", "auto"] {
            for seed in 1..=2 {
                police_accounts(policy, seed).await;
            }
        }
    });
}
