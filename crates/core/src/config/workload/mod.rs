//! WORKLOAD.toml: what the simulator offers to a policy.

mod arrivals;
mod policing;
mod service;

use crate::config::report::Report;
use crate::config::table::table;
use crate::config::units::Rate;
use crate::config::value::{Derived, Node, Tables};
use crate::{MAX_CLASSES, Nanos, Slo};

pub use arrivals::{Arrivals, Step};
pub use policing::Policing;
pub use service::Service;

table! {
    /// The file of a workload.
    pub struct WorkloadFile {
        /// The simulated server.
        engine: Engine = {},
        /// How requests come, relative to the load of the run.
        arrivals: Arrivals = {},
        /// Which classes pass when there is too much of everything, before the policy is asked.
        policing: Policing = {},
        /// Classes of requests. `[class.default]` may have no share: then only its `slo` counts, for classes that were
        /// never seen. Without it, those are held to the loosest objective of all.
        class: Tables<ClassTable>,
    }
}

table! {
    /// The simulated server.
    pub struct Engine {
        /// Requests that are worked on at once.
        processes: u32 [1..=100000] = 100,
        /// Requests that wait at most, whatever the policy thinks.
        max_queue: u32 [1..=126976] = 800,
    }
}

table! {
    /// A class of simulated requests.
    pub struct ClassTable {
        /// Of all requests, in 0..1; all shares sum to 1.
        share: f64 [0.0..=1.0],
        /// How long one takes, without waiting.
        service: Option<Service>,
        /// Its objective.
        slo: Option<Slo>,
        /// From 1, the most important, to 100. Under overload lesser classes give way.
        priority: u32 [1..=100] = 5,
        /// What one served request is worth, in any unit that all classes share. Among classes of one priority those that
        /// are worth less give way.
        revenue: f64 [1e-9..=1e12] = 1.0,
        /// The rate up to which its requests pass untested, where there is policing.
        min_rate: Option<Rate>,
        /// How often its requests come in the course of the run, as start times and multiples of its share of the load:
        /// `[["0s", 1.0], ["195s", 4.0]]`; the last holds to the end. Instead of `[arrivals]`.
        schedule: Option<Vec<Step>>,
    }
}

/// For messages.
const SERVICE: &str = "service = { dist = \"exponential\", mean = \"20ms\" }";

/// What the simulator offers to a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The simulated server.
    pub engine: Engine,
    /// How requests come.
    pub arrivals: Arrivals,
    /// Which classes pass, before the policy is asked.
    pub policing: Policing,
    /// The classes with a share, in the order of the file; never empty, and their shares sum to 1.
    pub classes: Vec<WorkloadClass>,
    /// The objective of a class that was never seen: that of `[class.default]`, else the loosest of all.
    pub default_slo: Slo,
}

/// A class of simulated requests.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadClass {
    /// The NAME in its header.
    pub name: String,
    /// Of all requests, above 0 and at most 1.
    pub share: f64,
    /// How long one takes, without waiting.
    pub service: Service,
    /// Its objective; empty where none was set.
    pub slo: Slo,
    /// From 1, the most important, to 100.
    pub priority: u32,
    /// What one served request is worth, in any unit; above zero.
    pub revenue: f64,
    /// Requests a second that pass untested.
    pub min_rate: Option<Rate>,
    /// How often its requests come, as multiples of its share of the load; the same all the time where that is not written.
    pub schedule: Option<Vec<Step>>,
}

impl WorkloadClass {
    /// A class as it is where nothing else is written.
    pub fn new(name: &str, share: f64, service: Service) -> WorkloadClass {
        let (priority, revenue) = (5, 1.0);
        let (slo, min_rate, schedule) = (Slo::default(), None, None);
        WorkloadClass { name: name.to_owned(), share, service, slo, priority, revenue, min_rate, schedule }
    }
}

impl Derived for Workload {
    type Written = WorkloadFile;

    fn derive(mut written: WorkloadFile, root: Node<'_>, report: &mut Report) -> Option<Workload> {
        let tables = std::mem::take(&mut written.class.0);
        let Some((last, _)) = tables.last() else {
            report.error(
                root.span(),
                format!("there is no class; add [class.NAME] with share = 1.0 and {SERVICE}"),
            );
            return None;
        };
        // `default` is there even where nobody wrote it.
        let mut others = tables.iter().map(|(name, _)| name).filter(|name| *name != "default");
        if let Some(beyond) = others.nth(MAX_CLASSES - 1) {
            let message = format!("more than {MAX_CLASSES} classes with [class.default]; merge some of them");
            report.error(root.at(&["class", beyond]), message);
            return None;
        }
        let sum: f64 = tables.iter().map(|(_, table)| table.share).sum();
        if (sum - 1.0).abs() > 1e-6 {
            let sum = (sum * 1e6).round() / 1e6;
            let span = root.at(&["class", last, "share"]);
            report.error(span, format!("the shares of all classes sum to {sum}; make them sum to 1"));
            return None;
        }
        let default_slo = match tables.iter().find(|(name, _)| name == "default") {
            Some((_, table)) => table.slo.clone().unwrap_or_default(),
            None => loosest(tables.iter().filter_map(|(_, table)| table.slo.as_ref())),
        };
        let mut classes = Vec::new();
        for (name, table) in tables {
            let ClassTable { share, service, slo, priority, revenue, min_rate, schedule } = table;
            let at = |key: &str| root.at(&["class", &name, key]);
            if let Some(steps) = &schedule {
                arrivals::check_steps(steps, at("schedule"), report);
                if written.arrivals != Arrivals::Poisson {
                    let message =
                        "a class comes by its own `schedule` or by that of [arrivals]; remove one of them";
                    report.error(at("schedule"), message);
                }
            }
            match service {
                Some(service) if share > 0.0 => {
                    let slo = slo.unwrap_or_default();
                    let class =
                        WorkloadClass { name, share, service, slo, priority, revenue, min_rate, schedule };
                    classes.push(class);
                }
                _ if name == "default" && share == 0.0 => {}
                Some(_) => report.error(at("share"), "a class without a share sends nothing; remove it"),
                None => {
                    report.error(
                        at("service"),
                        format!("[class.{name}] lacks `service`; add for example {SERVICE}"),
                    );
                }
            }
        }
        let WorkloadFile { engine, arrivals, policing, .. } = written;
        policing.check(&engine, &classes, root, report);
        Some(Workload { engine, arrivals, policing, classes, default_slo })
    }
}

/// The objective with the most generous limit.
fn loosest<'a>(slos: impl Iterator<Item = &'a Slo>) -> Slo {
    let limit = |slo: &&Slo| slo.targets().iter().map(|&(_, limit)| limit).max().unwrap_or(Nanos::ZERO);
    slos.max_by_key(limit).cloned().unwrap_or_default()
}
