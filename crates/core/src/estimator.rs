//! What a request of each class may be expected to take: the one estimate that every policy shares.
//!
//! Processing times are recorded per class and learnt once an interval (1 s). From them each class gets its
//! mean, the percentiles that its objectives name, and its *allowed work*: the most that may wait in the queue
//! for a request of the class to meet all its objectives (Bouncer, Eq. 2-4, solved for the queued work). The
//! [`Backlog`] holds that beside the work that waits, so that the decision itself is one comparison.
//!
//! Eq. 2 divides the queued work by the slots. But behind `n` requests one waits for `n + 1` of the busy slots to become
//! free, so a *turn* is missing: the mean time of what is served, over the slots. That is the xi of the paper's Eq. 1, which it
//! takes for zero. At its 100 slots a turn is less than 0.1 ms; at four it decides whether a median meets its objective.
//!
//! The expected wait is itself an estimate, and one that errs to one side: a class that is let in only when the queue seems short is
//! let in when the queue seems shorter than it is. So what a class waits beyond what was expected of it ([`Wait`]) is measured
//! too, and its mean, the *surprise*, counts as part of the wait. It has two parts: what all classes share, which a slower server
//! changes at once, and what is a class's own, which its choice of short queues makes. So a class that was let in rarely learns from
//! the others' last second that the server is slower, and not from its own next victims.
//!
//! The paper replaces a class's histogram every interval. Doing just that locks a class out for ever: one
//! noisy interval above its objective, and it is never measured again. Here histograms decay instead, and
//! [`Estimator::completed_last_interval`] tells a policy whom it should probe. Means lock nobody out, and a server is slower
//! under load: they forget the old as soon as there are new values enough.

use crate::average::{Average, Sum};
use crate::backlog::{Backlog, Terms, Waiting};
use crate::histogram::{IntervalHistogram, Profile};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, try_lock};
use crate::{ClassId, Nanos, Percentile, Slo, Statistic};

/// How often estimates are renewed.
pub const INTERVAL: Nanos = Nanos::from_secs(1);
/// What an interval's measurements weigh one interval later. At 0.9 half of an estimate is from the last 7 s.
const DECAY: f64 = 0.9;
/// The same for means, and at most as much as so many values.
const KEPT: f64 = 100.0;
/// Completions, over all classes, after which estimates are trusted: at least this many,
const WARM_AFTER: u32 = 100;
/// and this many a slot. Of what the slots take first, the shortest are done first: a hundred slots that have completed a
/// hundred requests know next to nothing of the slow ones.
const WARM_AFTER_A_SLOT: u32 = 10;

/// A class may find so much less waiting than the classes above it, for each step that it is below the highest of them: 3/4 of what they
/// may, 3/5, 1/2.
const RESERVED: f64 = 1.0 / 3.0;

/// Estimates for every class of one pool. Shared by all threads; only [`Estimator::tick`], [`Estimator::set_slots`],
/// [`Estimator::report`] and, at each doubling of what is known while cold, [`Estimator::completed`] do more than a few
/// atomic operations.
pub struct Estimator {
    slos: Vec<Slo>,
    /// How important each class is, from 0; empty where all are alike.
    ranks: Vec<u16>,
    backlog: Backlog,
    recorders: Box<[IntervalHistogram]>,
    surprises: Box<[Sum]>,
    slots: AtomicU32,
    cold: AtomicBool,
    cold_completions: AtomicU32,
    views: Box<[View]>,
    /// The mean time of what is served, of all classes: with all slots busy, one becomes free in a slots-th of it.
    turn_ns: AtomicU64,
    // Never waited for: whoever finds it taken leaves the work to the one who holds it.
    #[allow(clippy::disallowed_types)]
    learning: std::sync::Mutex<Learning>,
}

/// The published estimates of one class, for explaining decisions. They are not read to take one.
struct View {
    borrowed: AtomicBool,
    completed: AtomicU32,
    median_ns: AtomicU64,
    /// The bits of the squared coefficient of variation.
    scv: AtomicU64,
    /// Percentiles (or the mean) of the processing time and the surprise, in the order of the targets that the class is judged by.
    points_ns: Box<[AtomicU64]>,
}

/// How long a request waited for a slot, and how long it was expected to when it was let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// [`Estimator::expected_wait`] when it came; the actual wait where nobody asked.
    pub expected: Nanos,
    /// How long it was.
    pub actual: Nanos,
}

impl From<Nanos> for Wait {
    fn from(actual: Nanos) -> Wait {
        Wait { expected: actual, actual }
    }
}

