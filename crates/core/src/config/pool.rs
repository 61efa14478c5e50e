//! `[pool.NAME]`: servers that share one queue.

use std::path::PathBuf;

use http::uri::PathAndQuery;
use serde_json::json;

use super::address::Server;
use super::admission::{Admission, Mode};
use super::provision::Provision;
use super::report::Report;
use super::table::{choice, table};
use super::value::{Node, Shape, Value};
use crate::{Ladder, Nanos};

table! {
    /// Servers that do the same work: one queue in front of all their workers.
    pub struct Pool(name) {
        /// `host:port` or a URL with `http://` or `https://`; at least one, unless `provision` starts them.
        servers: Vec<Server> = [],
        /// Requests that one server works on at once, or "adaptive": found by measuring, for those who do not know.
        workers: Workers = "adaptive",
        /// With `workers = "adaptive"` and an agent on the servers' hosts: so many requests at once that none of the servers' workers runs more than this
        /// many times slower than on an idle machine, for want of CPU. Two is enough to keep a CPU busy; more lets in more at once, and each takes longer.
        max_slowdown: f64 [1.5..=1000.0] = 5.0,
        /// Requests that wait at most, whatever the policy thinks. 800 is what all policies of the paper ran with.
        max_queue: u32 [1..=126976] = 800,
        /// "auto" speaks HTTP/2 to the servers for gRPC, and HTTP/1.1 for the rest.
        protocol: Protocol = "auto",
        /// Which requests may enter the queue.
        admission: Admission = {},
        /// Which classes, and which of their requests, pass the gate when there is too much of everything.
        policing: Policing = {},
        /// The mean response time that the pool owes at which arrival rate, so that more load may be answered more slowly
        /// instead of not at all. Policing holds every request to it, beside its class's own objective.
        ladder: Option<Ladder>,
        /// How long connecting to a server may take.
        connect_timeout: Nanos ["1ms"..="10m"] = "1s",
        /// How long a server may take until its response head, and pause in the response.
        response_timeout: Nanos ["1ms"..="24h"] = "60s",
        /// How long a stream of events or of gRPC messages may be silent in both directions. Long enough for those that have
        /// something to say now and then, short enough that calls that nobody ends do not keep their slots for ever.
        stream_timeout: Nanos ["1ms"..="24h"] = "1h",
        /// Trying another server where one cannot be connected to.
        retries: Retries = {},
        /// Requests that wait at once to be sent a second time, because a server cancelled them to free what others needed
        /// (`plimsoll-cancelled`). Only those that change nothing and have no body; 0 sends none.
        reruns: u32 [0..=10000] = 0,
        /// Asking the servers how they are.
        health: Health = {},
        /// Leaving a server out after failures.
        eject: Eject = {},
        /// Certificates (PEM) that `https://` servers are held to. Left out, the system's.
        tls_ca: Option<PathBuf>,
        /// Idle connections that are kept to one server. Connecting again costs a round trip, keeping costs a socket.
        max_idle_connections: u32 [0..=100000] = 256,
        /// Servers that the controller starts and stops as the load asks for. Left out, there are those of `servers`.
        provision: Option<Provision>,
        /// The service of a fleet that the servers are, as traces call it. What the fleet's rates keep out for the sake of other services then
        /// is no reason to start more of them. Left out, all that is refused is.
        service: Option<String>,
        /// Says that the servers are Solrs: queries get a number by which Solr can cancel them, and the admin address lists those under way for the agent.
        solr: Option<Solr>,
    }
}

table! {
    /// Solrs, 9.1 or newer. Queries are what is asked of `/solr/NAME/select` and `/solr/NAME/query`.
    pub struct Solr {
        /// After how long Solr is to give up a query that says nothing of that itself (`timeAllowed`), for what cannot be cancelled.
        time_allowed: Option<Nanos> ["1ms"..="1h"],
    }
}

table! {
    /// Retries are safe (nothing was sent) and bounded, so that they cannot add to an overload.
    pub struct Retries {
        /// Retries as a share of requests, in 0..1.
        budget: f64 [0.0..=1.0] = 0.1,
        /// Retries of one request.
        max: u32 [0..=10] = 2,
    }
}

table! {
    /// Active health checks.
    pub struct Health {
        /// What is asked for with GET; any 2xx is healthy. Left out, nobody asks.
        path: Option<PathAndQuery>,
        /// From one check to the next.
        interval: Nanos ["10ms"..="1h"] = "2s",
        /// How long an answer may take.
        timeout: Nanos ["1ms"..="1h"] = "1s",
        /// Good answers in a row that bring a server back.
        healthy: u32 [1..=100] = 2,
        /// Bad answers in a row that take it out.
        unhealthy: u32 [1..=100] = 3,
    }
}

table! {
    /// Passive health checks: what the requests themselves show.
    pub struct Eject {
        /// Failed requests in a row (refused, reset, timed out) after which a server is left out.
        failures: u32 [1..=1000] = 5,
        /// How long it is left out.
        time: Nanos as "for" ["10ms"..="1h"] = "5s",
    }
}

table! {
    /// Policing by class and size. A request is held to the mean that its class, or the pool's ladder, is owed; without
    /// either, to its class's highest percentile.
    pub struct Policing {
        /// How: "batch" lets requests of a class and size wait for each other and looks at them together, "threshold" compares
        /// each one's class and size with a limit, at once, and costs less; "auto" goes over to the second while the sentry
        /// itself is too busy for the first.
        policy: PolicingPolicy = "off",
        /// Whether it acts.
        mode: Mode = "enforce",
    }
}

choice! {
    /// How classes are policed.
    pub enum PolicingPolicy {
        /// Whichever fits the load.
        Auto = "auto",
        /// Per batch of requests.
        Batch = "batch",
        /// Per request, against a threshold.
        Threshold = "threshold",
        /// Not at all.
        Off = "off",
    }
}

choice! {
    /// What is spoken to the servers.
    pub enum Protocol {
        /// HTTP/2 for gRPC, HTTP/1.1 for the rest.
        Auto = "auto",
        /// HTTP/1.1 always.
        Http1 = "http1",
        /// HTTP/2 always, in the clear by prior knowledge.
        Http2 = "http2",
    }
}

/// Requests that one server works on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// Told by the user; at least one.
    Fixed(u32),
    /// Found by measuring.
    Adaptive,
}

/// Most workers of one server.
const MAX_WORKERS: u32 = 100_000;

impl Value for Workers {
    const SHAPE: Shape = Shape::new(
        || format!("a whole number from 1 to {MAX_WORKERS}, or \"adaptive\""),
        || "\"adaptive\"".to_owned(),
        || json!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": MAX_WORKERS }, { "const": "adaptive" }] }),
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<Workers> {
        if node.value.get_ref().is_integer() {
            let workers = u32::read(node, report)?;
            return if (1..=MAX_WORKERS).contains(&workers) {
                Some(Workers::Fixed(workers))
            } else {
                node.out_of_range(report)
            };
        }
        if node.text() == Some("adaptive") { Some(Workers::Adaptive) } else { node.mismatch(report) }
    }
}
