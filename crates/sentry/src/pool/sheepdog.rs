//! Slots by how much the servers' workers are slowed for want of CPU (CPU Futures, section 5.3). An agent on the servers' hosts sees that and
//! says so five times a second: `PUT /pools/NAME/slowdown`.
//!
//! What is said holds for a moment. While it is said of all servers, it decides how many slots there are; as soon as it is not, the gate goes on
//! watching response times by itself. It also does where threads do not each work on one request: then they are not slowed by having
//! many requests at once, and their slowdown tells nothing.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use plimsoll_core::Nanos;
use plimsoll_cpufutures::sheepdog::SheepDog;

/// From one look to the next: what follows from the last step shows in predictions by then.
const STEP: Nanos = Nanos::from_millis(300);
/// For how long fewer threads have to have worked than there were requests before that means anything: what is told of threads is about a
/// second.
const DOUBT: Nanos = Nanos::from_secs(2);
/// For how long nothing is concluded from slowdowns, where fewer threads worked than there were requests.
const NOT_ITS_KIND: Nanos = Nanos::from_secs(60);
/// Nothing that is said holds for longer.
pub const LONGEST: Nanos = Nanos::from_secs(10);
/// The most servers of which something is kept.
const MOST_SERVERS: usize = 1024;

/// How a server's workers fare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workers {
    /// How many of its threads have had anything to do in the last second.
    pub active: u32,
    /// How many times slower than on an idle machine the worst of them will run in the next one, from 1 on.
    pub slowdown: f64,
}

/// What the slots of a pool have to do with it at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// How many there are.
    pub size: u32,
    /// Whether all of them are taken.
    pub full: bool,
    /// How many there may be at most.
    pub most: u32,
    /// How many servers they are for.
    pub servers: usize,
}

/// Finds how many slots a pool should have, for as long as it is told how its servers' workers fare.
#[derive(Debug)]
pub struct Flock {
    max_slowdown: f64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    told: BTreeMap<String, (Workers, Nanos)>,
    dog: Option<SheepDog>,
    looked: Nanos,
    /// Since when fewer threads have worked than there were requests.
    short_since: Option<Nanos>,
    not_before: Nanos,
}

impl Flock {
    /// Holds workers to this slowdown.
    pub fn new(max_slowdown: f64) -> Flock {
        Flock { max_slowdown, inner: Mutex::default() }
    }

    /// How the workers of some servers fare, which holds for so long, at most [`LONGEST`].
    pub fn tell(&self, servers: impl IntoIterator<Item = (String, Workers)>, holds: Nanos, now: Nanos) {
        let mut inner = self.inner.lock();
        let until = now + holds.min(LONGEST);
        inner.told.retain(|_, (_, until)| now < *until);
        for (server, workers) in servers {
            if inner.told.len() < MOST_SERVERS || inner.told.contains_key(&server) {
                inner.told.insert(server, (workers, until));
            }
        }
    }

    /// Called from one thread now and then: the slots that there should be, if that can be told.
    pub fn tick(&self, slots: Slots, now: Nanos) -> Option<u32> {
        let mut inner = self.inner.lock();
        if inner.told.is_empty() {
            inner.dog = None;
            return None;
        }
        inner.told.retain(|_, (_, until)| now < *until);
        if inner.told.len() < slots.servers.max(1) || now < inner.not_before {
            inner.dog = None;
            return None;
        }
        let active: u32 = inner.told.values().map(|(workers, _)| workers.active).fold(0, u32::saturating_add);
        let short = slots.full && active < slots.size;
        inner.short_since = if short { inner.short_since.or(Some(now)) } else { None };
        if inner.short_since.is_some_and(|since| now.since(since) >= DOUBT) {
            (inner.dog, inner.short_since, inner.not_before) = (None, None, now + NOT_ITS_KIND);
            return None;
        }
        if short && inner.dog.is_none() {
            return None;
        }
        let worst = inner.told.values().map(|(workers, _)| workers.slowdown).fold(1.0, f64::max);
        let bound = self.max_slowdown;
        let due = now.since(inner.looked) >= STEP;
        if due {
            inner.looked = now;
        }
        let most = i64::from(slots.most.max(1));
        let dog = inner.dog.get_or_insert_with(|| SheepDog::new(1..=most, i64::from(slots.size), bound));
        // Where slots are free, more of them would change nothing, and nothing follows from nobody being slowed.
        if due && (slots.full && !short || worst > bound) {
            dog.measured(now, [worst], true);
        }
        u32::try_from(dog.workers()).ok()
    }

