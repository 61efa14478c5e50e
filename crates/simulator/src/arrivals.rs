//! When requests come: Poisson at a rate that may change over time.
//!
//! All patterns are one: unit exponentials are drawn, and time moves on until the rate, integrated over it,
//! has used one up. So runs that differ in their load alone see the same pattern, faster or slower.

use plimsoll_core::config::workload::{Arrivals, Step};
use plimsoll_core::{Nanos, Rng};
use rand::RngExt;
use rand_distr::Exp1;

/// The rate between two changes of it.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// Requests per nanosecond.
    rate: f64,
    /// When it ends, in nanoseconds.
    until: f64,
}

/// Arrival times, in rising order. Ends where the rate drops to zero for ever.
pub struct Times {
    phases: Box<dyn Iterator<Item = Phase> + Send>,
    phase: Phase,
    /// In nanoseconds; a float, so that rounding does not add up.
    now: f64,
    rng: Rng,
}

impl Times {
    /// Arrivals of this pattern with a mean of `per_s` requests a second, above zero.
    pub fn new(pattern: &Arrivals, per_s: f64, rng: Rng) -> Times {
        let mean = per_s / 1e9;
        let phases: Box<dyn Iterator<Item = Phase> + Send> = match pattern {
            Arrivals::Poisson => Box::new(std::iter::once(Phase { rate: mean, until: f64::INFINITY })),
            Arrivals::OnOff { on, off, burst, lull } => {
                Box::new(on_off(on.0 as f64, off.0 as f64, mean * burst, mean * lull))
            }
            Arrivals::Schedule(steps) => Box::new(schedule(steps, mean)),
        };
        Times { phases, phase: Phase { rate: 0.0, until: 0.0 }, now: 0.0, rng }
    }
}

fn on_off(on: f64, off: f64, burst: f64, lull: f64) -> impl Iterator<Item = Phase> + Send {
    let period = on + off;
    (0u64..).flat_map(move |i| {
        let begins = i as f64 * period;
        [Phase { rate: burst, until: begins + on }, Phase { rate: lull, until: begins + period }]
    })
}

fn schedule(steps: &[Step], mean: f64) -> impl Iterator<Item = Phase> + Send + use<> {
    let ends = steps.iter().skip(1).map(|step| step.start.0 as f64).chain([f64::INFINITY]);
    let phases = steps.iter().zip(ends).map(|(step, until)| Phase { rate: step.factor * mean, until });
    phases.collect::<Vec<_>>().into_iter()
}

impl Iterator for Times {
    type Item = Nanos;

    #[inline]
    fn next(&mut self) -> Option<Nanos> {
        let mut left: f64 = self.rng.sample(Exp1);
        loop {
            let Phase { rate, until } = self.phase;
            let at = self.now + left / rate;
            if at < until {
                self.now = at;
                return Some(Nanos(at as u64));
            }
            left -= rate * (until - self.now);
            self.now = until;
            self.phase = self.phases.next()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::rng::seeded;

    const S: u64 = 1_000_000_000;

    /// Arrivals in each second of the first `seconds`.
    fn per_second(pattern: &Arrivals, per_s: f64, seconds: usize) -> Vec<f64> {
        let mut counts = vec![0.0; seconds];
        let times = Times::new(pattern, per_s, seeded(1, 0));
        let mut last = Nanos::ZERO;
        for at in times.take_while(|at| at.0 < seconds as u64 * S) {
            assert!(last <= at, "time runs backwards");
            last = at;
            counts[(at.0 / S) as usize] += 1.0;
        }
        counts
    }

    /// Within five standard deviations of a Poisson count.
    fn is_near(count: f64, expected: f64) -> bool {
        (count - expected).abs() <= 5.0 * expected.sqrt()
    }

    #[test]
    fn poisson_counts_have_the_mean_and_the_variance_of_poisson_counts() {
        let counts = per_second(&Arrivals::Poisson, 1_000.0, 400);
        let mean = counts.iter().sum::<f64>() / 400.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 399.0;
        assert!(is_near(mean * 400.0, 400_000.0), "mean {mean}");
        // The variance of 400 counts is itself known to about 7 %.
        assert!((variance / mean - 1.0).abs() < 0.35, "variance {variance}");
    }

    #[test]
    fn bursts_keep_the_mean() {
        let (on, off) = (Nanos::from_secs(2), Nanos::from_secs(6));
        let counts = per_second(&Arrivals::OnOff { on, off, burst: 3.0, lull: 1.0 / 3.0 }, 1_000.0, 80);
        for (second, &count) in counts.iter().enumerate() {
            let expected = if second % 8 < 2 { 3_000.0 } else { 1_000.0 / 3.0 };
            assert!(is_near(count, expected), "second {second}: {count}");
        }
        assert!(is_near(counts.iter().sum(), 80_000.0));
        let silent = per_second(&Arrivals::OnOff { on, off, burst: 4.0, lull: 0.0 }, 1_000.0, 16);
        assert_eq!(silent[2..8].iter().sum::<f64>(), 0.0);
    }

    #[test]
    fn a_schedule_is_kept_and_ends_with_its_traffic() {
        let steps = [(0, 1.0), (1, 0.0), (3, 2.5), (4, 0.0)];
        let steps = steps.map(|(s, factor)| Step { start: Nanos(s * S), factor });
        let counts = per_second(&Arrivals::Schedule(steps.into()), 1_000.0, 10);
        assert!(is_near(counts[0], 1_000.0) && is_near(counts[3], 2_500.0), "{counts:?}");
        assert_eq!(counts[1] + counts[2] + counts[4..].iter().sum::<f64>(), 0.0);
    }

    #[test]
    fn the_load_only_stretches_time() {
        let times = |per_s| Times::new(&Arrivals::Poisson, per_s, seeded(3, 0)).take(1_000);
        for (slow, fast) in times(1_000.0).zip(times(2_000.0)) {
            assert!(slow.0.abs_diff(2 * fast.0) <= 3, "{slow} {fast}");
        }
    }
}