impl Wait {
    /// How much longer than expected it was, in ns. More than a quarter counts as a quarter: that is no error of the estimate
    /// but an accident, such as a server that stands still for a second, and says nothing about the next request.
    #[inline]
    fn surprise_ns(self) -> i64 {
        let most = (self.expected.0 / 4) as i64;
        (self.actual.0 as i64 - self.expected.0 as i64).clamp(-most, most)
    }
}

struct Learning {
    profiles: Vec<Profile>,
    /// The mean processing time of each class, and of all together as often as each is served.
    means: Vec<Average>,
    turn: Average,
    /// The surprise of all together, and how much more or less than that was each class's.
    surprise: Average,
    own_surprises: Vec<Average>,
    completed: Vec<u64>,
    interval_ends: Nanos,
}

/// One class as [`Estimator::report`] tells it.
#[derive(Clone, Debug)]
pub struct ClassEstimate {
    /// Requests of the class that wait.
    pub queued: u64,
    /// Its mean processing time.
    pub mean: Nanos,
    /// The squared coefficient of variation of its processing times: 0 is constant, 1 is exponential.
    pub scv: f64,
    /// Each objective it is judged by: of which statistic, the expected response time now, the limit.
    pub targets: Vec<(Statistic, Nanos, Nanos)>,
    /// Expected work over all slots that may wait for the class to be admitted, in ns; negative: not even an empty queue.
    pub allowed_work_ns: i64,
    /// Completions in the last full interval.
    pub completed: u32,
    /// Whether the class was never measured and is judged by everyone's times.
    pub borrowed: bool,
}

impl Estimator {
    /// Estimates for classes with these objectives, the last being `default`, served by `slots` at once.
    pub fn new(slos: Vec<Slo>, slots: u32, now: Nanos) -> Estimator {
        assert!(!slos.is_empty() && slos.len() <= crate::MAX_CLASSES, "1 to {} classes", crate::MAX_CLASSES);
        let most_targets = |slo: &Slo| slo.targets().len().max(slos[slos.len() - 1].targets().len());
        let view = |slo: &Slo| View {
            borrowed: AtomicBool::new(true),
            completed: AtomicU32::new(0),
            median_ns: AtomicU64::new(0),
            scv: AtomicU64::new(0),
            points_ns: (0..most_targets(slo)).map(|_| AtomicU64::new(0)).collect(),
        };
        let estimator = Estimator {
            backlog: Backlog::new(slos.len()),
            recorders: slos.iter().map(|_| IntervalHistogram::default()).collect(),
            surprises: slos.iter().map(|_| Sum::default()).collect(),
            slots: AtomicU32::new(slots.max(1)),
            cold: AtomicBool::new(true),
            cold_completions: AtomicU32::new(0),
            views: slos.iter().map(view).collect(),
            turn_ns: AtomicU64::new(0),
            #[allow(clippy::disallowed_types)]
            learning: std::sync::Mutex::new(Learning {
                profiles: vec![Profile::default(); slos.len()],
                means: vec![Average::default(); slos.len()],
                turn: Average::default(),
                surprise: Average::default(),
                own_surprises: vec![Average::default(); slos.len()],
                completed: vec![0; slos.len()],
                interval_ends: now + INTERVAL,
            }),
            slos,
            ranks: Vec::new(),
        };
        estimator.relearn();
        estimator
    }

    /// The same, with classes that are not equally important: their ranks, from 0, the most important.
    pub fn ranked(self, ranks: Vec<u16>) -> Estimator {
        assert!(ranks.is_empty() || ranks.len() == self.slos.len(), "one rank a class");
        let estimator = Estimator { ranks, ..self };
        estimator.relearn();
        estimator
    }

    /// What waits, and what `class` may find waiting.
    #[inline]
    pub fn waiting(&self, class: ClassId) -> Waiting {
        self.backlog.waiting(class)
    }

