//! The servers of a pool: which one takes the next request, and which are no longer among them. The list is replaced whole, so
//! that whoever chooses from it never waits for whoever changes it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use plimsoll_core::{Nanos, config};

use crate::server::{Lease, Server, Work};
use crate::share::Share;

/// A server of a pool, and how many of its workers are this sentry's.
#[derive(Clone, Debug)]
struct Member {
    server: Arc<Server>,
    workers: u32,
}

#[derive(Debug, Default)]
struct Roster {
    members: Vec<Member>,
    /// Those that are no longer in the list and still work on requests.
    leaving: Vec<Arc<Server>>,
}

/// All servers of a pool.
#[derive(Debug)]
pub struct Servers {
    roster: ArcSwap<Roster>,
    /// Workers of each server, where that is known.
    workers: Option<u32>,
    /// What of them is this sentry's. The lock orders changes of the list.
    share: Mutex<Option<Share>>,
}

impl Servers {
    /// Each with so many workers, where that is known.
    pub fn new(origins: &[config::Server], workers: Option<u32>) -> Servers {
        let servers = Servers { roster: ArcSwap::default(), workers, share: Mutex::new(Some(Share::ALL)) };
        servers.replace(origins);
        servers
    }

    /// In the order in which they were given.
    pub fn all(&self) -> Vec<Arc<Server>> {
        self.roster.load().members.iter().map(|member| Arc::clone(&member.server)).collect()
    }

    /// What comes of looking at one after the other.
    pub fn fold<T>(&self, begin: T, mut look: impl FnMut(T, &Server) -> T) -> T {
        self.roster.load().members.iter().fold(begin, |so_far, member| look(so_far, &member.server))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.roster.load().members.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.roster.load().members.is_empty()
    }

    /// Whether this one is among them.
    pub fn contains(&self, server: &Arc<Server>) -> bool {
        self.roster.load().members.iter().any(|member| Arc::ptr_eq(&member.server, server))
    }

    /// Puts others in their place. Those that stay are the same as before, and so is one that comes back before its last
    /// request has ended; those that leave get no new requests and finish what they have.
    pub fn replace(&self, origins: &[config::Server]) {
        let share = self.share.lock();
        let before = self.roster.load();
        let known = before.members.iter().map(|member| &member.server).chain(&before.leaving);
        let kept = |origin: &config::Server| known.clone().find(|server| server.origin == *origin).cloned();
        let all: Vec<_> = origins
            .iter()
            .map(|origin| kept(origin).unwrap_or_else(|| Arc::new(Server::new(origin.clone()))))
            .collect();
        let stays = |server: &Arc<Server>| all.iter().any(|other| Arc::ptr_eq(server, other));
        let leaving = known.filter(|server| !stays(server)).cloned().collect();
        self.roster.store(Arc::new(Roster { members: self.divide(&all, *share), leaving }));
    }

    /// Has only this share of them from now on; nothing where there is none.
    pub fn hold(&self, share: Option<Share>) {
        let mut held = self.share.lock();
        *held = share;
        let before = self.roster.load();
        let all: Vec<_> = before.members.iter().map(|member| Arc::clone(&member.server)).collect();
        let leaving = before.leaving.clone();
        self.roster.store(Arc::new(Roster { members: self.divide(&all, share), leaving }));
    }

    fn divide(&self, all: &[Arc<Server>], share: Option<Share>) -> Vec<Member> {
        let mut order: Vec<(String, usize)> =
            all.iter().enumerate().map(|(i, server)| (server.origin.to_string(), i)).collect();
        order.sort_unstable();
        let mut members: Vec<_> =
            all.iter().map(|server| Member { server: Arc::clone(server), workers: 0 }).collect();
        for (number, (_, i)) in order.into_iter().enumerate() {
            members[i].workers = match (share, self.workers) {
                (None, _) => 0,
                (Some(_), None) => u32::MAX,
                (Some(share), Some(workers)) => share.count(number as u64 * u64::from(workers), workers),
            };
        }
        members
    }

    /// How many take part, of those that are this sentry's in part. Where none would, all do: a request that may fail is
    /// better than one that must.
    pub fn up(&self, now: Nanos) -> usize {
        self.roster.load().taking_part(now).count()
    }

    /// How many workers those have, as far as they are this sentry's and their number is known.
    pub fn workers(&self, now: Nanos) -> u32 {
        let roster = self.roster.load();
        roster.taking_part(now).fold(0, |sum, member| sum.saturating_add(member.workers))
    }

    /// Those that are no longer in the list and still work on requests.
    pub fn leaving(&self) -> Vec<Arc<Server>> {
        let roster = self.roster.load();
        roster.leaving.iter().filter(|server| server.in_flight() > 0).map(Arc::clone).collect()
    }

