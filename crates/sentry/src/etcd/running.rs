//! Requests between being sent to etcd and the head of their answer, and what ended since somebody looked.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use plimsoll_core::Nanos;
use plimsoll_core::config::{EtcdGuard, Mode};
use tokio::sync::Notify;

use super::cost::{Ask, Asks};
use super::message::{Answer, Gathered, Method};

/// Threads share as many tables, so that hardly ever two of them want the same.
const SHARDS: usize = 16;
/// Requests of a table whose end is kept until somebody looks; of what is more, nobody learns anything.
const MOST_ENDED: usize = 16_384;

/// What is under way at the members of one etcd.
#[derive(Debug)]
pub struct Guard {
    /// As configured.
    pub config: EtcdGuard,
    /// Whether somebody looks.
    pub(super) is_watched: AtomicBool,
    asks: Asks,
    next: AtomicU64,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    running: HashMap<u64, Entry>,
    ended: Vec<Ended>,
    counted: Vec<(Ask, u64)>,
}

#[derive(Debug)]
struct Entry {
    running: Running,
    order: Arc<Order>,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Running {
    /// Its number, never used twice.
    pub id: u64,
    /// When it was sent.
    pub began: Nanos,
    /// What it calls.
    pub method: Method,
    /// What a range asks for, once that is known.
    pub ask: Option<Ask>,
    /// Who asks.
    pub client: IpAddr,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// What it was.
    pub request: Running,
    /// How long it took.
    pub took: Nanos,
    /// Whether it was answered; else its client left, its server failed, or it was told to end.
    pub answered: bool,
}

/// By which a request is told to end.
#[derive(Debug, Default)]
struct Order {
    why: OnceLock<String>,
    told: Notify,
}

impl Guard {
    /// One with nothing under way.
    pub fn new(config: EtcdGuard) -> Guard {
        Guard {
            config,
            is_watched: AtomicBool::new(false),
            asks: Asks::default(),
            next: AtomicU64::new(1),
            shards: Default::default(),
        }
    }

    /// A request of the KV service is sent now, by this thread for this client; nothing where nobody wants to know.
    pub fn begin(
        self: &Arc<Self>,
        method: Method,
        thread: usize,
        client: IpAddr,
        began: Nanos,
    ) -> Option<Call> {
        if method == Method::Other || self.config.mode == Mode::Off {
            return None;
        }
        let (id, order) = (self.next.fetch_add(1, Relaxed), Arc::<Order>::default());
        let place = Place { guard: Arc::clone(self), shard: thread % SHARDS, id };
        let running = Running { id, began, method, ask: None, client };
        place.shard().running.insert(id, Entry { running, order: Arc::clone(&order) });
        Some(Call { place, method, order })
    }

    /// Everything that is under way and what ended since the last look, which is given away.
    pub(super) fn look(&self, now: &mut Now) {
        now.running.clear();
        now.ended.clear();
        now.counted.clear();
        for shard in &self.shards {
            let mut shard = shard.lock();
            now.running.extend(shard.running.values().map(|entry| entry.running));
            now.ended.append(&mut shard.ended);
            now.counted.append(&mut shard.counted);
        }
    }

    /// Tells a request to end: whether it was still under way.
    pub(super) fn end(&self, id: u64, why: &str) -> bool {
        self.shards.iter().any(|shard| {
            let shard = shard.lock();
            let Some(Entry { order, .. }) = shard.running.get(&id) else { return false };
            // Told twice, the first reason stays.
            let _ = order.why.set(why.to_owned());
            order.told.notify_one();
            true
        })
    }
}

/// What a look shows.
#[derive(Debug, Default)]
pub(super) struct Now {
    pub running: Vec<Running>,
    pub ended: Vec<Ended>,
    pub counted: Vec<(Ask, u64)>,
}

/// Where a request stands among those that are under way.
#[derive(Clone, Debug)]
struct Place {
    guard: Arc<Guard>,
    shard: usize,
    id: u64,
}

impl Place {
    fn shard(&self) -> parking_lot::MutexGuard<'_, Shard> {
        self.guard.shards[self.shard].lock()
    }

    /// It is under way no more: what it asked for, where that is known.
    fn leave(&self, answered: bool, now: Nanos) -> Option<Ask> {
        let mut shard = self.shard();
        let Entry { running, .. } = shard.running.remove(&self.id)?;
        if shard.ended.len() < MOST_ENDED {
            shard.ended.push(Ended { request: running, took: now.since(running.began), answered });
        }
        running.ask
    }
}

