//! From what the sentries measured of each class to what the planner wants to know of the application: its load, the mean response
//! time that it owes, and what it earns with how many slots.
//!
//! The bound of [`queueing`](crate::queueing) is one on the mean. An objective on a percentile is turned into one by assuming that what
//! comes on top of the service time, a wait in a busy queue, is exponential (Kingman's heavy traffic), and the whole a shifted
//! exponential of the same mean and variance, whose `p`-quantile lies `ln(1/(1-p)) - 1` standard deviations above its mean. All
//! classes of a pool wait in one queue, so the most impatient of them sets the target.

use plimsoll_core::{Ladder, Nanos, Slo, Statistic};

use crate::queueing::{Load, Unattainable};

/// Of independent users, within seconds; what varies more slowly is the rate, which is measured.
const ARRIVALS_SCV: f64 = 1.0;

/// What was measured of a class.
#[derive(Clone, Copy, Debug)]
pub struct ClassLoad<'a> {
    /// Requests a second, refused or not.
    pub per_s: f64,
    /// Requests a second that were refused.
    pub refused_per_s: f64,
    /// Mean service time in seconds, and its squared coefficient of variation; nothing before the first was served.
    pub service: Option<(f64, f64)>,
    /// What one served request is worth.
    pub revenue: f64,
    /// What it is promised.
    pub slo: &'a Slo,
}

impl ClassLoad<'_> {
    /// The longest mean wait with which all its objectives are met, in seconds; nothing where none is.
    fn patience(&self) -> Result<Option<f64>, Unattainable> {
        let Some((service_s, scv)) = self.service else { return Ok(None) };
        let waits = self.slo.targets().iter().map(|&(statistic, limit)| {
            let wait = longest_wait(statistic, limit.as_secs_f64(), service_s, scv);
            wait.ok_or(Unattainable { target: limit, service: Nanos::from_secs_f64(service_s) })
        });
        waits.reduce(|a, b| Ok(f64::min(a?, b?))).transpose()
    }
}

/// The longest mean wait with which a statistic of the response time is within its limit, in seconds.
fn longest_wait(statistic: Statistic, limit_s: f64, service_s: f64, scv: f64) -> Option<f64> {
    let deviations = match statistic {
        Statistic::Mean => 0.0,
        Statistic::Percentile(percentile) => -(1.0 - percentile.fraction()).ln() - 1.0,
    };
    let reaches = |wait_s: f64| {
        service_s + wait_s + deviations * (service_s * service_s * scv + wait_s * wait_s).sqrt()
    };
    if reaches(0.0) >= limit_s {
        return None;
    }
    // It rises with the wait, if slowly for low percentiles.
    let (mut within, mut beyond) = (0.0, limit_s * 1e3);
    for _ in 0..64 {
        let middle = (within + beyond) / 2.0;
        if reaches(middle) <= limit_s { within = middle } else { beyond = middle }
    }
    Some(within)
}

/// What an application asks of its servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// What arrives, without what no number of servers could serve in time.
    pub load: Load,
    /// The mean response time that is owed.
    pub target: Nanos,
    /// The share of the load that was refused, in 0..1.
    pub refused: f64,
    /// Classes whose objective no number of servers meets, by their place in what was given.
    pub hopeless: Vec<(usize, Unattainable)>,
    /// Revenue a second and slots kept busy, class by class, the best earner a slot first.
    earners: Vec<(f64, f64)>,
}

