//! From looks at what is under way to scenes: pure.
//!
//! What requests contend for is etcd's store: a range holds up all others while it reads (the lock of the index, the processors, memory). That
//! lock cannot be seen from outside. What can is the time that others lose, which is what they take beyond what is usual, and who reads many
//! keys meanwhile, for how long, and for how long still. A request that reads few keys is slow because others are: it is a request, it has
//! the promise, and it is never to blame.

use std::collections::HashMap;

use plimsoll_cancellation::scene::{Kind, Resource, Scene, Task, Use};
use plimsoll_core::Nanos;

use super::cost::{Ask, Cost, Shape};
use super::message::Method;
use super::running::{Ended, Now, Running};

/// The one resource.
pub const STORE: u32 = 0;
/// Tasks of a scene at most; the oldest go first into it.
const MOST_TASKS: usize = 4_096;
/// A request loses what it takes beyond this many times what is usual: less than that is chance.
const CHANCE: u64 = 2;
/// Requests over which what is usual is averaged.
const MANY: f64 = 1_000.0;

/// Kinds of requests with times of their own.
#[derive(Clone, Copy, Debug)]
enum Sort {
    One,
    Many,
    Write,
}

/// What is known of a request that is under way.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Whether it may hold up others: a range that reads many keys, or nobody knows how many.
    heavy: bool,
    /// What was told of the time that it lost.
    lost: Nanos,
    look: u64,
}

/// All that is remembered from look to look.
#[derive(Debug)]
pub struct Account {
    cost: Cost,
    limit: Nanos,
    /// By [`Sort`]: a mean, and how many it is of.
    usual: [(f64, f64); 3],
    known: HashMap<u64, Known>,
    /// Those of the last scene that may be to blame.
    heavy: HashMap<u64, Running>,
    last: Option<Nanos>,
    look: u64,
}

impl Account {
    /// One that knows nothing yet. Requests are to take no longer than `limit`.
    pub fn new(limit: Nanos) -> Account {
        Account {
            cost: Cost::default(),
            limit,
            usual: [(0.0, 0.0); 3],
            known: HashMap::new(),
            heavy: HashMap::new(),
            last: None,
            look: 0,
        }
    }

    /// Fills in the scene; `calm` where nothing was wrong at the last look.
    pub fn look(&mut self, now: Nanos, seen: &mut Now, calm: bool, scene: &mut Scene) {
        let elapsed = now.since(self.last.replace(now).unwrap_or(now));
        self.look += 1;
        scene.clear();
        scene.resources.push(Resource::quiet(Kind::Lock, 1));
        for (ask, count) in &seen.counted {
            self.cost.counted(ask, *count);
        }
        for ended in &seen.ended {
            self.ended(ended, calm, scene);
        }
        self.heavy.clear();
        seen.running.sort_by_key(|running| running.began);
        for running in seen.running.iter().take(MOST_TASKS) {
            self.running(running, now, elapsed, scene);
        }
        let look = self.look;
        self.known.retain(|_, known| known.look == look);
    }

    fn ended(&mut self, ended: &Ended, calm: bool, scene: &mut Scene) {
        let Ended { request, took, answered } = ended;
        let known = self.known.remove(&request.id);
        if known.map_or_else(|| self.is_heavy(request), |known| known.heavy) {
            if let Some(ask) = request.ask.filter(|_| *answered && calm) {
                self.cost.took(&ask, *took);
            }
            return;
        }
        scene.finished_ns += took.0;
        if *answered {
            scene.finished.push((took.0, 1));
        }
        let usual = self.usual_of(request);
        let store = &mut scene.resources[STORE as usize];
        store.gets += 1;
        store.ended += 1;
        store.ended_ns += took.0.min(usual.0);
        store.delay_ns += lost(*took, usual).since(known.map_or(Nanos::ZERO, |known| known.lost)).0;
        if calm && *answered {
            let (mean, count) = &mut self.usual[sort(request) as usize];
            *count = (*count + 1.0).min(MANY);
            *mean += (took.0 as f64 - *mean) / *count;
            if let Some(ask) = &request.ask {
                self.cost.took(ask, *took);
            }
        }
    }

