//! When the requests of workers came, got their worker and ended: pure.
//!
//! A page says of each worker how many requests it has begun, and how long ago the last of them was. Who of those that wait came when is known
//! by their number alone, and that the first is served first.

use std::collections::HashMap;

use plimsoll_cancellation::Kind;
use plimsoll_cancellation::scene::{Resource, Use};

use crate::server::chains::Pid;
use crate::server::measured::Measured;
use crate::server::stamp::Stamp;

use super::line::{Line, Waiting};
use super::page::{Page, Worker};

/// Of the mean of short requests, one more moves it by so much.
const SHARE: f64 = 1.0 / 32.0;

/// A worker's request, or its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The worker's count of it.
    pub number: u64,
    /// Whether it runs.
    pub busy: bool,
    /// When it came; before it got a worker, where it was seen to wait.
    pub came: Stamp,
    /// When it got its worker.
    pub began: Stamp,
    /// When it began to run, or ended.
    pub changed: Stamp,
    /// When its worker began.
    worker: Stamp,
}

/// What workers did since the last look.
#[derive(Debug, Default)]
pub struct Work {
    /// How many workers there are.
    workers: u64,
    /// Who has one, and since when.
    held: Vec<(Pid, Stamp)>,
    /// Who waits for one, the first to come first.
    pub waiting: Vec<Waiting>,
    /// In how many of them a request has begun.
    pub moved: u64,
    /// Requests that got a worker.
    begun: u64,
    /// Requests that gave theirs back.
    ended: u64,
    /// For how long those had had it, all of them together, in ns.
    ended_ns: u64,
}

impl Work {
    /// The same as a resource, for `elapsed_ns` until `at`.
    pub fn measured(&self, at: Stamp, elapsed_ns: u64) -> Measured {
        let mut resource = Resource {
            gets: self.begun,
            ended: self.ended,
            ended_ns: self.ended_ns,
            // They had a worker for a part of this time that nobody saw.
            use_ns: self.ended_ns.min(self.ended.saturating_mul(elapsed_ns)),
            ..Resource::quiet(Kind::Queue, self.workers)
        };
        let mut uses = Vec::with_capacity(self.held.len() + self.waiting.len());
        for &(id, since) in &self.held {
            let held_ns = at.since_ns(since).max(1);
            let recent = elapsed_ns.min(held_ns);
            resource.use_ns = resource.use_ns.saturating_add(recent);
            uses.push((id, Use { held: 1, held_ns, used: held_ns, recent, ..Use::default() }));
        }
        for waiting in &self.waiting {
            let waiting_ns = at.since_ns(waiting.since).max(1);
            resource.delay_ns = resource.delay_ns.saturating_add(elapsed_ns.min(waiting_ns));
            resource.slows += u64::from(waiting_ns <= elapsed_ns);
            uses.push((waiting.id(), Use { waiting_ns, ..Use::default() }));
        }
        Measured { name: "workers", resource, uses }
    }
}

/// The requests of a server.
#[derive(Debug, Default)]
pub struct Lives {
    lives: HashMap<Pid, Life>,
    line: Line,
    last: Option<(Stamp, u64)>,
    short_ns: f64,
}

impl Lives {
    /// Takes in a page that was true at `at`, when so many waited.
    pub fn look(&mut self, page: &Page, at: Stamp, waiting: usize) -> Work {
        let last = self.last.replace((at, page.accepted));
        let begun = last.map_or(0, |(_, before)| page.accepted.saturating_sub(before));
        let since = last.map_or(Stamp::EARLIEST, |(at, _)| at);
        let before = std::mem::take(&mut self.lives);
        let mut work = Work { workers: page.workers.len() as u64, begun, ..Work::default() };
        let mut fresh = Vec::new();
        for worker in &page.workers {
            let known = before.get(&worker.id()).filter(|known| known.worker == worker.began());
            let (life, ended_ns) = life(worker, known, at, since);
            work.moved += u64::from(known.is_some_and(|known| known.number != life.number));
            match ended_ns {
                Some(Ended::Long(ns)) => {
                    work.ended += 1;
                    work.ended_ns = work.ended_ns.saturating_add(ns);
                }
                Some(Ended::Short(ns)) if self.short_ns > 0.0 => {
                    self.short_ns += (ns as f64 - self.short_ns) * SHARE
                }
                Some(Ended::Short(ns)) => self.short_ns = ns as f64,
                None => {}
            }
            if life.busy && known.is_none_or(|known| known.number != life.number) {
                fresh.push((life.began, worker.id()));
            }
            self.lives.insert(worker.id(), life);
        }
        self.waited(&mut fresh, at, waiting, begun);
        // All others that ended were seen neither to run nor to end.
        let busy = |lives: &HashMap<Pid, Life>| lives.values().filter(|life| life.busy).count() as u64;
        let ended = begun.saturating_add(busy(&before)).saturating_sub(busy(&self.lives));
        let short = ended.saturating_sub(work.ended);
        work.ended = work.ended.saturating_add(short);
        work.ended_ns = work.ended_ns.saturating_add((short as f64 * self.short_ns) as u64);
        work.held =
            self.lives.iter().filter(|(_, life)| life.busy).map(|(&id, life)| (id, life.began)).collect();
        work.held.sort_unstable();
        work.waiting = self.line.waiting();
        work
    }

