//! SCENARIO.toml: a fleet of services, the APIs that run through it, and what is asked of them.

mod api;
mod offered;
mod path;
mod service;
mod text;

use crate::config::report::Report;
use crate::config::suggest::did_you_mean;
use crate::config::table::{choice, table};
use crate::config::value::{Derived, Node, Tables};
use crate::{Nanos, Slo};

pub use api::{Api, Branch, Retries};
pub use offered::Offered;
pub use path::Stage;
pub use service::{Autoscale, Failure, Sees, Service, Work};
pub use text::to_toml;

use api::ApiTable;
use service::ServiceTable;

table! {
    /// The file of a fleet.
    pub struct ScenarioFile {
        /// How long the run lasts. The figures are over its last third; what changes should change before that.
        duration: Nanos ["1s"..="24h"] = "60s",
        /// How often the controller sees the fleet and sets rates: 250ms with sentries and agents, 1s with Prometheus alone.
        signals: Nanos ["10ms"..="60s"] = "250ms",
        /// Who tells it: "agents" how busy each service is and how long one waits there, "prometheus" only how busy it is.
        telemetry: Telemetry = "agents",
        /// Services: what does the work.
        service: Tables<ServiceTable>,
        /// APIs: what is asked for, and which services it takes.
        api: Tables<ApiTable>,
    }
}

choice! {
    /// Who tells the controller about the services.
    pub enum Telemetry {
        /// How busy each is and how long a request would wait.
        Agents = "agents",
        /// How busy each is.
        Prometheus = "prometheus",
    }
}

impl Telemetry {
    /// Whether it tells how long a request would wait.
    pub fn tells_queues(self) -> bool {
        self == Telemetry::Agents
    }
}

/// What a fleet is put through.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// How long the run lasts; above zero.
    pub duration: Nanos,
    /// How often the controller sees the fleet and sets rates; above zero.
    pub signals: Nanos,
    /// Who tells it.
    pub telemetry: Telemetry,
    /// In the order of the file; at least one.
    pub services: Vec<Service>,
    /// In the order of the file; at least one.
    pub apis: Vec<Api>,
}

/// What a request is held to whose API has no objective: the second within which the paper's requests are to be answered (section 2).
pub const DEFAULT_DEADLINE: Nanos = Nanos::from_secs(1);

impl Derived for Scenario {
    type Written = ScenarioFile;

    fn derive(written: ScenarioFile, root: Node<'_>, report: &mut Report) -> Option<Scenario> {
        let ScenarioFile { duration, signals, telemetry, service, api } = written;
        for (found, kind, example) in [
            (service.0.len(), "service", "[service.frontend] with capacity = \"1000/s\""),
            (api.0.len(), "api", "[api.home] with path = [\"frontend\"] and offered = \"500/s\""),
        ] {
            if found == 0 {
                report.error(root.span(), format!("there is no {kind}; add for example {example}"));
            }
        }
        if service.0.is_empty() || api.0.is_empty() {
            return None;
        }
        let names: Vec<String> = service.0.iter().map(|(name, _)| name.clone()).collect();
        let services: Vec<Option<Service>> = service
            .0
            .into_iter()
            .map(|(name, table)| {
                let node = Node::new(&name, root.find(&["service", &name]));
                table.resolve(&name, duration, node, report)
            })
            .collect();
        let apis: Vec<Option<Api>> = api
            .0
            .into_iter()
            .map(|(name, table)| {
                let node = Node::new(&name, root.find(&["api", &name]));
                table.resolve(&name, &names, node, report)
            })
            .collect();
        let services = services.into_iter().collect::<Option<Vec<Service>>>()?;
        Some(Scenario {
            duration,
            signals,
            telemetry,
            services,
            apis: apis.into_iter().collect::<Option<_>>()?,
        })
    }
}

/// The index of a service, or an error that says which name may have been meant.
fn index_of(name: &str, services: &[String], node: Node<'_>, report: &mut Report) -> Option<usize> {
    let found = services.iter().position(|service| service == name);
    if found.is_none() {
        let known: Vec<&str> = services.iter().map(String::as_str).collect();
        let hint = did_you_mean(name, &known);
        report.error(node.span(), format!("there is no [service.{name}]; {hint}"));
    }
    found
}

/// Within what a request is to be answered so that it counts: the loosest limit of its objective.
fn deadline(slo: Option<&Slo>) -> Nanos {
    slo.and_then(|slo| slo.targets().iter().map(|&(_, limit)| limit).max()).unwrap_or(DEFAULT_DEADLINE)
}
