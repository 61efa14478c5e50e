//! DARC (Perséphone; Demoulin et al., SOSP '21): workers stay idle rather than take a long request, so that a short one finds one.
//!
//! Requests are of types. Each type's demand is the number of workers that it keeps busy, measured over a window; types are ordered by how
//! long they take, and in that order each has workers reserved for it, as many as its share of the demand. A type may use its own
//! workers and those of all longer types, never those of a shorter one; a type that has not been profiled has the spillway, one worker.
//! Nobody is preempted. Workers are the permits of the application's queues or, where it has none, its processors.

use std::collections::BTreeMap;

use plimsoll_core::Nanos;

use crate::controller::{Controller, Order};
use crate::scene::{Kind, Scene};

/// How long requests are profiled before reservations are made anew.
const WINDOW: Nanos = Nanos::from_secs(1);
/// What of an older window still counts.
const KEPT: f64 = 0.5;
/// By how much the demand of a type must change before reservations do (the original's 10 %).
const CHANGE: f64 = 0.1;

/// What is known of a type.
#[derive(Clone, Copy, Debug, Default)]
struct Type {
    /// Tasks at work, summed over the looks of this window, and their ages.
    at_work: u64,
    age_ns: u64,
    /// Workers that it keeps busy on average, and how old its tasks are then.
    demand: f64,
    takes_ns: f64,
    /// The demand that reservations were last made for.
    reserved_for: f64,
    profiled: bool,
}

/// Decides for one application.
#[derive(Clone, Debug, Default)]
pub struct Darc {
    types: BTreeMap<u32, Type>,
    looks: u64,
    began: Nanos,
}

impl Darc {
    /// One that has seen nothing yet.
    pub fn new() -> Darc {
        Darc::default()
    }

    fn profile(&mut self, now: Nanos) -> bool {
        let looks = std::mem::take(&mut self.looks) as f64;
        self.began = now;
        let mut changed = false;
        for each in self.types.values_mut() {
            let demand = each.at_work as f64 / looks;
            let takes_ns = each.age_ns as f64 / each.at_work.max(1) as f64;
            let old = if each.profiled { KEPT } else { 0.0 };
            each.demand = each.demand * old + demand * (1.0 - old);
            if each.at_work > 0 {
                each.takes_ns = each.takes_ns * old + takes_ns * (1.0 - old);
            }
            (each.at_work, each.age_ns, each.profiled) = (0, 0, true);
            changed |= (each.demand - each.reserved_for).abs() > each.reserved_for * CHANGE;
        }
        changed
    }

    /// How many workers of so many each type may use.
    fn reserve(&mut self, workers: u64) -> Vec<(u32, u64)> {
        let all: f64 = self.types.values().map(|each| each.demand).sum();
        let mut order: Vec<(&u32, &mut Type)> = self.types.iter_mut().collect();
        order.sort_by(|a, b| a.1.takes_ns.total_cmp(&b.1.takes_ns));
        let mut left = workers;
        let cap = |(&class, each): (&u32, &mut Type)| {
            // The spillway is the last one's.
            let cap = left.max(1);
            each.reserved_for = each.demand;
            let own = (each.demand / all.max(1e-9) * workers as f64).round().max(1.0) as u64;
            left = left.saturating_sub(own);
            (class, cap)
        };
        order.into_iter().map(cap).collect()
    }
}

impl Controller for Darc {
    fn name(&self) -> &'static str {
        "darc"
    }

    fn look(&mut self, now: Nanos, scene: &Scene, orders: &mut Vec<Order>) {
        let queues: Vec<u32> = of_kind(scene, Kind::Queue);
        self.looks += 1;
        let mut waits = vec![false; scene.tasks.len()];
        scene
            .uses
            .iter()
            .filter(|used| used.waiting_ns > 0)
            .for_each(|used| waits[used.task as usize] = true);
        for (task, waits) in scene.tasks.iter().zip(waits) {
            let new = !self.types.contains_key(&task.class);
            let each = self.types.entry(task.class).or_default();
            if new {
                queues.iter().for_each(|&resource| {
                    orders.push(Order::Cap { resource, class: task.class, units: 1 });
                });
            }
            if !waits {
                each.at_work += 1;
                each.age_ns += now.0.saturating_sub(task.started_ns);
            }
        }
        if now.since(self.began) < WINDOW || !self.profile(now) {
            return;
        }
        for &resource in &queues {
            let workers = scene.resources[resource as usize].capacity;
            let caps = self.reserve(workers);
            orders.extend(caps.into_iter().map(|(class, units)| Order::Cap { resource, class, units }));
        }
        if queues.is_empty() {
            for resource in of_kind(scene, Kind::Cpu) {
                let cores = scene.resources[resource as usize].capacity;
                let caps = self.reserve(cores).into_iter();
                orders.extend(caps.map(|(class, units)| {
                    let units = units * 1_000 / cores.max(1);
                    Order::Cap { resource, class, units }
                }));
            }
        }
    }
}

fn of_kind(scene: &Scene, kind: Kind) -> Vec<u32> {
    let all = (0u32..).zip(&scene.resources);
    all.filter(|(_, resource)| resource.kind == kind).map(|(r, _)| r).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{Resource, Task};
    use crate::testing::task;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    /// Six short requests of class 0 and two long ones of class 1 at work on eight workers: the long ones may use what is not the
    /// short ones', two; the short ones may use all.
    #[test]
    fn the_long_ones_keep_out_of_the_workers_of_the_short_ones() {
        let mut darc = Darc::new();
        let mut last = Vec::new();
        for at in (20..=1_000).step_by(20) {
            let short = |id| Task { started_ns: MS(at - 4).0, ..task(id) };
            let long = |id| Task { class: 1, started_ns: 0, ..task(id) };
            let tasks = (1..=6).map(short).chain((7..=8).map(long)).collect();
            let scene = Scene { tasks, resources: vec![Resource::quiet(Kind::Queue, 8)], ..Scene::default() };
            last.clear();
            darc.look(MS(at), &scene, &mut last);
        }
        let cap = |class, units| Order::Cap { resource: 0, class, units };
        assert_eq!(last, [cap(0, 8), cap(1, 2)]);
    }

    #[test]
    fn a_type_that_was_never_seen_has_the_spillway() {
        let scene = Scene {
            tasks: vec![task(1)],
            resources: vec![Resource::quiet(Kind::Queue, 8), Resource::quiet(Kind::Cpu, 8)],
            ..Scene::default()
        };
        let mut orders = Vec::new();
        Darc::new().look(MS(20), &scene, &mut orders);
        assert_eq!(orders, [Order::Cap { resource: 0, class: task(1).class, units: 1 }]);
    }
}
