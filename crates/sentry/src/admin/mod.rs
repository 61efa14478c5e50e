//! The admin address: metrics, health, single decisions, what is known of each class, and a live page. What can be changed
//! through it is what a controller changes: the servers of a pool, and the sentry's share of them.

pub mod accept;
pub mod auth;
pub mod history;
pub mod model;
pub mod reading;
pub mod scrape;

pub(crate) mod process;

mod change;
mod metrics;
mod pools;
mod routes;
mod server;
mod views;

use std::sync::Arc;

use http::Uri;
use http::request::Parts;
use parking_lot::Mutex;
use plimsoll_core::Nanos;
use plimsoll_core::config::PolicingPolicy;
use plimsoll_policing::switch::Policer;

use self::history::History;
pub use self::server::serve;
use crate::clock;
use crate::reload::Reloads;
use crate::state::Shared;

/// What the admin address knows.
pub struct Admin {
    shared: Arc<Shared>,
    reloads: Arc<Reloads>,
    /// Workers that died before this one.
    restarts: u64,
    /// Whether nobody but this machine can ask.
    loopback: bool,
    started: Nanos,
    sampled: Mutex<Sampled>,
}

#[derive(Default)]
struct Sampled {
    history: History,
    samples: u64,
}

impl Admin {
    /// Of a worker that starts now, after `restarts` that died, at an address that is `loopback` or not.
    pub fn new(shared: Arc<Shared>, reloads: Arc<Reloads>, restarts: u64, loopback: bool) -> Admin {
        Admin { shared, reloads, restarts, loopback, started: clock::now(), sampled: Mutex::default() }
    }

    /// Takes note of the counters. Called once a second.
    pub fn sample(&self) {
        let routing = self.shared.routing().load();
        let classes = routing.config.classes.iter().zip(&routing.classes);
        let mut sampled = self.sampled.lock();
        sampled.samples += 1;
        sampled.history.sample(
            clock::now(),
            classes.map(|(class, route)| (&*class.name, &class.slo, route.stats.snapshot())),
        );
    }

    /// Whether this request may see more than whether the sentry is up.
    fn allows(&self, request: &Parts) -> bool {
        match &self.shared.routing().load().config.sentry.admin_token {
            Some(token) => auth::shows(token.reveal(), request),
            // A reload may take the token away, but not the address, which stays the parent's until the next upgrade.
            None => self.loopback,
        }
    }
}

/// A policer, as the config calls it.
fn word(policer: Policer) -> &'static str {
    match policer {
        Policer::Batch => PolicingPolicy::Batch.as_str(),
        Policer::Threshold => PolicingPolicy::Threshold.as_str(),
    }
}

/// The value of a key of the query, decoded.
fn query(uri: &Uri, key: &str) -> Option<String> {
    let pairs = form_urlencoded::parse(uri.query()?.as_bytes());
    pairs.into_iter().find(|(name, _)| name == key).map(|(_, value)| value.into_owned())
}
