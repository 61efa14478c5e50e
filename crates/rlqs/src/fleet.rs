//! Who reports, what arrives at each, and who gets how much of the rates. No sockets, no clock.

use std::collections::{BTreeMap, HashMap};

use plimsoll_core::Nanos;

use crate::assignment::{abandon, assign, class_of, keeps};
use crate::messages::{BucketAction, BucketId, BucketUsage, QuotaResponse};

/// Buckets of one stream; further ones are not heard.
const MOST_BUCKETS: usize = 1_024;
/// What the names and values of a bucket's id may take, in bytes.
const LONGEST_ID: usize = 1_024;
/// Requests of one report; no data plane has more between two.
const MOST_REQUESTS: u64 = 1_000_000_000;
/// Reports that come closer together are taken for one: what was counted in no time is no rate.
const SHORTEST: Nanos = Nanos::from_millis(100);
/// Half of a steady flow is from so long ago.
const HALF: Nanos = Nanos::from_millis(500);
/// A bucket that nobody has reported for so long is forgotten.
const SILENT: Nanos = Nanos::from_secs(60);
/// The part of a rate that is divided evenly, so that somebody where nothing arrived can begin at once.
const EVENLY: f64 = 0.05;

/// Requests of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Requests a second that come.
    pub offered_per_s: f64,
    /// Those of them that are let in.
    pub admitted_per_s: f64,
}

impl Flow {
    fn add(&mut self, other: Flow) {
        self.offered_per_s += other.offered_per_s;
        self.admitted_per_s += other.admitted_per_s;
    }

    /// A part of the way from here to there.
    fn toward(self, there: Flow, part: f64) -> Flow {
        let between = |here: f64, there: f64| here + part * (there - here);
        Flow {
            offered_per_s: between(self.offered_per_s, there.offered_per_s),
            admitted_per_s: between(self.admitted_per_s, there.admitted_per_s),
        }
    }
}

/// What arrives of a class, everywhere together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// As it was counted last. Who sets limits has to see at once what the last one did: taken for what it was a second ago, what comes of
    /// what was let in seems to be far less when a limit falls, and far more when it rises.
    pub latest: Flow,
    /// Smoothed: what rates are divided by, and what people and autoscalers go by.
    pub steady: Flow,
}

/// What was heard that was of no use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unheard {
    /// Reports of buckets that stand for no class.
    pub unknown: u64,
    /// Reports that cannot be, or are beyond a limit.
    pub nonsense: u64,
}

/// All streams.
#[derive(Debug)]
pub struct Fleet {
    classes: HashMap<String, usize>,
    streams: BTreeMap<u64, Stream>,
    next: u64,
    unheard: Unheard,
}

/// Somebody who reports.
#[derive(Debug, Default)]
struct Stream {
    /// Whether a bucket that is changed begins full there.
    refills: bool,
    buckets: Vec<Bucket>,
}

/// A bucket of one stream.
#[derive(Debug)]
struct Bucket {
    id: BucketId,
    class: usize,
    /// When it was last reported.
    heard: Nanos,
    /// Counted since then and not yet part of the rates: all, and those that were let in.
    counted: [u64; 2],
    since: Nanos,
    /// A second. Nothing before there are two reports to measure between.
    demand: Option<Demand>,
    /// What it was told last.
    told: Option<f64>,
}

impl Bucket {
    fn report(&mut self, counted: [u64; 2], now: Nanos) {
        self.heard = now;
        self.counted = [0, 1].map(|i| self.counted[i].saturating_add(counted[i]));
        // Our own clock: Envoy says whole seconds, and a hostile client what it likes.
        let span = now.since(self.since);
        if span < SHORTEST {
            return;
        }
        self.since = now;
        let [offered_per_s, admitted_per_s] =
            std::mem::take(&mut self.counted).map(|n| n as f64 / span.as_secs_f64());
        let latest = Flow { offered_per_s, admitted_per_s };
        let weight = 1.0 - 0.5f64.powf(span.as_secs_f64() / HALF.as_secs_f64());
        let steady = self.demand.map_or(latest, |before| before.steady.toward(latest, weight));
        self.demand = Some(Demand { latest, steady });
    }
}

