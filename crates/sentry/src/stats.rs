//! What the data path counts. Every thread writes numbers of its own, so that counting costs a load and a store;
//! whoever reads adds them up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use plimsoll_core::histogram::{BUCKETS, bounds_of, bucket_of};
use plimsoll_core::{Grant, Mechanism, Nanos, Percentile, Slo, Statistic};

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one. Only from the thread that the counter belongs to: others would be lost, never more.
    #[inline]
    pub fn bump(&self) {
        self.add(1);
    }

    /// Counts `n`; as [`Counter::bump`].
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Relaxed);
    }

    /// Takes one back, where the counter is a level; as [`Counter::bump`].
    #[inline]
    pub fn drop_one(&self) {
        self.0.store(self.get().wrapping_sub(1), Relaxed);
    }

    /// The number now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Fine buckets of [`plimsoll_core::histogram`] that share one here: 12.5 % wide at most, for a tenth of the memory.
const MERGED: usize = 8;

/// Durations, counted by their length.
#[derive(Debug)]
pub struct Histogram {
    counts: Box<[Counter]>,
    sum_ns: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: (0..BUCKETS / MERGED).map(|_| Counter::default()).collect(),
            sum_ns: Counter::default(),
        }
    }
}

impl Histogram {
    /// Counts one duration; as [`Counter::bump`].
    #[inline]
    pub fn record(&self, value: Nanos) {
        self.counts[bucket_of(value) / MERGED].bump();
        self.sum_ns.add(value.0);
    }

    fn add_to(&self, snapshot: &mut Durations) {
        snapshot.counts.resize(self.counts.len(), 0);
        snapshot.counts.iter_mut().zip(&self.counts).for_each(|(sum, count)| *sum += count.get());
        snapshot.sum += Nanos(self.sum_ns.get());
    }
}

/// The sum of histograms at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    counts: Vec<u64>,
    /// Of all durations.
    pub sum: Nanos,
}

impl Durations {
    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many were at most `limit`, to the width of a bucket.
    pub fn at_most(&self, limit: Nanos) -> u64 {
        self.buckets().take_while(|&(_, high, _)| high <= limit).map(|(_, _, count)| count).sum()
    }

    /// The value at or below which `percentile` of them lie, spread evenly within a bucket; zero where there are none.
    pub fn percentile(&self, percentile: Percentile) -> Nanos {
        let rank = percentile.fraction() * self.count() as f64;
        let mut below = 0.0;
        for (low, high, count) in self.buckets().filter(|&(_, _, count)| count > 0) {
            if below + count as f64 >= rank {
                let part = ((rank - below) / count as f64).clamp(0.0, 1.0);
                return Nanos(low.0 + (part * (high - low).0 as f64) as u64);
            }
            below += count as f64;
        }
        Nanos::ZERO
    }

    /// What an objective on this statistic is held against; zero where there are none.
    pub fn value(&self, statistic: Statistic) -> Nanos {
        match statistic {
            Statistic::Percentile(percentile) => self.percentile(percentile),
            Statistic::Mean => Nanos(self.sum.0 / self.count().max(1)),
        }
    }

    /// What was added since `earlier`, a snapshot of the same histograms.
    pub fn since(&self, earlier: &Durations) -> Durations {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        let counts = self.counts.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect();
        Durations { counts, sum: self.sum - earlier.sum }
    }

    /// The upper bound (exclusive) and the count of every bucket that has any, in order.
    pub fn filled(&self) -> impl Iterator<Item = (Nanos, u64)> {
        self.buckets().filter(|&(_, _, count)| count > 0).map(|(_, high, count)| (high, count))
    }

    /// The lower bound (inclusive), the upper bound (exclusive) and the count of every bucket, in order.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, Nanos, u64)> {
        self.counts.iter().enumerate().map(|(i, &count)| {
            let (first, last) = (i * MERGED, i * MERGED + MERGED - 1);
            (Nanos(bounds_of(first).0), Nanos(bounds_of(last).1), count)
        })
    }
}

