//! Fair share among clients, in front of a pool that cannot serve all that they ask.

use plimsoll_admission::{Ask, Gate, GateSpec, Outcome, Slots, build};
use plimsoll_core::config::{Override, Policy};
use plimsoll_core::rng::{Rng, seeded};
use plimsoll_core::{ClassId, Nanos, Percentile, Slo};
use rand::RngExt;
use std::collections::VecDeque;

const CLASS: ClassId = ClassId(0);
const GREEDY: usize = 0;
const SLOTS: usize = 4;
const MODEST: usize = 9;

/// Four slots that clients ask for at random, millisecond by millisecond.
struct Pool {
    gate: Gate,
    rng: Rng,
    now_ms: u64,
    /// On average.
    service_ms: u64,
    waiting: VecDeque<u64>,
    /// When each that is served began and ends.
    serving: Vec<(u64, u64, u64)>,
}

impl Pool {
    fn new(policy: &Policy) -> Pool {
        let ms = Nanos::from_millis;
        let spec = GateSpec {
            slos: vec![Slo::new([(Percentile::P50, ms(80)), (Percentile::P90, ms(120))]).unwrap()],
            ranks: Vec::new(),
            fair_share: vec![true],
            slots: Slots::Fixed(SLOTS as u32),
            max_queue: 40,
            start: Nanos::ZERO,
        };
        let gate = build::gate(spec, policy, &["default"]);
        let (waiting, serving) = (VecDeque::new(), Vec::new());
        Pool { gate, rng: seeded(3, 0), now_ms: 0, service_ms: 20, waiting, serving }
    }

    /// Clients ask at these rates for so long; what each asked and was given.
    fn run(&mut self, seconds: u64, per_s: &[f64]) -> Vec<(u32, u32)> {
        let mut counts = vec![(0, 0); per_s.len()];
        for _ in 0..seconds * 1_000 {
            self.now_ms += 1;
            let (now_ms, now) = (self.now_ms, Nanos::from_millis(self.now_ms));
            self.gate.tick(now);
            self.serving.retain(|&(waited, began, ends)| {
                if ends <= now_ms {
                    let (waited, served) = (Nanos::from_millis(waited), Nanos::from_millis(ends - began));
                    self.gate.finish(CLASS, waited, served, Outcome::Measured);
                }
                ends > now_ms
            });
            for (client, (&rate, counts)) in per_s.iter().zip(&mut counts).enumerate() {
                if self.rng.random::<f64>() >= rate / 1_000.0 {
                    continue;
                }
                let ask = Ask { client: Some(client as u64), ..Ask::of(CLASS) };
                let admitted = self.gate.offer(&ask, now, &mut self.rng).is_admit();
                if admitted {
                    self.waiting.push_back(now_ms);
                }
                counts.0 += 1;
                counts.1 += u32::from(admitted);
            }
            while self.serving.len() < SLOTS
                && let Some(since) = self.waiting.pop_front()
            {
                if self.gate.start(CLASS, Nanos::from_millis(now_ms - since), now).is_admit() {
                    let service = self.rng.random_range(self.service_ms / 2..=self.service_ms * 3 / 2);
                    self.serving.push((now_ms - since, now_ms, now_ms + service));
                }
            }
        }
        counts
    }
}

/// One that asks for five times what there is, and nine that ask for `each` a second.
fn one_greedy(each: f64) -> Vec<f64> {
    [vec![1_000.0], vec![each; MODEST]].concat()
}

fn policies() -> [Policy; 4] {
    [
        Policy::Bouncer(Override::Never),
        Policy::MaxQl { limit: 16 },
        Policy::AcceptFraction { max_util: 0.95 },
        // Here `max_queue` is all that refuses.
        Policy::None,
    ]
}

#[test]
fn modest_clients_get_all_they_ask_and_the_greedy_one_the_rest() {
    for policy in policies() {
        for each in [1.0, 8.0] {
            let mut pool = Pool::new(&policy);
            // As long as AcceptFraction remembers, and more.
            pool.run(150, &one_greedy(each));
            let seconds = 60;
            let counts = pool.run(seconds, &one_greedy(each));
            let (asked, given) = counts[1..].iter().fold((0, 0), |sum, c| (sum.0 + c.0, sum.1 + c.1));
            let all = given + counts[GREEDY].1;
            let capacity = (SLOTS as u64 * 1_000 / pool.service_ms * seconds) as f64;
            let context = format!("{policy:?}, {each}/s each: {counts:?}");
            // Chance refuses anybody: AcceptFraction's by design, that of the arrivals while a queue has no other limit.
            let most = if matches!(policy, Policy::Bouncer(_) | Policy::MaxQl { .. }) { 0.93 } else { 0.87 };
            assert!(f64::from(given) >= most * f64::from(asked), "{given} of {asked}: {context}");
            assert!(
                f64::from(all) >= 0.88 * capacity,
                "capacity is left idle, {all} of {capacity}: {context}"
            );
        }
    }
}

#[test]
fn when_the_overload_ends_the_greedy_client_is_free_again() {
    for policy in [Policy::Bouncer(Override::Never), Policy::MaxQl { limit: 16 }, Policy::None] {
        let mut pool = Pool::new(&policy);
        pool.run(30, &one_greedy(1.0));
        // Ten times as fast from here on: there is room for everybody, and the greedy one does not stop asking.
        pool.service_ms = 2;
        pool.run(30, &one_greedy(1.0));
        let counts = pool.run(30, &one_greedy(1.0));
        assert!(counts.iter().all(|(asked, given)| asked == given), "{policy:?}: {counts:?}");
    }
}

/// Requests that cannot be answered in time whatever the pool does are no reason to hold others back.
#[test]
fn hopeless_deadlines_are_no_contention() {
    let mut pool = Pool::new(&Policy::MaxQl { limit: 16 });
    for _ in 0..20 {
        let now = Nanos::from_millis(pool.now_ms);
        for _ in 0..500 {
            let hopeless = Ask { deadline: Some(now), client: Some(77), ..Ask::of(CLASS) };
            assert!(!pool.gate.offer(&hopeless, now, &mut pool.rng).is_admit());
        }
        let counts = pool.run(1, &[100.0, 1.0]);
        assert!(counts.iter().all(|(asked, given)| asked == given), "{counts:?}");
    }
}
