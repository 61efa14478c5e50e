//! WORKLOAD.toml: what the simulator offers to a policy.

mod arrivals;
mod service;

use crate::config::report::Report;
use crate::config::table::table;
use crate::config::value::{Derived, Node, Tables};
use crate::{MAX_CLASSES, Nanos, Slo};

pub use arrivals::{Arrivals, Step};
pub use service::Service;

table! {
    /// The file of a workload.
    pub struct WorkloadFile {
        /// The simulated server.
        engine: Engine = {},
        /// How requests come, relative to the load of the run.
        arrivals: Arrivals = {},
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
}

impl Derived for Workload {
    type Written = WorkloadFile;

    fn derive(written: WorkloadFile, root: Node<'_>, report: &mut Report) -> Option<Workload> {
        let tables = written.class.0;
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
        for (name, ClassTable { share, service, slo }) in tables {
            let at = |key: &str| root.at(&["class", &name, key]);
            match service {
                Some(service) if share > 0.0 => {
                    classes.push(WorkloadClass { name, share, service, slo: slo.unwrap_or_default() });
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
        Some(Workload { engine: written.engine, arrivals: written.arrivals, classes, default_slo })
    }
}

/// The objective with the most generous limit on its highest percentile.
fn loosest<'a>(slos: impl Iterator<Item = &'a Slo>) -> Slo {
    let limit = |slo: &&Slo| slo.targets().last().map_or(Nanos::ZERO, |&(_, limit)| limit);
    slos.max_by_key(limit).cloned().unwrap_or_default()
}
