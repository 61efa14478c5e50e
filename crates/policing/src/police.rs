//! All of it together, for one pool: who passes on the promise of its class, who is let in, who is sent away, and who waits to be
//! looked at (Cataclysm, Fig. 2). A host puts every request through [`Police::offer`], keeps those that wait in a
//! [`crate::batch::Batch`] a thread, and calls [`Police::tick`].
//!
//! Whoever finds a free server passes at once, whatever its class: there is nobody to hold it back for.

use plimsoll_core::sync::{AtomicBool, AtomicU64, Ordering::Relaxed, try_lock};
use plimsoll_core::{ClassId, Grant, Limit, Mechanism, Nanos, Quantity, Refusal, Rng, Verdict};

use crate::batch::{Load, Misfit, Terms};
use crate::delays::{Contender, delays};
use crate::ladder::Ladder;
use crate::minimum::MinimumRates;
use crate::rates::{PERIOD, Rates};
use crate::switch::{Policer, Switch};
use crate::threshold::{Demand, Threshold};

/// The threshold fills the servers: what it lets in too much comes back as a queue, and in so long a time it works that off. A queue
/// of a tenth of it leaves nine tenths of the servers to those who come.
const WORK_OFF: Nanos = Nanos::from_secs(1);
/// A ladder's response time is only tightened once the rate is this much lower than where that was owed.
const RUNG: f64 = 1.1;
/// Nobody waits to be processed for more than this share of what its class is owed.
const LONGEST_DELAY: f64 = 0.25;
/// What the last period weighs in the share of requests that found no room.
const WEIGHT: f64 = 0.5;

/// What policing knows of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassSpec {
    /// From 1, the most important.
    pub priority: u32,
    /// What an answer is worth; among classes of one priority more comes first.
    pub revenue: f64,
    /// Requests a second that are let in whatever comes; zero for none.
    pub promised_per_s: f64,
    /// The mean response time owed, where that is not the pool's ladder's business; `Nanos::MAX` for none.
    pub target: Nanos,
}

/// Which of the two policers a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Whichever the sentry's load allows.
    Auto,
    /// This one.
    Always(Policer),
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// It goes on, or it does not.
    Now(Verdict),
    /// It waits to be processed: in a batch, at this rank and for at most so long.
    Waits {
        /// Its class's rank.
        rank: usize,
        /// Its class's delay.
        delay: Nanos,
    },
}

/// Policing of one pool. Shared by all threads; [`Police::offer`] neither locks nor allocates.
pub struct Police {
    /// By class.
    ranks: Box<[u16]>,
    /// By rank.
    order: Box<[ClassId]>,
    targets: Box<[Nanos]>,
    ladder: Option<Ladder>,
    promised: MinimumRates,
    /// Of requests that are not within a promise, and of those that are.
    untested: Rates,
    promises: Rates,
    threshold: Threshold,
    cheap: AtomicBool,
    owed_ns: AtomicU64,
    /// By rank.
    delays_ns: Box<[AtomicU64]>,
    counted: Counted,
    choice: Choice,
    // Never waited for: whoever finds it taken leaves the work to the one who holds it.
    #[allow(clippy::disallowed_types)]
    learning: std::sync::Mutex<Learning>,
}

/// Since the last tick: how many asked for room, and how many of them found none. On a cache line of its own, away from what every
/// request reads.
#[derive(Default)]
#[repr(align(64))]
struct Counted {
    asked: AtomicU64,
    misfits: AtomicU64,
}

#[derive(Default)]
struct Learning {
    switch: Switch,
    /// The share of tested requests that found no room: the paper's p_drop.
    refused: f64,
}

/// What [`Police::tick`] is told about the pool.
pub struct Scene<'a> {
    /// How busy the servers are.
    pub load: Load,
    /// The mean service time of each class.
    pub mean: &'a dyn Fn(ClassId) -> Nanos,
    /// How busy the sentry itself is: the share of the CPU time that it may have, in 0..1.
    pub sentry_busy: f64,
}

