//! `/pools`: what a controller plans by. Every name here is one that controllers rely on.

use plimsoll_core::{Mechanism, Nanos};
use serde::Serialize;

use super::Admin;
use crate::clock;
use crate::pool::Pool;
use crate::share::Share;
use crate::solr;
use crate::state::Routing;

/// The sentry and its pools.
#[derive(Debug, Serialize)]
pub struct Pools {
    sentry: SentryView,
    pools: Vec<PoolView>,
}

#[derive(Debug, Serialize)]
struct SentryView {
    /// Of the CPU time that it may have, in 0..1.
    busy: f64,
    draining: bool,
    share: Share,
}

#[derive(Debug, Serialize)]
struct PoolView {
    name: String,
    /// Requests that may be with the servers at once, as far as this sentry sends them.
    slots: u32,
    /// The share of the slots that is in use, in 0..=1: fewer than all while an agent says that the servers are late.
    eased_to: f64,
    /// How many times slower than on an idle machine the worst of its servers' workers runs, where an agent says so, and whether the slots follow from that.
    #[serde(skip_serializing_if = "Option::is_none")]
    slowdown: Option<f64>,
    by_slowdown: bool,
    /// Requests that wait.
    queued: u32,
    /// How long one that came now would wait until a server works on it: here, and at the server as far as servers say.
    wait_ms: f64,
    servers: Vec<ServerView>,
    /// Servers that are no longer in the list and still work on requests.
    leaving: Vec<ServerView>,
    classes: Vec<ClassView>,
}

#[derive(Debug, Serialize)]
struct ServerView {
    address: String,
    up: bool,
    in_flight: u32,
}

/// A class. The counters are since the worker started.
#[derive(Debug, Serialize)]
struct ClassView {
    name: String,
    priority: u32,
    revenue: f64,
    min_rate_per_s: f64,
    offered: u64,
    /// By every grant, those included that were not judged.
    admitted: u64,
    /// By every mechanism.
    refused: u64,
    /// Those of them that were beyond what the controller lets into the fleet.
    over_rate: u64,
    served: u64,
    /// Of the processing time; zero while nothing is known.
    service_mean_ms: f64,
    /// Its squared coefficient of variation.
    service_scv: f64,
    /// Served within the objective's highest percentile, as far as they are no streams; without one, all of those.
    good: u64,
    /// How long they took, from arrival to the end of the response: pairs of what they took at most, in ms, and how many did, where any
    /// did. An eighth apart at most.
    response_ms: Vec<(f64, u64)>,
    /// What the controller lets in, a second, where it limits that.
    rate_limit_per_s: Option<f64>,
}

/// As of now.
pub fn pools(admin: &Admin) -> Pools {
    let shared = &admin.shared;
    let (routing, now) = (shared.routing().load(), clock::now());
    let sentry = SentryView { busy: shared.busy(), draining: shared.is_draining(), share: shared.share() };
    let view = |(index, pool): (usize, &std::sync::Arc<Pool>)| pool_view(&routing, index, pool, now);
    Pools { sentry, pools: routing.pools.iter().enumerate().map(view).collect() }
}

/// What is under way at the Solrs of a pool, at one of them or at all.
///
/// # Errors
/// Where there is no such pool or server, or it is no Solr; in words for the operator.
pub fn queries(admin: &Admin, name: &str, server: Option<&str>) -> Result<solr::View, String> {
    let routing = admin.shared.routing().load();
    let pool = routing.pools.iter().find(|pool| pool.config.name == name);
    let pool = pool.ok_or_else(|| format!("there is no [pool.{name}]; ask for /queries?pool=NAME"))?;
    let queries = pool.solr.as_ref();
    let queries = queries.ok_or_else(|| format!("[pool.{name}] is no Solr; add solr = {{}} to it"))?;
    let servers = pool.servers.all();
    let mut names = servers.iter().map(|server| solr::name(server));
    match server.filter(|server| !names.any(|name| name == *server)) {
        Some(server) => Err(format!("[pool.{name}] has no server {server}")),
        None => Ok(queries.view(name, pool.slots.size(), server)),
    }
}

fn pool_view(routing: &Routing, index: usize, pool: &Pool, now: Nanos) -> PoolView {
    let estimates = pool.gate.report();
    let classes =
        routing.config.classes.iter().zip(&routing.classes).filter(|(_, route)| route.pool == index);
    let class = |(class, route): (&plimsoll_core::config::Class, &crate::state::ClassRoute)| {
        let (snapshot, estimate) = (route.stats.snapshot(), estimates.get(route.in_pool.index()));
        ClassView {
            name: class.name.clone(),
            priority: class.priority,
            revenue: class.revenue,
            min_rate_per_s: class.min_rate.map_or(0.0, |rate| rate.per_s),
            offered: snapshot.offered,
            admitted: snapshot.admitted(),
            refused: snapshot.refused.iter().sum(),
            over_rate: snapshot.refused[Mechanism::Rate as usize],
            served: snapshot.served,
            service_mean_ms: estimate.map_or(0.0, |e| e.mean.as_millis_f64()),
            service_scv: estimate.map_or(0.0, |e| e.scv),
            good: snapshot.good(&class.slo),
            response_ms: snapshot
                .response
                .filled()
                .map(|(at_most, n)| (at_most.as_millis_f64(), n))
                .collect(),
            rate_limit_per_s: route.limit.per_s(now),
        }
    };
    let server = |server: std::sync::Arc<crate::server::Server>| ServerView {
        address: server.origin.to_string(),
        up: server.is_up(now),
        in_flight: server.in_flight(),
    };
    PoolView {
        name: pool.config.name.clone(),
        slots: pool.slots.size(),
        eased_to: pool.ease.share(),
        slowdown: pool.flock.worst(clock::now()),
        by_slowdown: pool.flock.decides(),
        queued: pool.slots.waiting(),
        wait_ms: (pool.gate.expected_wait().as_secs_f64() + waits_at_servers_s(pool, now)) * 1e3,
        servers: pool.servers.all().into_iter().map(server).collect(),
        leaving: pool.servers.leaving().into_iter().map(server).collect(),
        classes: classes.map(class).collect(),
    }
}

/// The mean over the servers that say how long requests wait there.
fn waits_at_servers_s(pool: &Pool, now: Nanos) -> f64 {
    let all = pool.servers.all();
    let said = all.iter().filter_map(|server| Some(server.load.queue_delay_s.get(now)?.0));
    let (sum, n) = said.fold((0.0, 0.0), |(sum, n), wait_s| (sum + wait_s, n + 1.0));
    if n > 0.0 { sum / n } else { 0.0 }
}
