//! Synthetic traffic: who comes when and how long it takes. Independent of who is let in: the service time of every
//! arrival is drawn, and each kind of draw has a random stream of its own. So every policy sees the same traffic.

use plimsoll_core::config::workload::Arrivals;
use plimsoll_core::rng::seeded;
use plimsoll_core::{ClassId, Rng};
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

/// What comes, in order. Endless unless the rate drops to zero for ever.
pub struct Traffic<'a> {
    times: Times,
    pick: WeightedAliasIndex<f64>,
    services: &'a [ServiceTime],
    class_rng: Rng,
    service_rng: Rng,
}

impl<'a> Traffic<'a> {
    /// Requests at a mean rate of `per_s`, above zero. `shares`, not all zero, and `services` have one entry a class.
    pub fn new(
        pattern: &Arrivals,
        per_s: f64,
        shares: &[f64],
        services: &'a [ServiceTime],
        seed: u64,
    ) -> Traffic<'a> {
        Traffic {
            times: Times::new(pattern, per_s, seeded(seed, TIMES)),
            pick: WeightedAliasIndex::new(shares.to_vec()).expect("shares are not negative, nor all zero"),
            services,
            class_rng: seeded(seed, CLASSES),
            service_rng: seeded(seed, SERVICE),
        }
    }
}

impl Iterator for Traffic<'_> {
    type Item = Arrival;

    #[inline]
    fn next(&mut self) -> Option<Arrival> {
        let at = self.times.next()?;
        let class = self.pick.sample(&mut self.class_rng);
        let service = self.services[class].sample(&mut self.service_rng);
        Some(Arrival { at, class: ClassId(class as u16), service })
    }
}
