//! What can be seen of latencies in `pg_stat_activity`: pure.
//!
//! A statement that runs is seen with its age. One that has ended is seen, too, until its session begins another: how long it took
//! is exact then. One that lasts longer than the time between two looks is always seen, one that lasts half of it every second time, so it
//! counts twice. What was never seen took less than that time, and how many those are follows from the transactions that the
//! server has counted. So the share of statements that take longer than an objective is sound; how long the short ones took
//! on average is what `pg_stat_statements` says, or else those of them that were seen. Backends report their transactions up to a second
//! later; but from a session that has been running one statement all the time since the last look none has come.
//!
//! A server that stands still, to collect garbage, shows nothing meanwhile, not even who came: a request that it has not read yet has not
//! begun. Where it tells afterwards how often and how long it stood still, those who came then have waited for the rest of it.

use std::collections::HashMap;

use plimsoll_core::Nanos;

use super::chains::Pid;
use super::stamp::Stamp;

/// How long the rate of transactions is averaged: backends report theirs about once a second.
const RATE_S: f64 = 1.0;
/// One that is seen counts for so many at most. A statement that is much shorter than the time between two looks is seen so rarely that it
/// would count for hundreds.
const MOST: f64 = 10.0;
/// In how many steps the latencies are told of those who came during a pause.
const STEPS: u64 = 20;

/// A client's session at a look.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Its process.
    pub pid: Pid,
    /// Whether a statement runs.
    pub active: bool,
    /// When that, or the last one, began.
    pub began: Stamp,
    /// When the session last went from running to waiting for its client or back.
    pub changed: Stamp,
}

/// How often and for how long a server stood still, as far as that has become known since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// How often.
    pub count: u64,
    /// For how long in all, in ns.
    pub ns: u64,
}

impl Pauses {
    /// What came to it since `earlier`.
    pub fn since(self, earlier: Pauses) -> Pauses {
        Pauses { count: self.count.saturating_sub(earlier.count), ns: self.ns.saturating_sub(earlier.ns) }
    }
}

/// What ended since the last look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// How long, in ns, and how many.
    pub latencies: Vec<(u64, u64)>,
    /// What those that were seen to run took, by session: their ends are known.
    pub seen: u64,
}

/// Remembers who ran.
#[derive(Debug)]
pub struct Latency {
    running: HashMap<Pid, (Stamp, u64)>,
    last: Option<Stamp>,
    transactions: Option<u64>,
    rate_per_s: f64,
    /// Parts of requests that are still to be counted: of the long, of the short. Less than none, where more came during pauses than the
    /// look after them has counted.
    carry: (f64, f64),
    short_ns: f64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            running: HashMap::new(),
            last: None,
            transactions: None,
            rate_per_s: 0.0,
            carry: (0.0, 0.0),
            short_ns: 1e6,
        }
    }
}

impl Latency {
    /// Takes in a look at `now`: the sessions that run something or did at the last look, in how many of all a statement has begun since,
    /// the transactions that the server has counted, and how it stood still. `mean_ns` is what statements take on average, if that is known.
    pub fn look(
        &mut self,
        now: Stamp,
        sessions: &[Session],
        moved: u64,
        transactions: u64,
        paused: Pauses,
        mean_ns: Option<f64>,
    ) -> Ended {
        let last = self.last.replace(now);
        let before = self.transactions.replace(transactions);
        let mut running = HashMap::with_capacity(sessions.len());
        let mut ended = Ended::default();
        let mut longer = 0.0;
        let (mut moved, mut stuck) = (moved as f64, 0.0);
        let elapsed_ns = last.map_or(0, |last| now.since_ns(last));
        let elapsed = (elapsed_ns as f64).max(1.0);
        for session in sessions {
            let ran = self.running.remove(&session.pid);
            let age_ns = now.since_ns(session.began);
            if session.active {
                running.insert(session.pid, (session.began, age_ns));
            }
            let still = session.active && ran.is_some_and(|(began, _)| began == session.began);
            stuck += f64::from(u8::from(still));
            // What ended here is the last of its session so far.
            moved += f64::from(u8::from(ran.is_some() && !still && !session.active));
            match ran {
                _ if still => {}
                Some((began, _)) if began == session.began => {
                    self.long(session.changed.since_ns(began), elapsed, &mut ended, &mut longer);
                }
                // Another has begun since. It lasted as long as it was seen to, and nobody knows how much longer: it is not called late for
                // what was not seen.
                Some((_, seen_ns)) => self.long(seen_ns, elapsed, &mut ended, &mut longer),
                None if !session.active && last.is_some_and(|last| session.began >= last) => {
                    let took = session.changed.since_ns(session.began) as f64;
                    self.short_ns += (took - self.short_ns) / 32.0;
                }
                None => {}
            }
        }
        // Sessions that are gone.
        for (_, (_, seen_ns)) in std::mem::replace(&mut self.running, running) {
            self.long(seen_ns, elapsed, &mut ended, &mut longer);
        }
        let (Some(_), Some(before)) = (last, before) else { return Ended::default() };
        let seconds = elapsed / 1e9;
        let per_s = transactions.saturating_sub(before) as f64 / seconds;
        self.rate_per_s += (per_s - self.rate_per_s) * (1.0 - (-seconds / RATE_S).exp());
        let free = if moved + stuck > 0.0 { moved / (moved + stuck) } else { 1.0 };
        let delayed = self.delayed(paused, &mut ended);
        let short = (self.rate_per_s * seconds * free - longer).max(0.0) + self.carry.1 - delayed as f64;
        self.carry.1 = if short < 0.0 { short.max(-self.rate_per_s) } else { short.fract() };
        // Those that were never seen took less than a look, whatever the mean of all of them is.
        let each_ns = mean_ns.unwrap_or(self.short_ns).clamp(1.0, (elapsed / 2.0).max(1.0));
        if short >= 1.0 {
            ended.latencies.push((each_ns as u64, short as u64));
        }
        ended
    }

