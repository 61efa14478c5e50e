//! `[controller]`: who watches the sentries and sizes the pools.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::admission::Mode;
use super::etcd::{self, Etcd};
use super::pool::Pool;
use super::provision::Ports;
use super::report::Report;
use super::scalar::Secret;
use super::table::{choice, table};
use super::telemetry::{self, Telemetry};
use super::value::Node;
use crate::Nanos;

table! {
    /// The controller: which sentries it reads, and how many servers and sentries it may have.
    pub struct Controller {
        /// Where its metrics, its health and its plan are served. Loopback unless `admin_token` is set.
        admin: SocketAddr = "127.0.0.1:9910",
        /// What that address wants in `authorization: Bearer`. Left out, it asks nobody.
        admin_token: Option<Secret>,
        /// Whether it acts, only says what it would do (in its log, its metrics and at /plan), or neither.
        mode: Mode = "enforce",
        /// Admin addresses of the sentries that are there anyway; they are shown `admin_token` of `[sentry]`. Left out,
        /// `admin` of `[sentry]`.
        sentries: Vec<SocketAddr> = [],
        /// From one look at the sentries to the next. Long enough to count requests rather than bursts, short enough
        /// that a crowd is answered at once.
        interval: Nanos ["100ms"..="1m"] = "5s",
        /// Servers that all pools together may have; they share them by revenue. Left out, the sum of their `max`.
        servers: Option<u32> [1..=100000],
        /// Where it notes which processes it started, and that it is the one controller; relative to the working directory.
        state: PathBuf = "plimsoll-state",
        /// Where controllers of several hosts find out which of them leads. Left out, it is one of this host that does.
        etcd: Option<Etcd>,
        /// Admin ports of further sentries, as in "9901-9904": one is started when the others are busy, and returned when
        /// they are not. Left out, there is never one more.
        sentry_ports: Option<Ports>,
        /// How long a sentry must use more than 80 % of its CPU until one more is started. One is returned after the others would
        /// have been below 40 % for twice as long. Shorter chases bursts; the CPU time is looked at once a second.
        sentry_busy_for: Nanos ["1s"..="1h"] = "30s",
        /// Rates of classes for the whole fleet, divided among the sentries. Left out, it sets none.
        rates: Option<ControllerRates>,
        /// What the fleet is learnt from. Left out, it is not.
        telemetry: Option<Telemetry>,
    }
}

table! {
    /// Where sentries, and Envoys with the filter `rate_limit_quota`, report what arrives and get their rates, by Envoy's rate limit
    /// quota service.
    pub struct ControllerRates {
        /// Where it listens, in the clear. Loopback unless `token` is set.
        listen: SocketAddr = "127.0.0.1:9911",
        /// What it wants in `authorization: Bearer`. Left out, it asks nobody.
        token: Option<Secret>,
        /// What decides them, where `[controller.telemetry]` says what the fleet is: "model" learns what services can do and APIs cost,
        /// "learned", "mimd" and "topfull-bw" go by steps, "none" leaves it at `max_rate`.
        decide: RateDecider = "model",
        /// What "learned" has learnt, as `plimsoll fleet train` writes it; relative to the working directory. Left out, the weights that
        /// come with Plimsoll.
        weights: Option<PathBuf> where decide = "learned",
        /// From one decision to the next. Signals that come more seldom are waited for.
        interval: Nanos ["100ms"..="10s"] = "250ms",
    }
}

choice! {
    /// What decides how much of each class may enter the fleet; the names of `plimsoll fleet run`.
    pub enum RateDecider {
        /// What services can do and APIs cost is learnt, and the best rates are solved for.
        Model = "model",
        /// TopFull with the steps that a network has learnt; the model takes over where that does worse.
        Learned = "learned",
        /// TopFull with steps of a fixed part.
        Mimd = "mimd",
        /// TopFull with the steps of Breakwater.
        TopfullBw = "topfull-bw",
        /// Nothing does.
        None = "none",
    }
}

impl Controller {
    /// Servers that all pools together may have.
    pub fn cap(&self, pools: &[Pool]) -> u32 {
        let most = |pool: &Pool| pool.provision.as_ref().map_or(0, |provision| provision.max);
        self.servers.unwrap_or_else(|| pools.iter().map(most).fold(0, u32::saturating_add))
    }
}

/// What is wrong between `[controller]` and the rest of the file.
pub(super) fn check(controller: &Controller, pools: &[Pool], root: Node<'_>, report: &mut Report) {
    let at = |key: &str| root.at(&["controller", key]);
    if !controller.admin.ip().is_loopback() && controller.admin_token.is_none() {
        let message = "`admin` is open to the network; add admin_token, or write admin = \"127.0.0.1:9910\"";
        report.error(at("admin"), message);
    }
    if let Some(rates) = &controller.rates
        && !rates.listen.ip().is_loopback()
        && rates.token.is_none()
    {
        let message = "`listen` is open to the network; add token, or write listen = \"127.0.0.1:9911\"";
        report.error(at("rates"), message);
    }
    if let Some(twice) =
        (1..controller.sentries.len()).find(|&i| controller.sentries[..i].contains(&controller.sentries[i]))
    {
        let message = format!("sentry {} is there twice; remove one of them", controller.sentries[twice]);
        report.error(at("sentries"), message);
    }
    if let Some(settings) = &controller.telemetry {
        telemetry::check(settings, root, report);
    }
    if let Some(settings) = &controller.etcd {
        etcd::check(settings, controller.sentry_ports.is_some(), pools, root, report);
    }
    let promised: u32 =
        pools.iter().filter_map(|pool| Some(pool.provision.as_ref()?.min)).fold(0, u32::saturating_add);
    let cap = controller.cap(pools);
    if promised > cap {
        let message = format!(
            "`servers` is {cap}, but `min` of all pools together is {promised}; write {promised} or more, or \
             lower a pool's `min`"
        );
        report.error(at("servers"), message);
    }
}