    fn running(&mut self, running: &Running, now: Nanos, elapsed: Nanos, scene: &mut Scene) {
        let age = now.since(running.began);
        let heavy = match self.known.get(&running.id) {
            // What it asks for may not have been there at the first look.
            Some(known) if known.heavy => true,
            _ => self.is_heavy(running),
        };
        let (usual, look) = (self.usual_of(running), self.look);
        let known = self.known.entry(running.id).or_insert(Known { heavy, lost: Nanos::ZERO, look });
        (known.heavy, known.look) = (heavy, look);
        let task = Task {
            id: running.id,
            class: 0,
            started_ns: running.began.0,
            deadline_ns: 0,
            done: age.0,
            total: 0,
            request: !heavy,
            cancellable: heavy,
            rerunnable: false,
        };
        let store = &mut scene.resources[STORE as usize];
        if !heavy {
            let all = lost(age, usual);
            store.delay_ns += all.since(known.lost).0;
            store.slows += u64::from(known.lost == Nanos::ZERO && all > Nanos::ZERO);
            known.lost = all;
            scene.tasks.push(task);
            return;
        }
        let recent = elapsed.0.min(age.0);
        store.use_ns += recent;
        let total = self.total(running, age).map_or(0, |total| total.0);
        scene.uses.push(Use {
            task: scene.tasks.len() as u32,
            resource: STORE,
            held: 1,
            held_ns: age.0,
            used: age.0,
            recent,
            waiting_ns: 0,
        });
        scene.tasks.push(Task { total, ..task });
        self.heavy.insert(running.id, *running);
    }

    /// Whether a range takes longer by itself than requests may, as far as anybody knows.
    fn is_heavy(&self, request: &Running) -> bool {
        request.ask.as_ref().is_some_and(|ask| self.cost.alone(ask).is_none_or(|alone| alone >= self.limit))
    }

    /// How long a range will take in all. Beside others it takes longer than alone; then what has lasted for so long is expected to last as
    /// long again.
    fn total(&self, running: &Running, age: Nanos) -> Option<Nanos> {
        let alone = self.cost.alone(running.ask.as_ref()?)?;
        Some(alone.max(Nanos(age.0.saturating_mul(2))))
    }

    fn usual_of(&self, request: &Running) -> Nanos {
        match self.usual[sort(request) as usize] {
            // Until something is known: nobody is late who keeps the promise.
            (_, 0.0) => Nanos(self.limit.0 / CHANCE),
            (mean, _) => Nanos(mean as u64),
        }
    }

    /// What a range is, in words that tell no key.
    pub fn words(&self, id: u64) -> Option<Told> {
        let running = self.heavy.get(&id)?;
        let ask = running.ask.as_ref()?;
        let age = self.last.unwrap_or(running.began).since(running.began);
        let progress = self.total(running, age).map(|total| age.0 as f64 / total.0.max(1) as f64);
        Some(Told { what: what(ask, self.cost.keys(ask)), running: *running, age, progress })
    }
}

/// What is told of a range.
#[derive(Debug)]
pub struct Told {
    /// In words.
    pub what: String,
    /// The range.
    pub running: Running,
    /// For how long it has been running.
    pub age: Nanos,
    /// How far it is, in 0..1, where its cost is known.
    pub progress: Option<f64>,
}

fn sort(request: &Running) -> Sort {
    match (request.method, &request.ask) {
        (Method::Range, Some(ask)) if !ask.is_one() => Sort::Many,
        (Method::Range, _) => Sort::One,
        _ => Sort::Write,
    }
}

fn lost(took: Nanos, usual: Nanos) -> Nanos {
    took.since(Nanos(usual.0.saturating_mul(CHANCE)))
}

