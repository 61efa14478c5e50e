//! `[sentry]`: the gateway itself.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use http::HeaderName;
use ipnet::IpNet;

use super::address::{Listen, Scheme, Server};
use super::admission::Mode;
use super::report::Report;
use super::scalar::Secret;
use super::table::table;
use super::units::Size;
use super::value::Node;
use crate::Nanos;

table! {
    /// The gateway: where it listens, what it holds its clients to, whom it trusts.
    pub struct Sentry {
        /// Where clients connect, one address or a list. Loopback until you say otherwise, so that a trial is not
        /// open to the network.
        listen: Listen = "127.0.0.1:8080",
        /// Where metrics, health, decisions and the live page are served. Loopback unless `admin_token` is set.
        admin: SocketAddr = "127.0.0.1:9900",
        /// What the admin address wants in `authorization: Bearer`. Left out, it asks nobody.
        admin_token: Option<Secret>,
        /// Threads that serve requests; 0 means one a core, since each runs its own event loop and never waits.
        threads: u32 [0..=1024] = 0,
        /// Certificate and key for clients that speak TLS. Left out, they speak in the clear.
        tls: Option<Tls>,
        /// Open client connections at once; above it, new ones are refused. Each costs memory for its buffers.
        max_connections: u32 [1..=10000000] = 10000,
        /// Open connections of one client address. Left out, one client may have them all.
        max_connections_per_client: Option<u32> [1..=10000000],
        /// Bytes of a request's head; more is refused with 431. Twice what nginx
        /// takes unless told otherwise.
        max_header_size: Size ["1KiB"..="1MiB"] = "64KiB",
        /// Header lines of a request; more is refused with 431.
        max_headers: u32 [1..=1000] = 100,
        /// How long a client may take for a request's head. Long enough for a bad mobile network, short enough for
        /// those who hold connections open on purpose.
        header_timeout: Nanos ["1ms"..="1h"] = "10s",
        /// How long a client may pause between two parts of a body, in either direction. Beside one such pause in all, an upload
        /// that is slower than 500 B/s is broken off too.
        body_timeout: Nanos ["1ms"..="24h"] = "30s",
        /// How long a connection may stay open without a request. Above the 60 s of the usual balancers in front, so
        /// that they close first.
        idle_timeout: Nanos ["1ms"..="24h"] = "75s",
        /// How long requests in flight may take when the gateway shuts down or reloads.
        drain_timeout: Nanos ["0s"..="24h"] = "30s",
        /// The header by which a client says how long it will wait: milliseconds, or a duration like `1.5s`.
        /// `grpc-timeout` counts whatever this says.
        deadline_header: HeaderName = "x-request-deadline-ms",
        /// The header by which the server learns the priority of the request's class.
        priority_header: HeaderName = "x-plimsoll-priority",
        /// Addresses and networks whose `x-forwarded-for` is believed. None by default: anyone can write the header.
        trusted_proxies: Vec<IpNet> = [],
        /// The log of decisions that `/decisions` shows.
        decisions: Decisions = {},
        /// Where every event of an `[etcd.NAME]` is appended as a line of JSON; "-" is the standard output. Left out, events are only
        /// logged. Read at start.
        events: Option<PathBuf>,
        /// Rates that a controller sets, class by class. Left out, nobody is asked.
        rates: Option<SentryRates>,
    }
}

table! {
    /// Who says how many requests of each class may enter, by Envoy's rate limit quota service. A rate lasts for as long as the
    /// controller says, some seconds; without one the sentry's own defences are all there is.
    pub struct SentryRates {
        /// `host:port` of the controllers, one of which leads; the others do not answer. Tried in turn.
        controllers: Vec<Server>,
        /// What they want to be shown, in `authorization: Bearer`.
        token: Option<Secret>,
        /// Whether rates are kept, only counted and logged where a request is beyond one, or not asked for.
        mode: Mode = "enforce",
    }
}

table! {
    /// Files in PEM, read at start and at every reload; relative to the working directory.
    pub struct Tls {
        /// The certificate, followed by its chain.
        cert: PathBuf,
        /// Its private key.
        key: PathBuf,
    }
}

table! {
    /// A bounded log of single decisions.
    pub struct Decisions {
        /// Decisions that are kept; the oldest goes first.
        keep: u32 [0..=100000] = 1000,
        /// The share of decisions that is logged, in 0..1. A few are enough to see why, and stay cheap at any rate.
        sample: f64 [0.0..=1.0] = 0.01,
    }
}

impl Sentry {
    /// Whether what this peer says about the client is believed.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        // A dual-stack socket shows IPv4 peers as ::ffff:a.b.c.d.
        let peer = peer.to_canonical();
        self.trusted_proxies.iter().any(|network| network.contains(&peer))
    }
}

/// What is wrong with `[sentry.rates]`.
pub(super) fn check_rates(rates: &SentryRates, root: Node<'_>, report: &mut Report) {
    let at = root.at(&["sentry", "rates", "controllers"]);
    if rates.controllers.is_empty() {
        report.error(at, "`controllers` is empty; write for example controllers = [\"127.0.0.1:9911\"]");
    } else if let Some(tls) = rates.controllers.iter().find(|server| server.scheme == Scheme::Https) {
        report.error(at, format!("controllers are spoken to in the clear; write {tls} without https://"));
    }
}
