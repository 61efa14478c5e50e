//! A workload made ready to run: its classes in the order of the gate, its service times as samplers.

use std::path::Path;

use plimsoll_core::config::PolicingPolicy;
use plimsoll_core::config::workload::{Arrivals, Engine, Policing, Step, Workload, WorkloadClass};
use plimsoll_core::{Nanos, Slo, ranks};
use plimsoll_policing::police::{Choice, ClassSpec, Police};
use plimsoll_policing::switch::Policer;

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
    /// Which classes pass.
    pub policing: Policing,
    /// What of each class matters to that.
    pub worth: Vec<Worth>,
    /// Of each class of synthetic requests. `default` is among them only where the workload gives it a share.
    pub shares: Vec<f64>,
    /// Of each class of synthetic requests.
    pub services: Vec<ServiceTime>,
    /// Of each class of synthetic requests, where it has one of its own: multiples of its share of the load.
    pub schedules: Vec<Option<Vec<Step>>>,
}

/// How much a class matters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// From 1, the most important.
    pub priority: u32,
    /// What an answer is worth.
    pub revenue: f64,
    /// Requests a second that pass untested.
    pub promised_per_s: f64,
}

/// Of a class about which nothing is written.
impl Default for Worth {
    fn default() -> Worth {
        Worth { priority: 5, revenue: 1.0, promised_per_s: 0.0 }
    }
}

impl Scenario {
    /// From a workload whose files are relative to `directory`.
    ///
    /// # Errors
    /// Where a file of service times cannot be read.
    pub fn new(workload: Workload, directory: &Path) -> Result<Scenario, String> {
        let Workload { engine, arrivals, policing, mut classes, default_slo } = workload;
        classes.sort_by_key(|class| class.name == "default");
        let services = classes.iter().map(|class| ServiceTime::new(&class.service, directory));
        let services = services.collect::<Result<_, _>>()?;
        let shares = classes.iter().map(|class| class.share).collect();
        let schedules = classes.iter().map(|class| class.schedule.clone()).collect();
        let worth = |class: &WorkloadClass| Worth {
            priority: class.priority,
            revenue: class.revenue,
            promised_per_s: class.min_rate.map_or(0.0, |rate| rate.per_s),
        };
        let mut worth: Vec<Worth> = classes.iter().map(worth).collect();
        let (mut names, mut slos): (Vec<_>, Vec<_>) = classes.into_iter().map(|c| (c.name, c.slo)).unzip();
        if names.last().is_none_or(|name| name != "default") {
            names.push("default".to_owned());
            slos.push(default_slo);
            worth.push(Worth::default());
        }
        Ok(Scenario { engine, arrivals, names, slos, policing, worth, shares, services, schedules })
    }

    /// How important each class is, from 0.
    pub fn ranks(&self) -> Vec<u16> {
        ranks(self.worth.iter().map(|worth| (worth.priority, worth.revenue)))
    }

    /// Its police, where it has one.
    pub fn police(&self) -> Option<Police> {
        let promises = self.worth.iter().any(|worth| worth.promised_per_s > 0.0);
        let choice = match self.policing.policy {
            PolicingPolicy::Off if !promises => return None,
            PolicingPolicy::Off => Choice::Never,
            PolicingPolicy::Auto => Choice::Auto,
            PolicingPolicy::Batch => Choice::Always(Policer::Batch),
            PolicingPolicy::Threshold => Choice::Always(Policer::Threshold),
        };
        let class = |(worth, slo): (&Worth, &Slo)| ClassSpec {
            priority: worth.priority,
            revenue: worth.revenue,
            promised_per_s: worth.promised_per_s,
            target: slo.owed().unwrap_or(Nanos::MAX),
        };
        let classes: Vec<ClassSpec> = self.worth.iter().zip(&self.slos).map(class).collect();
        let police = Police::new(&classes, self.policing.ladder.clone(), choice, Nanos::ZERO);
        Some(match &self.policing.delays {
            Some(delays) => police.with_fixed_delays(delays),
            None => police,
        })
    }

    /// The rate of requests a second that keeps every process busy and no more: the paper's full load.
    pub fn full_load_per_s(&self) -> f64 {
        let mean_ns: f64 = self.shares.iter().zip(&self.services).map(|(share, s)| share * s.mean_ns()).sum();
        f64::from(self.engine.processes) / mean_ns * 1e9
    }
}
