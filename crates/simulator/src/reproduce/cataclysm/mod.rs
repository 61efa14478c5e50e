//! The experiments of the paper on Cataclysm (section 6) that need no real system, and what we want beyond them. Whoever has a sentry
//! brings those along that need one.

mod charts;
mod checks;
mod classes;
mod platform;
mod size;
mod targets;
mod watch;

use std::path::Path;

use plimsoll_core::config::workload::Workload;
use plimsoll_core::config::{self, Override, Policy};
use plimsoll_core::{ClassId, Nanos};

use super::{Experiment, Settings};
use crate::run::Setup;
use crate::scenario::Scenario;
pub use checks::p95;
use watch::{Seen, Watch};

/// More than comes in any run: they end with their schedules.
const ALL: u64 = 1 << 40;

/// Its experiments, in the order of the paper, and then our own targets.
pub fn experiments(settings: Settings) -> Vec<Experiment> {
    let of =
        |id, run: fn(Settings) -> Result<_, String>| Experiment { id, run: Box::new(move || run(settings)) };
    vec![
        of("fig3", classes::fig3),
        of("fig5", classes::fig5),
        of("fig7", size::fig7),
        of("fig8", size::fig8),
        of("fig9", platform::fig9),
        of("targets", targets::targets),
    ]
}

/// A scenario of the project's own.
fn scenario(text: &str, file: &str) -> Result<Scenario, String> {
    let (workload, _) = config::parse::<Workload>(text, file).map_err(|errors| errors.to_string())?;
    Scenario::new(workload, Path::new(""))
}

/// As the paper has it, with nobody to decide behind the police.
fn setup(seed: u64) -> Setup {
    Setup { policy: Policy::None, load: 1.0, seed, queries: ALL, warmup: 0, stalls: Vec::new() }
}

/// The same with Bouncer behind it, as it is by default.
fn setup_with_bouncer(seed: u64) -> Setup {
    Setup { policy: Policy::Bouncer(Override::Never), ..setup(seed) }
}

/// A run that is over.
struct Ran {
    scenario: Scenario,
    requests: Vec<Seen>,
}

impl Ran {
    /// Runs it to its end.
    fn new(scenario: Scenario, setup: &Setup) -> Ran {
        let mut watch = Watch::new(scenario.ranks());
        setup.observe(&scenario, &|_| {}, &mut watch);
        Ran { scenario, requests: watch.requests }
    }

    /// The requests that came from second `from` on and before second `to`.
    fn within(&self, from: u64, to: u64) -> &[Seen] {
        let first_after = |s| self.requests.partition_point(|seen| seen.arrival.at < Nanos::from_secs(s));
        &self.requests[first_after(from)..first_after(to)]
    }

    /// By the name in the workload.
    fn class(&self, name: &str) -> ClassId {
        let class = self.scenario.names.iter().position(|n| n == name);
        ClassId(class.expect("a class of the workload") as u16)
    }

    /// The names of the classes that have a share.
    fn names(&self) -> &[String] {
        &self.scenario.names[..self.scenario.services.len()]
    }

    /// The share of a class's requests that were let in between these seconds, in per cent; not a number where none came.
    fn admitted_pct(&self, name: &str, from: u64, to: u64) -> f64 {
        let class = self.class(name);
        let of_class = self.within(from, to).iter().filter(|seen| seen.arrival.class == class);
        checks::admitted_pct(of_class).unwrap_or(f64::NAN)
    }
}
