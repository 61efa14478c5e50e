//! Synthetic traffic: who comes when and how long it takes. Independent of who is let in: the service time of every
//! arrival is drawn, and each kind of draw has a random stream of its own. So every policy sees the same traffic.
//!
//! Where a class comes by a schedule of its own, every class is a Poisson process of its own, and they are merged.

use plimsoll_core::config::workload::{Arrivals, Step};
use plimsoll_core::rng::seeded;
use plimsoll_core::{ClassId, Nanos, Rng};
use rand::distr::Distribution;
use rand_distr::weighted::WeightedAliasIndex;

use crate::arrivals::Times;
use crate::engine::Arrival;
use crate::service::ServiceTime;

/// The random streams of a run.
const TIMES: u64 = 0;
const CLASSES: u64 = 1;
const SERVICE: u64 = 2;
/// What the policy draws.
pub const POLICY: u64 = 3;
/// The times of the first class, where every class has its own.
const TIMES_OF_CLASSES: u64 = 16;

/// What comes, in order. Endless unless the rate drops to zero for ever.
pub struct Traffic<'a> {
    coming: Coming,
    services: &'a [ServiceTime],
    service_rng: Rng,
}

/// Who comes when.
enum Coming {
    /// All together, and then who of them.
    Together { times: Times, pick: WeightedAliasIndex<f64>, class_rng: Rng },
    /// Each on its own: its times, and the next of them.
    Apart(Vec<(Times, Option<Nanos>)>),
}

impl<'a> Traffic<'a> {
    /// Requests at a mean rate of `per_s`, above zero. `shares`, not all zero, `schedules` and `services` have one entry a class.
    pub fn new(
        pattern: &Arrivals,
        per_s: f64,
        shares: &[f64],
        schedules: &[Option<Vec<Step>>],
        services: &'a [ServiceTime],
        seed: u64,
    ) -> Traffic<'a> {
        let coming = if schedules.iter().all(Option::is_none) {
            Coming::Together {
                times: Times::new(pattern, per_s, seeded(seed, TIMES)),
                pick: WeightedAliasIndex::new(shares.to_vec())
                    .expect("shares are not negative, nor all zero"),
                class_rng: seeded(seed, CLASSES),
            }
        } else {
            let class = |(i, (share, schedule)): (usize, (&f64, &Option<Vec<Step>>))| {
                let own = schedule.clone().map(Arrivals::Schedule);
                let rng = seeded(seed, TIMES_OF_CLASSES + i as u64);
                let mut times = Times::new(own.as_ref().unwrap_or(pattern), per_s * share, rng);
                let first = times.next();
                (times, first)
            };
            Coming::Apart(shares.iter().zip(schedules).enumerate().map(class).collect())
        };
        Traffic { coming, services, service_rng: seeded(seed, SERVICE) }
    }
}

impl Coming {
    #[inline]
    fn next(&mut self) -> Option<(Nanos, usize)> {
        match self {
            Coming::Together { times, pick, class_rng } => {
                let at = times.next()?;
                Some((at, pick.sample(class_rng)))
            }
            Coming::Apart(classes) => {
                let next = classes.iter().enumerate().filter_map(|(i, (_, at))| Some(((*at)?, i)));
                let (at, class) = next.min()?;
                let (times, next) = &mut classes[class];
                *next = times.next();
                Some((at, class))
            }
        }
    }
}

impl Iterator for Traffic<'_> {
    type Item = Arrival;

    #[inline]
    fn next(&mut self) -> Option<Arrival> {
        let (at, class) = self.coming.next()?;
        let service = self.services[class].sample(&mut self.service_rng);
        Some(Arrival { at, class: ClassId(class as u16), service })
    }
}