    /// One that was seen to run has ended. It stands for as many as were not seen.
    fn long(&mut self, took_ns: u64, elapsed: f64, ended: &mut Ended, longer: &mut f64) {
        let weight = (elapsed / took_ns.max(1) as f64).clamp(1.0, MOST);
        *longer += weight;
        ended.seen += 1;
        let count = weight + self.carry.0;
        self.carry.0 = count.fract();
        ended.latencies.push((took_ns.max(1), count as u64));
    }

    /// Those who came while the server stood still, each of whom waited for the rest of it: some for all of it, some for next to nothing. How
    /// many those are.
    fn delayed(&self, paused: Pauses, ended: &mut Ended) -> u64 {
        let came = (self.rate_per_s * paused.ns as f64 / 1e9) as u64;
        let each_ns = paused.ns as f64 / paused.count.max(1) as f64;
        let steps = came.min(STEPS);
        for step in 0..steps {
            let waited_ns = each_ns * (step as f64 + 0.5) / steps as f64;
            let count = came * (step + 1) / steps - came * step / steps;
            ended.latencies.push((waited_ns.max(1.0) as u64, count));
        }
        came
    }

    /// Another connection counts from elsewhere on: what the next look finds is where from.
    pub fn count_anew(&mut self) {
        self.transactions = None;
    }

    /// The server began anew.
    pub fn forget(&mut self) {
        *self = Latency::default();
    }