fn what(ask: &Ask, keys: Option<u64>) -> String {
    let does = match ask.shape {
        Shape::Count => "counts",
        Shape::Read => "reads",
        Shape::Sort => "sorts or filters",
    };
    let keys = keys.map_or_else(|| "nobody knows how many keys".to_owned(), |keys| format!("{keys} keys"));
    let limit = ask.limit.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {limit}"));
    format!("a range that {does} {keys} from a key of {} bytes on, {limit}", ask.key_bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use plimsoll_cancellation::decision::State;
    use plimsoll_cancellation::{Reliever, Terms};
    use plimsoll_core::{Percentile, Slo};

    use super::super::cost::Asks;
    use super::super::message::RangeRequest;
    use super::*;

    const LIMIT: Nanos = Nanos::from_millis(50);
    const LOOK_MS: u64 = 20;

    fn range(asks: &Asks, range_end: &[u8], sort_order: i32) -> Ask {
        let range_end = range_end.to_vec();
        asks.read(&RangeRequest { key: b"item-".to_vec(), range_end, sort_order, ..RangeRequest::default() })
    }

    fn request(id: u64, began_ms: u64, method: Method, ask: Option<Ask>) -> Running {
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Running { id, began: Nanos::from_millis(began_ms), method, ask, client }
    }

    /// An etcd on virtual time: eight requests come between two looks, and each takes as long as is said.
    struct Store {
        account: Account,
        reliever: Reliever,
        scene: Scene,
        under_way: Vec<Running>,
        ms: u64,
        next: u64,
        calm: bool,
    }

    impl Store {
        fn new() -> Store {
            let slo = Slo::new([(Percentile::P99, LIMIT)]).unwrap();
            Store {
                account: Account::new(LIMIT),
                reliever: Reliever::new(Terms::new(slo)),
                scene: Scene::default(),
                under_way: Vec::new(),
                ms: 10_000,
                next: 1_000,
                calm: true,
            }
        }

        /// Looks while these are under way, too; whom the engine would end.
        fn look(&mut self, takes_ms: u64, one: Ask, beside: &[Running]) -> Option<u64> {
            for came_ms in (0..LOOK_MS).step_by(5).flat_map(|ms| [ms, ms + 2]) {
                self.under_way.push(request(self.next, self.ms + came_ms, Method::Range, Some(one)));
                self.next += 1;
            }
            self.ms += LOOK_MS;
            let now = Nanos::from_millis(self.ms);
            let took = Nanos::from_millis(takes_ms);
            let is_over = |running: &mut Running| now.since(running.began) >= took;
            let ended = self.under_way.extract_if(.., is_over);
            let ended = ended.map(|request| Ended { request, took, answered: true }).collect();
            let running = [&self.under_way, beside].concat();
            let mut seen = Now { ended, running, ..Now::default() };
            self.account.look(now, &mut seen, self.calm, &mut self.scene);
            let decision = self.reliever.look(now, &self.scene);
            self.calm = decision.state == State::Calm;
            decision.cancel.map(|(task, _)| task)
        }
    }

    #[test]
    fn the_range_that_sorts_everything_is_ended_and_no_other() {
        let (asks, mut store) = (Asks::default(), Store::new());
        let (one, all) = (range(&asks, b"", 0), range(&asks, b"item.", 1));
        let few = range(&asks, b"item-7", 0);
        store.account.cost.counted(&all, 100_000);
        store.account.cost.counted(&few, 20);
        (0..200).for_each(|_| assert_eq!(store.look(2, one, &[]), None));
        let began = store.ms;
        // A victim that has waited for longer than the culprit has run, and one that reads a few keys.
        let beside = [
            request(1, began - 30, Method::Write, None),
            request(2, began, Method::Range, Some(all)),
            request(3, began, Method::Range, Some(few)),
        ];
        let ended = (0..30).find_map(|_| store.look(120, one, &beside));
        assert_eq!(ended, Some(2));
        let told = store.account.words(2).unwrap();
        assert_eq!(told.what, "a range that sorts or filters 100000 keys from a key of 5 bytes on, no limit");
        assert!(store.account.words(1).is_none() && store.account.words(3).is_none());
    }

    #[test]
    fn a_range_of_which_nothing_is_known_is_to_blame_once_it_has_lasted() {
        let (asks, mut store) = (Asks::default(), Store::new());
        let (one, unknown) = (range(&asks, b"", 0), range(&asks, b"item.", 0));
        (0..200).for_each(|_| assert_eq!(store.look(2, one, &[]), None));
        let beside = [request(2, store.ms, Method::Range, Some(unknown))];
        assert_eq!((0..30).find_map(|_| store.look(120, one, &beside)), Some(2));
    }

    #[test]
    fn nobody_is_ended_for_plain_overload_nor_in_calm() {
        let (asks, mut store) = (Asks::default(), Store::new());
        let (one, all) = (range(&asks, b"", 0), range(&asks, b"item.", 1));
        store.account.cost.counted(&all, 100_000);
        let heavy = [request(2, store.ms, Method::Range, Some(all))];
        (0..200).for_each(|_| assert_eq!(store.look(2, one, &heavy), None, "nobody is late"));
        let mut store = Store::new();
        (0..200).for_each(|_| assert_eq!(store.look(2, one, &[]), None));
        let beside = [request(3, store.ms, Method::Write, None)];
        (0..100).for_each(|_| assert_eq!(store.look(200, one, &beside), None, "all are slow"));
    }
}