impl Fleet {
    /// Of these classes.
    pub fn new(classes: impl IntoIterator<Item = String>) -> Fleet {
        let classes = classes.into_iter().enumerate().map(|(i, name)| (name, i)).collect();
        Fleet { classes, streams: BTreeMap::new(), next: 0, unheard: Unheard::default() }
    }

    /// Somebody begins to report. `refills` where a bucket that is changed begins full, as an Envoy's does.
    pub fn open(&mut self, refills: bool) -> u64 {
        self.next += 1;
        self.streams.insert(self.next, Stream { refills, buckets: Vec::new() });
        self.next
    }

    /// And ends.
    pub fn close(&mut self, stream: u64) {
        self.streams.remove(&stream);
    }

    /// How many report.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// What was of no use.
    pub fn unheard(&self) -> Unheard {
        self.unheard
    }

    /// Takes in a report; true where it has a bucket that was not there before, whose reporter waits to be told.
    pub fn report(&mut self, stream: u64, usages: Vec<BucketUsage>, now: Nanos) -> bool {
        let mut news = false;
        for usage in usages {
            news |= self.usage(stream, usage, now);
        }
        news
    }

    fn usage(&mut self, stream: u64, usage: BucketUsage, now: Nanos) -> bool {
        let Some(Stream { buckets, .. }) = self.streams.get_mut(&stream) else { return false };
        let (allowed, denied) = (usage.num_requests_allowed, usage.num_requests_denied);
        let counted = [allowed.saturating_add(denied), allowed];
        let Some(class) = class_of(usage.bucket_id.as_ref()) else {
            self.unheard.nonsense += 1;
            return false;
        };
        let Some(&class) = self.classes.get(class) else {
            self.unheard.unknown += 1;
            return false;
        };
        let id = usage.bucket_id.unwrap_or_default();
        let length: usize = id.bucket.iter().map(|(name, value)| name.len() + value.len()).sum();
        if counted[0] > MOST_REQUESTS || length > LONGEST_ID {
            self.unheard.nonsense += 1;
            return false;
        }
        if let Some(bucket) = buckets.iter_mut().find(|bucket| bucket.id == id) {
            bucket.report(counted, now);
            return false;
        }
        if buckets.len() == MOST_BUCKETS {
            self.unheard.nonsense += 1;
            return false;
        }
        // What was counted before is of a time that nobody knows.
        buckets.push(Bucket { id, class, heard: now, counted: [0; 2], since: now, demand: None, told: None });
        true
    }

    /// What arrives, by class.
    pub fn demand(&self) -> Vec<Demand> {
        let mut demands = vec![Demand::default(); self.classes.len()];
        for bucket in self.streams.values().flat_map(|stream| &stream.buckets) {
            let Demand { latest, steady } = bucket.demand.unwrap_or_default();
            demands[bucket.class].latest.add(latest);
            demands[bucket.class].steady.add(steady);
        }
        demands
    }

    /// What everybody is to be told, by stream, where so much of each class may enter in all.
    pub fn assign(&mut self, per_s: &[Option<f64>], now: Nanos) -> Vec<(u64, QuotaResponse)> {
        self.assign_to(|_| true, per_s, now)
    }

    /// What one stream is to be told. The others have what they were told, until they are told something else.
    pub fn assign_one(
        &mut self,
        stream: u64,
        per_s: &[Option<f64>],
        now: Nanos,
    ) -> Vec<(u64, QuotaResponse)> {
        self.assign_to(|other| other == stream, per_s, now)
    }

