//! What tasks usually take of a resource, so that only one that takes far more is ever to blame.
//!
//! The paper cancels whoever gains most. Somebody always does: under plain overload, where all are alike, that would be an innocent.
//! So what is usual is learnt, while objectives are kept, and again from what ends now, in case everybody is slower.

use plimsoll_core::Nanos;

use crate::choose::FAR_ABOVE;
use crate::fading::{self, Pair};
use crate::scene::{Kind, Resource, Scene};

/// How long what is usual is remembered.
const LONG: Nanos = Nanos::from_secs(60);
/// For as long as this, whoever is seen to take far more than usual is not yet taken to do so always: an overload that begins slowly soon
/// after we began to look is no habit.
const HABIT: Nanos = Nanos::from_secs(10);
/// What ends now.
const SHORT: Nanos = Nanos::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
struct Takings {
    /// Holds that ended and their ns; of what is not held for a time, requests that ended and units that were taken.
    calm: Pair,
    recent: Pair,
    /// Time in ns, and what those took of it that took far more than usual: there may always be some.
    heavy: Pair,
}

/// What is usual of every resource.
#[derive(Debug, Default)]
pub struct Usual {
    takings: Vec<Takings>,
    /// Of each resource, what those took since the last look who are still there and have taken far more than usual by now.
    unended: Vec<u64>,
}

impl Usual {
    /// Takes in what happened in the last `elapsed`; `calm` tells whether objectives were kept.
    pub fn look(&mut self, elapsed: Nanos, scene: &Scene, calm: bool) {
        self.takings.resize(self.takings.len().max(scene.resources.len()), Takings::default());
        self.look_at_unended(scene);
        let completions = scene.completions();
        for ((takings, resource), unended) in self.takings.iter_mut().zip(&scene.resources).zip(&self.unended)
        {
            let is_held = resource.kind.is_held();
            let (count, amount) =
                if is_held { (resource.ended, resource.ended_ns) } else { (completions, resource.gets) };
            // What is not held for a time is counted as it is taken. Where nobody gets done, or before somebody is, that says nothing of what
            // one takes who does.
            if is_held || completions > 0 {
                let amount = amount.saturating_sub(*unended);
                takings.recent.add(fading::factor(elapsed, SHORT), count as f64, amount as f64);
            }
            if calm {
                takings.calm.add(fading::factor(elapsed, LONG), count as f64, amount as f64);
            }
        }
    }

    fn look_at_unended(&mut self, scene: &Scene) {
        self.unended.clear();
        self.unended.resize(self.takings.len(), 0);
        for used in &scene.uses {
            let resource = used.resource as usize;
            let is_held = scene.resources.get(resource).is_none_or(|resource| resource.kind.is_held());
            let usual = if is_held { 0.0 } else { self.taken(resource) };
            if usual > 0.0 && used.used as f64 > FAR_ABOVE * usual {
                self.unended[resource] += used.recent;
            }
        }
    }

    /// Tells what those who took far more than usual took in the last `elapsed`, while objectives were kept.
    pub fn heavy(&mut self, resource: usize, elapsed: Nanos, taken: f64) {
        self.takings[resource].heavy.add(fading::factor(elapsed, LONG), elapsed.0 as f64, taken);
    }

    /// Takes back a hold that ended because it was cancelled: it was not usual.
    pub fn forget(&mut self, resource: usize, held_ns: u64) {
        let recent = &mut self.takings[resource].recent;
        recent.count = (recent.count - 1.0).max(0.0);
        recent.amount = (recent.amount - held_ns as f64).max(0.0);
    }

    /// What a task usually takes: the mean hold in ns; of what is not held for a time, units a request. The larger of what was usual
    /// and what ends now.
    pub fn taken(&self, resource: usize) -> f64 {
        let takings = &self.takings[resource];
        takings.calm.ratio().max(takings.recent.ratio())
    }

    /// What those who take far more than usual usually take together in `elapsed`.
    pub fn heavy_in(&self, resource: usize, elapsed: Nanos) -> f64 {
        let Pair { count, amount } = self.takings[resource].heavy;
        amount / count.max(HABIT.0 as f64) * elapsed.0 as f64
    }
}

