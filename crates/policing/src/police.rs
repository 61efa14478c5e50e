//! All of it together, for one pool: who passes on the promise of its class, who is let in, who is sent away, and who waits to be
//! looked at (Cataclysm, Fig. 2). A host puts every request through [`Police::offer`], keeps those that wait in a
//! [`crate::batch::Batch`] a thread, and calls [`Police::tick`].
//!
//! Whoever finds a free server passes at once, whatever its class: there is nobody to hold it back for.

mod tick;

use plimsoll_core::sync::{AtomicBool, AtomicU64, Ordering::Relaxed};
use plimsoll_core::{
    ClassId, Grant, Ladder, Limit, Mechanism, Nanos, Quantity, Refusal, Rng, Verdict, ranks,
};

use crate::batch::{Load, Misfit, Terms};
use crate::minimum::MinimumRates;
use crate::rates::{PERIOD, Rates};
use crate::sizes::{BUCKETS, bounds_of, bucket_of};
use crate::switch::Policer;
use crate::threshold::Threshold;
use tick::Learning;
pub use tick::Scene;

/// What a request is expected to take is held to this share of what it is owed. The expected is a mean, and what is owed is to be kept
/// for nearly all requests in nearly every second. A queue that is shorter by a quarter keeps the servers as busy.
const AIM: f64 = 0.75;
/// Nobody waits to be processed for more than this share of what its class is owed.
const LONGEST_DELAY: f64 = 0.25;

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
    /// None: promises are kept, and nobody else is asked about.
    Never,
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
    targets: Box<[Nanos]>,
    ladder: Option<Ladder>,
    promised: MinimumRates,
    /// Of requests that are not within a promise, by [`kind`], and of those that are, by class.
    untested: Rates,
    promises: Rates,
    threshold: Threshold,
    cheap: AtomicBool,
    owed_ns: AtomicU64,
    /// By rank.
    delays_ns: Box<[AtomicU64]>,
    /// By rank: the least that any rank above is owed of which requests come, and how much of it is to be left to the bigger of them.
    bound_ns: Box<[AtomicU64]>,
    above_ns: Box<[AtomicU64]>,
    /// Whether all found room in the last period.
    had_room: AtomicBool,
    counted: Counted,
    choice: Choice,
    fixed_delays: bool,
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

impl Police {
    /// For these classes, in the order of their ids, and this ladder, where the pool has one. Classes that are alike in all that
    /// matters are of one rank: among them only size decides.
    pub fn new(classes: &[ClassSpec], ladder: Option<Ladder>, choice: Choice, now: Nanos) -> Police {
        let levels = ranks(classes.iter().map(|class| (class.priority, class.revenue)));
        let keys: Vec<(u16, Nanos)> = levels.into_iter().zip(classes.iter().map(|c| c.target)).collect();
        let mut order = keys.clone();
        order.sort_unstable();
        order.dedup();
        let promised: Vec<f64> = classes.iter().map(|class| class.promised_per_s).collect();
        Police {
            ranks: keys.iter().map(|key| order.partition_point(|other| other < key) as u16).collect(),
            targets: order.iter().map(|&(_, target)| target).collect(),
            delays_ns: zeros(order.len()),
            bound_ns: order.iter().map(|_| AtomicU64::new(u64::MAX)).collect(),
            above_ns: zeros(order.len()),
            owed_ns: AtomicU64::new(ladder.as_ref().map_or(u64::MAX, |ladder| ladder.owed_at(0.0).0)),
            ladder,
            promised: MinimumRates::new(&promised),
            untested: Rates::new(order.len() * BUCKETS, now),
            promises: Rates::new(classes.len(), now),
            threshold: Threshold::default(),
            cheap: AtomicBool::new(choice == Choice::Always(Policer::Threshold)),
            had_room: AtomicBool::new(true),
            counted: Counted::default(),
            choice,
            fixed_delays: false,
            #[allow(clippy::disallowed_types)]
            learning: std::sync::Mutex::new(Learning { fill: 1.0, ..Learning::default() }),
        }
    }

    /// The same with delays that do not follow the load, from the most important class on, the last for all that follow: as in the
    /// paper's experiment (section 6.2), or none.
    pub fn with_fixed_delays(mut self, delays: &[Nanos]) -> Police {
        for (rank, stored) in self.delays_ns.iter_mut().enumerate() {
            let delay = delays.get(rank).or(delays.last()).copied().unwrap_or(Nanos::ZERO);
            *stored = AtomicU64::new(delay.0);
        }
        self.fixed_delays = true;
        self
    }

    /// May a request of `class`, expected to take `size`, go on? Zero is not known: until something is, only an idle server takes it.
    #[inline]
    pub fn offer(&self, class: ClassId, size: Nanos, load: &Load, now: Nanos, rng: &mut Rng) -> Answer {
        if self.promised.conforms(class, now) {
            self.promises.count(class.index(), size);
            return Answer::Now(Verdict::Admit(Grant::Promise));
        }
        let rank = usize::from(self.ranks[class.index()]);
        let kind = kind(rank, size);
        self.untested.count(kind, size);
        if self.choice == Choice::Never {
            return Answer::Now(Verdict::Admit(Grant::Estimate));
        }
        // Without any server everybody waits for one to come, as many as may.
        if load.idle || load.servers == 0 {
            return Answer::Now(self.processed(Ok(())));
        }
        if size == Nanos::ZERO {
            return Answer::Now(Self::nothing_is_known());
        }
        let terms = self.terms(rank);
        // Nobody is more important than the first: only what it does to itself can be too much.
        if rank > 0 && self.cheap.load(Relaxed) {
            if !self.threshold.admits(kind, rng) {
                return Answer::Now(self.beyond_threshold(kind));
            }
        } else if terms.delay > Nanos::ZERO {
            return Answer::Waits { rank, delay: terms.delay };
        }
        Answer::Now(self.judge(rank, size, load))
    }

