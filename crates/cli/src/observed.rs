//! What a load generator saw of every request, for tools that judge a run by nothing else.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use plimsoll_core::Nanos;
use plimsoll_loadgen::{Entry, Outcome, Plan, Report};
use plimsoll_simulator::reproduce::cataclysm::p95;

/// One request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// When it was due, since the start of the run.
    pub at: Nanos,
    /// Its class, by its place in what was asked for.
    pub class: usize,
    outcome: Outcome,
    latency: Nanos,
}

impl Seen {
    /// Whether it was answered.
    pub fn is_admitted(&self) -> bool {
        self.outcome == Outcome::Ok
    }

    /// Whether it was answered within this time.
    pub fn is_in_time(&self, within: Nanos) -> bool {
        self.is_admitted() && self.latency <= within
    }
}

/// What is live is as it was in the last second.
pub const RECENT: Nanos = Nanos::from_secs(1);

/// The requests that have ended so far, and which of them lately.
#[derive(Default)]
pub struct Requests {
    all: Vec<Seen>,
    /// How many of them had been told at which time, as far as it is recent.
    told: VecDeque<(Nanos, usize)>,
}

impl Requests {
    /// These have ended by now.
    pub fn add(&mut self, now: Nanos, ended: Vec<Seen>) {
        if self.told.is_empty() {
            self.told.push_back((Nanos::ZERO, 0));
        }
        self.all.extend(ended);
        self.told.push_back((now, self.all.len()));
        while self.told.len() > 2 && now.since(self.told[1].0) >= RECENT {
            self.told.pop_front();
        }
    }

    /// Those of about the last second, and how many seconds that is.
    pub fn recent(&self) -> (f64, &[Seen]) {
        match (self.told.front(), self.told.back()) {
            (Some(&(since, first)), Some(&(now, _))) => (now.since(since).as_secs_f64(), &self.all[first..]),
            _ => (0.0, &[]),
        }
    }

    /// All of them.
    pub fn all(&self) -> &[Seen] {
        &self.all
    }

    /// The same, given away.
    pub fn into_all(self) -> Vec<Seen> {
        self.all
    }
}

/// Carries a plan out and tells `observe` four times a second, and once more at the end, which requests have ended. The classes are those
/// whose names the requests begin with, as [`mix`](crate::platform::mix) names them.
///
/// # Errors
/// Where the plan cannot be carried out.
pub async fn load(
    plan: Plan,
    classes: &[&str],
    mut observe: impl FnMut(Nanos, Vec<Seen>),
) -> Result<Report, String> {
    let class = |name: &str| {
        let (name, _) = name.split_once('-')?;
        classes.iter().position(|&class| class == name)
    };
    let seen = |(name, &Entry { at, outcome, latency }): (&str, &Entry)| {
        Some(Seen { at, class: class(name)?, outcome, latency })
    };
    let plan = Plan { tells_each: true, ..plan };
    let load = plimsoll_loadgen::run(&plan, |progress| {
        observe(progress.elapsed, progress.ended().filter_map(seen).collect());
        ControlFlow::Continue(())
    });
    load.await
}

/// What became of some requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// All of them.
    pub came: u64,
    /// Those that were answered.
    pub admitted: u64,
    /// Those that were refused, with the reason.
    pub refused: u64,
    /// All else.
    pub errors: u64,
    /// Within this time 95 in 100 of the answered ones were, from when they were due; nothing where none was.
    pub p95: Option<Nanos>,
}

impl Tally {
    /// Of these.
    pub fn of<'a>(requests: impl Iterator<Item = &'a Seen>) -> Tally {
        let (mut tally, mut times) = (Tally::default(), Vec::new());
        for seen in requests {
            tally.came += 1;
            match seen.outcome {
                Outcome::Ok => {
                    tally.admitted += 1;
                    times.push(seen.latency);
                }
                Outcome::Rejected => tally.refused += 1,
                Outcome::RefusedOther | Outcome::Error(_) => tally.errors += 1,
            }
        }
        Tally { p95: p95(times.into_iter()), ..tally }
    }

    /// The share of them that was answered, in per cent; nothing where there were none.
    pub fn admitted_pct(&self) -> Option<f64> {
        (self.came > 0).then(|| 100.0 * self.admitted as f64 / self.came as f64)
    }

    /// The share of them that was refused, in 0..1; zero where there were none.
    pub fn refused_share(&self) -> f64 {
        self.refused as f64 / self.came.max(1) as f64
    }
}

/// What became of the requests of each second from `from` on and before `to`, by when they were due.
pub fn by_second<'a>(requests: impl Iterator<Item = &'a Seen>, from: Nanos, to: Nanos) -> Vec<(f64, Tally)> {
    let second = |at: Nanos| at.since(from).0 / Nanos::from_secs(1).0;
    let whole = second(to) as usize;
    let mut seconds: Vec<Vec<&Seen>> = vec![Vec::new(); whole];
    for seen in requests.filter(|seen| seen.at >= from) {
        if let Some(of) = seconds.get_mut(second(seen.at) as usize) {
            of.push(seen);
        }
    }
    let of = |(i, seen): (usize, Vec<&Seen>)| (from.as_secs_f64() + i as f64, Tally::of(seen.into_iter()));
    seconds.into_iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_loadgen::ErrorKind;

    use super::*;

    fn seen(at_ms: u64, outcome: Outcome, latency_ms: u64) -> Seen {
        Seen { at: Nanos::from_millis(at_ms), class: 0, outcome, latency: Nanos::from_millis(latency_ms) }
    }

    #[test]
    fn every_request_is_counted_once_in_the_second_it_was_due() {
        let requests = [
            seen(900, Outcome::Ok, 1),
            seen(1_000, Outcome::Ok, 30),
            seen(1_500, Outcome::Rejected, 1),
            seen(1_999, Outcome::Error(ErrorKind::Closed), 1),
            seen(3_000, Outcome::RefusedOther, 1),
            seen(4_000, Outcome::Ok, 1),
        ];
        let seconds = by_second(requests.iter(), Nanos::from_secs(1), Nanos::from_secs(4));
        let counts: Vec<_> =
            seconds.iter().map(|(at_s, t)| (*at_s, t.came, t.admitted, t.refused, t.errors)).collect();
        assert_eq!(counts, [(1.0, 3, 1, 1, 1), (2.0, 0, 0, 0, 0), (3.0, 1, 0, 0, 1)]);
        assert_eq!(seconds[0].1.p95, Some(Nanos::from_millis(30)), "of the answered ones");
        assert_eq!((seconds[1].1.admitted_pct(), seconds[1].1.refused_share()), (None, 0.0));
        assert!((seconds[0].1.refused_share() - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(seconds[2].1.admitted_pct(), Some(0.0));
    }
}
