//! What tasks usually take of a resource, so that only one that takes far more is ever to blame.
//!
//! The paper cancels whoever gains most. Somebody always does: under plain overload, where all are alike, that would be an innocent.
//! So what is usual is learnt, while objectives are kept, and again from what ends now, in case everybody is slower.

use plimsoll_core::Nanos;
use rustc_hash::FxHashMap;

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
/// Where it is no larger part of those who get done that took far more than usual, it is not what everybody takes now. Those who are to blame
/// get done, too, and come again.
const FEW: f64 = 0.2;
/// Where nothing is kept of a resource.
const NOWHERE: usize = usize::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Takings {
    /// Holds that ended and their ns; of what is not held for a time, requests that ended and units that were taken.
    calm: Pair,
    recent: Pair,
    /// Of those the requests that took far more than was usual in calm.
    far: Pair,
    /// What was taken since somebody got done last.
    pending: f64,
    /// Time in ns, and what those took of it that took far more than usual: there may always be some.
    heavy: Pair,
}

/// What is usual of every resource.
#[derive(Debug, Default)]
pub struct Usual {
    takings: Vec<Takings>,
    unended: Unended,
}

/// By task, what those took who are not done, of what is not held for a time: holds tell when they end. There may be as many as there are tasks
/// and resources at every look, so what is kept of a task stays where it is.
#[derive(Debug, Default)]
struct Unended(FxHashMap<u64, Taken>);

#[derive(Debug, Default)]
struct Taken {
    /// Whether the task is there in this look.
    is_there: bool,
    is_request: bool,
    /// Of each resource that is not held for a time.
    of: Vec<u64>,
}

