//! What the benchmark offers: requests drawn in advance, so that a measured loop does not draw, and gates that have
//! learnt what they take.

use plimsoll_admission::{Gate, GateSpec, Outcome, Slots, build};
use plimsoll_core::config::Policy;
use plimsoll_core::rng::seeded;
use plimsoll_core::{ClassId, Nanos, Percentile, Slo};
use rand::distr::{Distribution, Uniform};
use rand_distr::LogNormal;

/// Requests drawn in advance; few enough to leave the level-1 cache to the gate.
const DRAWN: usize = 1024;
/// What a gate learns from before it is measured.
const LEARNT_FROM: usize = 50 * DRAWN;
/// And how long that takes: light use, of which accept-fraction refuses nothing.
const LEARNT_WITHIN: Nanos = Nanos::from_secs(59);
/// Mean processing times of the cheapest and the dearest class, and the spread of the paper's study.
const MEANS_MS: (f64, f64) = (0.5, 25.0);
const SIGMA: f64 = 0.92;
/// Objectives as multiples of processing times.
const SLACK: f64 = 10.0;
const SLOTS: u32 = 50;
/// Waiting requests behind which every class misses its objectives.
const OVERLOAD: usize = 3_000;
const MAX_QUEUE: u32 = 8_000;

/// One request, in eight bytes.
#[derive(Clone, Copy)]
pub struct Request {
    served_us: u32,
    class: u16,
}

impl Request {
    pub fn class(self) -> ClassId {
        ClassId(self.class)
    }
    pub fn served(self) -> Nanos {
        Nanos::from_micros(u64::from(self.served_us))
    }
}

/// Requests in the order of arrival, over and over.
pub struct Traffic {
    pub classes: usize,
    drawn: Vec<Request>,
}

impl Traffic {
    /// Every class as often as any other: the hardest case for the caches.
    pub fn new(classes: usize) -> Traffic {
        let mut rng = seeded(1, classes as u64);
        let any_class = Uniform::new(0, classes as u16).expect("there are classes");
        let draw = |_| {
            let class = any_class.sample(&mut rng);
            let median_us = (mean_us(usize::from(class), classes)).ln() - SIGMA * SIGMA / 2.0;
            let served = LogNormal::new(median_us, SIGMA).expect("sigma is finite");
            Request { served_us: served.sample(&mut rng) as u32, class }
        };
        Traffic { classes, drawn: (0..DRAWN).map(draw).collect() }
    }

    #[inline]
    pub fn at(&self, i: usize) -> Request {
        self.drawn[i % DRAWN]
    }

    /// Objectives that are met behind a short queue and missed behind a long one.
    pub fn slos(&self) -> Vec<Slo> {
        let slo = |class| {
            let limit = |us: f64| Nanos::from_secs_f64(us * 1e-6 * SLACK);
            let mean_us = mean_us(class, self.classes);
            Slo::new([(Percentile::P50, limit(mean_us)), (Percentile::P90, limit(4.0 * mean_us))])
        };
        (0..self.classes).map(|class| slo(class).expect("p50 is below p90")).collect()
    }

    /// A gate that has seen every class often and has an empty queue.
    pub fn learnt_gate(&self, policy: &Policy) -> Gate {
        let spec = GateSpec {
            slos: self.slos(),
            ranks: Vec::new(),
            fair_share: Vec::new(),
            slots: Slots::Fixed(SLOTS),
            max_queue: MAX_QUEUE,
            start: Nanos::ZERO,
        };
        let gate = build::gate(spec, policy, &vec!["class"; self.classes]);
        for request in (0..LEARNT_FROM).map(|i| self.at(i)) {
            gate.admit_unjudged(request.class());
            gate.start(request.class(), Nanos::ZERO, Nanos::ZERO);
            gate.finish(request.class(), Nanos::ZERO, request.served(), Outcome::Measured);
        }
        gate.tick(LEARNT_WITHIN);
        // Somebody always waits: with an empty queue nothing has to be reckoned.
        gate.admit_unjudged(self.at(0).class());
        gate
    }

    /// The same behind so long a queue that every class misses its objectives.
    pub fn overloaded_gate(&self, policy: &Policy) -> Gate {
        let gate = self.learnt_gate(policy);
        (0..OVERLOAD).for_each(|i| gate.admit_unjudged(self.at(i).class()));
        gate
    }
}

fn mean_us(class: usize, classes: usize) -> f64 {
    let (low, high) = MEANS_MS;
    1e3 * low * (high / low).powf(class as f64 / (classes - 1) as f64)
}
