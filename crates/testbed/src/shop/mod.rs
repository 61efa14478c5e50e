//! `plimsoll testbed shop`: a whole fleet on loopback, as a scenario of `plimsoll fleet` describes it.
//!
//! ```text
//!  GET /getcart --> entry --HTTP--> frontend --HTTP--> currency, then ad and cart at once, then ...
//!                     |                 each: so many workers, a queue, service times; a span, a gauge
//!                   admin: /metrics, POST /services/cart?instances=3, or ?front=127.0.0.1:9000 where somebody is to stand in front of it
//! ```
//!
//! Each instance is a server with a port of its own, all in this process, so that a machine holds hundreds. Their workers wait instead of
//! computing: what is scarce is workers, not the machine. The first service of a path asks the others in turn, as a front end does; who is
//! refused or fails at one of them fails as a whole, and what was done for it was done in vain.

mod admin;
mod busy;
mod call;
mod entry;
mod service;
mod spans;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_simulator::fleet::plan::Plan;

use crate::server::Server;
use service::Service;
use spans::Exporter;

/// How to run it.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Services, APIs and their paths; what is offered there is up to whoever sends it here.
    #[arg(value_name = "SCENARIO.toml")]
    pub scenario: PathBuf,
    /// Where requests enter, at the path `/API`; port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9300")]
    pub listen: SocketAddr,
    /// Where its metrics are, and instances are started and killed.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9301")]
    pub admin: SocketAddr,
    /// Who is sent spans, by OTLP over HTTP. Left out, nobody.
    #[arg(long, value_name = "ADDR")]
    pub spans: Option<SocketAddr>,
    /// The part of the requests that is traced, in 0..1.
    #[arg(long, default_value_t = 0.1)]
    pub sample: f64,
    /// Of service times and ways.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What all of it shares.
struct Floor {
    plan: Plan,
    /// In the order of the plan.
    services: Vec<Service>,
    exporter: Option<Exporter>,
    sample: f64,
    seed: u64,
}

/// A running shop; dropping it ends it.
pub struct Shop {
    entry: Server,
    admin: Server,
    floor: Arc<Floor>,
}

/// Starts all services, then the entry.
///
/// # Errors
/// Where the scenario cannot be read, an address is taken, or a thread cannot start.
pub fn start(options: &Options) -> io::Result<Shop> {
    let wrong = |error: String| io::Error::new(io::ErrorKind::InvalidInput, error);
    if !(0.0..=1.0).contains(&options.sample) {
        return Err(wrong("--sample is a part of all requests; write for example 0.1".to_owned()));
    }
    let (plan, warnings) = Plan::read(&options.scenario).map_err(wrong)?;
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    let services = plan.services.iter().map(|_| Service::default()).collect();
    let exporter = options.spans.map(Exporter::start).transpose()?;
    let floor = Arc::new(Floor { plan, services, exporter, sample: options.sample, seed: options.seed });
    for service in 0..floor.services.len() {
        service::resize(&floor, service, floor.plan.services[service].instances)?;
    }
    let entry = entry::start(&floor, options.listen)?;
    let admin = admin::start(&floor, options.admin)?;
    Ok(Shop { entry, admin, floor })
}

impl Shop {
    /// Where requests enter.
    pub fn entry(&self) -> SocketAddr {
        self.entry.addr()
    }

    /// Where its metrics are.
    pub fn admin(&self) -> SocketAddr {
        self.admin.addr()
    }

    /// The names of its APIs.
    pub fn apis(&self) -> impl Iterator<Item = &str> {
        self.floor.plan.apis.iter().map(|api| api.name.as_str())
    }

    /// How many services it has.
    pub fn services(&self) -> usize {
        self.floor.services.len()
    }

    /// Resolves when the entry has ended by itself.
    pub async fn ended(&mut self) {
        self.entry.ended().await;
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        // They hold the floor that holds them.
        self.floor.services.iter().for_each(Service::close);
    }
}

#[cfg(test)]
mod tests;