impl Police {
    /// For these classes, in the order of their ids, and this ladder, where the pool has one.
    pub fn new(classes: &[ClassSpec], ladder: Option<Ladder>, choice: Choice, now: Nanos) -> Police {
        let mut order: Vec<ClassId> = (0..classes.len()).map(|i| ClassId(i as u16)).collect();
        order.sort_by(|a, b| {
            let (a, b) = (&classes[a.index()], &classes[b.index()]);
            a.priority.cmp(&b.priority).then(b.revenue.total_cmp(&a.revenue))
        });
        let mut ranks = vec![0; classes.len()];
        order.iter().enumerate().for_each(|(rank, class)| ranks[class.index()] = rank as u16);
        let promised: Vec<f64> = classes.iter().map(|class| class.promised_per_s).collect();
        Police {
            ranks: ranks.into(),
            targets: order.iter().map(|class| classes[class.index()].target).collect(),
            delays_ns: order.iter().map(|_| AtomicU64::new(0)).collect(),
            order: order.into(),
            owed_ns: AtomicU64::new(ladder.as_ref().map_or(u64::MAX, |ladder| ladder.owed_at(0.0).0)),
            ladder,
            promised: MinimumRates::new(&promised),
            untested: Rates::new(classes.len(), now),
            promises: Rates::new(classes.len(), now),
            threshold: Threshold::default(),
            cheap: AtomicBool::new(choice == Choice::Always(Policer::Threshold)),
            counted: Counted::default(),
            choice,
            #[allow(clippy::disallowed_types)]
            learning: std::sync::Mutex::default(),
        }
    }

    /// May a request of `class`, expected to take `size`, go on?
    #[inline]
    pub fn offer(&self, class: ClassId, size: Nanos, load: &Load, now: Nanos, rng: &mut Rng) -> Answer {
        if self.promised.conforms(class, now) {
            self.promises.count(class);
            return Answer::Now(Verdict::Admit(Grant::Promise));
        }
        self.untested.count(class);
        if load.idle {
            return Answer::Now(self.processed(Ok(())));
        }
        let rank = usize::from(self.ranks[class.index()]);
        let terms = self.terms(rank);
        let misfit = || Misfit { estimate: load.estimate(size, 0), objective: terms.target };
        // Nobody is more important than the first: only what it does to itself can be too much.
        if rank > 0 && self.cheap.load(Relaxed) {
            return Answer::Now(if !self.threshold.admits(rank, rng) {
                self.beyond_threshold(rank)
            } else if load.queue_delay >= terms.target {
                Self::refuse(&misfit())
            } else {
                Verdict::Admit(Grant::Estimate)
            });
        }
        if terms.delay > Nanos::ZERO {
            return Answer::Waits { rank, delay: terms.delay };
        }
        let fits = load.room(size, terms, 0) > 0;
        Answer::Now(self.processed(if fits { Ok(()) } else { Err(misfit()) }))
    }

    /// What the class of this rank is held to, for [`crate::batch::Batch::process`].
    #[inline]
    pub fn terms(&self, rank: usize) -> Terms {
        let target = self.targets[rank].min(Nanos(self.owed_ns.load(Relaxed)));
        Terms { target, delay: Nanos(self.delays_ns[rank].load(Relaxed)) }
    }

    /// A request was processed, or had to go because too many waited. Returns what becomes of it.
    #[inline]
    pub fn processed(&self, outcome: Result<(), Misfit>) -> Verdict {
        self.counted.asked.fetch_add(1, Relaxed);
        match outcome {
            Ok(()) => Verdict::Admit(Grant::Estimate),
            Err(misfit) => {
                self.counted.misfits.fetch_add(1, Relaxed);
                Self::refuse(&misfit)
            }
        }
    }

    /// Which policer is at work.
    pub fn policer(&self) -> Policer {
        if self.cheap.load(Relaxed) { Policer::Threshold } else { Policer::Batch }
    }

