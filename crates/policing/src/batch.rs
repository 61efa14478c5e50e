//! The batch policer (Cataclysm, section 3.2): requests wait by class and size until their class is processed; then one test
//! decides about all of a size, small ones first, important classes first. Once a class does not fit, lesser classes are
//! refused untested.
//!
//! The paper admits a bucket whole or not at all. Here the same one test says how many of the bucket fit, and the first so many
//! are let in: at `n` servers up to `n` times the target over the size would be turned away for nothing.
//!
//! Deciding about a bucket is quick; telling a million requests is not. So who is sent away is set apart, a bucket at a time, and
//! [`Batch::process`] tells [`AT_ONCE`] of them a call.
//!
//! A batch belongs to one thread. Threads see each other's admissions in the load that they pass in.

use std::collections::VecDeque;

use plimsoll_core::Nanos;

use crate::queue::{Queue, Store};
use crate::sizes::{BUCKETS, bucket_of, middle_of};

/// Requests that one call of [`Batch::process`] answers at most: some tens of microseconds of a host's time.
pub const AT_ONCE: usize = 256;

/// How busy the servers are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// How long a request waits before a server takes it up: the paper's Q.
    pub queue_delay: Nanos,
    /// Requests that each server divides its time among, on average: the paper's eta. None where a server takes up one request
    /// after the other, as a slot of the sentry does: whoever is before a new one then is in `queue_delay`.
    pub in_service: f64,
    /// Servers: the paper's n. For the sentry every slot is one.
    pub servers: u32,
    /// Whether a server has nothing to do.
    pub idle: bool,
}

/// What a class is held to when it is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The response time that it is owed: the paper's R_sla.
    pub target: Nanos,
    /// How long its requests may wait to be processed: the paper's d_i.
    pub delay: Nanos,
    /// The size of the biggest requests of more important classes. Those find no room where a small one still does, so a
    /// smaller request of this class has to leave as much as they need.
    pub above: Nanos,
    /// From this size on requests are more than the servers can do, by what arrives: they only fill what others leave. `Nanos::MAX`
    /// while there is room for all.
    pub surplus: Nanos,
}

/// What the surplus leaves of what it is owed, and what others have to leave to bigger requests above them at most: a giant would
/// shut everybody else out.
pub(crate) const MOST_LEFT: f64 = 0.5;

impl Terms {
    /// What a request of this size may be expected to take.
    #[inline]
    pub fn limit(self, size: Nanos) -> Nanos {
        let whole = self.target - self.delay;
        let left = if size < self.surplus {
            self.above - size
        } else {
            // What fits an empty queue is let into one.
            Nanos((self.target.0 as f64 * MOST_LEFT) as u64).min(whole - size)
        };
        whole - left
    }

    /// Whether a request of this size could be let in if nobody else were there.
    #[inline]
    pub(crate) fn allow(self, size: Nanos) -> bool {
        size <= self.limit(size)
    }
}

impl Load {
    /// How many more requests of this size fit when `admitted` were let in since the load was measured: the greatest `k` for
    /// which `Q + (eta + ceil((admitted + k) / n)) * S <= R_sla - d` (Eq. 4), the right side less what is left to bigger requests of
    /// more important classes.
    #[inline]
    pub fn room(&self, size: Nanos, terms: Terms, admitted: u64) -> u64 {
        let left = terms.limit(size) - self.queue_delay;
        // What is no number is nothing, and what would be negative is no room.
        let each = (left.0 as f64 / size.0.max(1) as f64 - self.in_service.max(0.0)).floor();
        (each as u64).saturating_mul(u64::from(self.servers)).saturating_sub(admitted)
    }

    /// What the last of `admitted` and one more would be expected to take, for saying why it was refused.
    pub fn estimate(&self, size: Nanos, admitted: u64) -> Nanos {
        let each = self.in_service.max(0.0) + (admitted + 1).div_ceil(u64::from(self.servers.max(1))) as f64;
        self.queue_delay + Nanos((each * size.0 as f64) as u64)
    }
}

/// Why a request was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// What the first request that did not fit, this one or one before it, was expected to take,
    pub estimate: Nanos,
    /// and what it was allowed to.
    pub objective: Nanos,
}