    /// Those who have just got a worker had waited for it, if anybody was seen to.
    fn waited(&mut self, fresh: &mut [(Stamp, Pid)], at: Stamp, waiting: usize, begun: u64) {
        let waited = self.line.look(at, waiting, begun);
        fresh.sort_unstable();
        // Of more than are seen now the first have ended already.
        let first = waited.len().saturating_sub(fresh.len());
        for (&came, (_, id)) in waited[first..].iter().zip(fresh.iter()) {
            if let Some(life) = self.lives.get_mut(id) {
                life.came = came.min(life.began);
            }
        }
    }

    /// The request of a worker.
    pub fn of(&self, id: Pid) -> Option<Life> {
        self.lives.get(&id).copied()
    }
}

enum Ended {
    /// It was seen to run before: it took so long, in ns.
    Long(u64),
    /// It was not.
    Short(u64),
}

/// What a page says of a worker, and what has ended in it since the last look. `known` is what was seen then.
fn life(worker: &Worker, known: Option<&Life>, at: Stamp, since: Stamp) -> (Life, Option<Ended>) {
    let (number, busy) = (worker.requests, worker.is_busy());
    let took = Stamp(i64::try_from(worker.duration_us).unwrap_or(i64::MAX));
    match known {
        Some(known) if known.number == number && known.busy == busy => (*known, None),
        // It has ended, and how long it took is said.
        Some(known) if known.number == number && known.busy => {
            let ended = Stamp(known.began.0.saturating_add(took.0)).min(at).max(known.began);
            let life = Life { busy, changed: ended, ..*known };
            (life, Some(Ended::Long(ended.since_ns(known.began))))
        }
        _ => {
            // It had not begun at the last look. Where connections are kept open, what is said of it began when the one before had ended.
            let began = Stamp(at.0.saturating_sub(took.0)).max(known.map_or(Stamp::EARLIEST, |_| since));
            let changed = if busy { began } else { at };
            let life = Life { number, busy, came: began, began, changed, worker: worker.began() };
            let ended = known.and_then(|known| match known.busy {
                // What came before it lasted at least as long as it was seen to.
                true => Some(Ended::Long(since.since_ns(known.began))),
                false => (!busy).then(|| Ended::Short(at.since_ns(began))),
            });
            (life, ended)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000;

    /// Of each worker: its number, whether it is busy, requests, and ms.
    fn page(accepted: u64, workers: &[(u32, bool, u64, u64)]) -> Page {
        let worker = |&(pid, busy, requests, ms): &(u32, bool, u64, u64)| {
            let state = if busy { "Running" } else { "Idle" };
            format!(
                r#"{{"pid":{pid},"state":"{state}","start time":1,"requests":{requests},"request duration":{}}}"#,
                ms * 1_000
            )
        };
        let workers: Vec<String> = workers.iter().map(worker).collect();
        let text = format!(
            r#"{{"pool":"www","start time":1,"accepted conn":{accepted},"processes":[{}]}}"#,
            workers.join(",")
        );
        Page::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_request_began_when_it_was_first_said_to_have() {
        let mut lives = Lives::default();
        lives.look(&page(10, &[(1, false, 9, 2)]), Stamp(1_000 * MS), 0);
        let work = lives.look(&page(11, &[(1, true, 10, 30)]), Stamp(1_050 * MS), 0);
        assert_eq!(
            (work.held.as_slice(), work.begun, work.ended, work.moved),
            (&[(1, Stamp(1_020 * MS))][..], 1, 0, 1)
        );
        // Answers take their time: the beginning stays what it was.
        lives.look(&page(11, &[(1, true, 10, 79)]), Stamp(1_100 * MS), 0);
        assert_eq!(lives.of(1).unwrap().began, Stamp(1_020 * MS));
        let work = lives.look(&page(11, &[(1, false, 10, 90)]), Stamp(1_150 * MS), 0);
        assert_eq!((work.ended, work.ended_ns, work.moved), (1, 90_000_000, 0));
        assert_eq!(lives.of(1).unwrap().changed, Stamp(1_110 * MS));
    }

    #[test]
    fn what_a_kept_connection_waited_for_its_request_is_not_the_requests() {
        let mut lives = Lives::default();
        lives.look(&page(10, &[(1, false, 9, 2)]), Stamp(1_000 * MS), 0);
        lives.look(&page(11, &[(1, true, 10, 700)]), Stamp(1_050 * MS), 0);
        assert_eq!(lives.of(1).unwrap().began, Stamp(1_000 * MS));
    }

    #[test]
    fn who_was_seen_to_wait_came_before_it_began() {
        let mut lives = Lives::default();
        let hogs = [(1, true, 1, 500), (2, true, 1, 500)];
        lives.look(&page(2, &hogs), Stamp(1_000 * MS), 0);
        let work = lives.look(&page(2, &hogs), Stamp(1_050 * MS), 2);
        assert_eq!((work.waiting.len(), work.ended), (2, 0));
        lives.look(&page(2, &hogs), Stamp(1_100 * MS), 3);
        // One hog is gone; its worker has served one and serves the next, and one came meanwhile.
        let work = lives.look(&page(4, &[(1, true, 1, 650), (3, true, 2, 10)]), Stamp(1_150 * MS), 2);
        let life = lives.of(3).unwrap();
        assert_eq!((life.came, life.began), (Stamp(1_050 * MS), Stamp(1_140 * MS)));
        let since: Vec<_> = work.waiting.iter().map(|waiting| waiting.since.0 / MS).collect();
        assert_eq!(since, [1_100, 1_150]);
        assert_eq!(lives.of(1).unwrap().came, Stamp(500 * MS), "it was there before");
    }

    #[test]
    fn short_requests_end_unseen_and_long_ones_are_not_their_measure() {
        let mut lives = Lives::default();
        lives.look(&page(0, &[(1, false, 0, 0), (2, true, 0, 900)]), Stamp(1_000 * MS), 0);
        let mut all = (0, 0);
        for look in 1..=100_u64 {
            // Ten requests of 2 ms each time, in one worker.
            let now = 1_000 + 50 * look;
            let workers = [(1, false, 10 * look, 2), (2, true, 0, now)];
            let work = lives.look(&page(10 * look, &workers), Stamp(now as i64 * MS), 0);
            all = (all.0 + work.ended, all.1 + work.ended_ns);
        }
        assert_eq!(all, (1_000, 2_000_000_000));
    }

    #[test]
    fn who_has_a_worker_holds_it_and_who_waits_loses_time() {
        let mut lives = Lives::default();
        lives.look(&page(2, &[(1, true, 1, 1_000), (2, false, 1, 2)]), Stamp(1_000 * MS), 0);
        let work = lives.look(&page(4, &[(1, true, 1, 1_100), (2, false, 3, 2)]), Stamp(1_100 * MS), 1);
        let measured = work.measured(Stamp(1_110 * MS), 110_000_000);
        let resource = measured.resource;
        assert_eq!((resource.kind, resource.capacity, resource.gets), (Kind::Queue, 2, 2));
        assert_eq!((resource.ended, resource.ended_ns), (2, 4_000_000));
        assert_eq!((resource.delay_ns, resource.use_ns, resource.slows), (10_000_000, 114_000_000, 1));
        let [(hog, held), (waits, waiting)] = measured.uses[..] else { panic!("{measured:?}") };
        assert_eq!((hog, held.held, held.held_ns, held.recent), (1, 1, 1_110_000_000, 110_000_000));
        assert!(waits < 0 && waiting.waiting_ns == 10_000_000, "{waits} {waiting:?}");
    }
}
