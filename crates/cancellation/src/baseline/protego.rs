//! Protego (Cho et al., NSDI '23): give up whoever waits for a lock so long that its objective is lost anyway, and admit more only while
//! that gets more done.
//!
//! *Active synchronisation queue management*: a request that waits for a lock is dropped as soon as it could not be answered in time even
//! if it had the lock now. The original decides when the request comes to the lock, from how long the queue's delay is; here it is found at
//! the next look, which is why this baseline looks often.
//!
//! *Performance-driven admission control*: a pool of credits, one for each request inside, that grows by a step while throughput grows
//! with it, and shrinks by a factor when it does not and requests are late. A request without a credit is turned away. Credits are
//! never fewer than what keeps the throughput that there is.

use plimsoll_core::Nanos;

use super::late::Lateness;
use crate::controller::{Controller, Order};
use crate::scene::{Kind, Scene};

/// A round of the credits.
const ROUND: Nanos = Nanos::from_millis(100);
/// What throughput must grow by, of what the credits grew by, for growing to pay (the original's efficiency threshold).
const EFFICIENCY: f64 = 0.1;
/// The share by which credits grow and shrink.
const STEP: f64 = 0.05;
/// Requests that may be late, of all: the objective is a 99th percentile.
const ALLOWED: f64 = 0.01;
/// Credits there are at most, and at least.
const CREDITS: (f64, f64) = (8.0, 100_000.0);
/// From one look to the next, unless it is told otherwise.
const INTERVAL: Nanos = Nanos::from_millis(4);

/// Decides for one application.
#[derive(Clone, Debug)]
pub struct Protego {
    limit: Nanos,
    interval: Nanos,
    credits: f64,
    /// Of this round.
    began: Nanos,
    done: u64,
    lateness: Lateness,
    /// Of the last round, a second.
    throughput_per_s: f64,
}

impl Protego {
    /// Requests may take so long.
    pub fn new(limit: Nanos) -> Protego {
        Protego {
            limit,
            interval: INTERVAL,
            credits: CREDITS.1,
            began: Nanos::ZERO,
            done: 0,
            lateness: Lateness::default(),
            throughput_per_s: 0.0,
        }
    }

    /// The same where a look costs more: it gives up who would be late before the next one.
    pub fn every(self, interval: Nanos) -> Protego {
        Protego { interval, ..self }
    }

    fn round(&mut self, now: Nanos, inside: usize) {
        let throughput_per_s = self.done as f64 / now.since(self.began).as_secs_f64();
        if self.lateness.share() > ALLOWED {
            let pays = throughput_per_s > self.throughput_per_s * (1.0 + STEP * EFFICIENCY);
            if !pays {
                // What is inside is what the credits are: unused ones limit nobody.
                self.credits = self.credits.min(inside as f64) * (1.0 - STEP);
            }
        } else {
            self.credits += (self.credits * STEP).max(1.0);
        }
        self.credits = self.credits.clamp(CREDITS.0, CREDITS.1);
        (self.began, self.done, self.throughput_per_s) = (now, 0, throughput_per_s);
        self.lateness = Lateness::default();
    }
}

impl Controller for Protego {
    fn name(&self) -> &'static str {
        "protego"
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn look(&mut self, now: Nanos, scene: &Scene, orders: &mut Vec<Order>) {
        self.done += scene.completions();
        self.lateness.add(Lateness::of(now, scene, self.limit));
        let inside = scene.tasks.iter().filter(|task| task.request).count();
        if now.since(self.began) >= ROUND {
            self.round(now, inside);
        }
        let mut excess = (inside as f64 - self.credits).max(0.0) as usize;
        // The newest come last in what waits, and have cost least so far.
        let mut waiting: Vec<_> = scene.uses.iter().filter(|used| used.waiting_ns > 0).collect();
        waiting.sort_by_key(|used| used.waiting_ns);
        for used in waiting {
            let task = &scene.tasks[used.task as usize];
            let age = Nanos(now.0.saturating_sub(task.started_ns));
            let kind = scene.resources[used.resource as usize].kind;
            let in_vain = kind == Kind::Lock && age + self.interval() >= self.limit;
            // Who is not at work yet can still be turned away at the door.
            let too_many = kind == Kind::Queue && excess > 0;
            if task.request && (in_vain || too_many) {
                excess = excess.saturating_sub(1);
                orders.push(Order::Drop { task: task.id });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{Resource, Task, Use};
    use crate::testing::request;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn waiting(kind: Kind, started_ms: [u64; 3], now_ms: u64) -> Scene {
        let at = |id: usize| Task { started_ns: MS(started_ms[id]).0, ..request(id as u64 + 1, 0) };
        let wait =
            |i: usize| Use { task: i as u32, waiting_ns: MS(now_ms - started_ms[i]).0, ..Use::default() };
        Scene {
            tasks: (0..3).map(at).collect(),
            resources: vec![Resource::quiet(kind, 1)],
            uses: (0..3).map(wait).collect(),
            ..Scene::default()
        }
    }

    #[test]
    fn who_waits_for_a_lock_until_its_objective_is_lost_is_dropped() {
        let mut orders = Vec::new();
        Protego::new(MS(20)).look(MS(50), &waiting(Kind::Lock, [10, 31, 45], 50), &mut orders);
        assert_eq!(orders, [Order::Drop { task: 2 }, Order::Drop { task: 1 }]);
        orders.clear();
        Protego::new(MS(20)).look(MS(50), &waiting(Kind::Queue, [10, 31, 45], 50), &mut orders);
        assert_eq!(orders, [], "what is no lock it does not watch");
        Protego::new(MS(20)).every(MS(15)).look(MS(50), &waiting(Kind::Lock, [10, 31, 45], 50), &mut orders);
        assert_eq!(orders.len(), 3, "the youngest would be late at the next look");
    }

    #[test]
    fn credits_shrink_while_requests_are_late_and_nothing_is_gained_and_grow_when_they_are_not() {
        let mut protego = Protego::new(MS(20));
        let late = Scene { finished: vec![(MS(50).0, 10)], ..waiting(Kind::Queue, [0, 1, 2], 50) };
        let mut orders = Vec::new();
        for at in 1..200 {
            protego.look(MS(at * 100), &late, &mut orders);
        }
        assert_eq!(protego.credits, CREDITS.0);
        let fine = Scene { finished: vec![(MS(5).0, 10)], ..Scene::default() };
        protego.look(MS(20_000), &fine, &mut orders);
        assert!(protego.credits > CREDITS.0);
        assert_eq!(orders, [], "three inside are fewer than the credits");
    }
}
