//! Tells the sentry how the workers of its servers fare, where those run on this host: `PUT /pools/NAME/slowdown` (CPU Futures, section 5.3).
//! What is said holds for a moment and is said again, so an agent that stops decides nothing for long.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use plimsoll_core::config::{Pool, Server};
use plimsoll_herald::view::Report;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::ease::Sentry;
use crate::herald::Page;

/// From one time that it is told to the next, and for how long that holds.
const AGAIN: Duration = Duration::from_millis(200);
const HOLDS_MS: u32 = 1_000;
/// Threads that had less to do in the last second, in milliseconds, are not at work.
const LEAST_MS_PER_S: f64 = 0.5;

/// Tells the sentry of these pools, whose slots follow from that, until it is dropped.
pub fn spawn(pools: &[Pool], page: &Page, sentry: &Sentry) -> JoinSet<()> {
    let mut flocks = JoinSet::new();
    for pool in pools {
        let here: Vec<Server> = pool.servers.iter().filter(|server| is_here(server)).cloned().collect();
        if let (false, Some(sentry)) = (here.is_empty(), sentry.of_pool(&pool.name)) {
            flocks.spawn_local(tell(here, page.clone(), sentry));
        }
    }
    flocks
}

/// Whether a server's address is one of this host's.
fn is_here(server: &Server) -> bool {
    let addresses = (&*server.host, server.port).to_socket_addrs();
    addresses
        .into_iter()
        .flatten()
        .any(|address| address.ip().is_loopback() || is_own(address).unwrap_or(false))
}

/// Whether this host would send to it from the same address: only to itself does it. (That it can be bound says less, as anything may be able
/// to: `ip_nonlocal_bind`.) Nothing is sent.
fn is_own(address: SocketAddr) -> io::Result<bool> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    Ok(socket.local_addr()?.ip() == address.ip())
}

async fn tell(servers: Vec<Server>, page: Page, sentry: Sentry) {
    let mut again = interval(AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refused = false;
    loop {
        again.tick().await;
        let mut fares = Map::new();
        for server in &servers {
            // A server that is down or cannot be seen is not told of, and then the sentry finds its slots itself.
            if let Ok(report) = page.listening(server.port).await {
                fares.insert(server.to_string(), of_workers(&report));
            }
        }
        if fares.is_empty() {
            continue;
        }
        let body = json!({ "for_ms": HOLDS_MS, "servers": fares }).to_string();
        let told = sentry.put("slowdown", &body).await;
        // Once: it may be that there is no sentry yet, or that its config is another one.
        if let Err(why) = told {
            if !std::mem::replace(&mut refused, true) {
                log::info!(pool = sentry.pool(), why:%; "the sentry cannot be told how its servers' workers fare");
            }
        } else {
            refused = false;
        }
    }
}

/// How many threads have something to do, and how much slower than on an idle machine the worst of them will run.
fn of_workers(report: &Report) -> Value {
    let at_work =
        report.tasks.iter().filter(|task| task.actual_ms_per_s + task.waited_ms_per_s >= LEAST_MS_PER_S);
    let (active, slowdown) = at_work
        .fold((0, 1.0), |(active, worst), task| (active + 1, f64::max(worst, task.predicted_slowdown)));
    json!({ "active": active, "slowdown": slowdown })
}

#[cfg(test)]
mod tests {
    use plimsoll_herald::view::Task;

    use super::*;

    #[test]
    fn who_has_nothing_to_do_is_no_worker_at_work() {
        let task = |actual_ms_per_s, waited_ms_per_s, predicted_slowdown| Task {
            actual_ms_per_s,
            waited_ms_per_s,
            predicted_slowdown,
            ..Task::default()
        };
        let tasks =
            vec![task(0.0, 0.0, 1.0), task(500.0, 1.0, 1.1), task(0.0, 900.0, 7.5), task(0.1, 0.1, 90.0)];
        assert_eq!(of_workers(&Report { interval_s: 1.0, tasks }), json!({ "active": 2, "slowdown": 7.5 }));
        assert_eq!(of_workers(&Report::default()), json!({ "active": 0, "slowdown": 1.0 }));
    }

    #[test]
    fn a_server_is_here_if_its_address_is() {
        for (server, here) in [("127.0.0.1:9001", true), ("localhost:80", true), ("192.0.2.7:80", false)] {
            assert_eq!(is_here(&server.parse().unwrap()), here, "{server}");
        }
        // What this host would be to others, if it has a way to any.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.7:9").is_ok() {
            let own = SocketAddr::new(socket.local_addr().unwrap().ip(), 80);
            assert!(is_here(&own.to_string().parse().unwrap()), "{own}");
        }
    }
}
