//! What a range costs: how many keys etcd reads for it, and how long that takes by itself.
//!
//! etcd reads all keys of a range whenever it has to sort or filter them, whatever the limit, and cuts what it has sorted; so a sort makes a range
//! with a limit as dear as one without (`applyV3.Range`). How many keys a range has, its last answer said.

use std::hash::{BuildHasher, RandomState};

use plimsoll_core::Nanos;

use super::message::RangeRequest;

/// Ranges of which the number of keys is kept. One whose place is taken by another is learnt anew.
const SPANS: usize = 4_096;
/// What a key is taken to need before any was measured, in ns: etcd 3.4 on one core needs about so much for small values.
const COUNT_NS: f64 = 150.0;
const READ_NS: f64 = 2_000.0;
const SORT_NS: f64 = 3_000.0;
/// Fewer keys than this say more about the rest of a request than about keys.
const LEAST: u64 = 200;
/// What was measured before weighs so much, in keys.
const WEIGHT: f64 = 200_000.0;

/// What a range asks for, as far as its cost goes. Its keys are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Which range: a keyed hash. Nothing where it is one key.
    span: Option<u64>,
    /// How long the first key is, in bytes.
    pub key_bytes: usize,
    /// Keys that are wanted at most, if there is a limit.
    pub limit: Option<u64>,
    /// What is done with them.
    pub shape: Shape,
}

impl Ask {
    /// Whether it is a single key.
    pub fn is_one(&self) -> bool {
        self.span.is_none()
    }
}

/// What is done with the keys of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// They are counted.
    Count,
    /// They are read, up to the limit.
    Read,
    /// All are read, and then sorted or filtered.
    Sort,
}

/// Knows ranges by a hash that nobody can choose to collide.
#[derive(Debug, Default)]
pub struct Asks(RandomState);

impl Asks {
    /// What this request asks for.
    pub fn read(&self, request: &RangeRequest) -> Ask {
        let RangeRequest { key, range_end, limit, .. } = request;
        let filters = [
            request.min_mod_revision,
            request.max_mod_revision,
            request.min_create_revision,
            request.max_create_revision,
        ];
        Ask {
            span: (!range_end.is_empty()).then(|| self.0.hash_one((key, range_end))),
            key_bytes: key.len(),
            limit: u64::try_from(*limit).ok().filter(|&limit| limit > 0),
            shape: if request.count_only {
                Shape::Count
            } else if request.sort_order != 0 || filters.iter().any(|&revision| revision != 0) {
                Shape::Sort
            } else {
                Shape::Read
            },
        }
    }
}

/// What a key takes, in ns, as a running mean over keys.
#[derive(Clone, Copy, Debug)]
struct Pace {
    keys: f64,
    ns: f64,
}

/// What is known of ranges.
#[derive(Debug)]
pub struct Cost {
    /// By hash: which range, and how many keys it has.
    spans: Vec<(u64, u64)>,
    /// By [`Shape`].
    paces: [Pace; 3],
}

impl Default for Cost {
    fn default() -> Cost {
        let pace = |ns| Pace { keys: WEIGHT / 10.0, ns: WEIGHT / 10.0 * ns };
        Cost { spans: vec![(0, 0); SPANS], paces: [COUNT_NS, READ_NS, SORT_NS].map(pace) }
    }
}

impl Cost {
    /// How many keys a range reads; nothing while nobody knows.
    pub fn keys(&self, ask: &Ask) -> Option<u64> {
        let Some(span) = ask.span else { return Some(1) };
        let (of, count) = self.spans[place(span)];
        let count = (of == span).then_some(count);
        match (ask.shape, ask.limit) {
            (Shape::Read, Some(limit)) => Some(count.map_or(limit, |count| count.min(limit))),
            _ => count,
        }
    }

    /// How long it takes with etcd to itself, likewise.
    pub fn alone(&self, ask: &Ask) -> Option<Nanos> {
        let Pace { keys, ns } = self.paces[ask.shape as usize];
        self.keys(ask).map(|read| Nanos::from_secs_f64(read as f64 * ns / keys / 1e9))
    }

