//! `[policing]` of a workload: which classes pass when there is too much of everything.

use super::{Engine, WorkloadClass};
use crate::config::pool::PolicingPolicy;
use crate::config::report::Report;
use crate::config::table::table;
use crate::config::value::Node;
use crate::{Ladder, Nanos};

table! {
    /// Policing by class and size, as a pool of the sentry has it.
    pub struct Policing {
        /// How: "batch" lets requests of a class and size wait for each other and looks at them together, "threshold" compares
        /// each one's class and size with a limit, at once; "auto" goes over to the second while the sentry itself is too busy
        /// for the first, which a simulated one never is.
        policy: PolicingPolicy = "off",
        /// The mean response time that is owed at which arrival rate, beside the objectives of the classes.
        ladder: Option<Ladder>,
        /// Fixed waiting times before a class is looked at, from the most important class on, `["0s", "50ms", "100ms"]`; the
        /// last holds for all that follow. Left out, they are found from what arrives.
        delays: Option<Vec<Nanos>>,
    }
}

/// None.
impl Default for Policing {
    fn default() -> Policing {
        Policing { policy: PolicingPolicy::Off, ladder: None, delays: None }
    }
}

impl Policing {
    /// Reports what cannot be kept whatever is done: more promised than the processes can do, means that no process attains.
    pub(super) fn check(
        &self,
        engine: &Engine,
        classes: &[WorkloadClass],
        root: Node<'_>,
        report: &mut Report,
    ) {
        let processes = f64::from(engine.processes);
        let mut promised = 0.0;
        for class in classes {
            let name = &class.name;
            let at = |key: &str| root.at(&["class", name, key]);
            // What a file holds is not read here.
            let Some(service) = class.service.mean() else { continue };
            let unattainable = |mean: Nanos| {
                format!(
                    "a mean of {mean} cannot be had where serving [class.{name}] takes {service}; write more than that"
                )
            };
            if let Some(mean) = class.slo.mean().filter(|&mean| mean <= service) {
                report.error(at("slo"), unattainable(mean));
            }
            let owed = self.ladder.as_ref().map(|ladder| ladder.owed_at(0.0));
            if let Some(mean) = owed.filter(|&mean| mean <= service) {
                report.error(root.at(&["policing", "ladder"]), unattainable(mean));
            }
            let Some(rate) = class.min_rate else { continue };
            let (before, within) = (promised, promised <= processes);
            promised = before + rate.per_s * service.as_secs_f64();
            if within && promised > processes {
                let least = promised.ceil();
                let message = format!(
                    "the promised rates keep {least} processes busy up to here, and there are {processes}"
                );
                report.error(at("min_rate"), format!("{message}; promise less, or add processes"));
            }
        }
        if let Some(delays) = &self.delays
            && !(delays.first() == Some(&Nanos::ZERO) && delays.is_sorted())
        {
            let message = "`delays` begin with \"0s\" for the most important class and do not fall";
            let example = "delays = [\"0s\", \"50ms\", \"100ms\"]";
            report.error(root.at(&["policing", "delays"]), format!("{message}; write for example {example}"));
        }
    }
}
