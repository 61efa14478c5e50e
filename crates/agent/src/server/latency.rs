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
/// In how many steps at most the latencies are told of those who came during pauses, and what spreads them evenly over those.
const STEPS: f64 = 20.0;
const GOLDEN: f64 = 0.618_033_988_749_895;
/// A question that has waited takes so many times as long as usual, and so much longer in ns; over so many what is usual is averaged.
const UNUSUAL: f64 = 2.0;
const NOTICED_NS: f64 = 20e6;
const QUESTIONS: f64 = 32.0;

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

/// How a server stood still of late.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pauses {
    /// In which part of the time, 0 to 1.
    pub part: f64,
    /// For how long at a time, in ns.
    pub each_ns: u64,
}

impl Pauses {
    /// So many, of so many ns together, in so many ns.
    pub fn of(count: u64, ns: u64, in_ns: u64) -> Pauses {
        Pauses { part: (ns as f64 / in_ns.max(1) as f64).min(1.0), each_ns: ns / count.max(1) }
    }

    /// Some of `ns` together in so many ns; how many is not known: as many as there usually are by what was `told`, or one.
    pub fn like(told: Pauses, ns: u64, in_ns: u64) -> Pauses {
        let usually = told.part * in_ns as f64 / told.each_ns.max(1) as f64;
        Pauses::of((usually as u64).max(1), ns, in_ns)
    }
}

/// What our own questions tell of a server that stands still before it tells of it itself. One that is answered at once otherwise, and now takes
/// long, came while it did and waited for the rest; and so did who came after it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnWait {
    usual_ns: Option<f64>,
}

impl OwnWait {
    /// A question has taken so long, of which there is one in so many ns. Those pauses of which more is known are told: these, or what the
    /// server `told`.
    pub fn look(&mut self, took_ns: u64, in_ns: u64, told: Pauses) -> Pauses {
        let took = took_ns as f64;
        let usual = self.usual_ns.get_or_insert(took);
        let beyond = took - UNUSUAL * *usual;
        // Where it always takes as long, that is usual soon.
        *usual += (took - *usual) / QUESTIONS;
        let seen = Pauses::of(1, beyond.max(0.0) as u64, in_ns);
        if beyond >= NOTICED_NS && in_ns > 0 && seen.part > told.part { seen } else { told }
    }
}

/// What ended since the last look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// How long, in ns, and how many.
    pub latencies: Vec<(u64, u64)>,
    /// Likewise, of those that came while the server stood still.
    pub delayed: Vec<(u64, u64)>,
}

