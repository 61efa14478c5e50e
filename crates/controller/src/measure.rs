//! From the counters of the sentries to what arrives of each class.

use std::collections::HashMap;

use plimsoll_core::Nanos;
use plimsoll_core::config::Class;
use plimsoll_provisioning::demand::ClassLoad;

use crate::outcome::{Outcome, Responses};
use crate::reading::PoolReading;

/// What one sentry counted of one class between two looks.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// The class.
    pub name: String,
    /// Requests a second that arrived.
    pub per_s: f64,
    /// Requests a second that were refused.
    pub refused_per_s: f64,
    /// Those of them that the fleet's rate kept out.
    pub over_rate_per_s: f64,
    /// Requests a second that were served.
    pub served_per_s: f64,
    /// Mean service time in seconds, and its squared coefficient of variation.
    service: Option<(f64, f64)>,
    /// How it went for those that were served, where the sentry says.
    pub outcome: Option<Outcome>,
}

/// Remembers the counters of one pool at one sentry.
#[derive(Debug, Default)]
pub struct Meter {
    at: Nanos,
    counted: HashMap<String, [f64; 4]>,
    responses: HashMap<String, Responses>,
}

impl Meter {
    /// What was counted since the last call, class by class. Nothing at the first call, after the sentry began anew, and where
    /// a counter cannot be: half of what arrives must not be taken for all of it.
    pub fn rates(&mut self, at: Nanos, pool: &PoolReading) -> Option<Vec<Rates>> {
        let counters = pool
            .classes
            .iter()
            .map(|c| Some((c.name.clone(), [c.offered?, c.refused?, c.served?, c.over_rate?])));
        let counters: HashMap<String, [f64; 4]> = counters.collect::<Option<_>>()?;
        let before = std::mem::replace(&mut self.counted, counters);
        let span_s = at.since(std::mem::replace(&mut self.at, at)).as_secs_f64();
        let responses =
            pool.classes.iter().filter_map(|c| Some((c.name.clone(), c.responses.clone()?))).collect();
        let responded = std::mem::replace(&mut self.responses, responses);
        let rates = pool.classes.iter().map(|class| {
            let (now, before) = (self.counted[&class.name], before.get(&class.name)?);
            let rate = |i: usize| Some((now[i] - before[i]) / span_s).filter(|rate: &f64| *rate >= 0.0);
            Some(Rates {
                name: class.name.clone(),
                per_s: rate(0)?,
                refused_per_s: rate(1)?,
                over_rate_per_s: rate(3)?,
                served_per_s: rate(2)?,
                service: class.service,
                outcome: class
                    .responses
                    .as_ref()
                    .and_then(|now| Outcome::between(responded.get(&class.name)?, now, span_s)),
            })
        });
        rates.collect::<Option<Vec<_>>>().filter(|_| span_s > 0.0)
    }
}

/// What all sentries together saw of the classes of one pool. Of a class that the fleet limits for the sake of `elsewhere`, another service
/// than the pool's, what its rate kept out is nothing that more of the pool's servers would let in, and does not count.
pub fn combine<'a>(
    classes: &[&'a Class],
    sentries: &[Vec<Rates>],
    elsewhere: impl Fn(&Class) -> bool,
) -> Vec<ClassLoad<'a>> {
    let of_class = |class: &&'a Class| {
        let rates: Vec<&Rates> = sentries.iter().flatten().filter(|rates| rates.name == class.name).collect();
        let sum = |of: fn(&Rates) -> f64| rates.iter().map(|rates| of(rates)).sum::<f64>();
        let aside = if elsewhere(class) { sum(|rates| rates.over_rate_per_s) } else { 0.0 };
        ClassLoad {
            per_s: (sum(|rates| rates.per_s) - aside).max(0.0),
            refused_per_s: (sum(|rates| rates.refused_per_s) - aside).max(0.0),
            service: mean_service(&rates),
            revenue: class.revenue,
            slo: &class.slo,
        }
    };
    classes.iter().map(of_class).collect()
}

