//! When to send what: the whole plan of a run, fixed by its seed before the first request leaves.
//!
//! An open-loop generator may not let the server's slowness thin out the load, so the schedule knows nothing
//! of answers. It is lazy: requests that wait for a free connection are simply not taken from it yet.

use std::fmt;
use std::str::FromStr;

use plimsoll_core::{Nanos, Rng, rng};
use rand_distr::weighted::WeightedAliasIndex;
use rand_distr::{Distribution, Exp1};

/// The highest rate that a schedule accepts, in requests per second: a slip of the finger, not a load.
pub const MAX_RATE_PER_S: f64 = 1e7;

/// The offered rate over time.
///
/// Written `100` (constant), `100..300` (a ramp over the whole run), or as a list of steps
/// `0s:100,10s:300..50,20s:50`, each from its time until the next one's; before the first nothing is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate(Vec<Step>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    start: Nanos,
    from_per_s: f64,
    to_per_s: f64,
}

impl Rate {
    /// The same rate all the time, in requests per second.
    pub fn constant(per_s: f64) -> Rate {
        Rate(vec![Step { start: Nanos::ZERO, from_per_s: per_s, to_per_s: per_s }])
    }

    /// How many requests a run of this length is expected to send.
    pub fn expected(&self, duration: Nanos) -> f64 {
        self.pieces(duration).map(|piece| piece.expected()).sum()
    }

    fn pieces(&self, duration: Nanos) -> impl Iterator<Item = Piece> {
        let ends = self.0.iter().skip(1).map(|next| next.start).chain([Nanos::MAX]);
        self.0.iter().zip(ends).map(move |(step, end)| Piece {
            start_s: step.start.min(duration).as_secs_f64(),
            length_s: end.min(duration).since(step.start).as_secs_f64(),
            from_per_s: step.from_per_s,
            to_per_s: step.to_per_s,
        })
    }
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Rate, String> {
        let mut steps: Vec<Step> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (start, rates) = match part.split_once(':') {
                Some((start, rates)) => (start.parse()?, rates),
                None if steps.is_empty() => (Nanos::ZERO, part),
                None => return Err(format!("`{part}` lacks its time; write steps as in \"0s:100,10s:300\"")),
            };
            if steps.last().is_some_and(|previous| previous.start >= start) {
                return Err(format!("the step `{part}` does not start after the one before it"));
            }
            let (from, to) = rates.split_once("..").unwrap_or((rates, rates));
            steps.push(Step { start, from_per_s: rate_per_s(from)?, to_per_s: rate_per_s(to)? });
        }
        if steps.iter().all(|step| step.from_per_s == 0.0 && step.to_per_s == 0.0) {
            return Err("a rate of zero sends nothing".into());
        }
        Ok(Rate(steps))
    }
}

fn rate_per_s(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches("/s");
    match number.parse::<f64>() {
        Ok(rate) if (0.0..=MAX_RATE_PER_S).contains(&rate) => Ok(rate),
        Ok(_) => Err(format!("the rate `{text}` is not between 0 and {MAX_RATE_PER_S} requests per second")),
        Err(_) => {
            Err(format!("`{text}` is not a rate; write requests per second, as in \"100\" or \"100..300\""))
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            if self.0.len() > 1 || step.start > Nanos::ZERO {
                let comma = if i > 0 { "," } else { "" };
                write!(f, "{comma}{}:", step.start)?;
            }
            write!(f, "{}", step.from_per_s)?;
            if step.to_per_s != step.from_per_s {
                write!(f, "..{}", step.to_per_s)?;
            }
        }
        Ok(())
    }
}

/// How arrivals lie within the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// A Poisson process: many independent clients.
    Poisson,
    /// One every 1/rate seconds.
    Fixed,
}

/// One request to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// When it should be sent, since the start of the run.
    pub at: Nanos,
    /// Which request of the mix, by index.
    pub request: usize,
}

/// Every arrival of a run in order. The same arguments give the same arrivals.
pub struct Arrivals {
    pieces: Vec<Piece>,
    piece: usize,
    /// How far into the current piece the last arrival lies, in expected arrivals.
    position: f64,
    spacing: Spacing,
    started: bool,
    shares: WeightedAliasIndex<f64>,
    time_rng: Rng,
    request_rng: Rng,
}

impl Arrivals {
    /// The arrivals of a run of this length. Fails where `shares`, one a request, are not weights.
    pub fn new(
        rate: &Rate,
        duration: Nanos,
        spacing: Spacing,
        shares: Vec<f64>,
        seed: u64,
    ) -> Result<Arrivals, String> {
        Ok(Arrivals {
            pieces: rate.pieces(duration).collect(),
            piece: 0,
            position: 0.0,
            spacing,
            started: false,
            shares: WeightedAliasIndex::new(shares).map_err(|e| format!("shares of the mix: {e}"))?,
            // Two streams: what is asked never shifts when it is asked.
            time_rng: rng::seeded(seed, 0),
            request_rng: rng::seeded(seed, 1),
        })
    }

