//! The batch policer (Cataclysm, section 3.2): requests wait by class and size until their class is processed; then one test
//! decides about all of a size, small ones first, important classes first. Once a class does not fit, lesser classes are
//! refused untested.
//!
//! The paper admits a bucket whole or not at all. Here the same one test says how many of the bucket fit, and the first so many
//! are let in: at `n` servers up to `n` times the target over the size would be turned away for nothing.
//!
//! A batch belongs to one thread. Threads see each other's admissions in the load that they pass in.

use std::collections::VecDeque;

use plimsoll_core::Nanos;

use crate::sizes::{BUCKETS, bucket_of, middle_of};

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
}

impl Terms {
    /// Whether a request of this size could be let in if nobody else were there.
    #[inline]
    fn allow(self, size: Nanos) -> bool {
        size <= self.target - self.delay
    }
}

impl Load {
    /// How many more requests of this size fit when `admitted` were let in since the load was measured: the greatest `k` for
    /// which `Q + (eta + ceil((admitted + k) / n)) * S <= R_sla - d` (Eq. 4).
    #[inline]
    pub fn room(&self, size: Nanos, terms: Terms, admitted: u64) -> u64 {
        let left = terms.target - terms.delay - self.queue_delay;
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
    waiting: usize,
    max_waiting: usize,
}

struct Class<T> {
    buckets: Box<[VecDeque<T>]>,
    /// A bit a bucket.
    occupied: u64,
    /// When it is to be processed; never while it is empty.
    due: Nanos,
}

impl<T> Batch<T> {
    /// For so many classes, and so many requests at most.
    pub fn new(classes: usize, max_waiting: usize) -> Batch<T> {
        let class = |_| Class {
            buckets: (0..BUCKETS).map(|_| VecDeque::new()).collect(),
            occupied: 0,
            due: Nanos::MAX,
        };
        Batch { classes: (0..classes).map(class).collect(), waiting: 0, max_waiting }
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// When [`Batch::process`] is to be called next; never while nothing waits.
    pub fn due(&self) -> Nanos {
        self.classes.iter().map(|class| class.due).min().unwrap_or(Nanos::MAX)
    }

    /// A request waits to be processed, for at most `delay`. Where too many wait, the least important of them has to go: it comes
    /// back, and its rank with it.
    #[inline]
    pub fn push(
        &mut self,
        rank: usize,
        size: Nanos,
        delay: Nanos,
        now: Nanos,
        request: T,
    ) -> Option<(usize, T)> {
        let class = &mut self.classes[rank];
        class.put(bucket_of(size), request);
        class.due = class.due.min(now + delay);
        self.waiting += 1;
        if self.waiting <= self.max_waiting { None } else { self.displace() }
    }

    /// Takes out the newest of the biggest of the least important.
    #[cold]
    fn displace(&mut self) -> Option<(usize, T)> {
        let rank = self.classes.iter().rposition(|class| class.occupied != 0)?;
        self.waiting -= 1;
        Some((rank, self.classes[rank].take_last()?))
    }

    /// Processes the classes that are due and all that are more important, in order of importance; all of them where a server has
    /// nothing to do. `answer` hears about each request and says whether anybody was still waiting for it: who has left takes no
    /// room.
    pub fn process(
        &mut self,
        now: Nanos,
        load: &Load,
        terms: impl Fn(usize) -> Terms,
        mut answer: impl FnMut(T, usize, Result<(), Misfit>) -> bool,
    ) {
        let last =
            self.classes.iter().rposition(|class| class.due <= now || (load.idle && class.occupied != 0));
        let Some(last) = last else { return };
        let (mut admitted, mut misfit) = (0, None);
        for (rank, class) in self.classes.iter_mut().enumerate() {
            if misfit.is_none() && rank <= last {
                misfit =
                    class.process(load, terms(rank), &mut admitted, &mut self.waiting, |request, outcome| {
                        answer(request, rank, outcome)
                    });
            } else if let Some(misfit) = misfit {
                class.drain(&mut self.waiting, |request| _ = answer(request, rank, Err(misfit)));
            }
        }
    }
}

impl<T> Class<T> {
    fn put(&mut self, bucket: usize, request: T) {
        self.buckets[bucket].push_back(request);
        self.occupied |= 1 << bucket;
    }

    fn take_last(&mut self) -> Option<T> {
        let bucket = 63u32.checked_sub(self.occupied.leading_zeros())?;
        let request = self.buckets[bucket as usize].pop_back();
        if self.buckets[bucket as usize].is_empty() {
            self.occupied &= !(1 << bucket);
        }
        if self.occupied == 0 {
            self.due = Nanos::MAX;
        }
        request
    }

    /// Lets in what fits, small ones first, and sends the rest away. Where that are some who would have fitted with less to do, they
    /// leave no room for anybody else either: says what did not fit.
    fn process(
        &mut self,
        load: &Load,
        terms: Terms,
        admitted: &mut u64,
        waiting: &mut usize,
        mut answer: impl FnMut(T, Result<(), Misfit>) -> bool,
    ) -> Option<Misfit> {
        let (mut misfit, mut full) = (None, false);
        while misfit.is_none() && self.occupied != 0 {
            let bucket = self.occupied.trailing_zeros() as usize;
            let (size, requests) = (middle_of(bucket), &mut self.buckets[bucket]);
            let mut room = load.room(size, terms, *admitted);
            while room > 0
                && let Some(request) = requests.pop_front()
            {
                *waiting -= 1;
                if answer(request, Ok(())) {
                    *admitted += 1;
                    room -= 1;
                }
            }
            if requests.is_empty() {
                self.occupied &= self.occupied - 1;
            } else {
                // Who is too big for an empty pool says nothing about how full this one is.
                full = terms.allow(size);
                let estimate = load.estimate(size, *admitted);
                misfit = Some(Misfit { estimate, objective: terms.target - terms.delay });
            }
        }
        if let Some(misfit) = misfit {
            self.drain(waiting, |request| _ = answer(request, Err(misfit)));
        }
        self.due = Nanos::MAX;
        misfit.filter(|_| full)
    }

    /// Sends everybody away.
    fn drain(&mut self, waiting: &mut usize, mut answer: impl FnMut(T)) {
        while self.occupied != 0 {
            let bucket = &mut self.buckets[self.occupied.trailing_zeros() as usize];
            *waiting -= bucket.len();
            bucket.drain(..).for_each(&mut answer);
            self.occupied &= self.occupied - 1;
        }
        self.due = Nanos::MAX;
    }
}

#[cfg(test)]
mod tests;
