//! The slowdowns of the last minute.

use std::collections::{HashMap, VecDeque};

use crate::row::{By, Key, rows, wants_enough};
use crate::scene::Scene;

/// How many seconds are kept.
pub const SECONDS: usize = 60;

/// The slowdown of every row, once a second. Rows that were not slowed for a minute take no memory.
#[derive(Debug, Default)]
pub struct History {
    of: HashMap<Key, VecDeque<f32>>,
}

impl History {
    /// Adds a second.
    pub fn add(&mut self, scene: &Scene) {
        let mut before = std::mem::take(&mut self.of);
        for by in [By::Process, By::Thread, By::Group] {
            for row in rows(scene.tasks.iter(), by) {
                let slowdown = if wants_enough(&row.of) { row.of.slowdown() as f32 } else { 1.0 };
                // Who is not in the scene any more is left behind.
                let mut seconds = before.remove(&row.key).unwrap_or_default();
                if slowdown > 1.0 || !seconds.is_empty() {
                    seconds.push_back(slowdown);
                }
                while seconds.len() > SECONDS {
                    seconds.pop_front();
                }
                if seconds.iter().any(|&slowdown| slowdown > 1.0) {
                    self.of.insert(row.key, seconds);
                }
            }
        }
    }

    /// The slowdowns of this row, the latest last: none where it was not slowed of late.
    pub fn of(&self, key: &Key) -> impl ExactSizeIterator<Item = f64> + '_ {
        const NONE: &VecDeque<f32> = &VecDeque::new();
        self.of.get(key).unwrap_or(NONE).iter().map(|&slowdown| f64::from(slowdown))
    }
}

/// How high a slowdown stands in a sparkline, in 0..=1: by its logarithm, since 1 to 2 matters as much as 10 to 20. 1 is the floor, 32
/// and more the ceiling.
pub fn height(slowdown: f64) -> f64 {
    (slowdown.max(1.0).log2() / 5.0).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::task;

    fn scene(actual: f64) -> Scene {
        Scene { tasks: vec![task(1, 1, "a", "/x", 100.0, actual)], ..Scene::default() }
    }

    #[test]
    fn a_minute_is_kept_of_those_who_were_slowed_in_it() {
        let mut history = History::default();
        let seconds = |history: &History, key: Key| history.of(&key).collect::<Vec<_>>();
        history.add(&scene(100.0));
        assert!(seconds(&history, Key::Process(1)).is_empty(), "never slowed");
        for _ in 0..SECONDS + 5 {
            history.add(&scene(25.0));
        }
        for key in [Key::Process(1), Key::Group("/x".into()), Key::Group("/".into())] {
            assert_eq!(seconds(&history, key), [4.0; SECONDS]);
        }
        for _ in 0..SECONDS - 1 {
            history.add(&scene(100.0));
        }
        assert_eq!(seconds(&history, Key::Process(1)).len(), SECONDS);
        history.add(&scene(100.0));
        assert!(history.of.is_empty(), "not slowed for a minute");
        history.add(&scene(0.0));
        assert_eq!(seconds(&history, Key::Process(1)), [f64::INFINITY]);
        history.add(&Scene::default());
        assert!(history.of.is_empty(), "gone");
    }

    #[test]
    fn heights_are_those_of_logarithms() {
        assert_eq!([1.0, 2.0, 32.0, f64::INFINITY, 0.0].map(height), [0.0, 0.2, 1.0, 1.0, 0.0]);
    }
}