    /// To the next arrival, in expected arrivals: stretched by the rate this becomes a time, which makes any
    /// schedule of rates as easy as a constant one.
    fn advance(&mut self) -> f64 {
        match self.spacing {
            Spacing::Poisson => Exp1.sample(&mut self.time_rng),
            // The first one half a step in, so that a run of `rate x duration` requests neither starts with a
            // request at zero nor depends on rounding at its end.
            Spacing::Fixed if !self.started => 0.5,
            Spacing::Fixed => 1.0,
        }
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;
    fn next(&mut self) -> Option<Arrival> {
        self.position += self.advance();
        self.started = true;
        loop {
            let piece = self.pieces.get(self.piece)?;
            let expected = piece.expected();
            if self.position < expected {
                let at = Nanos::from_secs_f64(piece.start_s + piece.after_s(self.position));
                return Some(Arrival { at, request: self.shares.sample(&mut self.request_rng) });
            }
            self.position -= expected;
            self.piece += 1;
        }
    }
}

/// A stretch of time in which the rate changes linearly.
#[derive(Clone, Copy)]
struct Piece {
    start_s: f64,
    length_s: f64,
    from_per_s: f64,
    to_per_s: f64,
}

impl Piece {
    fn expected(&self) -> f64 {
        (self.from_per_s + self.to_per_s) / 2.0 * self.length_s
    }

    /// When this many arrivals are expected, in seconds since the start of the piece: the root of
    /// `from*t + (to - from)/(2*length) * t^2 = arrivals`, in the form that also holds where the rate is constant.
    fn after_s(&self, arrivals: f64) -> f64 {
        let slope = (self.to_per_s - self.from_per_s) / self.length_s;
        let discriminant = (self.from_per_s.powi(2) + 2.0 * slope * arrivals).max(0.0);
        (2.0 * arrivals / (self.from_per_s + discriminant.sqrt())).min(self.length_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(rate: &str, seconds: u64, spacing: Spacing, seed: u64) -> Vec<Arrival> {
        let rate: Rate = rate.parse().unwrap();
        Arrivals::new(&rate, Nanos::from_secs(seconds), spacing, vec![3.0, 1.0], seed).unwrap().collect()
    }

    fn between(arrivals: &[Arrival], from_s: u64, to_s: u64) -> usize {
        let span = Nanos::from_secs(from_s)..Nanos::from_secs(to_s);
        arrivals.iter().filter(|arrival| span.contains(&arrival.at)).count()
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_deviation_of_an_exponential() {
        let all = arrivals("1000", 200, Spacing::Poisson, 7);
        let gaps: Vec<f64> = all.windows(2).map(|w| w[1].at.since(w[0].at).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // 200,000 gaps: the standard errors are 0.22 % of the mean and 0.45 % of the deviation (kurtosis 9).
        assert!((mean / 1e-3 - 1.0).abs() < 0.01, "mean {mean}");
        assert!((variance.sqrt() / 1e-3 - 1.0).abs() < 0.02, "deviation {}", variance.sqrt());
        // Counts of disjoint seconds are Poisson: variance equals mean.
        let counts: Vec<f64> = (0..200).map(|s| between(&all, s, s + 1) as f64).collect();
        let mean = counts.iter().sum::<f64>() / 200.0;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 199.0;
        assert!((0.6..1.5).contains(&(variance / mean)), "dispersion {}", variance / mean);
    }

    #[test]
    fn fixed_spacing_is_even_and_exact() {
        let all = arrivals("100", 10, Spacing::Fixed, 7);
        assert_eq!(all.len(), 1000);
        assert!(all.windows(2).all(|w| w[1].at.since(w[0].at).0.abs_diff(10_000_000) <= 1_000));
    }

    #[test]
    fn steps_ramps_and_pauses_offer_what_they_say() {
        let all = arrivals("1s:100,2s:0,3s:300,4s:0..1000", 6, Spacing::Fixed, 7);
        let counts: Vec<usize> = (0..6).map(|s| between(&all, s, s + 1)).collect();
        // The ramp rises by 500/s each second: 250 in its first second, 750 in its second.
        assert_eq!(counts, [0, 100, 0, 300, 250, 750]);
        let falling = arrivals("1000..0", 2, Spacing::Fixed, 7);
        assert_eq!((between(&falling, 0, 1), between(&falling, 1, 2)), (750, 250));
        let poisson = arrivals("0s:1000,10s:3000,20s:1000..2000", 30, Spacing::Poisson, 7);
        for (from_s, expected) in [(0, 10_000.0_f64), (10, 30_000.0), (20, 15_000.0)] {
            let count = between(&poisson, from_s, from_s + 10) as f64;
            assert!((count - expected).abs() < 5.0 * expected.sqrt(), "{count} of {expected}");
        }
    }

    #[test]
    fn a_seed_fixes_the_schedule() {
        let of = |seed| arrivals("0s:500,1s:100..900", 3, Spacing::Poisson, seed);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert!(of(1).is_sorted_by_key(|arrival| arrival.at));
    }

    #[test]
    fn requests_come_in_their_shares() {
        let all = arrivals("1000", 40, Spacing::Poisson, 7);
        let second = all.iter().filter(|arrival| arrival.request == 1).count() as f64 / all.len() as f64;
        assert!((second - 0.25).abs() < 0.01, "{second}");
        let rate = Rate::constant(1.0);
        assert!(Arrivals::new(&rate, Nanos::from_secs(1), Spacing::Fixed, vec![0.0], 1).is_err());
    }

    #[test]
    fn rates_read_and_print() {
        for text in ["100", "0.5", "100..300", "0s:100,10s:300..50,20s:50", "5s:100"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        assert_eq!("20/s".parse::<Rate>(), Ok(Rate::constant(20.0)));
        assert_eq!("0s:100,10s:300".parse::<Rate>().unwrap().expected(Nanos::from_secs(15)), 2500.0);
        for bad in
            ["", "fast", "-1", "nan", "inf", "1e9", "0", "100,200", "0s:100,0s:200", "5s:1,2s:1", "1..x"]
        {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }
}