/// Why a request that was let in was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No server could be connected to: 502.
    Connect,
    /// The server closed or reset the connection before its response, or spoke something else: 502.
    Upstream,
    /// The server took longer than `response_timeout`, or paused for that long in its response: 504.
    Timeout,
    /// The request's own deadline passed while the server worked on it: 504.
    Deadline,
    /// The server broke off in its response; so did we.
    Truncated,
    /// The client left, or stalled for too long, before it had its response.
    ClientGone,
    /// The client's body was not what it announced: 400.
    Malformed,
    /// It was cancelled to free what others needed: by its server, and is sent a second time, which counts as another request; or here, as
    /// its server has no way to.
    Cancelled,
}

impl Failure {
    /// Every kind, in the order of the metrics.
    pub const ALL: [Failure; 8] = [
        Failure::Connect,
        Failure::Upstream,
        Failure::Timeout,
        Failure::Deadline,
        Failure::Truncated,
        Failure::ClientGone,
        Failure::Malformed,
        Failure::Cancelled,
    ];

    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Failure::Connect => "connect",
            Failure::Upstream => "upstream",
            Failure::Timeout => "timeout",
            Failure::Deadline => "deadline",
            Failure::Truncated => "truncated",
            Failure::ClientGone => "client-gone",
            Failure::Malformed => "malformed",
            Failure::Cancelled => "cancelled",
        }
    }
}

/// What one thread counts of one class. What was offered is in the end granted, unjudged, refused or gone, or in shadow
/// mode let in against the verdict (`would_refuse`); what was let in is in the end served or failed.
#[derive(Debug)]
pub struct ClassShard {
    /// Requests that arrived.
    pub offered: Counter,
    /// Requests that the policy let in and not refused in the queue after all, by [`Grant`].
    granted: [Counter; Grant::ALL.len()],
    /// Requests that went on without a judgement: mode off, or a policy that failed.
    pub unjudged: Counter,
    /// Requests refused, by [`Mechanism`].
    refused: Box<[Counter]>,
    /// Requests that would have been refused if the mode were not shadow, by [`Mechanism`].
    would_refuse: Box<[Counter]>,
    /// Requests whose client left while they waited.
    pub gone: Counter,
    /// Requests whose response ended as it should, whatever its status.
    pub served: Counter,
    /// Requests that were let in and not served, by [`Failure`].
    failed: [Counter; Failure::ALL.len()],
    /// From arrival to the end of the response, of what was served and is no stream.
    pub response: Histogram,
    /// Time in the queue of what left it for a slot.
    pub wait: Histogram,
}

impl Default for ClassShard {
    fn default() -> Self {
        let per_mechanism = || Mechanism::ALL.iter().map(|_| Counter::default()).collect();
        ClassShard {
            offered: Counter::default(),
            granted: Default::default(),
            unjudged: Counter::default(),
            refused: per_mechanism(),
            would_refuse: per_mechanism(),
            gone: Counter::default(),
            served: Counter::default(),
            failed: Default::default(),
            response: Histogram::default(),
            wait: Histogram::default(),
        }
    }
}

impl ClassShard {
    /// The counter of a grant.
    pub fn granted(&self, grant: Grant) -> &Counter {
        &self.granted[grant as usize]
    }
    /// The counter of refusals by this mechanism.
    pub fn refused(&self, mechanism: Mechanism) -> &Counter {
        &self.refused[mechanism as usize]
    }
    /// The counter of what this mechanism would have refused.
    pub fn would_refuse(&self, mechanism: Mechanism) -> &Counter {
        &self.would_refuse[mechanism as usize]
    }
    /// The counter of this kind of failure.
    pub fn failed(&self, failure: Failure) -> &Counter {
        &self.failed[failure as usize]
    }
}

