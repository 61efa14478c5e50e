//! pBox (Hu et al., SOSP '23): who makes others wait for something inside the application pauses, so that they get ahead of it.
//!
//! Each task is a box. A resource's interference is the time that waiting for it takes of the time of those who are at it; where that is
//! above the goal, boxes that have used much more of the resource lately than others are noisy. Each pauses when it next holds no lock
//! (the original acts when a resource is given back, lest it stop others for longer). How long adapts: longer each time that the
//! interference has not fallen, shorter when it has.

use std::collections::BTreeMap;

use plimsoll_core::Nanos;

use crate::controller::{Controller, Order};
use crate::scene::{Kind, Scene, Use};

/// Time that may be lost to a resource, of the time of those who use it or wait for it. In the original whoever makes a box says so; one half is
/// our choice.
const GOAL: f64 = 0.5;
/// The first pause, the shortest and the longest.
const FIRST: Nanos = Nanos::from_millis(20);
const SHORTEST: Nanos = Nanos::from_millis(1);
const LONGEST: Nanos = Nanos::from_secs(10);
/// What a box must have used of a resource, as a multiple of what those who used it have on average, to be called noisy.
const NOISY: f64 = 2.0;

/// What is known of a box that was called noisy.
#[derive(Clone, Copy, Debug)]
struct Noisy {
    pause: Nanos,
    /// When it may be told to pause again.
    until: Nanos,
    /// The interference when it was last told.
    level: f64,
    seen: Nanos,
}

/// Decides for one application.
#[derive(Clone, Debug, Default)]
pub struct Pbox {
    noisy: BTreeMap<u64, Noisy>,
    last: Option<Nanos>,
}

impl Pbox {
    /// One that has seen nothing yet.
    pub fn new() -> Pbox {
        Pbox::default()
    }
}

impl Controller for Pbox {
    fn name(&self) -> &'static str {
        "pbox"
    }

    fn look(&mut self, now: Nanos, scene: &Scene, orders: &mut Vec<Order>) {
        let elapsed = now.since(self.last.replace(now).unwrap_or(Nanos::ZERO)).0.max(1);
        for (r, resource) in (0u32..).zip(&scene.resources) {
            // Who gives back a worker is done, so a pause after that would help nobody.
            if resource.kind == Kind::Queue {
                continue;
            }
            let at_it = |used: &&Use| used.resource == r && (used.recent > 0 || used.waiting_ns > 0);
            let users = || scene.uses.iter().filter(at_it);
            let (all, count) = users().fold((0, 0u64), |(all, count), used| (all + used.recent, count + 1));
            let fair = all as f64 / count.max(1) as f64;
            let level = resource.delay_ns as f64 / (count.max(1) * elapsed) as f64;
            if level < GOAL {
                continue;
            }
            for used in users().filter(|used| used.recent as f64 >= fair * NOISY) {
                let id = scene.tasks[used.task as usize].id;
                let first = Noisy { pause: FIRST, until: Nanos::ZERO, level, seen: now };
                let known = self.noisy.contains_key(&id);
                let noisy = self.noisy.entry(id).or_insert(first);
                noisy.seen = now;
                if now < noisy.until {
                    continue;
                }
                if known {
                    let next = if level < noisy.level * 0.9 { noisy.pause.0 / 2 } else { noisy.pause.0 * 2 };
                    noisy.pause = Nanos(next).clamp(SHORTEST, LONGEST);
                }
                noisy.level = level;
                noisy.until = now + noisy.pause;
                orders.push(Order::Delay { task: id, pause: noisy.pause });
            }
        }
        self.noisy.retain(|_, noisy| now.since(noisy.seen) < Nanos::from_secs(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Resource;
    use crate::testing::request;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    /// Task 1 reads a thousand pages while tasks 2 and 3 read ten each, and this much time is lost to evictions.
    fn scene(delay: Nanos) -> Scene {
        let used = |task, recent| Use { task, recent, used: recent, held: recent, ..Use::default() };
        Scene {
            tasks: (1..=3).map(|id| request(id, 0)).collect(),
            resources: vec![Resource { delay_ns: delay.0, ..Resource::quiet(Kind::Memory, 100) }],
            uses: vec![used(0, 1_000), used(1, 10), used(2, 10)],
            ..Scene::default()
        }
    }

    #[test]
    fn the_noisy_one_pauses_longer_each_time_until_it_helps() {
        let mut pbox = Pbox::new();
        let mut pauses = |at: u64, delay| {
            let mut orders = Vec::new();
            pbox.look(MS(at), &scene(delay), &mut orders);
            orders
        };
        assert_eq!(pauses(20, MS(10)), [], "little is lost");
        assert_eq!(pauses(40, MS(50)), [Order::Delay { task: 1, pause: MS(20) }]);
        assert_eq!(pauses(50, MS(50)), [], "it pauses");
        assert_eq!(pauses(70, MS(50)), [Order::Delay { task: 1, pause: MS(40) }]);
        assert_eq!(pauses(130, MS(100)), [Order::Delay { task: 1, pause: MS(20) }], "it has helped");
    }
}