    /// An answer said that the range has so many keys.
    pub fn counted(&mut self, ask: &Ask, count: u64) {
        if let Some(span) = ask.span {
            self.spans[place(span)] = (span, count);
        }
    }

    /// It was answered after so long, while nothing was wrong.
    pub fn took(&mut self, ask: &Ask, took: Nanos) {
        let Some(keys) = self.keys(ask).filter(|&keys| keys >= LEAST) else { return };
        let pace = &mut self.paces[ask.shape as usize];
        let keep = 1.0 - keys as f64 / (keys as f64 + WEIGHT);
        pace.keys = pace.keys * keep + keys as f64;
        pace.ns = pace.ns * keep + took.0 as f64;
    }
}

fn place(span: u64) -> usize {
    (span % SPANS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(limit: i64, sort_order: i32) -> RangeRequest {
        RangeRequest {
            key: b"item-".to_vec(),
            range_end: b"item.".to_vec(),
            limit,
            sort_order,
            ..RangeRequest::default()
        }
    }

    #[test]
    fn a_sort_reads_all_keys_whatever_the_limit() {
        let (asks, mut cost) = (Asks::default(), Cost::default());
        let [all, some, sorted] = [prefix(0, 0), prefix(10, 0), prefix(10, 1)].map(|r| asks.read(&r));
        let one = asks.read(&RangeRequest { key: b"item-7".to_vec(), ..RangeRequest::default() });
        let keys = |cost: &Cost| [one, all, some, sorted].map(|ask| cost.keys(&ask));
        assert_eq!(keys(&cost), [Some(1), None, Some(10), None], "nobody knows how many there are");
        cost.counted(&some, 100_000);
        assert_eq!(keys(&cost), [Some(1), Some(100_000), Some(10), Some(100_000)]);
        cost.counted(&some, 3);
        assert_eq!(keys(&cost), [Some(1), Some(3), Some(3), Some(3)]);
        let filtered = asks.read(&RangeRequest { min_mod_revision: 7, ..prefix(10, 0) });
        assert_eq!((filtered.shape, cost.keys(&filtered)), (Shape::Sort, Some(3)));
        let negative = asks.read(&prefix(-1, 0));
        assert_eq!((negative.limit, cost.keys(&negative)), (None, Some(3)), "no limit");
    }

    #[test]
    fn what_a_key_takes_is_learnt() {
        let (asks, mut cost) = (Asks::default(), Cost::default());
        let all = asks.read(&prefix(0, 0));
        assert_eq!(cost.alone(&all), None);
        cost.counted(&all, 100_000);
        assert_eq!(cost.alone(&all), Some(Nanos::from_millis(200)), "two microseconds each");
        for _ in 0..50 {
            cost.took(&all, Nanos::from_millis(800));
        }
        let learnt = cost.alone(&all).unwrap();
        assert!((790.0..=800.0).contains(&learnt.as_millis_f64()), "{learnt}");
        let sorted = asks.read(&prefix(0, 1));
        assert_eq!(cost.alone(&sorted), Some(Nanos::from_millis(300)), "what is sorted is learnt by itself");
        cost.counted(&all, 50);
        cost.took(&all, Nanos::from_secs(5));
        assert!(cost.alone(&all).unwrap() < Nanos::from_millis(1), "a few keys say nothing about keys");
    }

    #[test]
    fn ranges_are_known_by_both_ends() {
        let (asks, mut cost) = (Asks::default(), Cost::default());
        let other = RangeRequest { range_end: b"itemz".to_vec(), ..prefix(0, 0) };
        cost.counted(&asks.read(&prefix(0, 0)), 5);
        assert_eq!(cost.keys(&asks.read(&other)), None);
        assert_ne!(Asks::default().read(&other), asks.read(&other), "the hash is keyed");
    }
}