    /// What would become of a request of this rank and size if it were processed now, alone.
    #[inline]
    pub fn judge(&self, rank: usize, size: Nanos, load: &Load) -> Verdict {
        let terms = self.terms(rank);
        let fits = load.room(size, terms, 0) > 0;
        if !fits && terms.allow(size) {
            self.hold_back();
        }
        let misfit = || Misfit { estimate: load.estimate(size, 0), objective: terms.limit(size) };
        self.processed(if fits { Ok(()) } else { Err(misfit()) })
    }

    /// Promises so many requests of `class` a second from now on, zero for none.
    pub fn promise(&self, class: ClassId, per_s: f64, now: Nanos) {
        self.promised.promise(class, per_s, now);
    }

    /// What the class of this rank is held to, for [`crate::batch::Batch::process`].
    #[inline]
    pub fn terms(&self, rank: usize) -> Terms {
        let target = self.aim_of(rank);
        let [delay, above] = [&self.delays_ns, &self.above_ns].map(|of| Nanos(of[rank].load(Relaxed)));
        // Of its kinds so many are let in whole.
        let whole = self.threshold.first_cut().saturating_sub(rank * BUCKETS);
        let surplus = if whole < BUCKETS { bounds_of(whole).0 } else { Nanos::MAX };
        Terms { target, delay, above, surplus }
    }

    /// What a request of this rank may be expected to take. There is one queue: where a lesser class made it longer than a class above
    /// can bear, that one would be refused.
    fn aim_of(&self, rank: usize) -> Nanos {
        let bound = Nanos(self.bound_ns[rank].load(Relaxed));
        Nanos((self.owed(rank).min(bound).0 as f64 * AIM) as u64)
    }

    /// The response time that the class of this rank is owed now.
    fn owed(&self, rank: usize) -> Nanos {
        self.targets[rank].min(Nanos(self.owed_ns.load(Relaxed)))
    }

    /// Why somebody of this rank had to leave a full line for others, to be given to [`Police::processed`]. Those who leave it are
    /// the last that would have been processed, behind all who stay; so what they are owed is the least that they would have taken.
    pub fn crowded_out(&self, rank: usize, load: &Load) -> Misfit {
        let objective = self.terms(rank).target;
        Misfit { estimate: load.queue_delay.max(objective), objective }
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

    /// There is no room any more, where in all of the last period there was. How long lesser classes should wait the next tick will say; until then they wait as long as they
    /// may, or in the first half second of a crowd they would take all the room there is.
    #[cold]
    fn hold_back(&self) {
        let nobody_waits = self.delays_ns.last().is_none_or(|delay| delay.load(Relaxed) == 0);
        if nobody_waits && !self.fixed_delays && self.had_room.swap(false, Relaxed) {
            let (longest, last) = (self.longest_delay(), (self.delays_ns.len() as u64 - 1).max(1));
            let rising = self.delays_ns.iter().zip(0..);
            rising.for_each(|(stored, rank)| stored.store(longest.0 / last * rank, Relaxed));
        }
    }

    fn longest_delay(&self) -> Nanos {
        Nanos((self.least_owed().0 as f64 * LONGEST_DELAY) as u64).min(Nanos::from_secs(1))
    }

    fn least_owed(&self) -> Nanos {
        (0..self.targets.len()).map(|rank| self.owed(rank)).min().unwrap_or(Nanos::MAX)
    }

    /// Which policer is at work.
    pub fn policer(&self) -> Policer {
        if self.cheap.load(Relaxed) { Policer::Threshold } else { Policer::Batch }
    }

    /// Says what nearly all would need, and what they are owed.
    #[cold]
    fn refuse(misfit: &Misfit) -> Verdict {
        let nearly_all = |time: Nanos| Nanos((time.0 as f64 / AIM) as u64);
        let misfit =
            Misfit { estimate: nearly_all(misfit.estimate), objective: nearly_all(misfit.objective) };
        Verdict::Refuse(Refusal {
            mechanism: Mechanism::Policing,
            limit: Limit::Mean,
            estimate: Quantity::Time(misfit.estimate),
            objective: Quantity::Time(misfit.objective),
            retry_after: misfit.estimate.since(misfit.objective),
        })
    }

    /// Whoever waited now would wait nobody knows how long.
    #[cold]
    fn nothing_is_known() -> Verdict {
        Verdict::Refuse(Refusal {
            mechanism: Mechanism::Policing,
            limit: Limit::ColdStart,
            estimate: Quantity::Count(1),
            objective: Quantity::Count(0),
            retry_after: PERIOD,
        })
    }

    #[cold]
    fn beyond_threshold(&self, kind: usize) -> Verdict {
        Verdict::Refuse(Refusal {
            mechanism: Mechanism::Policing,
            limit: Limit::Fraction,
            estimate: Quantity::Share(1.0),
            objective: Quantity::Share(self.threshold.share(kind)),
            retry_after: PERIOD,
        })
    }
}

fn zeros(n: usize) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

/// What is told apart: a rank's requests by size, all of it in the order in which it is let in.
#[inline]
fn kind(rank: usize, size: Nanos) -> usize {
    rank * BUCKETS + bucket_of(size)
}

#[cfg(test)]
mod tests;