    /// Prepares what decisions read; returns when it wants to be called next.
    pub fn tick(&self, scene: &Scene<'_>, now: Nanos) -> Nanos {
        let Some(mut learning) = try_lock(&self.learning) else { return now + PERIOD };
        let (renewed, next) = self.untested.tick(now);
        if !renewed {
            return next;
        }
        self.promises.tick(now);
        self.climb();
        self.aim(scene);
        self.stagger(scene, &mut learning);
        let policer = match self.choice {
            Choice::Always(policer) => policer,
            Choice::Auto => learning.switch.turn(scene.sentry_busy, self.arrive_per_s(), now),
        };
        self.cheap.store(policer == Policer::Threshold, Relaxed);
        next
    }

    /// The rung of the ladder for what arrives.
    fn climb(&self) {
        if let Some(ladder) = &self.ladder {
            let per_s = self.arrive_per_s();
            let owed =
                Nanos(self.owed_ns.load(Relaxed)).clamp(ladder.owed_at(per_s), ladder.owed_at(per_s * RUNG));
            self.owed_ns.store(owed.0, Relaxed);
        }
    }

    fn arrive_per_s(&self) -> f64 {
        self.order.iter().map(|&class| self.untested.per_s(class) + self.promises.per_s(class)).sum()
    }

    /// The threshold for what arrives and what it takes.
    fn aim(&self, scene: &Scene<'_>) {
        let service_s = |class| (scene.mean)(class).as_secs_f64();
        let promised: f64 = self.order.iter().map(|&c| self.promises.per_s(c) * service_s(c)).sum();
        let demand = |&class: &ClassId| Demand {
            per_s: self.untested.at_most_per_s(class),
            service_s: service_s(class),
        };
        let demands: Vec<Demand> = self.order.iter().map(demand).collect();
        let share = 1.0 - scene.load.queue_delay.as_secs_f64() / WORK_OFF.as_secs_f64();
        self.threshold.set(&demands, f64::from(scene.load.servers) * share - promised);
    }

    /// The delays for what arrives and how much of it found no room.
    fn stagger(&self, scene: &Scene<'_>, learning: &mut Learning) {
        let Counted { asked, misfits } = &self.counted;
        let (asked, misfits) = (asked.swap(0, Relaxed), misfits.swap(0, Relaxed));
        let newest = if asked > 0 { misfits as f64 / asked as f64 } else { 0.0 };
        learning.refused += WEIGHT * (newest - learning.refused);
        // Less than one in a thousand is room for all.
        let refused = if learning.refused < 1e-3 { 0.0 } else { learning.refused };
        let contender = |&class: &ClassId| Contender {
            per_s: self.untested.per_s(class),
            stay_s: ((scene.mean)(class) + scene.load.queue_delay).as_secs_f64(),
        };
        let contenders: Vec<Contender> = self.order.iter().map(contender).collect();
        let owed = (0..self.order.len()).map(|rank| self.terms(rank).target).min().unwrap_or(Nanos::MAX);
        let longest = Nanos((owed.0 as f64 * LONGEST_DELAY) as u64).min(Nanos::from_secs(1));
        for (stored, delay) in self.delays_ns.iter().zip(delays(&contenders, refused, longest)) {
            stored.store(delay.0, Relaxed);
        }
    }

    #[cold]
    fn refuse(misfit: &Misfit) -> Verdict {
        Verdict::Refuse(Refusal {
            mechanism: Mechanism::Policing,
            limit: Limit::Mean,
            estimate: Quantity::Time(misfit.estimate),
            objective: Quantity::Time(misfit.objective),
            retry_after: misfit.estimate.since(misfit.objective),
        })
    }

    #[cold]
    fn beyond_threshold(&self, rank: usize) -> Verdict {
        Verdict::Refuse(Refusal {
            mechanism: Mechanism::Policing,
            limit: Limit::Fraction,
            estimate: Quantity::Share(1.0),
            objective: Quantity::Share(self.threshold.share(rank)),
            retry_after: PERIOD,
        })
    }
}

#[cfg(test)]
mod tests;
