//! PARTIES (Chen et al., ASPLOS '19): each class has a part of each resource; when one is late it is given a step of one resource, taken
//! from another; if that does not help, the next is a step of another resource.
//!
//! A class whose requests kept the objective while all was well is held to it; all others are best effort. Every half second the class
//! with most late requests is found. Of those that are best effort, or else not late, the one that uses most of the resource whose turn it
//! is gives up a step of it. If lateness has fallen by then, the same resource goes on being moved; if not, the next resource has its
//! turn. When nobody has been late for a while, what was taken is given back, a step at a time. Resources that
//! can be divided are processors, disks, caches and workers; a lock cannot.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::Nanos;

use super::late::Lateness;
use crate::controller::{Controller, Order};
use crate::scene::{Kind, Scene};

/// How often something is moved (the original's 500 ms).
const ROUND: Nanos = Nanos::from_millis(500);
/// Steps that the whole of a resource has, about as many as the original's machine has cores, or its cache ways.
const STEPS: u64 = 20;
/// The share of requests that may be late: the objective is a 99th percentile.
const ALLOWED: f64 = 0.01;
/// The share of a class's requests inside that are late at most, in a calm round, if the objective is meant for it.
const MOSTLY: f64 = 0.5;
/// Rounds without lateness after which a step is given back.
const CALM: u32 = 10;

/// Decides for one application.
#[derive(Clone, Debug)]
pub struct Parties {
    limit: Nanos,
    began: Nanos,
    lateness: Lateness,
    /// By class, how many of its requests were inside and how many of them late, summed over looks.
    late: BTreeMap<u32, Lateness>,
    /// Classes that are held to the objective.
    held: BTreeSet<u32>,
    /// By resource and class, what was taken in this round.
    taken: BTreeMap<(u32, u32), u64>,
    /// By resource and class, the steps that it still has, of those that do not have all.
    parts: BTreeMap<(u32, u32), u64>,
    /// Whose turn it is.
    turn: usize,
    /// The lateness before the last round's step.
    moved: Option<f64>,
    calm: u32,
}

impl Parties {
    /// Requests may take so long.
    pub fn new(limit: Nanos) -> Parties {
        Parties {
            limit,
            began: Nanos::ZERO,
            lateness: Lateness::default(),
            late: BTreeMap::new(),
            held: BTreeSet::new(),
            taken: BTreeMap::new(),
            parts: BTreeMap::new(),
            turn: 0,
            moved: None,
            calm: 0,
        }
    }

    /// Gives a class so many steps of a resource.
    fn set(&mut self, place: (u32, u32), steps: u64, scene: &Scene, orders: &mut Vec<Order>) {
        let steps = steps.min(STEPS);
        if steps == STEPS {
            self.parts.remove(&place);
        } else {
            self.parts.insert(place, steps);
        }
        let resource = &scene.resources[place.0 as usize];
        let whole = match resource.kind {
            Kind::Cpu | Kind::Io => 1_000,
            _ => resource.capacity,
        };
        orders.push(Order::Cap { resource: place.0, class: place.1, units: (whole * steps / STEPS).max(1) });
    }