impl Demand {
    /// What the classes of an application ask for, and its ladder.
    pub fn of(classes: &[ClassLoad<'_>], ladder: Option<&Ladder>) -> Demand {
        let mut hopeless = Vec::new();
        let mut patience: Option<f64> = None;
        let (mut per_s, mut refused_per_s) = (0.0, 0.0);
        let mut known = Vec::new();
        for (i, class) in classes.iter().enumerate().filter(|(_, class)| class.per_s > 0.0) {
            let arrives = match class.patience() {
                Ok(waits) => {
                    patience = [patience, waits].into_iter().flatten().reduce(f64::min);
                    refused_per_s += class.refused_per_s;
                    class.per_s
                }
                // Refusing it is right; what is served of it all the same takes its time.
                Err(unattainable) => {
                    hopeless.push((i, unattainable));
                    class.per_s - class.refused_per_s
                }
            };
            per_s += arrives;
            known.extend(class.service.map(|(mean, scv)| (arrives, mean, scv, class.revenue)));
        }
        // What has not been served yet is taken to be like the rest.
        let load = Load::mix(known.iter().map(|&(rate, mean, scv, _)| (rate, mean, scv)), ARRIVALS_SCV);
        let load = Load { per_s, ..load };
        if let Some(ladder) = ladder {
            // The band that the rate is in: more load may be answered more slowly.
            let owed_s = ladder.owed_at(per_s).as_secs_f64() - load.service_s;
            patience = Some(patience.unwrap_or(f64::INFINITY).min(owed_s));
        }
        // Where nothing is promised, nobody waits longer than serving takes.
        let wait_s = patience.unwrap_or(load.service_s);
        let mut earners: Vec<(f64, f64)> =
            known.iter().map(|&(rate, mean, _, revenue)| (rate * revenue, rate * mean)).collect();
        earners.sort_by(|a, b| (b.0 * a.1).total_cmp(&(a.0 * b.1)));
        Demand {
            load,
            target: Nanos::from_secs_f64((load.service_s + wait_s).max(0.0)),
            refused: if per_s > 0.0 { (refused_per_s / per_s).clamp(0.0, 1.0) } else { 0.0 },
            hopeless,
            earners,
        }
    }

    /// What it earns a second with so many slots while its target is met: the best earners a slot first, the last of them in part.
    pub fn earns(&self, slots: u32) -> f64 {
        let mut room = self.load.capacity(slots, self.target) * self.load.service_s;
        let mut earned = 0.0;
        for &(revenue, busy) in &self.earners {
            let share = if busy > room { room / busy } else { 1.0 };
            earned += revenue * share;
            room = (room - busy).max(0.0);
        }
        earned
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Percentile;
    use proptest::prelude::*;

    use super::*;

    fn slo(text: &[(&str, u64)]) -> Slo {
        Slo::new(text.iter().map(|&(what, ms)| (what.parse::<Statistic>().unwrap(), Nanos::from_millis(ms))))
            .unwrap()
    }

    fn class(per_s: f64, service_ms: f64, slo: &Slo) -> ClassLoad<'_> {
        ClassLoad { per_s, refused_per_s: 0.0, service: Some((service_ms / 1e3, 1.0)), revenue: 1.0, slo }
    }

    #[test]
    fn a_mean_leaves_what_serving_does_not_take() {
        let slo = slo(&[("mean", 100)]);
        let demand = Demand::of(&[class(10.0, 30.0, &slo)], None);
        assert_eq!(demand.target, Nanos::from_millis(100));
    }

    #[test]
    fn a_percentile_of_an_exponential_response_is_exact() {
        // Served in no time, so that all is wait: the median of an exponential is ln 2 of its mean.
        let wait = longest_wait(Percentile::P50.into(), 0.1, 0.0, 0.0).unwrap();
        assert!((wait - 0.1 / std::f64::consts::LN_2).abs() < 1e-9, "{wait}");
        // All service and no wait, exponential: its 90th percentile is ln 10 of its mean.
        let just = 0.1 * 10f64.ln();
        assert!(longest_wait(Percentile::P90.into(), just * 0.999, 0.1, 1.0).is_none());
        assert!(longest_wait(Percentile::P90.into(), just * 1.001, 0.1, 1.0).unwrap() < 0.05);
    }

    #[test]
    fn the_most_impatient_class_sets_the_target() {
        let (patient, hasty) = (slo(&[("mean", 500)]), slo(&[("mean", 50)]));
        let demand = Demand::of(&[class(10.0, 20.0, &patient), class(10.0, 40.0, &hasty)], None);
        // It may wait 10 ms, as must all; the mean service time is 30 ms.
        assert_eq!(demand.target, Nanos::from_millis(40));
        // One that sends nothing is asked nothing.
        let demand = Demand::of(&[class(10.0, 20.0, &patient), class(0.0, 40.0, &hasty)], None);
        assert_eq!(demand.target, Nanos::from_millis(500));
    }

    #[test]
    fn what_no_server_could_serve_in_time_calls_for_none() {
        let (fits, hopeless) = (slo(&[("mean", 100)]), slo(&[("p50", 5)]));
        let refused = ClassLoad { refused_per_s: 99.0, ..class(100.0, 50.0, &hopeless) };
        let demand = Demand::of(&[class(10.0, 20.0, &fits), refused], None);
        assert!((demand.load.per_s - 11.0).abs() < 1e-9 && demand.refused == 0.0);
        assert_eq!(demand.hopeless[0].0, 1);
    }

    #[test]
    fn the_ladder_lets_more_load_wait_longer() {
        let ladder = Ladder::new(vec![(100.0, Nanos::from_millis(50))], Nanos::from_millis(200)).unwrap();
        let none = Slo::default();
        let target = |per_s| Demand::of(&[class(per_s, 20.0, &none)], Some(&ladder)).target;
        assert_eq!((target(99.0), target(100.0)), (Nanos::from_millis(50), Nanos::from_millis(200)));
        assert_eq!(Demand::of(&[class(1.0, 20.0, &none)], None).target, Nanos::from_millis(40));
    }

    #[test]
    fn before_the_first_was_served_nothing_is_known_but_what_arrives() {
        let slo = slo(&[("p90", 50)]);
        let unknown = ClassLoad { service: None, ..class(10.0, 0.0, &slo) };
        let demand = Demand::of(&[unknown], None);
        assert_eq!((demand.load.per_s, demand.load.service_s), (10.0, 0.0));
        let demand = Demand::of(&[unknown, class(10.0, 20.0, &slo)], None);
        assert_eq!((demand.load.per_s, demand.load.service_s), (20.0, 0.02));
    }

    proptest! {
        /// More slots never earn less, and enough of them earn all.
        #[test]
        fn earnings_rise_to_all_there_is(rates in prop::collection::vec((0.1f64..50.0, 1.0f64..100.0, 0.1f64..10.0), 1..5)) {
            let slo = slo(&[("mean", 1_000)]);
            let classes: Vec<ClassLoad<'_>> = rates.iter()
                .map(|&(rate, ms, revenue)| ClassLoad { revenue, ..class(rate, ms, &slo) }).collect();
            let demand = Demand::of(&classes, None);
            let earned: Vec<f64> = (0..200).map(|slots| demand.earns(slots)).collect();
            prop_assert!(earned.windows(2).all(|pair| pair[0] <= pair[1] + 1e-9));
            let all: f64 = rates.iter().map(|&(rate, _, revenue)| rate * revenue).sum();
            prop_assert!((earned[199] / all - 1.0).abs() < 1e-9, "{} of {all}", earned[199]);
        }
    }
}