    /// Whether it decides how many slots there are.
    pub fn decides(&self) -> bool {
        self.inner.lock().dog.is_some()
    }

    /// The worst slowdown of any worker, of those that are told.
    pub fn worst(&self, now: Nanos) -> Option<f64> {
        let inner = self.inner.lock();
        let fresh = inner.told.values().filter(|(_, until)| now < *until);
        fresh.map(|(workers, _)| workers.slowdown).reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn slots(size: u32, full: bool) -> Slots {
        Slots { size, full, most: 1_000, servers: 1 }
    }

    fn tell(flock: &Flock, active: u32, slowdown: f64, now: Nanos) {
        flock.tell([("127.0.0.1:80".to_owned(), Workers { active, slowdown })], at(1_000), now);
    }

    /// A server with a worker for each request, all of which want all of a CPU, on `cpus` of them; for so many steps.
    fn run(flock: &Flock, cpus: f64, size: &mut u32, from: u64, steps: u64) -> Vec<u32> {
        let step = |i| {
            let now = at(from + 100 * i);
            tell(flock, *size, (f64::from(*size) / cpus).max(1.0), now);
            *size = flock.tick(slots(*size, true), now).expect("it was told");
            *size
        };
        (0..steps).map(step).collect()
    }

    #[test]
    fn nearly_as_many_as_the_bound_lets_and_as_the_gate_thinks_when_nobody_says_anything() {
        let flock = Flock::new(5.0);
        assert_eq!(flock.tick(slots(64, true), at(0)), None);
        let mut size = 64;
        let found = run(&flock, 2.0, &mut size, 0, 100);
        assert!(found[60..].iter().all(|&size| size == 7 || size == 8), "{found:?}");
        let found = run(&flock, 4.0, &mut size, 10_000, 100);
        assert!(found[60..].iter().all(|&size| size == 15 || size == 16), "{found:?}");
        assert!(flock.decides() && flock.worst(at(20_000)).is_some());
        assert_eq!((flock.tick(slots(size, true), at(22_000)), flock.decides()), (None, false));
        assert_eq!(flock.worst(at(22_000)), None);
    }

    #[test]
    fn more_slots_than_are_taken_are_not_asked_for() {
        let flock = Flock::new(5.0);
        for i in 0..50 {
            tell(&flock, 3, 1.0, at(400 * i));
            assert_eq!(flock.tick(slots(16, false), at(400 * i)), Some(16));
        }
        tell(&flock, 16, 50.0, at(30_000));
        assert!(flock.tick(slots(16, false), at(30_000)).unwrap() < 16, "but who is slowed is helped");
    }

    #[test]
    fn a_server_whose_threads_share_requests_is_left_to_the_gate() {
        let flock = Flock::new(5.0);
        for i in 0..=10 {
            tell(&flock, 2, 1.0, at(200 * i));
            assert_eq!(flock.tick(slots(8, true), at(200 * i)), None);
        }
        for i in 3..62 {
            tell(&flock, 8, 1.0, at(1_000 * i));
            assert_eq!(flock.tick(slots(8, true), at(1_000 * i)), None, "for a minute");
        }
        tell(&flock, 8, 1.0, at(62_000));
        assert!(flock.tick(slots(8, true), at(62_000)).is_some());
    }

    #[test]
    fn threads_that_have_only_begun_to_work_are_given_time() {
        let flock = Flock::new(5.0);
        tell(&flock, 1, 1.0, at(0));
        assert_eq!(flock.tick(slots(8, true), at(0)), None);
        tell(&flock, 8, 1.0, at(1_000));
        assert!(flock.tick(slots(8, true), at(1_000)).is_some());
        tell(&flock, 8, 1.0, at(1_500));
        assert!(flock.tick(slots(16, true), at(1_500)).is_some(), "more slots, not yet more threads");
    }

    #[test]
    fn what_is_said_of_some_servers_only_decides_nothing() {
        let flock = Flock::new(5.0);
        tell(&flock, 8, 9.0, at(0));
        assert_eq!(flock.tick(Slots { servers: 2, ..slots(8, true) }, at(0)), None);
        let many = (0..2 * MOST_SERVERS).map(|i| (format!("s{i}:80"), Workers { active: 1, slowdown: 1.0 }));
        flock.tell(many, at(1_000), at(0));
        assert_eq!(flock.inner.lock().told.len(), MOST_SERVERS, "and what is kept is bounded");
    }
}
