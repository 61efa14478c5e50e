//! A workload made ready to run: its classes in the order of the gate, its service times as samplers.

use std::path::Path;

use plimsoll_core::Slo;
use plimsoll_core::config::workload::{Arrivals, Engine, Workload};

use crate::service::ServiceTime;

/// What every run of a workload shares.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The simulated server.
    pub engine: Engine,
    /// How synthetic requests come.
    pub arrivals: Arrivals,
    /// Of the classes, `default` always being the last.
    pub names: Vec<String>,
    /// Of each class.
    pub slos: Vec<Slo>,
    /// Of each class of synthetic requests. `default` is among them only where the workload gives it a share.
    pub shares: Vec<f64>,
    /// Of each class of synthetic requests.
    pub services: Vec<ServiceTime>,
}

impl Scenario {
    /// From a workload whose files are relative to `directory`.
    ///
    /// # Errors
    /// Where a file of service times cannot be read.
    pub fn new(workload: Workload, directory: &Path) -> Result<Scenario, String> {
        let Workload { engine, arrivals, mut classes, default_slo } = workload;
        classes.sort_by_key(|class| class.name == "default");
        let services = classes.iter().map(|class| ServiceTime::new(&class.service, directory));
        let services = services.collect::<Result<_, _>>()?;
        let shares = classes.iter().map(|class| class.share).collect();
        let (mut names, mut slos): (Vec<_>, Vec<_>) = classes.into_iter().map(|c| (c.name, c.slo)).unzip();
        if names.last().is_none_or(|name| name != "default") {
            names.push("default".to_owned());
            slos.push(default_slo);
        }
        Ok(Scenario { engine, arrivals, names, slos, shares, services })
    }

    /// The rate of requests a second that keeps every process busy and no more: the paper's full load.
    pub fn full_load_per_s(&self) -> f64 {
        let mean_ns: f64 = self.shares.iter().zip(&self.services).map(|(share, s)| share * s.mean_ns()).sum();
        f64::from(self.engine.processes) / mean_ns * 1e9
    }
}
