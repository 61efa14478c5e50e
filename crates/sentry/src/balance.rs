//! The servers of a pool: which one takes the next request, and which are left out because they fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use plimsoll_core::Nanos;
use plimsoll_core::config::{self, Eject};

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// One server.
#[derive(Debug)]
pub struct Server {
    /// Unlike any other of this process, those of earlier configs included.
    pub id: u64,
    /// Where it is.
    pub origin: config::Server,
    in_flight: AtomicU32,
    /// Failed requests in a row.
    failures: AtomicU32,
    /// Left out until then; zero if it is not.
    ejected_until: AtomicU64,
    /// The active checks find it ill.
    ill: AtomicBool,
}

impl Server {
    fn new(origin: config::Server) -> Server {
        Server {
            id: NEXT_ID.fetch_add(1, Relaxed),
            origin,
            in_flight: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            ill: AtomicBool::new(false),
        }
    }

    /// Requests that it works on.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Whether it takes part.
    pub fn is_up(&self, now: Nanos) -> bool {
        !self.ill.load(Relaxed) && self.ejected_until.load(Relaxed) <= now.0
    }

    /// What the active checks found.
    pub fn set_ill(&self, ill: bool) {
        self.ill.store(ill, Relaxed);
        if !ill {
            self.ejected_until.store(0, Relaxed);
            self.failures.store(0, Relaxed);
        }
    }

    /// It answered, to the end.
    pub fn answered(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
    }

    /// It refused a connection, broke off or took too long. True if that makes it one to leave out.
    pub fn failed(&self, eject: &Eject, now: Nanos) -> bool {
        let failures = self.failures.fetch_add(1, Relaxed) + 1;
        let out = failures >= eject.failures && self.is_up(now);
        if out {
            // When its time is over, a single further failure is enough.
            self.failures.store(eject.failures - 1, Relaxed);
            self.ejected_until.store((now + eject.time).0, Relaxed);
        }
        out
    }
}

/// A server that works on a request, until this is dropped.
#[derive(Debug)]
pub struct Lease {
    server: Arc<Server>,
}

impl Lease {
    /// Which one.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.server.in_flight.fetch_sub(1, Relaxed);
    }
}

/// All servers of a pool.
#[derive(Debug)]
pub struct Servers {
    all: Vec<Arc<Server>>,
}

impl Servers {
    /// In the order of the config; at least one.
    pub fn new(origins: &[config::Server]) -> Servers {
        Servers { all: origins.iter().cloned().map(|origin| Arc::new(Server::new(origin))).collect() }
    }

    /// In the order of the config.
    pub fn all(&self) -> &[Arc<Server>] {
        &self.all
    }

    /// How many take part. Where none would, all do: a request that may fail is better than one that must.
    pub fn up(&self, now: Nanos) -> usize {
        match self.all.iter().filter(|s| s.is_up(now)).count() {
            0 => self.all.len(),
            up => up,
        }
    }

    /// The one that works on the fewest requests, among those that are up and were not `tried`; where there is none,
    /// among those that were, and then among all. Which of several equals is up to `draw`.
    ///
    /// Since a pool has as many slots as its servers have workers, this never gives one server more than its own
    /// while another has room.
    pub fn choose(&self, tried: &[u64], now: Nanos, draw: usize) -> Lease {
        loop {
            let from = |i: usize| &self.all[(i + draw) % self.all.len()];
            let rank =
                |server: &&Arc<Server>| (!server.is_up(now), tried.contains(&server.id), server.in_flight());
            let ranked = (0..self.all.len()).map(|i| (rank(&from(i)), from(i)));
            let Some((rank, server)) = ranked.min_by_key(|&(rank, _)| rank) else {
                unreachable!("the config has at least one server")
            };
            // Another thread may have chosen it too; then its number is no longer what the choice was made by.
            let seen = rank.2;
            if server.in_flight.compare_exchange(seen, seen + 1, Relaxed, Relaxed).is_ok() {
                return Lease { server: Arc::clone(server) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EJECT: Eject = Eject { failures: 3, time: Nanos::from_secs(5) };
    const NOW: Nanos = Nanos::from_secs(100);

    fn servers(n: u16) -> Servers {
        let origin = |i| format!("127.0.0.1:{}", 9_000 + i).parse().unwrap();
        Servers::new(&(0..n).map(origin).collect::<Vec<_>>())
    }

    #[test]
    fn the_least_loaded_takes_the_next_and_gives_it_back() {
        let servers = servers(3);
        let leases: Vec<_> = (0..12).map(|i| servers.choose(&[], NOW, i * 7)).collect();
        assert!(servers.all().iter().all(|s| s.in_flight() == 4));
        drop(leases);
        assert!(servers.all().iter().all(|s| s.in_flight() == 0));
    }

    #[test]
    fn equals_take_turns_by_the_draw() {
        let servers = servers(3);
        let mut chosen: Vec<_> = (0..3).map(|i| servers.choose(&[], NOW, i).server().id).collect();
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), 3);
    }

    #[test]
    fn failures_in_a_row_take_a_server_out_and_time_brings_it_back() {
        let servers = servers(2);
        let bad = &servers.all()[0];
        assert!(!bad.failed(&EJECT, NOW) && !bad.failed(&EJECT, NOW));
        bad.answered();
        assert!(!bad.failed(&EJECT, NOW) && !bad.failed(&EJECT, NOW), "the row was broken");
        assert!(bad.failed(&EJECT, NOW));
        assert_eq!(servers.up(NOW), 1);
        let leases: Vec<_> = (0..5).map(|i| servers.choose(&[], NOW, i)).collect();
        assert!(leases.iter().all(|l| l.server().id == servers.all()[1].id), "not even if the other is busy");
        let later = NOW + EJECT.time;
        assert_eq!(servers.up(later), 2);
        assert_eq!(servers.choose(&[], later, 0).server().id, bad.id);
        assert!(bad.failed(&EJECT, later), "on probation");
    }

    #[test]
    fn an_ill_server_is_out_until_it_is_well() {
        let servers = servers(2);
        servers.all()[0].set_ill(true);
        assert_eq!(servers.up(Nanos::MAX), 1);
        servers.all()[0].set_ill(false);
        assert_eq!(servers.up(NOW), 2);
    }

    #[test]
    fn where_all_are_out_all_are_in_and_retries_go_elsewhere() {
        let servers = servers(2);
        servers.all().iter().for_each(|s| s.set_ill(true));
        assert_eq!(servers.up(NOW), 2);
        let first = servers.choose(&[], NOW, 0);
        let second = servers.choose(&[first.server().id], NOW, 0);
        assert_ne!(first.server().id, second.server().id);
        servers.choose(&[first.server().id, second.server().id], NOW, 0);
    }
}