/// What is counted of one class, by thread.
#[derive(Debug)]
pub struct ClassStats {
    shards: Box<[ClassShard]>,
}

impl ClassStats {
    fn new(threads: usize) -> ClassStats {
        ClassStats { shards: (0..threads).map(|_| ClassShard::default()).collect() }
    }

    /// The part that this thread writes.
    pub fn shard(&self, thread: usize) -> &ClassShard {
        &self.shards[thread]
    }

    /// One number, all threads added up.
    pub fn sum(&self, of: impl Fn(&ClassShard) -> &Counter) -> u64 {
        self.shards.iter().map(|shard| of(shard).get()).sum()
    }

    /// All threads added up.
    pub fn snapshot(&self) -> ClassSnapshot {
        let mut sum = ClassSnapshot {
            refused: vec![0; Mechanism::ALL.len()],
            would_refuse: vec![0; Mechanism::ALL.len()],
            ..ClassSnapshot::default()
        };
        let add = |sums: &mut [u64], counters: &[Counter]| {
            sums.iter_mut().zip(counters).for_each(|(sum, counter)| *sum += counter.get());
        };
        for shard in &self.shards {
            sum.offered += shard.offered.get();
            sum.unjudged += shard.unjudged.get();
            sum.gone += shard.gone.get();
            sum.served += shard.served.get();
            add(&mut sum.granted, &shard.granted);
            add(&mut sum.refused, &shard.refused);
            add(&mut sum.would_refuse, &shard.would_refuse);
            add(&mut sum.failed, &shard.failed);
            shard.response.add_to(&mut sum.response);
            shard.wait.add_to(&mut sum.wait);
        }
        sum
    }
}

/// [`ClassStats`] at one moment; the meanings are those of [`ClassShard`].
#[derive(Clone, Debug, Default)]
pub struct ClassSnapshot {
    /// Requests that arrived.
    pub offered: u64,
    /// In the order of [`Grant::ALL`].
    pub granted: [u64; Grant::ALL.len()],
    /// Requests that went on without a judgement.
    pub unjudged: u64,
    /// In the order of [`Mechanism::ALL`].
    pub refused: Vec<u64>,
    /// In the order of [`Mechanism::ALL`].
    pub would_refuse: Vec<u64>,
    /// Requests whose client left while they waited.
    pub gone: u64,
    /// Responses that ended as they should.
    pub served: u64,
    /// In the order of [`Failure::ALL`].
    pub failed: [u64; Failure::ALL.len()],
    /// From arrival to the end of the response.
    pub response: Durations,
    /// In the queue.
    pub wait: Durations,
}

impl ClassSnapshot {
    /// Responses that took no longer than the objective's highest percentile, streams left out; all of them where there is none.
    pub fn good(&self, slo: &Slo) -> u64 {
        let limit = slo.targets().iter().map(|&(_, limit)| limit).max();
        limit.map_or_else(|| self.response.count(), |limit| self.response.at_most(limit))
    }

    /// Requests that were let in: by the policy, without a judgement, or against it in shadow mode.
    pub fn admitted(&self) -> u64 {
        self.granted.iter().sum::<u64>() + self.unjudged + self.against()
    }

    /// Requests that were let in against the verdict, because the mode is shadow. Not those that were beyond a rate: they go on to the
    /// pool's own mechanisms, whose verdict counts.
    pub fn against(&self) -> u64 {
        self.would_refuse.iter().sum::<u64>() - self.would_refuse_by(Mechanism::Rate)
    }

    /// Requests that this mechanism would have refused if its mode were not shadow.
    pub fn would_refuse_by(&self, mechanism: Mechanism) -> u64 {
        // Before the first look there are no counters at all.
        self.would_refuse.get(mechanism as usize).copied().unwrap_or(0)
    }
}