/// What all tasks together took of a resource since the last look, in the measure of [`crate::scene::Use::recent`].
pub fn taken_by_all(resource: &Resource, elapsed: Nanos) -> f64 {
    match resource.kind {
        // Whoever holds a lock for a third of the time keeps all others out for a third of the time, however many share it otherwise.
        Kind::Lock => elapsed.0 as f64,
        Kind::Queue | Kind::Cpu => resource.use_ns as f64,
        Kind::Memory | Kind::Io => resource.gets as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Use;
    use crate::testing::task;

    const LOOK: Nanos = Nanos::from_millis(20);

    fn scene(ended: u64, each_ms: u64) -> Scene {
        let resource =
            Resource { ended, ended_ns: ended * each_ms * 1_000_000, ..Resource::quiet(Kind::Queue, 8) };
        Scene { resources: vec![resource], ..Scene::default() }
    }

    #[test]
    fn overload_teaches_nothing_but_when_everybody_is_slower_that_is_usual() {
        let mut usual = Usual::default();
        (0..100).for_each(|_| usual.look(LOOK, &scene(10, 5), true));
        assert!((usual.taken(0) - 5e6).abs() < 1.0, "{}", usual.taken(0));
        (0..500).for_each(|_| usual.look(LOOK, &scene(10, 50), false));
        assert!(usual.taken(0) > 49e6, "all who end took fifty");
        (0..500).for_each(|_| usual.look(LOOK, &scene(10, 5), false));
        assert!((usual.taken(0) - 5e6).abs() < 1e4, "and it is over: {}", usual.taken(0));
    }

    #[test]
    fn a_hold_that_was_cancelled_is_taken_back() {
        let mut usual = Usual::default();
        (0..100).for_each(|_| usual.look(LOOK, &scene(10, 5), true));
        usual.look(LOOK, &scene(1, 10_000), false);
        usual.forget(0, 10_000_000_000);
        assert!(usual.taken(0) < 5.1e6, "{}", usual.taken(0));
    }

    #[test]
    fn what_has_just_begun_is_no_habit() {
        let mut usual = Usual::default();
        (0..50).for_each(|_| usual.look(LOOK, &scene(10, 5), true));
        (0..100).for_each(|_| usual.heavy(0, LOOK, LOOK.0 as f64));
        assert!(usual.heavy_in(0, LOOK) < 0.25 * LOOK.0 as f64, "two seconds");
        (0..3_000).for_each(|_| usual.heavy(0, LOOK, LOOK.0 as f64));
        assert!(usual.heavy_in(0, LOOK) > 0.9 * LOOK.0 as f64, "a minute");
    }

    #[test]
    fn who_is_not_done_says_nothing_of_what_is_usual_of_processors() {
        let scene = |completions: u64, mine_ms: u64, in_all_ms: u64| {
            let processors = Resource {
                gets: (10 * completions + in_all_ms) * 1_000_000,
                ..Resource::quiet(Kind::Cpu, 2)
            };
            let uses =
                vec![Use { used: mine_ms * 1_000_000, recent: in_all_ms * 1_000_000, ..Use::default() }];
            let finished = vec![(1_000_000, completions)];
            Scene { tasks: vec![task(0)], resources: vec![processors], uses, finished, ..Scene::default() }
        };
        let mut usual = Usual::default();
        (0..100).for_each(|_| usual.look(LOOK, &scene(1, 0, 0), true));
        assert_eq!(usual.taken(0), 10e6);
        (1..500).for_each(|look| usual.look(LOOK, &scene(look % 2, 40 * look, 40), false));
        assert!(usual.taken(0) < 12e6, "one computes for ten seconds: {}", usual.taken(0));
        (0..500).for_each(|_| usual.look(LOOK, &scene(0, 20, 20), false));
        assert!(usual.taken(0) < 12e6, "nobody gets done: {}", usual.taken(0));
        (0..500).for_each(|_| usual.look(LOOK, &scene(1, 5, 290), false));
        assert!(usual.taken(0) > 290e6, "everybody takes so much: {}", usual.taken(0));
    }

    #[test]
    fn what_is_not_held_is_counted_by_the_request() {
        let mut usual = Usual::default();
        let pages = Resource { gets: 40, ..Resource::quiet(Kind::Memory, 1_000) };
        let scene = Scene { resources: vec![pages], finished: vec![(1_000_000, 10)], ..Scene::default() };
        usual.look(LOOK, &scene, true);
        assert_eq!(usual.taken(0), 4.0);
    }
}