    /// The time that a look covers.
    pub fn elapsed(&self, now: Stamp) -> Nanos {
        Nanos(self.last.map_or(0, |last| now.since_ns(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000;

    fn active(pid: Pid, began_ms: i64) -> Session {
        Session { pid, active: true, began: Stamp(began_ms * MS), changed: Stamp(began_ms * MS) }
    }

    fn idle(pid: Pid, began_ms: i64, ended_ms: i64) -> Session {
        Session { pid, active: false, began: Stamp(began_ms * MS), changed: Stamp(ended_ms * MS) }
    }

    #[test]
    fn one_that_was_seen_to_run_is_known_exactly_when_it_has_ended() {
        let mut latency = Latency::default();
        assert_eq!(
            latency.look(Stamp(1_000 * MS), &[active(1, 900)], 1, 10, Pauses::default(), None),
            Ended::default()
        );
        assert_eq!(
            latency.look(Stamp(1_100 * MS), &[active(1, 900)], 1, 10, Pauses::default(), None).latencies,
            []
        );
        let ended = latency.look(Stamp(1_200 * MS), &[idle(1, 900, 1_150)], 1, 10, Pauses::default(), None);
        assert_eq!(ended, Ended { latencies: vec![(250_000_000, 1)], seen: 1 });
        assert_eq!(
            latency.look(Stamp(1_300 * MS), &[idle(1, 900, 1_150)], 1, 10, Pauses::default(), None).seen,
            0,
            "once"
        );
    }

    #[test]
    fn one_that_ended_unseen_lasted_as_long_as_it_was_seen_to() {
        let mut latency = Latency::default();
        latency.look(Stamp(1_000 * MS), &[active(1, 900), active(2, 900)], 1, 10, Pauses::default(), None);
        let ended = latency.look(Stamp(1_100 * MS), &[active(1, 1_060)], 1, 10, Pauses::default(), None);
        assert_eq!(ended.latencies, [(100_000_000, 1), (100_000_000, 1)]);
    }

    #[test]
    fn what_is_seen_every_tenth_time_counts_ten_times() {
        let mut latency = Latency::default();
        let mut counted = 0;
        for look in 0..1_000 {
            let now = 1_000 + 100 * look;
            // A statement of 10 ms every 100 ms, at a time that walks through the interval.
            let began = now - (look * 37) % 100;
            let session = if began + 10 > now { active(1, began) } else { idle(1, began, began + 10) };
            let ended = latency.look(Stamp(now * MS), &[session], 1, 0, Pauses::default(), None);
            counted += ended.latencies.iter().map(|&(_, count)| count).sum::<u64>();
        }
        assert!((850..=1_050).contains(&counted), "{counted}");
    }

    #[test]
    fn what_was_never_seen_was_short() {
        let mut latency = Latency::default();
        let mut all = 0;
        for look in 0..300u64 {
            let now = Stamp(1_000_000 + 100_000 * look as i64);
            let began = 1_000 + 100 * look as i64 - 1;
            let ended = latency.look(
                now,
                &[idle(1, began, began + 1)],
                1,
                50 * look,
                Pauses::default(),
                Some(400_000.0),
            );
            assert!(ended.latencies.iter().all(|&(ns, _)| ns == 400_000), "{ended:?}");
            all += ended.latencies.iter().map(|&(_, count)| count).sum::<u64>();
        }
        // 500 a second for 30 s, less what the first second takes to be believed.
        assert!((14_300..=15_000).contains(&all), "{all}");
        assert!((latency.rate_per_s - 500.0).abs() < 1.0);
        assert!(
            latency.look(Stamp(31_100_000), &[], 1, 0, Pauses::default(), None).latencies.len() <= 2,
            "a counter that went back"
        );
    }

    #[test]
    fn what_another_connection_counts_is_not_what_was_done_since() {
        let mut latency = Latency::default();
        let mut look = |at: i64, transactions, anew| {
            if anew {
                latency.count_anew();
            }
            let ended =
                latency.look(Stamp(1_000_000 + 100_000 * at), &[], 1, transactions, Pauses::default(), None);
            ended.latencies.iter().map(|&(_, count)| count).sum::<u64>()
        };
        (0..50_u32).for_each(|at| _ = look(at.into(), u64::from(50 * at), false));
        // It has asked a million questions itself, which the new one does not know of.
        assert_eq!(look(50, 1_002_500, true), 0);
        assert!((40..=60).contains(&look(51, 1_002_550, false)));
    }

    #[test]
    fn while_all_sessions_are_stuck_nothing_ends() {
        let mut latency = Latency::default();
        for look in 0..50 {
            let began = 1_000 + 100 * look - 1;
            latency.look(
                Stamp(1_000_000 + 100_000 * look),
                &[idle(1, began, began + 1)],
                1,
                50 * look as u64,
                Pauses::default(),
                None,
            );
        }
        for look in 50..60 {
            // What was done before is reported late.
            let ended = latency.look(
                Stamp(1_000_000 + 100_000 * look),
                &[active(1, 5_950)],
                0,
                50 * look as u64,
                Pauses::default(),
                None,
            );
            let all: u64 = ended.latencies.iter().map(|&(_, count)| count).sum();
            assert!(look == 50 || all <= 1, "{look}: {ended:?}");
        }
    }

    #[test]
    fn who_came_while_the_server_stood_still_has_waited_for_the_rest_of_it() {
        let mut latency = Latency::default();
        let mut look = |at: u64, pauses| {
            let now = Stamp(1_000_000 + 100_000 * at as i64);
            latency.look(now, &[], 10, 10 * at, pauses, Some(1e6)).latencies
        };
        (0..50).for_each(|at| _ = look(at, Pauses::default()));
        // 100 a second: 80 came during four pauses of 200 ms, and the slower half of them waited for more than half of one.
        let ended = look(50, Pauses { count: 4, ns: 800_000_000 });
        let longer_than = |ms: u64| {
            let longer = ended.iter().filter(|&&(ns, _)| ns > ms * 1_000_000);
            longer.map(|&(_, count)| count).sum::<u64>()
        };
        let counted = [2, 100, 150, 200].map(longer_than);
        assert!((76..=80).contains(&counted[0]), "{counted:?}");
        assert!((37..=41).contains(&counted[1]) && (17..=21).contains(&counted[2]), "{counted:?}");
        assert_eq!(counted[3], 0);
        // They are among those that were counted: nobody else was answered in that second.
        let next: u64 = (51..58).flat_map(|at| look(at, Pauses::default())).map(|(_, count)| count).sum();
        assert!(next <= 1, "{next}");
        let later: u64 = (58..68).flat_map(|at| look(at, Pauses::default())).map(|(_, count)| count).sum();
        assert!((90..=101).contains(&later), "{later}");
    }
}