/// Requests of all classes that wait to be processed. `T` stands for whoever waits for the answer.
pub struct Batch<T> {
    /// By rank: the most important class first.
    classes: Vec<Class<T>>,
    /// Who is sent away and has not heard of it yet.
    refused: VecDeque<Refused<T>>,
    /// What was begun and would have kept the host for too long.
    round: Option<Round>,
    store: Store<T>,
    waiting: usize,
    max_waiting: usize,
    /// The earliest of the classes.
    due: Nanos,
}

struct Class<T> {
    buckets: Box<[Queue<T>]>,
    /// A bit a bucket.
    occupied: u64,
    /// When it is to be processed; never while it is empty.
    due: Nanos,
}

/// Processing by the load of one instant.
struct Round {
    load: Load,
    /// The least important class that is looked at.
    last: usize,
    /// Let in of the size that is looked at, or of all sizes where each server divides its time among its requests.
    admitted: u64,
    size: Nanos,
    /// Whether anybody was let in.
    any: bool,
}

impl Round {
    /// Goes on to requests of this size. Where servers take up one request after the other, who was let in before is by now in the
    /// queue, for as long as it takes.
    fn turn_to(&mut self, size: Nanos) {
        if self.load.in_service == 0.0 && size != self.size {
            let work = self.size.0.saturating_mul(self.admitted);
            self.load.queue_delay += Nanos(work / u64::from(self.load.servers.max(1)));
            self.admitted = 0;
        }
        self.size = size;
    }
}

struct Refused<T> {
    rank: usize,
    misfit: Misfit,
    requests: Queue<T>,
}

impl<T> Batch<T> {
    /// For so many classes, and so many requests at most.
    pub fn new(classes: usize, max_waiting: usize) -> Batch<T> {
        let class = |_| Class {
            buckets: (0..BUCKETS).map(|_| Queue::default()).collect(),
            occupied: 0,
            due: Nanos::MAX,
        };
        Batch {
            classes: (0..classes).map(class).collect(),
            refused: VecDeque::new(),
            round: None,
            store: Store::default(),
            waiting: 0,
            max_waiting,
            due: Nanos::MAX,
        }
    }

    /// Requests that wait for their answer.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// When [`Batch::process`] is to be called next: at once, which is zero, where the last call has left something to do; never
    /// while nothing waits.
    pub fn due(&self) -> Nanos {
        if self.round.is_some() || !self.refused.is_empty() { Nanos::ZERO } else { self.due }
    }

    /// A request waits to be processed, for at most `delay`. Where too many wait somebody has to go and comes back, and its rank with
    /// it: who is sent away anyway, or else the newest of the biggest of the least important.
    #[inline]
    pub fn push(
        &mut self,
        rank: usize,
        size: Nanos,
        delay: Nanos,
        now: Nanos,
        request: T,
    ) -> Option<(usize, T)> {
        let bucket = bucket_of(size);
        let mut displaced = None;
        if self.waiting >= self.max_waiting {
            displaced = self.displace((rank, bucket));
            if displaced.is_none() {
                return Some((rank, request));
            }
        }
        let class = &mut self.classes[rank];
        class.buckets[bucket].push(request, &mut self.store);
        class.occupied |= 1 << bucket;
        class.due = class.due.min(now + delay);
        self.due = self.due.min(class.due);
        self.waiting += 1;
        displaced
    }

    /// Takes out whoever has to go rather than a newcomer of this rank and bucket.
    #[cold]
    fn displace(&mut self, newcomer: (usize, usize)) -> Option<(usize, T)> {
        let displaced = self.pop_refused().map(|(request, rank, _)| (rank, request)).or_else(|| {
            let rank = self.classes.iter().rposition(|class| class.occupied != 0)?;
            let class = &mut self.classes[rank];
            let bucket = 63 - class.occupied.leading_zeros() as usize;
            if (rank, bucket) <= newcomer {
                return None;
            }
            let request = class.buckets[bucket].pop_last(&mut self.store)?;
            if class.buckets[bucket].is_empty() {
                class.left(bucket);
                self.set_due();
            }
            Some((rank, request))
        });
        self.waiting -= usize::from(displaced.is_some());
        displaced
    }