    /// Requests served at once, the paper's P.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.slots.load(Relaxed)
    }

    /// How long a request that joins behind `waiting` is expected to wait: Eq. 2 and a turn, or nothing where nobody waits,
    /// for then a slot may well be free.
    #[inline]
    pub fn expected_wait(&self, waiting: &Waiting) -> Nanos {
        if waiting.length == 0 {
            return Nanos::ZERO;
        }
        Nanos((waiting.work_ns + self.turn_ns.load(Relaxed)) / u64::from(self.slots()))
    }

    /// The mean processing time of `class`, zero where nothing is known.
    #[inline]
    pub fn mean(&self, class: ClassId) -> Nanos {
        Nanos(self.backlog.mean_ns(class))
    }

    /// The median processing time of `class`, zero where nothing is known.
    #[inline]
    pub fn median(&self, class: ClassId) -> Nanos {
        Nanos(self.views[class.index()].median_ns.load(Relaxed))
    }

    /// Whether too little was measured yet to estimate anything (fewer than 100 completions, or than 10 a slot).
    #[inline]
    pub fn is_cold(&self) -> bool {
        self.cold.load(Relaxed)
    }

    /// Completions of `class` in the last full interval.
    pub fn completed_last_interval(&self, class: ClassId) -> u32 {
        self.views[class.index()].completed.load(Relaxed)
    }

    /// Each objective that `class` is judged by: of which statistic, expected processing time and surprise, limit.
    pub fn targets(&self, class: ClassId) -> impl Iterator<Item = (Statistic, Nanos, Nanos)> {
        let view = &self.views[class.index()];
        let slo = self.judging_slo(class, view.borrowed.load(Relaxed));
        let points = view.points_ns.iter().map(|p| Nanos(p.load(Relaxed)));
        slo.targets().iter().zip(points).map(|(&(statistic, limit), point)| (statistic, point, limit))
    }

    /// A request joins the queue.
    #[inline]
    pub fn enqueue(&self, class: ClassId) {
        self.backlog.enqueue(class);
    }

    /// A request leaves the queue, to be served or not.
    #[inline]
    pub fn dequeue(&self, class: ClassId) {
        self.backlog.dequeue(class);
    }

    /// A request of `class` took `served` from leaving the queue, in which it had to `wait`, to its end.
    #[inline]
    pub fn completed(&self, class: ClassId, wait: Wait, served: Nanos) {
        self.recorders[class.index()].record(served);
        if self.is_cold() {
            // Nothing was known that could have been expected.
            self.completed_cold();
        } else if wait.expected != Nanos::ZERO {
            self.surprises[class.index()].add(wait.surprise_ns());
        }
    }

    /// While cold, every doubling of what is known is learnt at once instead of at the end of the interval.
    #[cold]
    fn completed_cold(&self) {
        let n = self.cold_completions.fetch_add(1, Relaxed) + 1;
        let warm = n >= WARM_AFTER.max(self.slots().saturating_mul(WARM_AFTER_A_SLOT));
        if n.is_power_of_two() || warm {
            self.relearn();
        }
        if warm {
            self.cold.store(false, Relaxed);
        }
    }

    /// Changes how many requests are served at once; at least one.
    pub fn set_slots(&self, slots: u32) {
        if self.slots.swap(slots.max(1), Relaxed) != slots.max(1) {
            self.relearn();
        }
    }

    /// Ends the interval if it is over. Returns whether it was, and when the current one is.
    pub fn tick(&self, now: Nanos) -> (bool, Nanos) {
        let Some(mut learning) = try_lock(&self.learning) else { return (false, now + INTERVAL) };
        let Learning { profiles, means, turn, surprise, own_surprises, interval_ends, .. } = &mut *learning;
        if now < *interval_ends {
            return (false, *interval_ends);
        }
        *interval_ends = now + INTERVAL;
        profiles.iter_mut().for_each(|profile| profile.decay(DECAY));
        means
            .iter_mut()
            .chain(own_surprises)
            .chain([turn, surprise])
            .for_each(|average| average.fade(DECAY, KEPT));
        self.learn(&mut learning);
        for (view, completed) in self.views.iter().zip(&mut learning.completed) {
            view.completed.store(u32::try_from(std::mem::take(completed)).unwrap_or(u32::MAX), Relaxed);
        }
        (true, learning.interval_ends)
    }

    /// What is known about every class, in order.
    pub fn report(&self) -> Vec<ClassEstimate> {
        let class = |i: usize| {
            let class = ClassId(i as u16);
            let waiting = self.waiting(class);
            let wait = self.expected_wait(&waiting);
            ClassEstimate {
                queued: self.backlog.count(class),
                mean: Nanos(self.backlog.mean_ns(class)),
                scv: f64::from_bits(self.views[i].scv.load(Relaxed)),
                targets: self.targets(class).map(|(s, point, limit)| (s, wait + point, limit)).collect(),
                allowed_work_ns: waiting.allowed_ns,
                completed: self.completed_last_interval(class),
                borrowed: self.views[i].borrowed.load(Relaxed),
            }
        };
        (0..self.slos.len()).map(class).collect()
    }

    /// Learns what was recorded so far, unless somebody is at it already.
    fn relearn(&self) {
        if let Some(mut learning) = try_lock(&self.learning) {
            self.learn(&mut learning);
        }
    }

    fn learn(&self, learning: &mut Learning) {
        for (i, recorder) in self.recorders.iter().enumerate() {
            let (count, sum_ns) = recorder.drain_into(&mut learning.profiles[i]);
            learning.completed[i] += count;
            learning.means[i].add(count as f64, sum_ns as f64);
            learning.turn.add(count as f64, sum_ns as f64);
        }
        self.learn_surprises(learning);
        let mut general = Profile::default();
        learning.profiles.iter().for_each(|p| general.merge(p));
        self.turn_ns.store(learning.turn.mean_ns() as u64, Relaxed);
        let mut terms: Vec<Terms> = (0..self.slos.len()).map(|i| self.terms(i, learning, &general)).collect();
        self.reserve(&mut terms, learning);
        self.backlog.publish(|class| terms[class.index()]);
    }

    /// Keeps room in the queue for the more important: a class may find less waiting than any class above it that is being served
    /// at all. So the queue is too long for the lesser one first, and the other still finds its place.
    fn reserve(&self, terms: &mut [Terms], learning: &Learning) {
        let Some(&last) = self.ranks.iter().max() else { return };
        let (mut least_above, mut steps) = (i64::MAX, 0);
        for rank in 0..=last {
            let of_rank = || (0..self.ranks.len()).filter(|&i| self.ranks[i] == rank);
            // Who is kept out of an empty queue needs no room in it, and who has not been seen has not asked for any.
            let asks = |&i: &usize| terms[i].allowed_ns > 0 && !learning.profiles[i].is_empty();
            let asked = of_rank().filter(asks).map(|i| terms[i].allowed_ns).min();
            if least_above < i64::MAX {
                let most = (least_above as f64 / (1.0 + RESERVED * f64::from(steps))) as i64;
                of_rank().for_each(|i| terms[i].allowed_ns = terms[i].allowed_ns.min(most));
            }
            if let Some(asked) = asked {
                least_above = least_above.min(asked);
                steps += 1;
            }
        }
    }

    fn learn_surprises(&self, learning: &mut Learning) {
        let new: Vec<_> = self.surprises.iter().map(Sum::take).collect();
        new.iter().for_each(|&(count, sum_ns)| learning.surprise.add(count, sum_ns));
        let shared_ns = learning.surprise.mean_ns();
        for (own, (count, sum_ns)) in learning.own_surprises.iter_mut().zip(new) {
            own.add(count, sum_ns - count * shared_ns);
        }
    }

    /// Estimates of one class from its profile; a class never measured borrows everyone's and the objectives of `default`.
    fn terms(&self, i: usize, learning: &Learning, general: &Profile) -> Terms {
        let (view, borrowed) = (&self.views[i], learning.profiles[i].is_empty());
        let profile = if borrowed { general } else { &learning.profiles[i] };
        let mean_ns = if borrowed { learning.turn.mean_ns() } else { learning.means[i].mean_ns() };
        let surprise_ns = (learning.surprise.mean_ns() + learning.own_surprises[i].mean_ns()) as i64;
        view.borrowed.store(borrowed, Relaxed);
        view.median_ns.store(profile.percentile(Percentile::P50).0, Relaxed);
        view.scv.store(profile.scv().to_bits(), Relaxed);
        let mut slack_ns = i64::MAX;
        let slo = self.judging_slo(ClassId(i as u16), borrowed);
        for (&(statistic, limit), stored) in slo.targets().iter().zip(&view.points_ns) {
            let point = match statistic {
                Statistic::Percentile(percentile) => profile.percentile(percentile),
                Statistic::Mean => Nanos(mean_ns as u64),
            };
            stored.store(point.0.saturating_add_signed(surprise_ns), Relaxed);
            slack_ns = slack_ns.min(limit.0 as i64 - point.0 as i64);
        }
        let allowed_ns = match slack_ns {
            i64::MAX => i64::MAX,
            // Whom its own time keeps out, a queue cannot keep out further.
            ..0 => slack_ns,
            // wait + point <= limit, with wait = (work + turn) / slots + surprise, is work <= (slack - surprise) * slots - turn.
            _ => {
                let for_queue = (slack_ns - surprise_ns).saturating_mul(i64::from(self.slots()));
                (for_queue - learning.turn.mean_ns() as i64).max(0)
            }
        };
        Terms { mean_ns: mean_ns as u64, allowed_ns }
    }

    /// `default`'s objectives for a class never measured, where `default` has any.
    fn judging_slo(&self, class: ClassId, borrowed: bool) -> &Slo {
        let default = &self.slos[self.slos.len() - 1];
        if borrowed && !default.is_empty() { default } else { &self.slos[class.index()] }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
