//! The sentry as a set of processes: what happens to clients when a worker dies, when the config changes, when the
//! binary is replaced and when everything ends. Clients must not notice any of it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // Threads and clocks are what this is about.

mod admin;
mod agent;
mod busy;
mod group;
mod harness;
mod lifecycle;
mod policers;
mod pools;
#[path = "../common/ports.rs"]
mod ports;
mod promises;
mod record;
mod reload;
mod several;
mod sheepdog;
mod upgrade;

use harness::Upstream;

/// A pool in front of this server that refuses nothing by itself.
fn pool(server: &Upstream, workers: u32) -> String {
    format!(
        "threads = 2\ndrain_timeout = \"10s\"\n[pool.test]\nservers = [\"{}\"]\nworkers = {workers}\n\
         admission = {{ policy = \"none\" }}\n[class.default]\nslo = {{ p50 = \"10s\" }}\n",
        server.address
    )
}
