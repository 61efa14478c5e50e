//! Traffic that is neither lucky nor unlucky: one seed's, scaled to the mean of its distribution.
//!
//! The service times of a class are heavy-tailed. Of a run's 150,000 slow queries the mean is off by a third of a
//! per cent, and what must be rejected at 1.5 times the full load by as much. So what a seed draws is scaled
//! (moment matching): of the queries that count, every class takes on average what Table 1 says, and
//! together they ask for what the load says. The distributions, the bursts and the order stay as drawn.

use crate::run::Setup;
use crate::scenario::Scenario;

/// The traffic of one seed.
pub struct Sample {
    /// With scaled service times.
    pub scenario: Scenario,
    /// As drawn and scaled, as a multiple of the full load; the nominal load is 1.
    pub offered: f64,
}

impl Sample {
    /// Of the traffic of this run, whatever its policy. Its load is 1.
    pub fn new(mut scenario: Scenario, run: &Setup) -> Sample {
        let mut classes = vec![(0u64, 0u64); scenario.services.len()];
        let mut counted =
            run.traffic(&scenario).skip(run.warmup as usize).take(run.queries as usize).peekable();
        let first = counted.peek().map_or(0, |arrival| arrival.at.0);
        let mut last = first;
        for arrival in counted {
            let (n, sum_ns) = &mut classes[arrival.class.index()];
            (*n, *sum_ns) = (*n + 1, *sum_ns + arrival.service.0);
            last = arrival.at.0;
        }
        let (mut work_ns, drawn_rate) = (0.0, scenario.full_load_per_s());
        for (service, (n, sum_ns)) in scenario.services.iter_mut().zip(classes).filter(|(_, (n, _))| *n > 0) {
            let mean_ns = service.mean_ns();
            work_ns += mean_ns * n as f64;
            *service = service.scaled(mean_ns * n as f64 / sum_ns as f64);
        }
        // Scaled service times mean another full load, at which the same queries come faster or slower.
        let span_ns = (last - first) as f64 * drawn_rate / scenario.full_load_per_s();
        let capacity_ns = span_ns * f64::from(scenario.engine.processes);
        Sample { scenario, offered: work_ns / capacity_ns }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use plimsoll_core::config::workload::{Arrivals, Engine, Policing, Service, Workload, WorkloadClass};
    use plimsoll_core::config::{Override, Policy};
    use plimsoll_core::{Nanos, Slo};

    use super::*;

    #[test]
    fn what_a_run_offers_is_its_load_and_its_classes_means() {
        let class = |name: &str, share, mean_ms| {
            let service = Service::Lognormal { mean: Nanos::from_millis(mean_ms), sigma: 1.5 };
            WorkloadClass::new(name, share, service)
        };
        let workload = Workload {
            engine: Engine { processes: 10, max_queue: 100 },
            arrivals: Arrivals::Poisson,
            policing: Policing::default(),
            classes: vec![class("a", 0.8, 2), class("b", 0.2, 30)],
            default_slo: Slo::default(),
        };
        let scenario = Scenario::new(workload, Path::new("")).unwrap();
        let run = |load| Setup {
            policy: Policy::Bouncer(Override::Never),
            load,
            seed: 7,
            queries: 5_000,
            warmup: 1_000,
            stalls: Vec::new(),
        };
        let sample = Sample::new(scenario, &run(1.0));
        let counted: Vec<_> =
            run(1.3 / sample.offered).traffic(&sample.scenario).skip(1_000).take(5_000).collect();
        let sum = |class: u16| {
            let times = counted.iter().filter(|a| a.class.0 == class).map(|a| a.service.0 as f64);
            (times.clone().sum::<f64>(), times.count() as f64)
        };
        let near = |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 1e-5, "{got} {expected}");
        let ((a, n_a), (b, n_b)) = (sum(0), sum(1));
        near(a / n_a, 2e6);
        near(b / n_b, 30e6);
        let span = (counted[4_999].at.0 - counted[0].at.0) as f64;
        near((a + b) / (span * 10.0), 1.3);
    }
}