    /// Requests that are still with servers that have left.
    pub fn in_flight_on_leaving(&self) -> u32 {
        self.roster.load().leaving.iter().map(|server| server.in_flight()).sum()
    }

    /// Forgets those that have left and finished.
    pub fn forget_finished(&self) {
        let has_finished = |server: &&Arc<Server>| server.in_flight() == 0;
        if !self.roster.load().leaving.iter().any(|server| has_finished(&server)) {
            return;
        }
        let _share = self.share.lock();
        let before = self.roster.load();
        // One that a request chose just before it left, and has not come to yet, is missed by nobody but `workers`.
        let leaving = before.leaving.iter().filter(|server| !has_finished(server)).cloned().collect();
        self.roster.store(Arc::new(Roster { members: before.members.clone(), leaving }));
    }

    /// The one that works on the fewest requests, among those that are up and were not `tried`; where there is none,
    /// among those that were, and then among all. Nothing where no server is this sentry's. Which of several equals is up
    /// to `draw`.
    ///
    /// One that has room goes first, and with `room` no other is taken. Since a pool has as many slots as its servers have
    /// workers, or this sentry's part of them, whoever has a slot finds room; or soon will, where there have been more slots
    /// a moment ago.
    pub fn choose(&self, tried: &[u64], room: bool, now: Nanos, draw: usize) -> Option<Lease> {
        let roster = self.roster.load();
        let members = &roster.members;
        loop {
            let none_is_up = roster.none_is_up(now);
            let from = |i: usize| &members[(i + draw) % members.len()];
            let rank = |Member { server, workers }: &Member, work: Work| {
                (tried.contains(&server.id), work.in_flight() >= *workers, work.in_flight())
            };
            let all = (0..members.len()).map(from).filter(|member| member.takes_part(none_is_up, now));
            let ranked = all.map(|member| {
                let work = member.server.work();
                (rank(member, work), work, member)
            });
            let ranked = ranked.filter(|((_, full, _), ..)| !(room && *full));
            let (_, seen, Member { server, .. }) = ranked.min_by_key(|&(rank, ..)| rank)?;
            // Another thread may have chosen it too; then its number is no longer what the choice was made by.
            if let Some(lease) = server.take(seen) {
                return Some(lease);
            }
        }
    }
}

impl Member {
    fn takes_part(&self, none_is_up: bool, now: Nanos) -> bool {
        self.workers > 0 && (none_is_up || self.server.is_up(now))
    }
}

impl Roster {
    /// Whether none that is this sentry's is up.
    fn none_is_up(&self, now: Nanos) -> bool {
        !self.members.iter().any(|member| member.takes_part(false, now))
    }