    fn round(&mut self, scene: &Scene, orders: &mut Vec<Order>) {
        let share = self.lateness.share();
        if share <= ALLOWED {
            self.moved = None;
            self.calm += 1;
            let fine = self.late.iter().filter(|(_, lateness)| lateness.share() < MOSTLY);
            self.held.extend(fine.map(|(&class, _)| class));
            if self.calm >= CALM
                && let Some((&place, &steps)) = self.parts.iter().next()
            {
                self.calm = 0;
                self.set(place, steps + 1, scene, orders);
            }
            return;
        }
        self.calm = 0;
        let divisible: Vec<u32> = (0u32..)
            .zip(&scene.resources)
            .filter(|(_, resource)| resource.kind != Kind::Lock)
            .map(|(r, _)| r)
            .collect();
        if self.moved.take().is_some_and(|before| share > before * 0.95) {
            self.turn += 1;
        }
        let late = |class: u32| self.late.get(&class).copied().unwrap_or_default();
        let victim = self.held.iter().copied().max_by_key(|&class| late(class).late);
        let may_give = |class: u32| {
            Some(class) != victim && (!self.held.contains(&class) || late(class).share() <= ALLOWED)
        };
        // A resource of which nobody else has anything to give has no turn.
        for _ in 0..divisible.len() {
            let resource = divisible[self.turn % divisible.len()];
            let donors = self.taken.iter().filter(|((r, class), _)| *r == resource && may_give(*class));
            let donor = donors.max_by_key(|&((_, class), &taken)| (!self.held.contains(class), taken));
            let donor = donor.map(|(&place, _)| place);
            let steps = donor.map(|place| self.parts.get(&place).copied().unwrap_or(STEPS));
            if let (Some(place), Some(steps @ 1..)) = (donor, steps) {
                self.moved = Some(share);
                self.set(place, steps - 1, scene, orders);
                return;
            }
            self.turn += 1;
        }
    }
}

impl Controller for Parties {
    fn name(&self) -> &'static str {
        "parties"
    }

    fn look(&mut self, now: Nanos, scene: &Scene, orders: &mut Vec<Order>) {
        self.lateness.add(Lateness::of(now, scene, self.limit));
        for task in scene.tasks.iter().filter(|task| task.request) {
            let late = u64::from(now.0.saturating_sub(task.started_ns) > self.limit.0);
            self.late.entry(task.class).or_default().add(Lateness { late, all: 1 });
        }
        for used in &scene.uses {
            let class = scene.tasks[used.task as usize].class;
            *self.taken.entry((used.resource, class)).or_default() += used.recent;
        }
        if now.since(self.began) >= ROUND {
            self.began = now;
            self.round(scene, orders);
            self.lateness = Lateness::default();
            self.late.clear();
            self.taken.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{Resource, Task, Use};
    use crate::testing::request;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    /// A late request of class 0 beside a background task of class 1 that uses most of the processors and of the disk.
    fn scene(late: u64) -> Scene {
        let used = |task, resource, recent| Use { task, resource, recent, used: recent, ..Use::default() };
        let heavy = Task { class: 1, request: false, ..request(2, 0) };
        Scene {
            tasks: vec![Task { class: 0, ..request(1, 0) }, heavy],
            resources: vec![
                Resource::quiet(Kind::Lock, 1),
                Resource::quiet(Kind::Cpu, 8),
                Resource::quiet(Kind::Io, 0),
            ],
            uses: vec![used(0, 1, 10), used(1, 1, 1_000), used(1, 2, 1_000)],
            finished: vec![(MS(30).0, late), (MS(5).0, 1_000 - late)],
            ..Scene::default()
        }
    }

    #[test]
    fn a_step_that_helps_is_followed_by_another_and_one_that_does_not_by_one_of_the_next_resource() {
        let mut parties = Parties::new(MS(20));
        let mut orders = |at: u64, late| {
            let mut orders = Vec::new();
            parties.look(MS(at), &scene(late), &mut orders);
            orders
        };
        let cap = |resource, units| Order::Cap { resource, class: 1, units };
        assert_eq!(orders(500, 500), [cap(1, 950)]);
        assert_eq!(orders(1_000, 300), [cap(1, 900)], "it has helped");
        assert_eq!(orders(1_500, 300), [cap(2, 950)], "it has not");
    }

    #[test]
    fn what_was_taken_is_given_back_in_the_end() {
        let mut parties = Parties::new(MS(20));
        let mut orders = Vec::new();
        parties.look(MS(500), &scene(500), &mut orders);
        orders.clear();
        let calm = Scene { tasks: Vec::new(), uses: Vec::new(), ..scene(0) };
        for round in 2..=11 {
            parties.look(MS(round * 500), &calm, &mut orders);
        }
        assert_eq!(orders, [Order::Cap { resource: 1, class: 1, units: 1_000 }]);
        assert!(parties.parts.is_empty());
    }
}