macro_rules! thread_stats {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// What one thread counts besides its classes.
        #[derive(Debug, Default)]
        pub struct ThreadStats { $($(#[doc = $doc])+ pub $name: Counter,)* }

        impl ThreadStats {
            /// Name, what it means, and the sum over all threads, of each.
            pub fn totals(threads: &[ThreadStats]) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($doc),+), threads.iter().map(|t| t.$name.get()).sum())),*]
            }
        }
    };
}
thread_stats! {
    /// Client connections accepted.
    accepted,
    /// Client connections refused because there were too many.
    connections_refused,
    /// Requests between their head and the end of their response, now.
    in_flight,
    /// Connections closed because a request's head took too long.
    slow_heads,
    /// Connections closed because a client stalled in a response, and requests ended because it stalled in its own body.
    stalled_clients,
    /// Requests refused because they were malformed or ambiguous.
    malformed,
    /// HTTP/2 connections closed because their client kept resetting requests.
    reset_floods,
    /// TLS handshakes that failed.
    tls_failures,
    /// Retries after a connection failed before anything was sent.
    retries,
    /// Retries that the budget did not allow.
    retries_denied,
    /// Requests sent a second time because a server cancelled them.
    reruns,
    /// Panics of a policy; the request was let in.
    policy_panics,
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Stats {
    /// One a thread.
    pub threads: Box<[ThreadStats]>,
    /// By name, so that counters go on when a reload changes the classes around them.
    classes: Mutex<HashMap<String, Arc<ClassStats>>>,
}

impl Stats {
    /// For so many threads.
    pub fn new(threads: usize) -> Stats {
        Stats { threads: (0..threads).map(|_| ThreadStats::default()).collect(), classes: Mutex::default() }
    }

    /// The counters of these classes, in order, new ones where a name is new. Forgets all other classes.
    pub fn classes<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<Arc<ClassStats>> {
        let mut known = self.classes.lock();
        let fresh = || Arc::new(ClassStats::new(self.threads.len()));
        let wanted: Vec<_> =
            names.map(|n| (n.to_owned(), known.get(n).cloned().unwrap_or_else(fresh))).collect();
        *known = wanted.iter().cloned().collect();
        wanted.into_iter().map(|(_, stats)| stats).collect()
    }

    /// Requests between their head and the end of their response.
    pub fn in_flight(&self) -> u64 {
        self.threads.iter().map(|t| t.in_flight.get()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_within_a_bucket_of_the_truth() {
        let histogram = Histogram::default();
        (1..=1_000).for_each(|ms| histogram.record(Nanos::from_millis(ms)));
        let mut all = Durations::default();
        histogram.add_to(&mut all);
        assert_eq!((all.count(), all.sum), (1_000, Nanos::from_millis(500_500)));
        for (percentile, ms) in [(Percentile::P50, 500.0), (Percentile::P90, 900.0), (Percentile::P99, 990.0)]
        {
            let value = all.percentile(percentile).as_millis_f64();
            assert!((value / ms - 1.0).abs() < 0.13, "{percentile}: {value}");
        }
        let below = all.at_most(Nanos::from_millis(250));
        assert!((220..=250).contains(&below), "{below}");

        let before = all.clone();
        histogram.record(Nanos::from_millis(3));
        histogram.add_to(&mut all);
        let added = all.since(&before).since(&before);
        assert_eq!((added.count(), added.at_most(Nanos::from_millis(4))), (1, 1));
    }

    #[test]
    fn counters_survive_a_change_of_the_classes() {
        let stats = Stats::new(2);
        let before = stats.classes(["a", "b"].into_iter());
        before[1].shard(1).offered.bump();
        let after = stats.classes(["new", "b"].into_iter());
        assert_eq!((after[0].snapshot().offered, after[1].snapshot().offered), (0, 1));
        let back = stats.classes(["a"].into_iter());
        assert_eq!(back[0].snapshot().offered, 0);
        assert!(!Arc::ptr_eq(&back[0], &before[0]), "what is not configured is not kept");
    }
}
