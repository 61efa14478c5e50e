//! What a run is told by: counts, response times and utilisation, without the warm-up.

use plimsoll_core::histogram::{BUCKETS, bounds_of, bucket_of};
use plimsoll_core::{Grant, Mechanism, Nanos, Refusal, Slo, Statistic};

use crate::engine::{Arrival, Observer, Request};

/// A plain histogram in the buckets of [`plimsoll_core::histogram`], none wider than 1.6 % of its values.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS].into(), total: 0 }
    }
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: Nanos) {
        self.counts[bucket_of(value)] += 1;
        self.total += 1;
    }

    /// How many values were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.total += other.total;
    }

    /// The value at or below which this fraction of the values lies, spread evenly within a bucket; none where nothing was
    /// counted.
    pub fn quantile(&self, fraction: f64) -> Option<Nanos> {
        let rank = fraction * self.total as f64;
        let mut below = 0.0;
        for (bucket, &count) in self.counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            let count = count as f64;
            if below + count >= rank {
                let (low, high) = bounds_of(bucket);
                let part = ((rank - below) / count).clamp(0.0, 1.0);
                return Some(Nanos(low + (part * (high - low) as f64) as u64));
            }
            below += count;
        }
        None
    }

    /// The mean, with every value taken for the middle of its bucket; none where nothing was counted.
    pub fn mean(&self) -> Option<Nanos> {
        let middle = |bucket| {
            let (low, high) = bounds_of(bucket);
            (low + high) as f64 / 2.0
        };
        let sum: f64 = self.counts.iter().enumerate().map(|(bucket, &n)| n as f64 * middle(bucket)).sum();
        (self.total > 0).then(|| Nanos((sum / self.total as f64) as u64))
    }

    /// What an objective on this statistic is held against; none where nothing was counted.
    pub fn value(&self, statistic: Statistic) -> Option<Nanos> {
        match statistic {
            Statistic::Percentile(percentile) => self.quantile(percentile.fraction()),
            Statistic::Mean => self.mean(),
        }
    }

    /// Whether every objective is met; none where nothing was counted or there is no objective.
    pub fn meets(&self, slo: &Slo) -> Option<bool> {
        let met = |&(statistic, limit): &(Statistic, Nanos)| {
            self.value(statistic).is_some_and(|value| value <= limit)
        };
        (self.total > 0 && !slo.is_empty()).then(|| slo.targets().iter().all(met))
    }
}

/// What happened to the requests of one class.
#[derive(Clone, Default)]
pub struct ClassStats {
    /// Requests that came.
    pub received: u64,
    /// Requests that were turned away or dropped, by [`Mechanism`].
    pub refused: [u64; Mechanism::ALL.len()],
    /// Requests that were let in, by [`Grant`], those that were dropped later included.
    pub granted: [u64; Grant::ALL.len()],
    /// Response times of what was let in because it was expected to meet its objectives.
    pub by_estimate: Histogram,
    /// Response times of what was let in against the estimate.
    pub overridden: Histogram,
}

impl ClassStats {
    /// Requests that were turned away or dropped.
    pub fn rejected(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Response times of all that was served.
    pub fn response_times(&self) -> Histogram {
        let mut all = self.by_estimate.clone();
        all.merge(&self.overridden);
        all
    }
}

/// Watches a run.
pub struct Stats {
    classes: Vec<ClassStats>,
    warmup: u64,
    /// When the first request that counts came, and the last request.
    from: Option<Nanos>,
    until: Nanos,
    /// Processes at work, and since when.
    busy: u32,
    busy_since: Nanos,
    /// What was worked since `from`, in process-nanoseconds: until `busy_since`, and until `until`.
    work: u128,
    work_until: u128,
}

impl Stats {
    /// Leaves the first `warmup` arrivals out.
    pub fn new(classes: usize, warmup: u64) -> Stats {
        Stats {
            classes: vec![ClassStats::default(); classes],
            warmup,
            from: None,
            until: Nanos::ZERO,
            busy: 0,
            busy_since: Nanos::ZERO,
            work: 0,
            work_until: 0,
        }
    }

    /// One entry a class.
    pub fn classes(&self) -> &[ClassStats] {
        &self.classes
    }

    /// From the first arrival that counts to the last.
    pub fn span(&self) -> Nanos {
        self.until.since(self.from.unwrap_or(self.until))
    }

    /// The share of `processes` that was at work over the span, in 0..1; zero where that is empty.
    pub fn utilization(&self, processes: u32) -> f64 {
        let capacity = self.span().0 as f64 * f64::from(processes);
        if capacity > 0.0 { self.work_until as f64 / capacity } else { 0.0 }
    }

    /// The class of a request, if that counts.
    #[inline]
    fn class(&mut self, index: u64, arrival: &Arrival) -> Option<&mut ClassStats> {
        (index >= self.warmup).then(|| &mut self.classes[arrival.class.index()])
    }

    #[inline]
    fn work_by(&mut self, now: Nanos) {
        self.work += u128::from(self.busy) * u128::from(now.since(self.busy_since).0);
        self.busy_since = now;
    }
}

impl Observer for Stats {
    #[inline]
    fn arrived(&mut self, index: u64, arrival: &Arrival) {
        if index < self.warmup {
            return;
        }
        self.work_by(arrival.at);
        if self.from.is_none() {
            self.from = Some(arrival.at);
            self.work = 0;
        }
        // What drains after the last arrival says nothing about the load.
        (self.until, self.work_until) = (arrival.at, self.work);
        self.classes[arrival.class.index()].received += 1;
    }

    #[inline]
    fn refused(&mut self, index: u64, arrival: &Arrival, refusal: &Refusal) {
        if let Some(class) = self.class(index, arrival) {
            class.refused[refusal.mechanism as usize] += 1;
        }
    }

    #[inline]
    fn admitted(&mut self, request: &Request) {
        if let Some(class) = self.class(request.index, &request.arrival) {
            class.granted[request.grant as usize] += 1;
        }
    }

    fn dropped(&mut self, request: &Request, refusal: &Refusal, _now: Nanos) {
        if let Some(class) = self.class(request.index, &request.arrival) {
            class.refused[refusal.mechanism as usize] += 1;
        }
    }

    #[inline]
    fn served(&mut self, request: &Request, _started: Nanos, now: Nanos) {
        if let Some(class) = self.class(request.index, &request.arrival) {
            let times = match request.grant {
                Grant::Estimate => &mut class.by_estimate,
                _ => &mut class.overridden,
            };
            times.record(now.since(request.arrival.at));
        }
    }

    #[inline]
    fn busy(&mut self, processes: u32, now: Nanos) {
        self.work_by(now);
        self.busy = processes;
    }
}