    fn taking_part(&self, now: Nanos) -> impl Iterator<Item = &Member> {
        let none_is_up = self.none_is_up(now);
        self.members.iter().filter(move |member| member.takes_part(none_is_up, now))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::config::Eject;
    use proptest::prelude::*;

    use super::*;

    const EJECT: Eject = Eject { failures: 3, time: Nanos::from_secs(5) };
    const NOW: Nanos = Nanos::from_secs(100);

    fn servers(n: u16) -> Servers {
        let origin = |i| format!("127.0.0.1:{}", 9_000 + i).parse().unwrap();
        Servers::new(&(0..n).map(origin).collect::<Vec<_>>(), None)
    }

    fn choose(servers: &Servers, tried: &[u64], now: Nanos, draw: usize) -> Lease {
        servers.choose(tried, false, now, draw).unwrap()
    }

    #[test]
    fn the_least_loaded_takes_the_next_and_gives_it_back() {
        let servers = servers(3);
        let leases: Vec<_> = (0..12).map(|i| choose(&servers, &[], NOW, i * 7)).collect();
        assert!(servers.all().iter().all(|s| s.in_flight() == 4));
        drop(leases);
        assert!(servers.all().iter().all(|s| s.in_flight() == 0));
    }

    #[test]
    fn whoever_was_alone_with_a_server_knows() {
        let servers = servers(1);
        let first = choose(&servers, &[], NOW, 0);
        assert!(first.is_alone());
        let second = choose(&servers, &[], NOW, 0);
        assert!(!first.is_alone() && !second.is_alone());
        drop(second);
        assert!(!first.is_alone(), "it was not, for a while");
        drop(first);
        assert!(choose(&servers, &[], NOW, 0).is_alone());
    }

    #[test]
    fn equals_take_turns_by_the_draw() {
        let servers = servers(3);
        let mut chosen: Vec<_> = (0..3).map(|i| choose(&servers, &[], NOW, i).server().id).collect();
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
        let leases: Vec<_> = (0..5).map(|i| choose(&servers, &[], NOW, i)).collect();
        assert!(leases.iter().all(|l| l.server().id == servers.all()[1].id), "not even if the other is busy");
        let later = NOW + EJECT.time;
        assert_eq!(servers.up(later), 2);
        assert_eq!(choose(&servers, &[], later, 0).server().id, bad.id);
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
        let first = choose(&servers, &[], NOW, 0);
        let second = choose(&servers, &[first.server().id], NOW, 0);
        assert_ne!(first.server().id, second.server().id);
        choose(&servers, &[first.server().id, second.server().id], NOW, 0);
    }
    fn origins(ports: &[u16]) -> Vec<config::Server> {
        ports.iter().map(|port| format!("127.0.0.1:{port}").parse().unwrap()).collect()
    }

    #[test]
    fn servers_that_stay_are_the_same_and_those_that_leave_finish() {
        let servers = Servers::new(&origins(&[1, 2]), Some(2));
        servers.all()[0].set_ill(true);
        let lease = choose(&servers, &[], NOW, 0);
        let before = servers.all();
        assert_eq!((lease.server().origin.port, servers.workers(NOW)), (2, 2));

        servers.replace(&origins(&[3, 1]));
        let after = servers.all();
        assert!(Arc::ptr_eq(&before[0], &after[1]) && !after[1].is_up(NOW), "it is as ill as it was");
        assert_eq!((servers.in_flight_on_leaving(), servers.contains(lease.server())), (1, false));
        assert_eq!(choose(&servers, &[], NOW, 0).server().origin.port, 3);

        servers.replace(&origins(&[2]));
        assert!(Arc::ptr_eq(&before[1], &servers.all()[0]), "it came back before it had finished");
        assert_eq!((servers.in_flight_on_leaving(), servers.all()[0].in_flight()), (0, 1));

        servers.replace(&[]);
        assert!(servers.is_empty() && servers.choose(&[], false, NOW, 0).is_none());
        assert_eq!((servers.up(NOW), servers.workers(NOW), servers.in_flight_on_leaving()), (0, 0, 1));
        servers.forget_finished();
        assert_eq!(servers.in_flight_on_leaving(), 1);
        drop(lease);
        servers.forget_finished();
        servers.replace(&origins(&[2]));
        assert!(!Arc::ptr_eq(&before[1], &servers.all()[0]), "it had finished: this is another life");
    }

    #[test]
    fn who_wants_room_waits_and_who_retries_goes_elsewhere() {
        let servers = Servers::new(&origins(&[1, 2]), Some(1));
        let first = servers.choose(&[], true, NOW, 0).unwrap();
        let second = servers.choose(&[], true, NOW, 0).unwrap();
        assert_ne!(first.server().id, second.server().id);
        assert!(servers.choose(&[], true, NOW, 0).is_none());
        assert_eq!(choose(&servers, &[first.server().id], NOW, 0).server().id, second.server().id);
        drop(second);
        servers.all()[1].set_ill(true);
        assert!(servers.choose(&[], true, NOW, 0).is_none(), "room at one that is out is none");
    }

    proptest! {
        #[test]
        fn sentries_that_share_servers_never_give_one_more_than_it_has(
            ports in prop::collection::hash_set(1_u16..2_000, 1..12),
            workers in 1_u32..9,
            of in 1_u32..9,
            draws in prop::collection::vec((0_usize..9, any::<usize>()), 1..400),
        ) {
            let ports: Vec<u16> = ports.into_iter().collect();
            let sentry = |part: u32| {
                // Each has them in an order of its own.
                let mut ports = ports.clone();
                let by = part as usize % ports.len();
                ports.rotate_left(by);
                let servers = Servers::new(&origins(&ports), Some(workers));
                servers.hold(Some(Share::new(part, of).unwrap()));
                (servers.workers(NOW) as usize, servers, Vec::new())
            };
            let mut sentries: Vec<_> = (0..of).map(sentry).collect();
            let all: usize = sentries.iter().map(|(slots, ..)| slots).sum();
            prop_assert_eq!(all, ports.len() * workers as usize, "together they have all");
            for (i, draw) in draws {
                let (slots, servers, leases) = &mut sentries[i % of as usize];
                if leases.len() < *slots {
                    let lease = servers.choose(&[], true, NOW, draw);
                    prop_assert!(lease.is_some(), "who has a slot finds room");
                    leases.extend(lease);
                } else if !leases.is_empty() {
                    leases.swap_remove(draw % leases.len());
                }
                for port in &ports {
                    let loads = sentries.iter().flat_map(|(_, servers, _)| servers.all());
                    let load: u32 = loads.filter(|s| s.origin.port == *port).map(|s| s.in_flight()).sum();
                    prop_assert!(load <= workers, "{load} on {port}");
                }
            }
        }
    }
}
