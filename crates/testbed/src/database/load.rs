//! What is asked of the server, how often, and from which seed.

use plimsoll_core::rng::seeded;
use plimsoll_core::{Nanos, Rng};
use rand::RngExt;
use rand_distr::{Distribution, Exp};

/// Parameters of a statement, at most.
pub(crate) const MOST_PARAMETERS: usize = 2;

/// One kind of request, whose parameters are numbers (`bigint`), drawn at random.
#[derive(Clone, Debug)]
pub struct Kind {
    /// In the server's language: a statement with `$1` and so on, or with `?`; or "METHOD PATH BODY" with `?1` and so on.
    pub text: String,
    /// How many of all requests are such, relative to the shares of the others.
    pub share: f64,
    /// From where to where each parameter is drawn, both included; two at most.
    pub parameters: Vec<(i64, i64)>,
}

/// A load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Requests a second, on average.
    pub rate_per_s: f64,
    /// For how long.
    pub length: Nanos,
    /// Requests that the database works on at once, at most.
    pub connections: usize,
    /// Requests that wait for a connection, at most; further ones are refused.
    pub queue: usize,
    /// Decides arrivals, kinds and parameters.
    pub seed: u64,
    /// What is asked.
    pub kinds: Vec<Kind>,
}

/// A request on its way.
pub(crate) struct Arrival {
    pub(crate) at: Nanos,
    pub(crate) kind: usize,
    pub(crate) parameters: [i64; MOST_PARAMETERS],
}

impl Load {
    pub(crate) fn check(&self) -> Result<(), String> {
        let shares = self.kinds.iter().map(|kind| kind.share);
        let wrong = if !(self.rate_per_s > 0.0 && self.rate_per_s.is_finite()) {
            "its rate is to be above zero"
        } else if self.connections == 0 || self.queue == 0 {
            "it needs a connection and room for one request that waits"
        } else if self.kinds.is_empty() || !shares.clone().all(|share| share > 0.0 && share.is_finite()) {
            "it needs kinds of requests, each with a share above zero"
        } else if self.kinds.iter().any(|kind| kind.parameters.len() > MOST_PARAMETERS) {
            "a statement has two parameters at most"
        } else if self.kinds.iter().flat_map(|kind| &kind.parameters).any(|(from, to)| from > to) {
            "a parameter is drawn from the smaller to the larger number"
        } else {
            return Ok(());
        };
        Err(format!("a load cannot be so: {wrong}"))
    }

    /// All that will be asked, which the seed alone decides.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = Arrival> {
        let gap = Exp::new(self.rate_per_s).expect("a rate that was checked");
        let mut rng = seeded(self.seed, 0);
        let mut at = Nanos::ZERO;
        let next = move || {
            at += Nanos::from_secs_f64(gap.sample(&mut rng));
            (at < self.length).then(|| self.arrival(at, &mut rng))
        };
        std::iter::from_fn(next)
    }

    fn arrival(&self, at: Nanos, rng: &mut Rng) -> Arrival {
        let shares = || self.kinds.iter().map(|kind| kind.share);
        let mut left = rng.random::<f64>() * shares().sum::<f64>();
        let kind = shares().position(|share| {
            left -= share;
            left < 0.0
        });
        let kind = kind.unwrap_or(self.kinds.len() - 1);
        let mut parameters = [0; MOST_PARAMETERS];
        for (parameter, &(from, to)) in parameters.iter_mut().zip(&self.kinds[kind].parameters) {
            *parameter = rng.random_range(from..=to);
        }
        Arrival { at, kind, parameters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        let kind = |share, parameters: &[(i64, i64)]| Kind {
            text: String::new(),
            share,
            parameters: parameters.to_vec(),
        };
        Load {
            rate_per_s: 1_000.0,
            length: Nanos::from_secs(10),
            connections: 1,
            queue: 1,
            seed: 7,
            kinds: vec![kind(3.0, &[(1, 100)]), kind(1.0, &[(5, 5), (-9, 9)])],
        }
    }

    #[test]
    fn the_seed_decides_what_comes_and_when() {
        let shown = |load: &Load| {
            let all = load.arrivals().map(|arrival| (arrival.at, arrival.kind, arrival.parameters));
            all.collect::<Vec<_>>()
        };
        let load = load();
        let all = shown(&load);
        assert_eq!(all, shown(&load));
        assert_ne!(all, shown(&Load { seed: 8, ..load.clone() }));
        assert!((9_500..10_500).contains(&all.len()), "{}", all.len());
        assert!(all.is_sorted_by_key(|arrival| arrival.0) && all.iter().all(|(at, ..)| *at < load.length));
        let first = all.iter().filter(|(_, kind, _)| *kind == 0).count() as f64 / all.len() as f64;
        assert!((0.72..0.78).contains(&first), "{first}");
        for (_, kind, parameters) in all {
            match kind {
                0 => assert!((1..=100).contains(&parameters[0]) && parameters[1] == 0),
                _ => assert!(parameters[0] == 5 && (-9..=9).contains(&parameters[1])),
            }
        }
    }

    #[test]
    fn a_load_that_makes_no_sense_says_so() {
        let kinds = |share, parameters| vec![Kind { text: String::new(), share, parameters }];
        for (wrong, why) in [
            (Load { rate_per_s: 0.0, ..load() }, "rate"),
            (Load { rate_per_s: f64::NAN, ..load() }, "rate"),
            (Load { connections: 0, ..load() }, "a connection"),
            (Load { kinds: vec![], ..load() }, "share"),
            (Load { kinds: kinds(0.0, vec![]), ..load() }, "share"),
            (Load { kinds: kinds(1.0, vec![(2, 1)]), ..load() }, "smaller"),
            (Load { kinds: kinds(1.0, vec![(1, 1); 3]), ..load() }, "two parameters"),
        ] {
            let error = wrong.check().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(load().check(), Ok(()));
    }
}
