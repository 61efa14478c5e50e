//! The whole life of requests that have to wait, as a host leads them through it.

use std::hint::black_box;

use plimsoll_core::rng::seeded;
use plimsoll_core::{Nanos, Rng};
use plimsoll_policing::batch::{AT_ONCE, Batch, Load};
use plimsoll_policing::police::{Answer, Police};

use crate::crowd::{self, Crowd};
use crate::harness::cpu_ns;

/// Between two requests.
pub const GAP: Nanos = Nanos(50);
/// After so long everybody is due.
const LATER: Nanos = Nanos::from_secs(1);
/// What is let in of a batch: some, and far from all.
const LET_IN: std::ops::Range<f64> = 0.02..0.4;

/// Whoever waits for an answer: two words, as a channel's end and a reference to the request are.
type Handle = [u64; 2];

/// A host with one thread.
pub struct Life {
    crowd: Crowd,
    police: Police,
    batch: Batch<Handle>,
    load: Load,
    classes: usize,
    now: Nanos,
    arrived: usize,
    rng: Rng,
}

impl Life {
    /// With a batch for so many requests, of so many classes that wait: beside them there is the first, which never does.
    pub fn new(classes: usize, waiting: usize) -> Life {
        let crowd = Crowd::new(1..1 + classes as u16);
        let (police, now) = crowd::staggered(1 + classes);
        let batch = Batch::new(1 + classes, waiting);
        let (load, rng) = (crowd::load(waiting), seeded(2, 0));
        let mut life = Life { crowd, police, batch, load, classes, now, arrived: 0, rng };
        life.fill(waiting);
        let mut let_in = 0;
        life.empty(|fits| let_in += usize::from(fits));
        let share = let_in as f64 / waiting as f64;
        assert!(LET_IN.contains(&share), "{share:.3} of {waiting} were let in");
        life
    }

    /// Throws the batch away for a new one.
    pub fn forget(&mut self, waiting: usize) {
        self.batch = Batch::new(1 + self.classes, waiting);
    }

    /// So many requests from their arrival to their answer.
    pub fn live(&mut self, waiting: usize) {
        self.fill(waiting);
        self.empty(|_| ());
    }

    /// So many arrive.
    pub fn fill(&mut self, requests: usize) {
        for _ in 0..requests {
            let (request, handle) = (self.crowd.at(self.arrived), [self.arrived as u64; 2]);
            self.arrived += 1;
            self.now += GAP;
            match self.police.offer(request.class(), request.size(), &self.load, self.now, &mut self.rng) {
                Answer::Waits { rank, delay } => {
                    let displaced = self.batch.push(rank, request.size(), delay, self.now, handle);
                    if let Some((rank, handle)) = displaced {
                        let misfit = self.police.crowded_out(rank, &self.load);
                        black_box((handle, self.police.processed(Err(misfit))));
                    }
                }
                now => _ = black_box(now),
            }
        }
    }

    /// All are processed and answered. `heard` is told of each whether it was let in.
    fn empty(&mut self, mut heard: impl FnMut(bool)) {
        while self.batch.waiting() > 0 {
            self.process(&mut heard);
        }
    }

    fn process(&mut self, mut heard: impl FnMut(bool)) {
        let terms = |rank| self.police.terms(rank);
        self.batch.process(self.now + LATER, &self.load, terms, |handle, _, outcome| {
            heard(outcome.is_ok());
            black_box((handle, self.police.processed(outcome)));
            true
        });
    }

    /// The longest that a host can see to nothing else, in nanoseconds, while so many come to a batch that has never held anybody, as
    /// many at a time as are answered at a time, and while they are answered.
    pub fn longest_ns(&mut self, waiting: usize) -> (f64, f64) {
        self.forget(waiting);
        let (mut pushing, mut processing) = (0, 0);
        for _ in 0..waiting / AT_ONCE {
            let began = cpu_ns();
            self.fill(AT_ONCE);
            pushing = pushing.max(cpu_ns() - began);
        }
        while self.batch.waiting() > 0 {
            let began = cpu_ns();
            self.process(|_| ());
            processing = processing.max(cpu_ns() - began);
        }
        (pushing as f64, processing as f64)
    }
}
