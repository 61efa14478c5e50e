//! The batch beside a model that knows no buckets' queues, no slices and no rounds: it sorts everybody who waits and tests one after
//! the other.

use super::*;
use proptest::prelude::*;

const CLASSES: usize = 5;
const MS: fn(u64) -> Nanos = Nanos::from_millis;

/// One that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiter {
    rank: usize,
    bucket: usize,
    id: usize,
}

/// Who asks for an answer comes back only every so often.
fn still_there(id: usize) -> bool {
    !id.is_multiple_of(7)
}

#[derive(Default)]
struct Model {
    waiting: Vec<Waiter>,
    due: [Option<Nanos>; CLASSES],
    max_waiting: usize,
}

type Told = Vec<(usize, Result<(), Misfit>)>;

impl Model {
    fn push(&mut self, waiter: Waiter, due: Nanos) -> Option<(usize, usize)> {
        self.waiting.push(waiter);
        self.due[waiter.rank] = Some(self.due[waiter.rank].map_or(due, |before| before.min(due)));
        if self.waiting.len() <= self.max_waiting {
            return None;
        }
        let worst = self.waiting.iter().max().copied()?;
        self.waiting.retain(|&waiter| waiter != worst);
        self.forget_empty();
        Some((worst.rank, worst.id))
    }

    fn forget_empty(&mut self) {
        for rank in 0..CLASSES {
            if self.waiting.iter().all(|waiter| waiter.rank != rank) {
                self.due[rank] = None;
            }
        }
    }

