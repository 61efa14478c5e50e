//! `[controller.telemetry]`: what the controller learns the fleet from, and what it is told of how busy its services are.

use http::uri::PathAndQuery;

use super::address::{Listen, Scheme, Server};
use super::report::Report;
use super::scalar::Secret;
use super::table::{choice, table};
use super::units::Size;
use super::value::Node;
use crate::Nanos;

table! {
    /// Traces from which the paths of requests are learnt, and metrics that say how busy services are.
    pub struct Telemetry {
        /// Where spans are taken (OTLP), one address or a list; each speaks gRPC and HTTP. Loopback unless `token` is set.
        listen: Listen = ["127.0.0.1:4317", "127.0.0.1:4318"],
        /// What senders of spans must show in `authorization: Bearer`. Left out, they are asked for nothing.
        token: Option<Secret>,
        /// Longest message of spans, compressed or not; a longer one is refused. Eight of them may be on their way at once. Twice what a
        /// collector sends in a batch of 8,192 spans.
        max_message: Size ["64KiB"..="256MiB"] = "16MiB",
        /// Names of the services at which requests enter the fleet. Left out, requests enter at the first server of each trace.
        entries: Vec<String> = [],
        /// Spans that may wait for the rest of their traces, up to 150 bytes each. When they are too many, whole traces are left out.
        open_spans: u32 [1000..=100000000] = 1048576,
        /// How long a trace waits for its pieces. SDKs send every 5 s unless told otherwise, and collectors add to that.
        wait: Nanos ["100ms"..="10m"] = "10s",
        /// After so long what was learnt counts half beside what is being learnt.
        half_life: Nanos ["1s"..="24h"] = "1m",
        /// An API that was not seen for so long is forgotten; while no spans arrive at all, time stands still.
        forget: Nanos ["1m"..="10000h"] = "1h",
        /// A Prometheus that knows how busy services are.
        prometheus: Option<Prometheus>,
        /// Exporters, and agents of ours, that are asked directly.
        scrape: Vec<Scrape> = [],
        /// From one question to the next, to each of them.
        interval: Nanos ["100ms"..="5m"] = "1s",
        /// What was told longer ago than this is not known any more; of whoever is asked more seldom, what was told three intervals ago.
        stale: Nanos ["1s"..="1h"] = "10s",
    }
}

table! {
    /// A Prometheus server, or whatever answers as one does.
    pub struct Prometheus {
        /// Where it is; a path before `/api/v1/query` is written in `path`.
        server: Server,
        /// Where its query API is.
        path: PathAndQuery = "/api/v1/query",
        /// What is asked: the part of what a service may use that it uses, 0 to 1, by service. The default is the CPU time of containers as
        /// a part of their limit, as cAdvisor and the kubelet tell it; one without a limit is not told of.
        query: String = "sum by (container) (irate(container_cpu_usage_seconds_total{container!=\"\",container!=\"POD\"}[1m])) / sum by (container) (container_spec_cpu_quota{container!=\"\"} / container_spec_cpu_period{container!=\"\"})",
        /// The label whose value is the service, as traces call it.
        label: String = "container",
        /// What is asked beside that: how long a request that comes now waits until it is worked on, in seconds, by service. Left out, nothing.
        queue: Option<String>,
        /// Likewise: how many requests a second are done, whoever sent them, by service.
        served: Option<String>,
        /// From one question to the next. Left out, the `interval` of all sources. Where a query computes a rate, no less than Prometheus's
        /// `scrape_interval`: what it has not scraped anew is no news.
        interval: Option<Nanos> ["100ms"..="5m"],
        /// What it wants in `authorization: Bearer`.
        token: Option<Secret>,
    }
}

table! {
    /// An exporter: metrics in the text format of Prometheus.
    pub struct Scrape {
        /// Where it is.
        server: Server,
        /// Where its metrics are. Of a sentry they are what it tells controllers, whatever is written here.
        path: PathAndQuery = "/metrics",
        /// What it tells of: "cadvisor" of containers, "node" of a host, "process" of the process that answers, "agent" of the processes
        /// beside an agent of ours, "sentry" of the services that a sentry of ours stands in front of within the fleet, "gauge" of anything,
        /// in metrics that are named here.
        kind: ScrapeKind = "cadvisor",
        /// The label whose value is the service. Left out, that of the kind: `container_label_com_docker_compose_service` or `name` for
        /// cadvisor, `process` for an agent, `service` for a gauge. A sentry's services are its pools, by their names.
        label: Option<String>,
        /// The service that all of it is about, where no label says so.
        service: Option<String>,
        /// The gauge of how busy services are, from 0 to 1.
        metric: Option<String> where kind = "gauge",
        /// The gauge of how long a request that comes now waits until it is worked on, in seconds.
        queue: Option<String> where kind = "gauge",
        /// The counter of the requests that are done, well or not.
        served: Option<String> where kind = "gauge",
        /// How many CPUs the service may use there. Left out, what the exporter says, or else one.
        cpus: Option<f64> [0.001..=100000.0] where kind = "cadvisor" | "node" | "process",
        /// What it wants in `authorization: Bearer`.
        token: Option<Secret>,
    }
}

choice! {
    /// What an exporter tells of.
    pub enum ScrapeKind {
        /// Containers.
        Cadvisor = "cadvisor",
        /// A host.
        Node = "node",
        /// The process that answers.
        Process = "process",
        /// Processes beside an agent of ours.
        Agent = "agent",
        /// Services that a sentry of ours stands in front of.
        Sentry = "sentry",
        /// Anything, in metrics that are named.
        Gauge = "gauge",
    }
}

/// What is wrong within `[controller.telemetry]`.
pub(super) fn check(telemetry: &Telemetry, root: Node<'_>, report: &mut Report) {
    let at = |key: &str| root.at(&["controller", "telemetry", key]);
    if telemetry.token.is_none() && telemetry.listen.0.iter().any(|address| !address.ip().is_loopback()) {
        let message = "`listen` is open to the network, and whoever sends spans decides which paths are learnt; add token, or write \
                       listen = [\"127.0.0.1:4317\", \"127.0.0.1:4318\"]";
        report.error(at("listen"), message);
    }
    let asked = telemetry.prometheus.iter().map(|prometheus| ("prometheus", &prometheus.server));
    let asked = asked.chain(telemetry.scrape.iter().map(|scrape| ("scrape", &scrape.server)));
    for (key, server) in asked.filter(|(_, server)| server.scheme == Scheme::Https) {
        let Server { host, port, .. } = server;
        let message = format!(
            "metrics are asked for in the clear only; write server = \"http://{host}:{port}\", or put a proxy that speaks TLS before it"
        );
        report.error(at(key), message);
    }
    for scrape in &telemetry.scrape {
        let wants = match scrape.kind {
            ScrapeKind::Gauge
                if [&scrape.metric, &scrape.queue, &scrape.served].iter().all(|name| name.is_none()) =>
            {
                "metric = \"utilization\""
            }
            ScrapeKind::Node | ScrapeKind::Process if scrape.service.is_none() => "service = \"catalog\"",
            _ => continue,
        };
        let message =
            format!("an exporter of kind \"{}\" does not say it all; add for example {wants}", scrape.kind);
        report.error(at("scrape"), message);
    }
}
