//! `[api.NAME]` of a fleet: what is asked for, by how many, and which services it takes.

use super::{Offered, Stage, deadline, index_of};
use crate::config::report::Report;
use crate::config::table::table;
use crate::config::units::Rate;
use crate::config::value::{Node, Tables};
use crate::{Nanos, Slo};

table! {
    /// An API.
    pub struct ApiTable {
        /// The services that a request takes, in their order; several at once where a list is within the list:
        /// `["frontend", ["ad", "cart"], "currency"]`. A worker is busy for its own work alone, not while others are asked. Who is refused
        /// or fails at one of them fails as a whole, and what was done for it was done in vain.
        path: Option<Vec<Stage>>,
        /// Several paths, one of which a request takes: `[{ share = 0.7, path = [...] }, ...]`. Which one shows only on the way.
        branches: Option<Vec<BranchTable>>,
        /// How many requests users send: a rate, or start times and rates `[["0s", "2000/s"], ["30s", "10000/s"]]`, at random (Poisson).
        offered: Offered,
        /// What an answer has to keep to count: the highest limit of it. A second where it is left out.
        slo: Option<Slo>,
        /// From 1, the most important, to 100. Under overload lesser ones give way.
        priority: u32 [1..=100] = 5,
        /// A promised minimum, below which the API is not limited.
        min_rate: Option<Rate>,
        /// How much work it is at a service, as a multiple of what is usual there: `{ catalog = 2.5 }`.
        cost: Tables<f64>,
        /// What clients do about requests that were refused, failed, or took too long.
        retries: Retries = {},
    }
}

table! {
    /// One of the paths of an API.
    pub struct BranchTable {
        /// Of the requests, in 0..1; all shares sum to 1.
        share: f64 [0.0..=1.0],
        /// The services that a request takes.
        path: Vec<Stage>,
    }
}

table! {
    /// What clients do about requests that did not go well.
    pub struct Retries {
        /// How often they try again at most; each try is a new request to the fleet.
        max: u32 [0..=100] = 0,
        /// How long they wait before it, twice as long each time, from half of it to all of it at random.
        backoff: Nanos ["1ms"..="1h"] = "100ms",
        /// How long they wait for an answer; as long as it takes where it is left out. What was asked for is done all the same.
        timeout: Option<Nanos> ["1ms"..="1h"],
    }
}

/// None.
impl Default for Retries {
    fn default() -> Retries {
        Retries { max: 0, backoff: Nanos::from_millis(100), timeout: None }
    }
}

/// Highest multiple of the usual work.
const MAX_COST: f64 = 1000.0;

/// An API of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Api {
    /// As the file has it.
    pub name: String,
    /// Its paths; their shares sum to 1.
    pub branches: Vec<Branch>,
    /// How many requests users send.
    pub offered: Offered,
    /// Its objective, where it has one.
    pub slo: Option<Slo>,
    /// Within what a request is to be answered, from when its user first sent it, so that it counts.
    pub deadline: Nanos,
    /// From 1, the most important.
    pub priority: u32,
    /// Requests a second that are promised.
    pub min_rate: Option<f64>,
    /// What clients do about requests that did not go well.
    pub retries: Retries,
}

/// One of the paths of an API.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// Of the requests, in 0..1.
    pub share: f64,
    /// Step by step, the services that are called at once: their index and how much work it is, as a multiple of what is usual there.
    pub stages: Vec<Vec<(usize, f64)>>,
}

