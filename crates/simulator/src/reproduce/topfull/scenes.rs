//! The applications of the paper as scenarios, and what the experiments change of them.

use plimsoll_core::Nanos;
use plimsoll_core::config::fleet::{Autoscale, Offered, Scenario, Sees, Telemetry, Work};
use plimsoll_core::config::parse;

/// When load rises in all of them.
pub const SURGE_S: u64 = 10;

/// Online Boutique under 2,600 users (section 6.1).
///
/// # Errors
/// Where it cannot be read; a test reads them all.
pub fn online_boutique() -> Result<Scenario, String> {
    read(include_str!("../../../../../paper/topfull/online-boutique.toml"), "online-boutique.toml")
}

/// Train Ticket.
///
/// # Errors
/// Likewise.
pub fn train_ticket() -> Result<Scenario, String> {
    read(include_str!("../../../../../paper/topfull/train-ticket.toml"), "train-ticket.toml")
}

/// The same, of which 25 of 35 instances of `station` end (Fig. 18).
///
/// # Errors
/// Likewise.
pub fn pods_fail() -> Result<Scenario, String> {
    read(
        include_str!("../../../../../paper/topfull/train-ticket-pods-fail.toml"),
        "train-ticket-pods-fail.toml",
    )
}

/// The 127 services drawn by the measures of the demo from a public trace (section 5).
///
/// # Errors
/// Likewise.
pub fn trace_demo() -> Result<Scenario, String> {
    read(include_str!("../../../../../paper/topfull/trace-demo.toml"), "trace-demo.toml")
}

fn read(text: &str, file: &str) -> Result<Scenario, String> {
    parse::<Scenario>(text, file).map(|(scenario, _)| scenario).map_err(|errors| errors.to_string())
}

/// What is done to a scenario.
pub trait Altered: Sized {
    /// It lasts so long.
    fn lasting(self, seconds: u64) -> Self;
    /// Every API is asked for so many times as often, from the start on.
    fn times(self, factor: f64) -> Result<Self, String>;
    /// Only these APIs are left.
    fn only(self, apis: &[&str]) -> Self;
    /// The APIs are as important as they come in the file, the first most of all.
    fn ranked(self) -> Self;
    /// Prometheus alone tells of the services, once a second.
    fn by_prometheus(self) -> Self;
    /// These services can do so many requests a second.
    fn with_capacity(self, services: &[(&str, f64)]) -> Self;
    /// Every service has so many times as many instances, rounded up.
    fn with_instances(self, factor: f64) -> Self;
    /// Every service is autoscaled, never below what it has; instances take so long to start.
    fn autoscaled(self, start: Nanos, sees: Sees) -> Self;
}

/// The autoscaler of Kubernetes has these of its own; 0.5 is what its documentation's example and Online Boutique's manifests aim at.
const TARGET: f64 = 0.5;
/// As many times as many instances as at first may there be.
const MOST: u32 = 12;

impl Altered for Scenario {
    fn lasting(mut self, seconds: u64) -> Self {
        self.duration = Nanos::from_secs(seconds);
        self
    }

    fn times(mut self, factor: f64) -> Result<Self, String> {
        for api in &mut self.apis {
            let steps = api.offered.steps().iter().map(|&(at, per_s)| (at, factor * per_s));
            api.offered = Offered::schedule(steps.collect())?;
        }
        Ok(self)
    }

    fn only(mut self, apis: &[&str]) -> Self {
        self.apis.retain(|api| apis.contains(&api.name.as_str()));
        self
    }

    fn ranked(mut self) -> Self {
        (1..).zip(&mut self.apis).for_each(|(priority, api)| api.priority = priority);
        self
    }

    fn by_prometheus(mut self) -> Self {
        self.signals = Nanos::from_secs(1);
        self.telemetry = Telemetry::Prometheus;
        self
    }

    fn with_capacity(mut self, services: &[(&str, f64)]) -> Self {
        for service in &mut self.services {
            if let Some((_, per_s)) = services.iter().find(|(name, _)| *name == service.name) {
                service.work = Work::of_capacity(per_s / f64::from(service.instances));
            }
        }
        self
    }

    fn with_instances(mut self, factor: f64) -> Self {
        for service in &mut self.services {
            // One instance does what it did: the service does more or less.
            service.instances = (f64::from(service.instances) * factor).ceil() as u32;
        }
        self
    }

    fn autoscaled(mut self, start: Nanos, sees: Sees) -> Self {
        for service in &mut self.services {
            let (min, max) = (service.instances, MOST * service.instances);
            let (every, calm) = (Nanos::from_secs(15), Nanos::from_secs(300));
            service.autoscale = Some(Autoscale { target: TARGET, min, max, start, every, calm, sees });
        }
        self
    }
}