    fn assign_to(
        &mut self,
        is_told: impl Fn(u64) -> bool,
        per_s: &[Option<f64>],
        now: Nanos,
    ) -> Vec<(u64, QuotaResponse)> {
        let mut actions: BTreeMap<u64, Vec<BucketAction>> = BTreeMap::new();
        for (&stream, Stream { buckets, .. }) in
            self.streams.iter_mut().filter(|(stream, _)| is_told(**stream))
        {
            for silent in buckets.extract_if(.., |bucket| now.since(bucket.heard) >= SILENT) {
                actions.entry(stream).or_default().push(abandon(silent.id));
            }
        }
        let mut takers: Vec<Vec<(u64, bool, &mut Bucket)>> =
            self.classes.iter().map(|_| Vec::new()).collect();
        for (&id, Stream { refills, buckets }) in &mut self.streams {
            buckets.iter_mut().for_each(|bucket| takers[bucket.class].push((id, *refills, bucket)));
        }
        for (class, takers) in takers.into_iter().enumerate() {
            let offered = |bucket: &Bucket| bucket.demand.map(|demand| demand.steady.offered_per_s);
            let demands: Vec<Option<f64>> = takers.iter().map(|(.., bucket)| offered(bucket)).collect();
            let rate = per_s.get(class).copied().flatten();
            let shares = rate.map(|rate| divide(rate, &demands));
            let takers = takers.into_iter().enumerate().filter(|(_, (stream, ..))| is_told(*stream));
            for (i, (stream, refills, bucket)) in takers {
                let could = shares.as_ref().map(|shares| shares[i]);
                if !(refills && could.zip(bucket.told).is_some_and(|(could, told)| keeps(told, could))) {
                    bucket.told = could;
                }
                actions.entry(stream).or_default().push(assign(bucket.id.clone(), bucket.told));
            }
        }
        actions.into_iter().map(|(stream, bucket_action)| (stream, QuotaResponse { bucket_action })).collect()
    }
}

