//! The police in a run: requests that wait for it, and what it is told about the servers.

use plimsoll_admission::Gate;
use plimsoll_core::{Nanos, Rng, Verdict};
use plimsoll_policing::batch::{Batch, Load};
use plimsoll_policing::police::{Answer, Police, Scene};

use crate::engine::{Arrival, Deciders};

/// Most requests that wait for the police at once.
const MAX_HELD: usize = 100_000;

/// A request that nobody has decided about.
#[derive(Clone, Copy)]
pub struct Held {
    /// How many came before it.
    pub index: u64,
    /// As it came.
    pub arrival: Arrival,
}

/// The police and those that wait for it.
pub struct Policed<'a> {
    police: &'a Police,
    sentry_busy: fn(Nanos) -> f64,
    /// Requests that wait.
    pub batch: Batch<Held>,
    tick_at: Nanos,
    /// Kept for its room.
    pub answers: Vec<(Held, Verdict)>,
}

impl<'a> Policed<'a> {
    /// Nobody waits yet.
    pub fn new(police: &'a Police, Deciders { gate, sentry_busy, .. }: Deciders<'_>) -> Policed<'a> {
        let batch = Batch::new(gate.report().len(), MAX_HELD);
        Policed { police, sentry_busy, batch, tick_at: Nanos::ZERO, answers: Vec::new() }
    }

    /// When it has something to do.
    #[inline]
    pub fn alarm_at(&self) -> Nanos {
        let due = if self.batch.waiting() > 0 { self.batch.due() } else { Nanos::MAX };
        self.tick_at.min(due)
    }

    /// Looks at a request that comes. Returns who is decided about, and how; that may be another one, for whom there is no room to
    /// wait any more.
    pub fn offer(&mut self, gate: &Gate, idle: bool, held: Held, rng: &mut Rng) -> Option<(Held, Verdict)> {
        let Arrival { at, class, .. } = held.arrival;
        // All of a class is of one kind, so what is known of its size is its mean.
        let (load, size) = (load(gate, idle), gate.mean(class));
        match self.police.offer(class, size, &load, at, rng) {
            Answer::Now(verdict) => Some((held, verdict)),
            Answer::Waits { rank, delay } => {
                let (rank, displaced) = self.batch.push(rank, size, delay, at, held)?;
                Some((displaced, self.police.processed(Err(self.police.crowded_out(rank, &load)))))
            }
        }
    }

    /// Renews what decisions read, where that is due; else says no.
    pub fn tick(&mut self, gate: &Gate, idle: bool, now: Nanos) -> bool {
        if now < self.tick_at {
            return false;
        }
        let scene = Scene { load: load(gate, idle), sentry_busy: (self.sentry_busy)(now) };
        self.tick_at = self.police.tick(&scene, now);
        true
    }

    /// Looks at those whose time has come. The answers are to be given back for their room.
    pub fn process(&mut self, gate: &Gate, idle: bool, now: Nanos) -> Vec<(Held, Verdict)> {
        let mut answers = std::mem::take(&mut self.answers);
        let (police, load) = (self.police, load(gate, idle));
        // What one call leaves is due at once, and here nobody else wants the time.
        loop {
            let terms = |rank| police.terms(rank);
            self.batch.process(now, &load, terms, |held, _, outcome| {
                answers.push((held, police.processed(outcome)));
                true
            });
            if self.batch.due() > Nanos::ZERO {
                break;
            }
        }
        answers
    }
}

fn load(gate: &Gate, idle: bool) -> Load {
    Load { queue_delay: gate.expected_wait(), in_service: 0.0, servers: gate.slots(), idle }
}
