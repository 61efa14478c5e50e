//! What all processes of a name get and want, for the metrics. Names are few, lest a host that makes them up fills a time series database.

use std::collections::HashMap;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Allocations, Sum};
use plimsoll_herald::Herald;

/// The most names; who comes on top is counted under [`OTHER`].
const MOST: usize = 64;
const OTHER: &str = "other";
/// From one count to the next.
const EVERY: Nanos = Nanos::from_secs(1);
/// Processes that together want less are given no name of their own.
const LEAST_DESIRED_MS_PER_S: f64 = 1.0;

/// All processes of a name.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// The name.
    pub name: String,
    /// Of their threads together ([`Sum`]).
    pub now: Allocations,
    /// How long their threads have waited since the name was first seen.
    pub waited_s: f64,
}

/// Counts them.
#[derive(Default)]
pub struct Processes {
    named: HashMap<String, f64>,
    counted_at: Option<Nanos>,
}

impl Processes {
    /// All names, once a second.
    pub fn count(&mut self, herald: &Herald) -> Option<Vec<Process>> {
        let passed = self.counted_at.map_or(Nanos::ZERO, |at| herald.now().since(at));
        if self.counted_at.is_some() && passed < EVERY {
            return None;
        }
        self.counted_at = Some(herald.now());
        let first = herald.threads().filter(|(id, _)| id.pid == id.tid);
        let names: HashMap<u32, &str> = first.map(|(id, described)| (id.pid, &*described.comm)).collect();
        let mut sums: HashMap<&str, Sum> = HashMap::new();
        for (id, found) in herald.futures().iter() {
            let name = names.get(&id.pid).copied().unwrap_or(OTHER);
            sums.entry(name).or_default().add(&found);
        }
        Some(self.keep(sums, passed.as_secs_f64()))
    }

    fn keep(&mut self, sums: HashMap<&str, Sum>, passed_s: f64) -> Vec<Process> {
        self.named.retain(|name, _| name == OTHER || sums.contains_key(&**name));
        let mut kept: HashMap<String, (Sum, f64)> = HashMap::new();
        for (name, sum) in sums {
            let of = sum.allocations();
            let has_place = self.named.contains_key(name)
                || self.named.len() < MOST && of.desired_ms_per_s >= LEAST_DESIRED_MS_PER_S;
            let name = if has_place { name } else { OTHER };
            let waited_s = self.named.entry(name.to_owned()).or_default();
            *waited_s += of.waited_ms_per_s / 1e3 * passed_s;
            let (all, total_s) = kept.entry(name.to_owned()).or_default();
            all.merge(&sum);
            *total_s = *waited_s;
        }
        kept.into_iter()
            .map(|(name, (sum, waited_s))| Process { name, now: *sum.allocations(), waited_s })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(desired_ms_per_s: f64) -> Sum {
        let mut sum = Sum::default();
        sum.add(&Allocations {
            desired_ms_per_s,
            actual_ms_per_s: 1.0,
            waited_ms_per_s: 500.0,
            ..Allocations::default()
        });
        sum
    }

    #[test]
    fn names_are_few_and_waits_add_up() {
        let mut processes = Processes::default();
        let names: Vec<String> = (0..200).map(|n| format!("made up {n}")).collect();
        let sums = || -> HashMap<&str, Sum> { names.iter().map(|name| (&**name, wants(10.0))).collect() };
        processes.keep(sums(), 1.0);
        let counted = processes.keep(sums(), 1.0);
        assert_eq!(counted.len(), MOST + 1);
        let other = counted.iter().find(|process| process.name == OTHER).unwrap();
        assert_eq!(other.now.desired_ms_per_s, 10.0 * (200 - MOST) as f64);
        let total: f64 = counted.iter().map(|process| process.waited_s).sum();
        assert!(
            (total - 200.0).abs() < 1e-9,
            "two seconds in each of which each waited half a second: {total}"
        );
    }

    #[test]
    fn a_name_that_is_gone_gives_its_place_back() {
        let mut processes = Processes::default();
        processes.keep(HashMap::from([("a", wants(10.0))]), 1.0);
        let counted = processes.keep(HashMap::from([("b", wants(10.0)), ("idle", wants(0.0))]), 1.0);
        let mut names: Vec<&str> = counted.iter().map(|process| &*process.name).collect();
        names.sort_unstable();
        assert_eq!(names, ["b", OTHER]);
    }
}