/// Divides a rate among those who want so much of it each; where that is not known, as much as the others do on average.
///
/// Where there is enough, everybody gets what it wants and as much of the rest as any other, so that none meets a limit before it has
/// reported what has come. Where there is not, each gets the same part of what it wants. A small part is divided evenly in any case. The
/// shares add up to the rate.
pub fn divide(rate: f64, demands: &[Option<f64>]) -> Vec<f64> {
    let known: Vec<f64> = demands.iter().flatten().copied().collect();
    let mean = if known.is_empty() { 0.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
    let wanted = |demand: &Option<f64>| demand.unwrap_or(mean);
    let all: f64 = demands.iter().map(wanted).sum();
    let by_demand = (rate * (1.0 - EVENLY)).min(all);
    let rest = (rate - by_demand) / demands.len() as f64;
    let part = if all > 0.0 { by_demand / all } else { 0.0 };
    demands.iter().map(|demand| wanted(demand) * part + rest).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::assignment::{Limit, read};

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn fleet() -> Fleet {
        Fleet::new(["a".to_owned(), "b".to_owned()])
    }

    fn usage(class: &str, allowed: u64, denied: u64) -> BucketUsage {
        let bucket = BTreeMap::from([("class".to_owned(), class.to_owned())]);
        BucketUsage {
            bucket_id: Some(BucketId { bucket }),
            num_requests_allowed: allowed,
            num_requests_denied: denied,
            ..BucketUsage::default()
        }
    }

    /// What each stream is told of each class.
    fn told(fleet: &mut Fleet, rates: &[Option<f64>], now: Nanos) -> Vec<(u64, String, Limit)> {
        let said = |(stream, response): (u64, QuotaResponse)| {
            let of = |action| {
                let (class, assignment) = read(action).unwrap();
                (stream, class.to_owned(), assignment.limit)
            };
            response.bucket_action.iter().map(of).collect::<Vec<_>>()
        };
        fleet.assign(rates, now).into_iter().flat_map(said).collect()
    }

    fn per_s(told: &[(u64, String, Limit)], stream: u64) -> f64 {
        match told.iter().find(|(of, ..)| *of == stream) {
            Some((_, _, Limit::Rate { per_s, .. })) => *per_s,
            other => panic!("{other:?}"),
        }
    }

    /// Two streams, of which the second has four times as many requests of `a`.
    fn two() -> (Fleet, u64, u64) {
        let mut fleet = fleet();
        let (one, other) = (fleet.open(false), fleet.open(true));
        for step in 0..9 {
            fleet.report(one, vec![usage("a", 25, 0)], MS(250 * step));
            fleet.report(other, vec![usage("a", 50, 50)], MS(250 * step));
        }
        (fleet, one, other)
    }

    #[test]
    fn a_rate_is_divided_by_what_arrives() {
        let (mut fleet, one, other) = two();
        let demand = fleet.demand();
        for flow in [demand[0].steady, demand[0].latest] {
            assert!(
                (flow.offered_per_s - 500.0).abs() < 1e-6 && (flow.admitted_per_s - 300.0).abs() < 1e-6,
                "{flow:?}"
            );
        }
        assert_eq!(demand[1], Demand::default());
        let told = told(&mut fleet, &[Some(200.0), None], MS(2_000));
        // 95 % of it one to four, the rest evenly; written rounded down.
        assert!(
            (per_s(&told, one) - 43.0).abs() < 0.1 && (per_s(&told, other) - 157.0).abs() < 1.1,
            "{told:?}"
        );
    }

    #[test]
    fn who_comes_gets_its_part_at_once_and_who_leaves_leaves_it_to_the_others() {
        let (mut fleet, one, other) = two();
        let third = fleet.open(false);
        assert!(fleet.report(third, vec![usage("a", 1, 0)], MS(2_000)), "it waits to be told");
        assert!(!fleet.report(third, vec![usage("a", 1, 0)], MS(2_001)));
        let before = told(&mut fleet, &[Some(300.0), None], MS(2_001));
        assert!((per_s(&before, third) - 100.0).abs() < 2.0, "as much as any: {before:?}");
        fleet.close(other);
        fleet.close(third);
        let after = told(&mut fleet, &[Some(300.0), None], MS(2_002));
        assert_eq!((after.len(), per_s(&after, one)), (1, 300.0));
    }

    #[test]
    fn who_comes_is_told_alone_and_nobody_is_thought_to_have_been() {
        let (mut fleet, one, other) = two();
        let rates = [Some(300.0), None];
        let before = told(&mut fleet, &rates, MS(2_000));
        let third = fleet.open(false);
        fleet.report(third, vec![usage("a", 1, 0)], MS(2_000));
        let answers = fleet.assign_one(third, &rates, MS(2_000));
        assert_eq!(answers.iter().map(|(stream, _)| *stream).collect::<Vec<_>>(), [third]);
        for (stream, part) in [(one, 0.0), (other, 0.0), (third, 100.0)] {
            let told = fleet.streams[&stream].buckets[0].told.unwrap();
            let expected = if part > 0.0 { part } else { per_s(&before, stream) };
            assert!((told - expected).abs() < 2.0, "{stream}: {told} instead of {expected}");
        }
        // Whoever has fallen silent is still to be told so.
        fleet.report(third, vec![usage("a", 1, 0)], MS(61_000));
        fleet.assign_one(third, &rates, MS(63_000));
        let answers = fleet.assign(&rates, MS(63_000));
        assert_eq!(answers.iter().map(|(stream, _)| *stream).collect::<Vec<_>>(), [one, other, third]);
    }

    #[test]
    fn no_limit_is_said_too_and_a_class_of_another_fleet_is_not_answered() {
        let mut fleet = fleet();
        let stream = fleet.open(false);
        fleet.report(stream, vec![usage("b", 1, 0), usage("other", 1, 0), BucketUsage::default()], MS(0));
        assert_eq!(told(&mut fleet, &[Some(1.0), None], MS(0)), [(stream, "b".to_owned(), Limit::None)]);
        assert_eq!(fleet.unheard(), Unheard { unknown: 1, nonsense: 1 });
    }

    #[test]
    fn two_buckets_of_a_class_are_two_and_keep_their_names() {
        let mut fleet = fleet();
        let stream = fleet.open(false);
        let mut second = usage("a", 0, 0);
        second.bucket_id.as_mut().unwrap().bucket.insert("zone".to_owned(), "north".to_owned());
        fleet.report(stream, vec![usage("a", 0, 0), second.clone()], MS(0));
        let answers = fleet.assign(&[Some(200.0), None], MS(0));
        let [(_, response)] = answers.as_slice() else { panic!("{answers:?}") };
        assert_eq!(response.bucket_action.len(), 2);
        assert!(response.bucket_action.iter().any(|action| action.bucket_id == second.bucket_id));
    }

    #[test]
    fn a_bucket_that_begins_full_is_not_changed_for_little_and_never_adds_up_to_more() {
        let (mut fleet, one, other) = two();
        let first = told(&mut fleet, &[Some(1_000.0), None], MS(2_000));
        let second = told(&mut fleet, &[Some(1_050.0), None], MS(2_250));
        assert_eq!((per_s(&second, one), per_s(&second, other)), (375.0, per_s(&first, other)));
        let third = told(&mut fleet, &[Some(990.0), None], MS(2_500));
        assert!(per_s(&third, one) + per_s(&third, other) <= 990.0, "{third:?}");
    }

    #[test]
    fn hostile_reports_change_nothing_and_take_no_room() {
        let (mut fleet, one, _) = two();
        let before = fleet.demand();
        fleet.report(one, vec![usage("a", u64::MAX, u64::MAX), usage("a", MOST_REQUESTS, 1)], MS(3_000));
        let long = "x".repeat(LONGEST_ID);
        let named = |name: String| {
            let mut usage = usage("a", 1, 1);
            usage.bucket_id.as_mut().unwrap().bucket.insert(name, String::new());
            usage
        };
        fleet.report(one, vec![named(long)], MS(3_000));
        assert_eq!((fleet.demand(), fleet.unheard().nonsense), (before, 3));
        fleet.report(one, (0..2_000).map(|i| named(i.to_string())).collect(), MS(3_000));
        assert_eq!(fleet.streams[&one].buckets.len(), MOST_BUCKETS);
        fleet.report(99, vec![usage("a", 1, 1)], MS(3_000));
        assert_eq!(fleet.streams(), 2, "nobody else's stream");
    }

    #[test]
    fn reports_that_come_all_at_once_are_no_surge() {
        let (mut fleet, one, _) = two();
        let before = fleet.demand()[0].steady.offered_per_s;
        // Held up for a second, and then four within a millisecond.
        for _ in 0..4 {
            fleet.report(one, vec![usage("a", 25, 0)], MS(3_000));
        }
        let Demand { latest, steady } = fleet.demand()[0];
        assert!(
            steady.offered_per_s <= before + 1e-6 && latest.offered_per_s <= before + 1e-6,
            "{before} {latest:?} {steady:?}"
        );
    }

    #[test]
    fn what_a_limit_did_is_told_at_once_and_shared_by_what_was_before() {
        let (mut fleet, one, other) = two();
        fleet.report(one, vec![usage("a", 5, 20)], MS(2_250));
        fleet.report(other, vec![usage("a", 10, 90)], MS(2_250));
        let Demand { latest, steady } = fleet.demand()[0];
        assert_eq!(latest, Flow { offered_per_s: 500.0, admitted_per_s: 60.0 });
        assert!((100.0..300.0).contains(&steady.admitted_per_s), "{steady:?}");
    }

    #[test]
    fn a_silent_bucket_is_abandoned() {
        let (mut fleet, one, _) = two();
        fleet.report(one, vec![usage("a", 1, 0)], MS(61_000));
        let answers = fleet.assign(&[None, None], MS(62_000));
        assert_eq!(answers.len(), 2);
        assert_eq!(
            (
                fleet.streams[&one].buckets.len(),
                fleet.streams.values().flat_map(|stream| &stream.buckets).count()
            ),
            (1, 1)
        );
    }

    proptest! {
        #[test]
        fn shares_add_up_and_nobody_is_left_out(
            rate in 0.0f64..1e6,
            demands in prop::collection::vec(prop::option::weighted(0.8, 0.0f64..1e6), 1..50),
        ) {
            let shares = divide(rate, &demands);
            let sum: f64 = shares.iter().sum();
            prop_assert!((sum - rate).abs() <= 1e-9 * rate.max(1.0), "{sum} of {rate}");
            let least = rate * EVENLY / demands.len() as f64;
            prop_assert!(shares.iter().all(|&share| share >= least * (1.0 - 1e-9)));
            let wanted: f64 = demands.iter().flatten().sum();
            if demands.iter().all(Option::is_some) && wanted <= rate * (1.0 - EVENLY) {
                let served = shares.iter().zip(&demands).all(|(share, demand)| *share + 1e-6 >= demand.unwrap());
                prop_assert!(served, "there is enough for all");
            }
        }
    }
}