/// Mean and squared coefficient of variation of all that was served, wherever.
fn mean_service(rates: &[&Rates]) -> Option<(f64, f64)> {
    let (mut weights, mut first, mut second) = (0.0, 0.0, 0.0);
    for rates in rates {
        // What served nothing lately counts where nobody did.
        let weight = rates.served_per_s + 1e-9;
        let Some((mean, scv)) = rates.service else { continue };
        weights += weight;
        first += weight * mean;
        second += weight * mean * mean * (1.0 + scv);
    }
    let mean = first / weights;
    (weights > 0.0).then(|| (mean, (second / weights / (mean * mean) - 1.0).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::ClassReading;

    fn pool(offered: f64, refused: f64) -> PoolReading {
        let class = ClassReading {
            name: "gold".to_owned(),
            offered: Some(offered),
            refused: Some(refused),
            over_rate: Some(refused / 2.0),
            served: Some(offered - refused),
            service: Some((0.02, 1.0)),
            responses: None,
        };
        PoolReading { classes: vec![class], ..PoolReading::default() }
    }

    fn per_s(rates: Option<Vec<Rates>>) -> Option<(f64, f64)> {
        rates.map(|rates| (rates[0].per_s, rates[0].refused_per_s))
    }

    #[test]
    fn counters_become_rates_and_a_restart_becomes_nothing() {
        let mut meter = Meter::default();
        let s = Nanos::from_secs;
        assert_eq!(per_s(meter.rates(s(10), &pool(1_000.0, 500.0))), None);
        assert_eq!(per_s(meter.rates(s(15), &pool(1_100.0, 550.0))), Some((20.0, 10.0)));
        assert_eq!(per_s(meter.rates(s(20), &pool(10.0, 0.0))), None);
        assert_eq!(per_s(meter.rates(s(30), &pool(110.0, 0.0))), Some((10.0, 0.0)));
        assert_eq!(per_s(meter.rates(s(30), &pool(120.0, 0.0))), None, "in no time");
    }

    #[test]
    fn a_counter_that_cannot_be_makes_the_look_void_and_not_the_next() {
        let mut meter = Meter::default();
        let s = Nanos::from_secs;
        meter.rates(s(10), &pool(100.0, 0.0));
        let mut nonsense = pool(200.0, 0.0);
        nonsense.classes[0].refused = None;
        assert_eq!(meter.rates(s(20), &nonsense), None);
        assert_eq!(per_s(meter.rates(s(30), &pool(300.0, 0.0))), Some((10.0, 0.0)), "over both");
    }

    #[test]
    fn sentries_add_up_and_those_that_served_more_weigh_more() {
        let rates = |per_s, mean_s| Rates {
            name: "gold".to_owned(),
            per_s,
            refused_per_s: 1.0,
            over_rate_per_s: 0.5,
            served_per_s: per_s,
            service: Some((mean_s, 0.0)),
            outcome: None,
        };
        let class = Class {
            name: "gold".to_owned(),
            ..plimsoll_core::config::parse::<plimsoll_core::config::Config>(
                "[pool.a]\nservers = [\"127.0.0.1:1\"]",
                "",
            )
            .unwrap()
            .0
            .classes[0]
                .clone()
        };
        let sentries = [vec![rates(30.0, 0.01)], vec![rates(10.0, 0.03)]];
        let aside = &combine(&[&class], &sentries, |class| class.name == "gold")[0];
        assert_eq!(
            (aside.per_s, aside.refused_per_s),
            (39.0, 1.0),
            "what the rate kept out for others' sake"
        );
        let load = &combine(&[&class], &sentries, |_| false)[0];
        assert_eq!((load.per_s, load.refused_per_s), (40.0, 2.0));
        let (mean, scv) = load.service.unwrap();
        assert!((mean - 0.015).abs() < 1e-9, "{mean}");
        // Mean of squares 0.0003, square of the mean 0.000225.
        assert!((scv - 1.0 / 3.0).abs() < 1e-6, "{scv}");
    }
}