impl ApiTable {
    pub(super) fn resolve(
        self,
        name: &str,
        services: &[String],
        node: Node<'_>,
        report: &mut Report,
    ) -> Option<Api> {
        let ApiTable { path, branches, offered, slo, priority, min_rate, cost, retries } = self;
        let written = match (path, branches) {
            (Some(path), None) => vec![(1.0, path, Node::new("path", node.find(&["path"])))],
            (None, Some(branches)) if !branches.is_empty() => {
                let list = node.find(&["branches"]);
                let places = list.get_ref().as_array().into_iter().flat_map(|list| list.iter());
                let nodes = places.map(|place| Node::new("path", Node::new("path", place).find(&["path"])));
                branches
                    .into_iter()
                    .zip(nodes)
                    .map(|(branch, node)| (branch.share, branch.path, node))
                    .collect()
            }
            (Some(_), Some(_)) => {
                let message = "an API has either a `path` or `branches`; remove one of them";
                report.error(node.at(&["path"]), message);
                return None;
            }
            _ => {
                let message =
                    format!("[api.{name}] takes no service; add for example path = [\"{}\"]", services[0]);
                report.error(node.span(), message);
                return None;
            }
        };
        let sum: f64 = written.iter().map(|(share, ..)| share).sum();
        if (sum - 1.0).abs() > 1e-6 {
            let sum = (sum * 1e6).round() / 1e6;
            let message = format!("the shares of the branches of an API sum to {sum}; make them sum to 1");
            report.error(node.at(&["branches"]), message);
            return None;
        }
        let costs = costs(&cost, services, node, report);
        let branches: Vec<_> = written
            .iter()
            .map(|(share, path, at)| {
                let stages = stages(path, &costs, services, *at, report)?;
                Some(Branch { share: *share, stages })
            })
            .collect();
        let branches = branches.into_iter().collect::<Option<Vec<Branch>>>()?;
        for (service, _) in &costs {
            let taken =
                branches.iter().flat_map(|branch| branch.stages.iter().flatten()).any(|(s, _)| s == service);
            if !taken {
                let name = &services[*service];
                let message = format!("`{name}` is on no path of this API; remove its cost");
                report.error(node.at(&["cost", name]), message);
            }
        }
        Some(Api {
            name: name.to_owned(),
            branches,
            offered,
            deadline: deadline(slo.as_ref()),
            slo,
            priority,
            min_rate: min_rate.map(|rate| rate.per_s).filter(|&rate| rate > 0.0),
            retries,
        })
    }
}

fn costs(cost: &Tables<f64>, services: &[String], node: Node<'_>, report: &mut Report) -> Vec<(usize, f64)> {
    let mut costs = Vec::new();
    for (name, cost) in &cost.0 {
        let at = Node::new("cost", node.find(&["cost", name]));
        if !(1.0 / MAX_COST..=MAX_COST).contains(cost) {
            let message =
                format!("{cost} is out of range; write a number from {} to {MAX_COST}", 1.0 / MAX_COST);
            at.fail::<()>(report, message);
        }
        costs.extend(index_of(name, services, at, report).map(|service| (service, *cost)));
    }
    costs
}

fn stages(
    path: &[Stage],
    costs: &[(usize, f64)],
    services: &[String],
    at: Node<'_>,
    report: &mut Report,
) -> Option<Vec<Vec<(usize, f64)>>> {
    if path.is_empty() {
        return at.fail(
            report,
            format!("a path takes a service at least; write for example [\"{}\"]", services[0]),
        );
    }
    // Where a name stands: within a step of several, or a step itself.
    let place = |step: usize, within: usize| {
        let list = at.value.get_ref().as_array();
        let step = list.and_then(|list| list.get(step)).unwrap_or(at.value);
        let names = step.get_ref().as_array();
        Node::new("path", names.and_then(|names| names.get(within)).unwrap_or(step))
    };
    let mut visit = |name: &str, node: Node<'_>| {
        let service = index_of(name, services, node, report)?;
        let cost = costs.iter().find(|(s, _)| *s == service).map_or(1.0, |&(_, cost)| cost);
        Some((service, cost))
    };
    // To the end, so that every wrong name is reported.
    let stages: Vec<Vec<_>> = (path.iter().enumerate())
        .map(|(i, stage)| stage.0.iter().enumerate().map(|(j, name)| visit(name, place(i, j))).collect())
        .collect();
    stages.into_iter().map(|stage| stage.into_iter().collect()).collect()
}
