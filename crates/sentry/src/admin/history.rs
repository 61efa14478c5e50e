//! The last two minutes of every class, second by second, and the last ten seconds as one window. Nothing here is
//! needed to decide; it is what the live page draws and `/classes` tells.

use std::collections::{HashMap, VecDeque};

use plimsoll_core::{Nanos, Percentile, Slo, Statistic};

use super::model::{Rates, Second};
use crate::stats::{ClassSnapshot, Durations};

/// Seconds that are kept of each class.
pub const KEPT: usize = 120;
/// Seconds that rates and percentiles look back: long enough to be steady, short enough to show what is the case now.
pub const WINDOW: usize = 10;

/// What one class counted, as of its last samples.
#[derive(Debug, Default)]
pub struct ClassHistory {
    seconds: VecDeque<Second>,
    /// The counters at the last `WINDOW + 1` samples.
    marks: VecDeque<Mark>,
}

/// The counters at one moment. Only the response times are kept in full; they are what percentiles need.
#[derive(Debug)]
struct Mark {
    at: Nanos,
    counts: [u64; 7],
    response: Durations,
}

impl Mark {
    fn new(at: Nanos, snapshot: &ClassSnapshot) -> Mark {
        let sum = |list: &[u64]| list.iter().sum::<u64>();
        let counts = [
            snapshot.offered,
            snapshot.admitted(),
            sum(&snapshot.refused),
            snapshot.against(),
            snapshot.gone,
            snapshot.served,
            sum(&snapshot.failed),
        ];
        Mark { at, counts, response: snapshot.response.clone() }
    }

    /// What was counted since `earlier`.
    fn since(&self, earlier: &Mark) -> [u64; 7] {
        std::array::from_fn(|i| self.counts[i].saturating_sub(earlier.counts[i]))
    }
}

impl ClassHistory {
    /// Takes note of the counters. Called once a second; a call that comes late makes one second longer.
    pub fn sample(&mut self, at: Nanos, slo: &Slo, snapshot: &ClassSnapshot) {
        let mark = Mark::new(at, snapshot);
        if let Some(last) = self.marks.back() {
            let [offered, admitted, refused, would_refuse, ..] = mark.since(last);
            let measured_ms = measured(slo, &mark.response.since(&last.response));
            if self.seconds.len() == KEPT {
                self.seconds.pop_front();
            }
            self.seconds.push_back(Second { offered, admitted, refused, would_refuse, measured_ms });
        }
        if self.marks.len() > WINDOW {
            self.marks.pop_front();
        }
        self.marks.push_back(mark);
    }

    /// The rates over the window.
    pub fn rates(&self) -> Rates {
        let (Some(first), Some(last)) = (self.marks.front(), self.marks.back()) else {
            return Rates::default();
        };
        let seconds = last.at.since(first.at).as_secs_f64();
        if seconds <= 0.0 {
            return Rates::default();
        }
        let [offered, admitted, refused, would_refuse, gone, served, failed] =
            last.since(first).map(|n| n as f64 / seconds);
        Rates { offered, admitted, refused, would_refuse, gone, served, failed }
    }

    /// How long what was served within the window took, at each of [`statistics`]; empty where nothing was served.
    pub fn measured(&self, slo: &Slo) -> Vec<f64> {
        let (Some(first), Some(last)) = (self.marks.front(), self.marks.back()) else { return Vec::new() };
        measured(slo, &last.response.since(&first.response))
    }

    /// The last seconds, oldest first.
    pub fn seconds(&self, most: usize) -> Vec<Second> {
        let skipped = self.seconds.len().saturating_sub(most);
        self.seconds.iter().skip(skipped).cloned().collect()
    }
}

/// The statistics by which a class is shown: those of its objectives, or the usual two percentiles.
pub fn statistics(slo: &Slo) -> Vec<Statistic> {
    if slo.is_empty() {
        return vec![Percentile::P50.into(), Percentile::P90.into()];
    }
    slo.targets().iter().map(|&(statistic, _)| statistic).collect()
}

fn measured(slo: &Slo, durations: &Durations) -> Vec<f64> {
    if durations.count() == 0 {
        return Vec::new();
    }
    statistics(slo).into_iter().map(|s| durations.value(s).as_millis_f64()).collect()
}

/// The histories of all classes, by name, so that they go on through a reload.
#[derive(Debug, Default)]
pub struct History(HashMap<String, ClassHistory>);

impl History {
    /// Takes note of the counters of these classes and forgets all others.
    pub fn sample<'a>(
        &mut self,
        at: Nanos,
        classes: impl Iterator<Item = (&'a str, &'a Slo, ClassSnapshot)>,
    ) {
        let mut known = std::mem::take(&mut self.0);
        for (name, slo, snapshot) in classes {
            let mut history = known.remove(name).unwrap_or_default();
            history.sample(at, slo, &snapshot);
            self.0.insert(name.to_owned(), history);
        }
    }

    /// The history of a class, if it has been sampled.
    pub fn of(&self, class: &str) -> Option<&ClassHistory> {
        self.0.get(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stats;

    #[test]
    fn seconds_and_rates_follow_the_counters() {
        let stats = Stats::new(1);
        let class = stats.classes(["browse"].into_iter()).remove(0);
        let slo = Slo::new([(Percentile::P50, Nanos::from_millis(18))]).unwrap();
        let mut history = History::default();
        for second in 0..200_u64 {
            history.sample(Nanos::from_secs(second), [("browse", &slo, class.snapshot())].into_iter());
            for _ in 0..second {
                class.shard(0).offered.bump();
                class.shard(0).response.record(Nanos::from_millis(second));
            }
        }
        let browse = history.of("browse").unwrap();
        let seconds = browse.seconds(KEPT);
        assert_eq!((seconds.len(), seconds[0].offered, seconds[KEPT - 1].offered), (KEPT, 79, 198));
        assert_eq!(browse.seconds(1)[0].offered, 198);
        assert!((browse.seconds(1)[0].measured_ms[0] / 198.0 - 1.0).abs() < 0.13);
        let mean = (189..199).sum::<u64>() as f64 / 10.0;
        assert!((browse.rates().offered - mean).abs() < 1e-9);
        assert!((browse.measured(&slo)[0] / mean - 1.0).abs() < 0.13);

        history.sample(Nanos::from_secs(300), std::iter::empty());
        assert!(history.of("browse").is_none(), "classes that are gone leave nothing behind");
    }

    #[test]
    fn what_was_not_measured_is_not_shown_as_zero() {
        let mut history = ClassHistory::default();
        assert_eq!(history.rates().offered, 0.0);
        for second in 0..3 {
            history.sample(Nanos::from_secs(second), &Slo::default(), &ClassSnapshot::default());
        }
        assert!(history.measured(&Slo::default()).is_empty());
        assert!(history.seconds(9)[0].measured_ms.is_empty());
    }
}