/// A request of the KV service that is under way until this is dropped, or its answer has begun.
#[derive(Debug)]
pub struct Call {
    place: Place,
    method: Method,
    order: Arc<Order>,
}

impl Call {
    /// Who listens to what is asked, where that is of interest.
    pub fn listening(&self) -> Option<Listening> {
        let place = || Listening { place: self.place.clone(), gathered: Gathered::default() };
        (self.method == Method::Range).then(place)
    }

    /// Resolves when it is told to end.
    pub async fn told(&self) {
        self.order.told.notified().await;
    }

    /// Why it was told to end, if it was.
    pub fn why(&self) -> Option<&str> {
        self.order.why.get().map(String::as_str)
    }

    /// The head of its answer is there: etcd has done its work. Returns who counts what comes.
    pub fn answered(&self, now: Nanos) -> Option<Counting> {
        let ask = self.place.leave(true, now)?;
        Some(Counting { place: self.place.clone(), ask, answer: Answer::default() })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.place.leave(false, crate::clock::refresh());
    }
}

/// Listens to a request as it passes.
#[derive(Debug)]
pub struct Listening {
    place: Place,
    gathered: Gathered,
}

impl Listening {
    /// This is what comes next.
    pub fn hear(&mut self, part: &[u8]) {
        let Some(request) = self.gathered.take(part) else { return };
        let ask = self.place.guard.asks.read(&request);
        if let Some(entry) = self.place.shard().running.get_mut(&self.place.id) {
            entry.running.ask = Some(ask);
        }
    }
}

/// Counts what a range has, as its answer passes.
#[derive(Debug)]
pub struct Counting {
    place: Place,
    ask: Ask,
    answer: Answer,
}

impl Counting {
    /// This is what comes next.
    pub fn read(&mut self, part: &[u8]) {
        self.answer.take(part);
    }

    /// That was all.
    pub fn done(self) {
        let Some(count) = self.answer.count() else { return };
        let mut shard = self.place.shard();
        if shard.counted.len() < MOST_ENDED {
            shard.counted.push((self.ask, count));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use plimsoll_core::Slo;
    use plimsoll_core::config::{Config, parse};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn guard(mode: &str) -> Arc<Guard> {
        let text = format!(
            "[pool.kv]\nservers = [\"a:1\"]\n[etcd.main]\nslo = {{ p99 = \"50ms\" }}\nmode = \"{mode}\"\n"
        );
        let config = parse::<Config>(&text, "test").unwrap_or_else(|e| panic!("{e}")).0;
        assert_ne!(config.etcds[0].slo, Slo::default());
        Arc::new(Guard::new(config.etcds[0].clone()))
    }

    fn begin(guard: &Arc<Guard>, method: Method) -> Option<Call> {
        guard.begin(method, 0, HERE, Nanos::from_secs(1))
    }

    #[test]
    fn nobody_looks_at_what_lasts_nor_at_anything_when_off() {
        assert!(begin(&guard("enforce"), Method::Other).is_none());
        assert!(begin(&guard("off"), Method::Range).is_none());
    }

    #[test]
    fn a_request_is_under_way_until_it_is_answered_or_dropped() {
        let guard = guard("enforce");
        let mut now = Now::default();
        let calls = [Method::Range, Method::Write].map(|method| begin(&guard, method).unwrap());
        assert!(calls[0].listening().is_some() && calls[1].listening().is_none());
        guard.look(&mut now);
        assert_eq!((now.running.len(), now.ended.len()), (2, 0));
        assert_ne!(now.running[0].id, now.running[1].id);
        // Nothing is known of what it asks, so nothing is counted.
        assert!(calls[0].answered(Nanos::from_secs(3)).is_none());
        drop(calls);
        guard.look(&mut now);
        let ended: Vec<_> = now.ended.iter().map(|ended| (ended.request.method, ended.answered)).collect();
        assert_eq!(ended, [(Method::Range, true), (Method::Write, false)]);
        assert_eq!((now.ended[0].took, now.running.len()), (Nanos::from_secs(2), 0));
        guard.look(&mut now);
        assert!(now.ended.is_empty(), "told once");
    }

    #[tokio::test]
    async fn whoever_is_told_to_end_hears_it_and_nobody_else_does() {
        let guard = guard("enforce");
        let [one, other] = [Method::Range; 2].map(|method| begin(&guard, method).unwrap());
        assert!(guard.end(one.place.id, "because") && guard.end(one.place.id, "again"));
        one.told().await;
        assert_eq!((one.why(), other.why()), (Some("because"), None));
        let id = one.place.id;
        drop(one);
        assert!(!guard.end(id, "gone"));
    }
}