    /// Eq. 4 in whole numbers, request by request.
    fn process(&mut self, now: Nanos, load: &Load, terms: impl Fn(usize) -> Terms) -> Told {
        let wanted = |rank: &usize| self.due[*rank].is_some_and(|due| due <= now || load.idle);
        let Some(last) = (0..CLASSES).rev().find(wanted) else { return Vec::new() };
        let (mut told, mut admitted, mut any) = (Vec::new(), 0u64, false);
        let (mut queue_delay, mut size_before) = (load.queue_delay, Nanos::ZERO);
        let (mut failed, mut full): ([Option<Misfit>; CLASSES], Option<Misfit>) = Default::default();
        self.waiting.sort();
        for waiter in std::mem::take(&mut self.waiting) {
            let (terms, size) = (terms(waiter.rank), middle_of(waiter.bucket));
            if full.is_none() && waiter.rank > last {
                self.waiting.push(waiter);
                continue;
            }
            let whole = terms.target - terms.delay;
            let most_left = Nanos(terms.target.0 / 2).min(whole - size);
            let objective = whole - if size >= terms.surplus { most_left } else { terms.above - size };
            // In a queue, who was let in before takes what it takes. Who is refused untested is no reason to look.
            let tested = full.or(failed[waiter.rank]).is_none();
            if tested && load.in_service == 0.0 && size != size_before {
                queue_delay += Nanos(size_before.0 * admitted / u64::from(load.servers));
                admitted = 0;
            }
            if tested {
                size_before = size;
            }
            let turns = load.in_service as u64 + (admitted + 1).div_ceil(u64::from(load.servers));
            let estimate = queue_delay + Nanos(turns * size.0);
            let outcome = match full.or(failed[waiter.rank]) {
                Some(misfit) => Err(misfit),
                None if estimate <= objective || (load.idle && !any) => Ok(()),
                None => Err(Misfit { estimate, objective }),
            };
            if let Err(misfit) = outcome
                && failed[waiter.rank].is_none()
            {
                failed[waiter.rank] = Some(misfit);
                full = full.or((size <= objective).then_some(misfit));
            }
            let there = outcome.is_ok() && still_there(waiter.id);
            admitted += u64::from(there);
            any |= there;
            told.push((waiter.id, outcome));
        }
        self.forget_empty();
        told
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push { rank: usize, size_us: u64, times: usize },
    Process { after_ms: u64, load: Load },
}

fn load() -> impl Strategy<Value = Load> {
    (0u64..300, 0u32..4, 1u32..200, prop::bool::weighted(0.1)).prop_map(
        |(queue_ms, in_service, servers, idle)| Load {
            queue_delay: MS(queue_ms),
            in_service: in_service.into(),
            servers,
            idle,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (0..CLASSES, 1u64..800_000, 1usize..3 * AT_ONCE)
        .prop_map(|(rank, size_us, times)| Step::Push { rank, size_us, times });
    let process = (0u64..60, load()).prop_map(|(after_ms, load)| Step::Process { after_ms, load });
    prop::collection::vec(prop_oneof![3 => push, 2 => process], 1..30)
}

fn terms(rank: usize) -> Terms {
    let above = MS([0, 40, 0, 300, 90][rank]);
    let surplus = [Nanos::MAX, Nanos::MAX, MS(90), Nanos::MAX, Nanos::ZERO][rank];
    Terms { target: MS([700, 500, 500, 2_000, 300][rank]), delay: MS(20 * rank as u64), above, surplus }
}

proptest! {
    /// The same answers in the same order to everybody, though the host calls as often as it takes and has another load by then.
    #[test]
    fn everybody_hears_what_one_test_after_the_other_would_say(
        steps in steps(), max_waiting in prop::sample::select(vec![50usize, 1_000, 100_000]),
    ) {
        let (mut batch, mut model) = (Batch::new(CLASSES, max_waiting), Model { max_waiting, ..Model::default() });
        let (mut now, mut id) = (MS(1), 0);
        for step in steps {
            match step {
                Step::Push { rank, size_us, times } => for _ in 0..times {
                    let (size, delay) = (Nanos::from_micros(size_us), terms(rank).delay);
                    let waiter = Waiter { rank, bucket: bucket_of(size), id };
                    prop_assert_eq!(batch.push(rank, size, delay, now, id), model.push(waiter, now + delay));
                    id += 1;
                },
                Step::Process { after_ms, load } => {
                    now += MS(after_ms);
                    let other = Load { queue_delay: Nanos::MAX, in_service: 9.0, servers: 1, idle: false };
                    let (mut told, mut calls): (Told, usize) = Default::default();
                    while calls == 0 || batch.due() == Nanos::ZERO {
                        let before = told.len();
                        batch.process(now, if calls == 0 { &load } else { &other }, terms, |id, _, answer| {
                            told.push((id, answer));
                            still_there(id)
                        });
                        calls += 1;
                        prop_assert!(told.len() - before <= AT_ONCE && (told.len() > before || calls == 1));
                    }
                    let expected = model.process(now, &load, terms);
                    // Who is let in hears first, so the two are looked at apart.
                    let apart = |told: Told| -> (Told, Told) { told.into_iter().partition(|told| told.1.is_ok()) };
                    prop_assert_eq!(apart(told), apart(expected));
                }
            }
            prop_assert_eq!(batch.waiting(), model.waiting.len());
            prop_assert_eq!(batch.due(), model.due.iter().flatten().min().copied().unwrap_or(Nanos::MAX));
        }
    }

    /// However calls and arrivals follow each other: everybody hears once, no more wait than may, and once the host has called until
    /// nothing is due, nobody waits whose time has come.
    #[test]
    fn nobody_is_lost_or_heard_twice_or_waits_for_ever(steps in steps(), max_waiting in 1usize..2_000) {
        let mut batch = Batch::new(CLASSES, max_waiting);
        let mut due = Vec::new();
        let mut heard: Vec<usize> = Vec::new();
        let mut now = MS(1);
        for step in steps {
            match step {
                Step::Push { rank, size_us, times } => for _ in 0..times {
                    let (id, delay) = (due.len(), terms(rank).delay);
                    due.push(now + delay);
                    heard.push(0);
                    if let Some((_, gone)) = batch.push(rank, Nanos::from_micros(size_us), delay, now, id) {
                        heard[gone] += 1;
                    }
                },
                Step::Process { after_ms, load } => {
                    now += MS(after_ms);
                    // Not to the end, so that others arrive in the middle.
                    for _ in 0..1 + after_ms % 3 {
                        batch.process(now, &load, terms, |id, _, _| {
                            heard[id] += 1;
                            true
                        });
                    }
                    if after_ms % 4 == 0 {
                        while batch.due() <= now {
                            batch.process(now, &load, terms, |id, _, _| {
                                heard[id] += 1;
                                true
                            });
                        }
                        let late = (0..due.len()).filter(|&id| due[id] <= now && heard[id] == 0).count();
                        prop_assert_eq!(late, 0);
                    }
                }
            }
            prop_assert!(batch.waiting() <= max_waiting);
            prop_assert_eq!(heard.iter().filter(|&&times| times == 0).count(), batch.waiting());
            prop_assert!(heard.iter().all(|&times| times <= 1));
        }
    }
}

#[test]
fn who_comes_while_others_are_still_told_takes_the_place_of_those() {
    let mut batch = Batch::new(CLASSES, 2 * AT_ONCE);
    let full = Load { queue_delay: MS(800), in_service: 0.0, servers: 1, idle: false };
    for id in 0..2 * AT_ONCE {
        assert_eq!(batch.push(4, MS(10), Nanos::ZERO, MS(1), id), None);
    }
    let mut told = 0;
    batch.process(MS(1), &full, terms, |_, _, answer| {
        told += usize::from(answer.is_err());
        true
    });
    assert_eq!((told, batch.waiting(), batch.due()), (AT_ONCE, AT_ONCE, Nanos::ZERO));
    (0..AT_ONCE).for_each(|_| assert_eq!(batch.push(0, MS(10), MS(5), MS(1), 0), None));
    assert_eq!(batch.push(0, MS(10), MS(5), MS(1), 0), Some((4, AT_ONCE)), "the next who was to be told");
    assert_eq!(batch.waiting(), 2 * AT_ONCE);
}
