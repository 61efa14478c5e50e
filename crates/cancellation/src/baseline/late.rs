//! Who is late: what all baselines tell by whether there is anything to be done.

use plimsoll_core::Nanos;

use crate::scene::Scene;

/// How many requests ended or are inside, and how many of them took longer than they may.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lateness {
    /// Longer.
    pub late: u64,
    /// All.
    pub all: u64,
}

impl Lateness {
    /// Of the requests that ended since the last look, and those inside that are older than they may be.
    pub fn of(now: Nanos, scene: &Scene, limit: Nanos) -> Lateness {
        let ended = scene.ended().filter(|&(took, _)| took > limit.0).map(|(_, count)| count);
        let inside = scene.tasks.iter().filter(|task| task.request);
        let inside = inside.filter(|task| now.0.saturating_sub(task.started_ns) > limit.0).count() as u64;
        Lateness { late: ended.sum::<u64>() + inside, all: scene.completions() + inside }
    }

    /// Both together.
    pub fn add(&mut self, other: Lateness) {
        self.late += other.late;
        self.all += other.all;
    }

    /// The share that is late; none of none.
    pub fn share(self) -> f64 {
        self.late as f64 / self.all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    #[test]
    fn who_ended_late_and_who_is_still_there_too_long_are_late() {
        let tasks = vec![request(1, 0), crate::Task { started_ns: 95_000_000, ..request(2, 0) }];
        let finished = vec![(5_000_000, 7), (30_000_000, 1)];
        let scene = Scene { tasks, finished, ..Scene::default() };
        let lateness = Lateness::of(Nanos::from_millis(100), &scene, Nanos::from_millis(20));
        assert_eq!(lateness, Lateness { late: 2, all: 9 });
        assert_eq!(Lateness::default().share(), 0.0);
    }
}
