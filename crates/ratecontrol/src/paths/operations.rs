//! All operations that were seen, how each is used, and what makes room for what.

use std::collections::HashMap;
use std::hash::BuildHasher;

use plimsoll_core::Nanos;

use super::api::Api;
use super::judge::Operation;
use super::names::{REST, Seeded};

/// So many are looked at for one that may go.
const LOOKED_AT: u64 = 8;
/// One that was seen more often is not put out by one that was seen for the first time.
const SEEN_ONCE: f64 = 1.0;
/// Fewer requests than this that certainly entered there are none: the last one was very long ago.
const FAINTEST: f64 = 0.01;

/// How an operation is used, those uses that are long ago counting less.
#[derive(Debug)]
pub struct Usage {
    /// Which it is.
    pub operation: Operation,
    /// Requests that certainly entered the fleet by it.
    pub known: f64,
    /// Requests that were called by somebody who sent no span.
    pub remote: f64,
    /// Requests that were called by somebody in the fleet.
    pub inner: f64,
    /// Requests that entered by it, or seemed to, those of long ago hardly counting any more.
    pub recent: f64,
    /// When it was last used.
    pub seen: Nanos,
    /// What its requests visit, where they enter the fleet by it.
    pub api: Api,
}

impl Usage {
    fn new(operation: Operation, now: Nanos) -> Usage {
        Usage { operation, known: 0.0, remote: 0.0, inner: 0.0, recent: 0.0, seen: now, api: Api::default() }
    }

    /// Whether requests enter the fleet by it. Where somebody in the fleet calls it too, and mostly, those whose caller is unknown are
    /// most likely such calls whose caller's span is lost.
    pub fn is_entry(&self) -> bool {
        self.known >= FAINTEST || self.remote > self.inner
    }

    fn uses(&self) -> f64 {
        self.known + self.remote + self.inner
    }
}

/// All operations.
pub struct Operations {
    all: Vec<Usage>,
    places: HashMap<Operation, u32, Seeded>,
    most: usize,
    hash: Seeded,
    /// Operations that did not fit, as often as they were seen.
    pub turned_away: u64,
}

impl Operations {
    /// None yet but that of the rest.
    pub fn new(most: usize, hash: Seeded) -> Operations {
        let rest = Operation { service: REST, name: REST };
        let mut places = HashMap::with_hasher(hash);
        places.insert(rest, 0);
        Operations {
            all: vec![Usage::new(rest, Nanos::ZERO)],
            places,
            most: most.max(1),
            hash,
            turned_away: 0,
        }
    }

    /// The place of an operation. One that does not fit takes the place of one that was seen once, or else that of the rest. So what comes
    /// again and again finds a place among a million that come once, and keeps it.
    pub fn place(&mut self, operation: Operation, now: Nanos, freed: &mut usize) -> usize {
        if let Some(&place) = self.places.get(&operation) {
            return place as usize;
        }
        if self.all.len() < self.most {
            self.places.insert(operation, self.all.len() as u32);
            self.all.push(Usage::new(operation, now));
            return self.all.len() - 1;
        }
        let hash = self.hash.hash_one(operation);
        let looked_at =
            (0..LOOKED_AT).map(|i| (hash.rotate_left(8 * i as u32) % self.all.len() as u64) as usize);
        let least = looked_at
            .filter(|&place| place != 0)
            .min_by(|&a, &b| self.all[a].uses().total_cmp(&self.all[b].uses()));
        match least {
            Some(place) if self.all[place].uses() <= SEEN_ONCE => {
                let gone = std::mem::replace(&mut self.all[place], Usage::new(operation, now));
                *freed += gone.api.size();
                self.places.remove(&gone.operation);
                self.places.insert(operation, place as u32);
                place
            }
            _ => {
                self.turned_away += 1;
                0
            }
        }
    }

    /// The operation at a place.
    pub fn at(&mut self, place: usize) -> &mut Usage {
        &mut self.all[place]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Usage> {
        self.all.iter()
    }

    /// How many there are, beside that of the rest.
    pub fn len(&self) -> usize {
        self.all.len() - 1
    }

    /// Makes the past count less, and forgets what was not seen for long. `passed` is the time since the last call.
    pub fn fade(&mut self, now: Nanos, passed: Nanos, half_life: Nanos, forget: Nanos, freed: &mut usize) {
        // How operations are used changes more slowly than which branches requests take.
        let lives = passed.as_secs_f64() / half_life.as_secs_f64();
        let (factor, recent) = ((-lives / 10.0).exp2(), (-lives).exp2());
        for usage in &mut self.all {
            usage.recent *= recent;
            usage.known *= factor;
            usage.remote *= factor;
            usage.inner *= factor;
            *freed += usage.api.fade(now, half_life);
        }
        let mut place = 1;
        while place < self.all.len() {
            if now.since(self.all[place].seen) < forget {
                place += 1;
                continue;
            }
            let gone = self.all.swap_remove(place);
            *freed += gone.api.size();
            self.places.remove(&gone.operation);
            if let Some(moved) = self.all.get(place) {
                self.places.insert(moved.operation, place as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(name: u32) -> Operation {
        Operation { service: 1, name }
    }

    #[test]
    fn what_comes_again_and_again_finds_a_place_among_a_million_that_come_once() {
        let mut operations = Operations::new(64, Seeded(3));
        let mut counted = 0;
        for name in 0..1_000_000u32 {
            let at = operations.place(operation(1_000 + name), Nanos(1), &mut 0);
            operations.at(at).known += 1.0;
            if name % 100 == 0 {
                let at = operations.place(operation(7), Nanos(1), &mut 0);
                operations.at(at).known += 1.0;
                counted += u32::from(at != 0);
            }
        }
        assert_eq!(operations.len(), 63);
        assert!(counted > 9_000, "{counted} of 10,000");
    }

    #[test]
    fn what_is_used_is_not_put_out() {
        let mut operations = Operations::new(8, Seeded(3));
        for name in 0..20 {
            for _ in 0..3 {
                let at = operations.place(operation(name), Nanos(1), &mut 0);
                operations.at(at).known += 1.0;
            }
        }
        let places: Vec<usize> =
            (0..20).map(|name| operations.place(operation(name), Nanos(1), &mut 0)).collect();
        assert_eq!(places, (1..8).chain(std::iter::repeat_n(0, 13)).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_seen_no_more_is_forgotten_and_the_rest_is_found_where_it_is() {
        let mut operations = Operations::new(100, Seeded(3));
        for name in 0..10 {
            operations.place(operation(name), Nanos::from_secs(u64::from(name) * 10), &mut 0);
        }
        operations.fade(Nanos::from_secs(100), Nanos(0), Nanos::from_secs(60), Nanos::from_secs(50), &mut 0);
        assert_eq!(operations.len(), 4);
        for name in 6..10 {
            let at = operations.place(operation(name), Nanos(0), &mut 0);
            assert_eq!(operations.at(at).operation, operation(name));
        }
    }

    #[test]
    fn what_is_recent_fades_ten_times_as_fast() {
        let mut operations = Operations::new(8, Seeded(3));
        let at = operations.place(operation(1), Nanos(1), &mut 0);
        (operations.at(at).recent, operations.at(at).known) = (8.0, 8.0);
        let minute = Nanos::from_secs(60);
        operations.fade(minute, minute, minute, Nanos::from_secs(600), &mut 0);
        let usage = operations.at(at);
        assert_eq!(usage.recent, 4.0);
        assert!((usage.known - 7.464).abs() < 0.001, "{}", usage.known);
    }
}