/// Remembers who ran.
#[derive(Debug)]
pub struct Latency {
    running: HashMap<Pid, (Stamp, u64)>,
    last: Option<Stamp>,
    transactions: Option<u64>,
    rate_per_s: f64,
    /// Parts of requests that are still to be counted: of the long, of the short, of those who came during pauses.
    carry: (f64, f64, f64),
    /// How much of its pause was left when the last of those came.
    left: f64,
    short_ns: f64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            running: HashMap::new(),
            last: None,
            transactions: None,
            rate_per_s: 0.0,
            carry: (0.0, 0.0, 0.0),
            left: 0.0,
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
        // What those took that were seen to run.
        let mut took_ns = Vec::new();
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
                    took_ns.push(session.changed.since_ns(began));
                }
                // Another has begun since. It lasted as long as it was seen to, and nobody knows how much longer: it is not called late for
                // what was not seen.
                Some((_, seen_ns)) => took_ns.push(seen_ns),
                None if !session.active && last.is_some_and(|last| session.began >= last) => {
                    let took = session.changed.since_ns(session.began) as f64;
                    self.short_ns += (took - self.short_ns) / 32.0;
                }
                None => {}
            }
        }
        // Sessions that are gone.
        let gone = std::mem::replace(&mut self.running, running);
        took_ns.extend(gone.into_values().map(|(_, seen_ns)| seen_ns));
        let (Some(_), Some(before)) = (last, before) else { return Ended::default() };
        let seconds = elapsed / 1e9;
        let per_s = transactions.saturating_sub(before) as f64 / seconds;
        self.rate_per_s += (per_s - self.rate_per_s) * (1.0 - (-seconds / RATE_S).exp());
        let free = if moved + stuck > 0.0 { moved / (moved + stuck) } else { 1.0 };
        let came = self.rate_per_s * seconds * free;
        self.delayed(came * paused.part, paused.each_ns, &mut ended);
        let read = came * (1.0 - paused.part);
        let longer = self.longer(&took_ns, elapsed, read, &mut ended);
        let short = (read - longer).max(0.0) + self.carry.1;
        self.carry.1 = short.fract();
        // Those that were never seen took less than a look, whatever the mean of all of them is.
        let each_ns = mean_ns.unwrap_or(self.short_ns).clamp(1.0, (elapsed / 2.0).max(1.0));
        if short >= 1.0 {
            ended.latencies.push((each_ns as u64, short as u64));
        }
        ended
    }

    /// Those that were seen to run have ended. Each stands for as many as were not seen; but many of them, which a stall has kept together,
    /// for no more than have ended at all. How many those are.
    fn longer(&mut self, took_ns: &[u64], elapsed: f64, all: f64, ended: &mut Ended) -> f64 {
        let unseen = |took_ns: u64| (elapsed / took_ns.max(1) as f64).clamp(1.0, MOST) - 1.0;
        let (seen, others) = (took_ns.len() as f64, took_ns.iter().map(|&ns| unseen(ns)).sum::<f64>());
        let part = ((all - seen).max(MOST - 1.0) / others.max(1.0)).min(1.0);
        for &took_ns in took_ns {
            let count = 1.0 + part * unseen(took_ns) + self.carry.0;
            self.carry.0 = count.fract();
            ended.latencies.push((took_ns.max(1), count as u64));
        }
        seen + part * others
    }

    /// Those who came while the server stood still, each of whom waited for what was left of that.
    fn delayed(&mut self, came: f64, each_ns: u64, ended: &mut Ended) {
        let came = came + self.carry.2;
        self.carry.2 = came.fract();
        let (came, steps) = (came as u64, came.min(STEPS) as u64);
        for step in 0..steps {
            // Any part of it may be left, one as likely as another.
            self.left = (self.left + GOLDEN).fract();
            let count = came * (step + 1) / steps - came * step / steps;
            ended.delayed.push(((self.left * each_ns as f64).max(1.0) as u64, count));
        }
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
    fn pauses_whose_number_nobody_knows_are_as_many_as_usual() {
        let told = Pauses { part: 0.5, each_ns: 1_000_000 };
        let like = |told| Pauses::like(told, 4_000_000, 4_000_000);
        assert_eq!(like(told), Pauses { part: 1.0, each_ns: 2_000_000 }, "twice in 4 ms, as it told");
        assert_eq!(like(Pauses::default()), Pauses { part: 1.0, each_ns: 4_000_000 });
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
        assert_eq!(ended, Ended { latencies: vec![(250_000_000, 1)], ..Ended::default() });
        let again = latency.look(Stamp(1_300 * MS), &[idle(1, 900, 1_150)], 1, 10, Pauses::default(), None);
        assert_eq!(again, Ended::default(), "once");
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
    fn those_that_end_together_stand_for_no_more_than_have_ended() {
        let mut latency = Latency::default();
        let mut look = |at: u64, sessions: &[Session]| {
            let now = Stamp(1_000_000 + 100_000 * at as i64);
            let ended = latency.look(now, sessions, 10, 10 * at, Pauses::default(), Some(1e6));
            ended.latencies.iter().map(|&(_, count)| count).sum::<u64>()
        };
        (0..50).for_each(|at| _ = look(at, &[]));
        // Twenty have waited for 10 ms when they are seen, and all are gone at the next look: ten a look are what there is.
        let waiting: Vec<Session> = (0..20).map(|pid| active(pid, 1_000 + 100 * 50 - 10)).collect();
        look(50, &waiting);
        let ended = look(51, &[]);
        assert!((20..=30).contains(&ended), "{ended}");
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
    fn a_question_that_takes_longer_than_usual_has_waited_for_the_end_of_a_pause() {
        let (mut own, second, told) = (OwnWait::default(), 1_000 * MS as u64, Pauses::of(1, 1, 100));
        let mut look = |took_ms: u64, told| own.look(took_ms * MS as u64 * 1_000, 1_000 * second, told);
        assert_eq!(look(500, Pauses::default()), Pauses::default(), "nothing is known of what is usual");
        (0..300).for_each(|_| _ = look(4, Pauses::default()));
        assert_eq!(look(20, Pauses::default()), Pauses::default());
        let seen = look(309, Pauses::default());
        assert!(
            (0.29..0.31).contains(&seen.part)
                && (290 * MS..310 * MS).contains(&(seen.each_ns as i64 / 1_000))
        );
        assert_eq!(look(300, Pauses { part: 0.4, ..told }).part, 0.4, "the server knows of more");
        (0..300).for_each(|_| _ = look(300, Pauses::default()));
        assert_eq!(look(320, told), told, "it always takes so long");
    }

    #[test]
    fn who_came_while_the_server_stood_still_has_waited_for_the_rest_of_it() {
        let mut latency = Latency::default();
        let mut look = |at: u64, pauses| {
            let now = Stamp(1_000_000 + 100_000 * at as i64);
            latency.look(now, &[], 10, 10 * at, pauses, Some(1e6))
        };
        (0..50).for_each(|at| _ = look(at, Pauses::default()));
        // 100 a second, of whom 80 come during pauses of 200 ms: the slower half of those waits for more than half of one.
        let pauses = Pauses::of(4, 800_000_000, 1_000_000_000);
        assert_eq!(pauses, Pauses { part: 0.8, each_ns: 200_000_000 });
        let ended: Vec<Ended> = (50..150).map(|at| look(at, pauses)).collect();
        let of = |of: fn(&Ended) -> &Vec<(u64, u64)>| ended.iter().flat_map(of).copied().collect::<Vec<_>>();
        let count = |ended: &[(u64, u64)], longer_ms: u64| {
            let longer = ended.iter().filter(|&&(ns, _)| ns > longer_ms * 1_000_000);
            longer.map(|&(_, count)| count).sum::<u64>()
        };
        let delayed = of(|ended| &ended.delayed);
        let counted = [0, 100, 150, 200].map(|ms| count(&delayed, ms));
        assert!((790..=800).contains(&counted[0]) && (390..=405).contains(&counted[1]), "{counted:?}");
        assert!((190..=205).contains(&counted[2]) && counted[3] == 0, "{counted:?}");
        assert!((190..=201).contains(&count(&of(|ended| &ended.latencies), 0)), "each counts once");
        assert_eq!(look(150, Pauses::default()).delayed, []);
    }
}