impl Usual {
    /// Takes in what happened in the last `elapsed`; `calm` tells whether objectives were kept, and `was_cancelled` who was told to end.
    pub fn look(&mut self, elapsed: Nanos, scene: &Scene, calm: bool, was_cancelled: impl Fn(u64) -> bool) {
        self.takings.resize(self.takings.len().max(scene.resources.len()), Takings::default());
        let far_above = self.takings.iter().map(|takings| {
            let usual = takings.calm.ratio();
            if usual == 0.0 { u64::MAX } else { (FAR_ABOVE * usual) as u64 }
        });
        let far_above: Vec<u64> = far_above.collect();
        let unended = self.unended.look(scene, &far_above, was_cancelled);
        let completions = scene.completions();
        for ((takings, resource), done) in self.takings.iter_mut().zip(&scene.resources).zip(unended) {
            let is_held = resource.kind.is_held();
            let (count, amount, not_yet) = match is_held {
                true => (resource.ended, resource.ended_ns, 0),
                false => (completions, resource.gets, done.not_yet),
            };
            takings.pending += amount as f64 - not_yet as f64;
            // What is not held for a time is taken by those who get done later. While nobody does, that says nothing of what one takes who does.
            let learns = is_held || completions > 0;
            let fades = if learns { fading::factor(elapsed, SHORT) } else { 1.0 };
            if learns {
                takings.recent.add(fades, count as f64, std::mem::take(&mut takings.pending).max(0.0));
            }
            takings.far.add(fades, done.far as f64, done.far_amount as f64);
            if calm {
                takings.calm.add(fading::factor(elapsed, LONG), count as f64, amount as f64);
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
        let Takings { calm, recent, far, .. } = &self.takings[resource];
        let few = far.count <= FEW * recent.count;
        let most = Pair { count: recent.count - far.count, amount: recent.amount - far.amount };
        calm.ratio().max(if few { most.ratio() } else { recent.ratio() })
    }

    /// What those who take far more than usual usually take together in `elapsed`.
    pub fn heavy_in(&self, resource: usize, elapsed: Nanos) -> f64 {
        let Pair { count, amount } = self.takings[resource].heavy;
        amount / count.max(HABIT.0 as f64) * elapsed.0 as f64
    }
}

/// What a look shows of those who are done, and of those who are not.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// What was taken in this look that counts later, when who took it is done; below zero where more is counted now that was taken before.
    not_yet: i64,
    /// Requests that are gone and took far more than usual, and what they took.
    far: u64,
    far_amount: u64,
}

impl Unended {
    /// Takes in a look; of each resource, who is done. What those took who were cancelled never counts: it was not usual.
    fn look(&mut self, scene: &Scene, far_above: &[u64], was_cancelled: impl Fn(u64) -> bool) -> Vec<Done> {
        let mut done = vec![Done::default(); scene.resources.len()];
        let is_not_held = |&resource: &usize| !scene.resources[resource].kind.is_held();
        let not_held: Vec<usize> = (0..done.len()).filter(is_not_held).collect();
        let mut places = vec![NOWHERE; done.len()];
        not_held.iter().enumerate().for_each(|(place, &resource)| places[resource] = place);
        // Uses come in the order of tasks.
        for uses in scene.uses.chunk_by(|a, b| a.task == b.task) {
            let Some(task) = scene.tasks.get(uses[0].task as usize) else { continue };
            let taken = self.0.entry(task.id).or_default();
            taken.is_there = true;
            taken.is_request = task.request;
            taken.of.resize(not_held.len(), 0);
            for used in uses {
                let resource = used.resource as usize;
                let place = places.get(resource).copied().unwrap_or(NOWHERE);
                if let Some(amount) = taken.of.get_mut(place) {
                    *amount = amount.saturating_add(used.recent);
                    done[resource].not_yet = done[resource].not_yet.saturating_add_unsigned(used.recent);
                }
            }
        }
        self.0.retain(|&task, taken| {
            let is_there = std::mem::take(&mut taken.is_there);
            if !is_there && !was_cancelled(task) {
                for (&resource, &amount) in not_held.iter().zip(&taken.of) {
                    let done = &mut done[resource];
                    done.not_yet = done.not_yet.saturating_sub_unsigned(amount);
                    if taken.is_request && amount > far_above[resource] {
                        done.far += 1;
                        done.far_amount = done.far_amount.saturating_add(amount);
                    }
                }
            }
            is_there
        });
        done
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
    use crate::testing::{request, task};

    const LOOK: Nanos = Nanos::from_millis(20);

    fn scene(ended: u64, each_ms: u64) -> Scene {
        let resource =
            Resource { ended, ended_ns: ended * each_ms * 1_000_000, ..Resource::quiet(Kind::Queue, 8) };
        Scene { resources: vec![resource], ..Scene::default() }
    }

    #[test]
    fn overload_teaches_nothing_but_when_everybody_is_slower_that_is_usual() {
        let mut usual = Usual::default();
        (0..100).for_each(|_| usual.look(LOOK, &scene(10, 5), true, |_| false));
        assert!((usual.taken(0) - 5e6).abs() < 1.0, "{}", usual.taken(0));
        (0..500).for_each(|_| usual.look(LOOK, &scene(10, 50), false, |_| false));
        assert!(usual.taken(0) > 49e6, "all who end took fifty");
        (0..500).for_each(|_| usual.look(LOOK, &scene(10, 5), false, |_| false));
        assert!((usual.taken(0) - 5e6).abs() < 1e4, "and it is over: {}", usual.taken(0));
    }

    #[test]
    fn a_hold_that_was_cancelled_is_taken_back() {
        let mut usual = Usual::default();
        (0..100).for_each(|_| usual.look(LOOK, &scene(10, 5), true, |_| false));
        usual.look(LOOK, &scene(1, 10_000), false, |_| false);
        usual.forget(0, 10_000_000_000);
        assert!(usual.taken(0) < 5.1e6, "{}", usual.taken(0));
    }

    #[test]
    fn what_has_just_begun_is_no_habit() {
        let mut usual = Usual::default();
        (0..50).for_each(|_| usual.look(LOOK, &scene(10, 5), true, |_| false));
        (0..100).for_each(|_| usual.heavy(0, LOOK, LOOK.0 as f64));
        assert!(usual.heavy_in(0, LOOK) < 0.25 * LOOK.0 as f64, "two seconds");
        (0..3_000).for_each(|_| usual.heavy(0, LOOK, LOOK.0 as f64));
        assert!(usual.heavy_in(0, LOOK) > 0.9 * LOOK.0 as f64, "a minute");
    }

    /// A look in which requests have taken 10 ms of the processors each that are done, and a task 100 ms, which has had so much by now.
    fn computing(done: u64, id: u64, used_ms: u64) -> Scene {
        let recent = 100_000_000.min(used_ms * 1_000_000);
        let gets = 10_000_000 * done + recent;
        Scene {
            tasks: vec![task(id)],
            resources: vec![Resource { gets, ..Resource::quiet(Kind::Cpu, 2) }],
            uses: vec![Use { used: used_ms * 1_000_000, recent, ..Use::default() }],
            finished: vec![(1_000_000, done)],
            ..Scene::default()
        }
    }

    #[test]
    fn who_is_not_done_says_nothing_of_what_is_usual_of_processors() {
        let mut usual = Usual::default();
        (0..100).for_each(|_| usual.look(LOOK, &computing(1, 0, 0), true, |_| false));
        assert_eq!(usual.taken(0), 10e6);
        (1..500).for_each(|look| usual.look(LOOK, &computing(look % 2, 0, 100 * look), false, |_| false));
        assert!(usual.taken(0) < 13e6, "one computes for ten seconds: {}", usual.taken(0));
        (0..500).for_each(|look| usual.look(LOOK, &computing(0, 0, 50_000 + 100 * look), false, |_| false));
        assert!(usual.taken(0) < 13e6, "nobody gets done: {}", usual.taken(0));
    }

    #[test]
    fn those_who_have_just_begun_say_nothing_of_it_either() {
        let mut usual = Usual::default();
        (0..100).for_each(|_| usual.look(LOOK, &computing(1, 0, 0), true, |_| false));
        // Twelve have come, and each has a little of the processors; none has far more than usual yet.
        for look in 1..6 {
            let uses = (0..12).map(|task| Use {
                task,
                used: look * 15_000_000,
                recent: 15_000_000,
                ..Use::default()
            });
            let scene = Scene {
                tasks: (0..12).map(task).collect(),
                resources: vec![Resource { gets: 190_000_000, ..Resource::quiet(Kind::Cpu, 2) }],
                uses: uses.collect(),
                finished: vec![(1_000_000, 1)],
                ..Scene::default()
            };
            usual.look(LOOK, &scene, false, |_| false);
        }
        assert!((usual.taken(0) - 10e6).abs() < 1.0, "{}", usual.taken(0));
    }

    #[test]
    fn who_is_done_counts_with_all_it_took_of_processors_unless_it_was_cancelled() {
        for (cancelled, expected) in [(false, 250e6..310e6), (true, 9e6..11e6)] {
            let mut usual = Usual::default();
            (0..100).for_each(|_| usual.look(LOOK, &computing(1, 0, 0), true, |_| false));
            for id in 1..100 {
                // The one before is done, or gone.
                let done =
                    Scene { finished: vec![(1_000_000, u64::from(!cancelled))], ..computing(0, id, 100) };
                usual.look(LOOK, &done, false, |_| cancelled);
                (2..4).for_each(|n| usual.look(LOOK, &computing(0, id, 100 * n), false, |_| cancelled));
            }
            assert!(expected.contains(&usual.taken(0)), "{cancelled}: {}", usual.taken(0));
        }
    }

    #[test]
    fn a_few_who_get_done_after_far_more_than_usual_do_not_make_it_usual() {
        for (lights, expected) in [(10, 9e6..11e6), (2, 200e6..230e6)] {
            let mut usual = Usual::default();
            (0..100).for_each(|_| usual.look(LOOK, &computing(10, 0, 0), true, |_| false));
            for id in 1..500 {
                // The one before is done, after 600 ms.
                let scene = Scene { tasks: vec![request(id, 0)], ..computing(lights, id, 600) };
                let recent = 600_000_000;
                let resources = vec![Resource { gets: 10_000_000 * lights + recent, ..scene.resources[0] }];
                let uses = vec![Use { recent, ..scene.uses[0] }];
                let finished = vec![(1_000_000, lights + 1)];
                usual.look(LOOK, &Scene { resources, uses, finished, ..scene }, false, |_| false);
            }
            assert!(expected.contains(&usual.taken(0)), "{lights}: {}", usual.taken(0));
        }
    }

    #[test]
    fn what_is_not_held_is_counted_by_the_request() {
        let mut usual = Usual::default();
        let pages = Resource { gets: 40, ..Resource::quiet(Kind::Memory, 1_000) };
        let scene = Scene { resources: vec![pages], finished: vec![(1_000_000, 10)], ..Scene::default() };
        usual.look(LOOK, &scene, true, |_| false);
        assert_eq!(usual.taken(0), 4.0);
    }
}