    /// Processes the classes that are due and all that are more important, in order of importance; all of them where a server has
    /// nothing to do. `answer` hears about each request and says whether anybody was still waiting for it: who has left takes no
    /// room.
    ///
    /// No more than [`AT_ONCE`] are answered, so that a host can see to other things. While some are left [`Batch::due`] says that
    /// the next call is due; it goes on by the load of the first.
    pub fn process(
        &mut self,
        now: Nanos,
        load: &Load,
        terms: impl Fn(usize) -> Terms,
        mut answer: impl FnMut(T, usize, Result<(), Misfit>) -> bool,
    ) {
        let mut left = AT_ONCE;
        let begun = self.round.take();
        // Who is sent away hears it before anybody else is looked at.
        let round = if self.refused.is_empty() { begun.or_else(|| self.begin(now, load)) } else { begun };
        if let Some(round) = round {
            self.round = self.decide(round, terms, &mut left, &mut answer);
            self.set_due();
        }
        while left > 0
            && let Some(Refused { rank, misfit, requests }) = self.refused.front_mut()
        {
            let told = requests.pop_many(left, &mut self.store, |request| {
                answer(request, *rank, Err(*misfit));
            });
            (left, self.waiting) = (left - told, self.waiting - told);
            if requests.is_empty() {
                self.refused.pop_front();
            }
        }
    }

    fn begin(&self, now: Nanos, load: &Load) -> Option<Round> {
        if now < self.due && !load.idle {
            return None;
        }
        let wanted = |class: &Class<T>| class.due <= now || (load.idle && class.occupied != 0);
        let last = self.classes.iter().rposition(wanted)?;
        Some(Round { load: *load, last, admitted: 0, size: Nanos::ZERO, any: false })
    }

    /// Lets in what fits and sends the rest away. Returns the round where there are more of the former than may be `left`.
    fn decide(
        &mut self,
        mut round: Round,
        terms: impl Fn(usize) -> Terms,
        left: &mut usize,
        mut answer: impl FnMut(T, usize, Result<(), Misfit>) -> bool,
    ) -> Option<Round> {
        for rank in 0..=round.last {
            let (class, terms) = (&mut self.classes[rank], terms(rank));
            while class.occupied != 0 {
                let bucket = class.occupied.trailing_zeros() as usize;
                let (size, requests) = (middle_of(bucket), &mut class.buckets[bucket]);
                round.turn_to(size);
                let mut room = round.load.room(size, terms, round.admitted);
                // A server that has nothing to do takes whoever is first.
                room = room.max(u64::from(round.load.idle && !round.any));
                while room > 0 && !requests.is_empty() {
                    if *left == 0 {
                        return Some(round);
                    }
                    if let Some(request) = requests.pop(&mut self.store) {
                        *left -= 1;
                        self.waiting -= 1;
                        let there = answer(request, rank, Ok(()));
                        round.admitted += u64::from(there);
                        round.any |= there;
                        room -= u64::from(there);
                    }
                }
                if requests.is_empty() {
                    class.left(bucket);
                    continue;
                }
                let estimate = round.load.estimate(size, round.admitted);
                let misfit = Misfit { estimate, objective: terms.limit(size) };
                // Who is too big for an empty pool says nothing about how full this one is.
                let beyond = if terms.allow(size) { self.classes.len() } else { rank + 1 };
                for rank in rank..beyond {
                    self.refuse(rank, misfit);
                }
                if beyond > rank + 1 {
                    return None;
                }
                break;
            }
        }
        None
    }

    /// Sends a whole class away.
    fn refuse(&mut self, rank: usize, misfit: Misfit) {
        let class = &mut self.classes[rank];
        while class.occupied != 0 {
            let bucket = class.occupied.trailing_zeros() as usize;
            let requests = std::mem::take(&mut class.buckets[bucket]);
            self.refused.push_back(Refused { rank, misfit, requests });
            class.left(bucket);
        }
    }

    /// The next who is to hear that it is sent away.
    fn pop_refused(&mut self) -> Option<(T, usize, Misfit)> {
        let Refused { rank, misfit, requests } = self.refused.front_mut()?;
        let found = requests.pop(&mut self.store).map(|request| (request, *rank, *misfit));
        if requests.is_empty() {
            self.refused.pop_front();
        }
        found
    }

    fn set_due(&mut self) {
        self.due = self.classes.iter().map(|class| class.due).min().unwrap_or(Nanos::MAX);
    }
}

impl<T> Class<T> {
    /// Nobody is left in this bucket.
    fn left(&mut self, bucket: usize) {
        self.occupied &= !(1 << bucket);
        if self.occupied == 0 {
            self.due = Nanos::MAX;
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
