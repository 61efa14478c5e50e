//! Who takes the CPU from whom.

use std::collections::HashMap;

use plimsoll_cpufutures::TaskId;

use crate::row::Key;
use crate::scene::{Scene, Takers, Task};

/// So many threads are asked about at most, those that waited the most: an answer looks at all threads of the host.
pub const MAX_ASKED: usize = 128;

/// Somebody who ran while others waited.
#[derive(Clone, Debug, PartialEq)]
pub struct Taker {
    /// A thread where it took from a thread, else a process.
    pub key: Key,
    /// Its name.
    pub name: String,
    /// How much it took, in ms/s.
    pub took_ms_per_s: f64,
    /// Whether these are threads of the very process that waited.
    pub own: bool,
}

/// Who took the CPU from what is behind a row, the greatest first.
pub fn takers(scene: &Scene, from: &Key, ask: Takers) -> Vec<Taker> {
    let tasks: HashMap<TaskId, &Task> = scene.tasks.iter().map(|task| (task.id, task)).collect();
    let waited = |task: &&Task| task.of.waited_ms_per_s > 0.0 && from.holds(task);
    let mut victims: Vec<&Task> = scene.tasks.iter().filter(waited).collect();
    victims.sort_by(|a, b| b.of.waited_ms_per_s.total_cmp(&a.of.waited_ms_per_s).then(a.id.cmp(&b.id)));
    let mut sums: HashMap<Key, Taker> = HashMap::new();
    for victim in victims.into_iter().take(MAX_ASKED) {
        for plimsoll_cpufutures::Taker { id, ms_per_s } in ask(&victim.id) {
            let Some(taker) = tasks.get(&id) else { continue };
            let (key, name) = match from {
                Key::Thread(_) => (Key::Thread(id), &taker.comm),
                _ => (Key::Process(id.pid), &taker.process),
            };
            let own = *from == Key::Process(id.pid);
            let new = || Taker { key: key.clone(), name: name.clone(), took_ms_per_s: 0.0, own };
            sums.entry(key.clone()).or_insert_with(new).took_ms_per_s += ms_per_s;
        }
    }
    let mut takers: Vec<Taker> = sums.into_values().filter(|taker| taker.took_ms_per_s > 0.0).collect();
    takers.sort_by(|a, b| b.took_ms_per_s.total_cmp(&a.took_ms_per_s).then_with(|| a.key.cmp(&b.key)));
    takers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::task;

    fn taken((id, ms_per_s): (TaskId, f64)) -> plimsoll_cpufutures::Taker {
        plimsoll_cpufutures::Taker { id, ms_per_s }
    }

    #[test]
    fn takers_of_all_threads_are_summed_by_process_and_ones_own_are_marked() {
        let tasks = vec![
            task(1, 1, "a", "/web", 100.0, 50.0),
            task(1, 2, "b", "/web", 100.0, 50.0),
            task(2, 2, "hog", "/batch", 900.0, 900.0),
            task(3, 3, "idle", "/web", 0.0, 0.0),
        ];
        let scene = Scene { tasks, ..Scene::default() };
        let id = |at: usize| scene.tasks[at].id;
        // Each waiting thread: 30 ms/s to the hog, 20 to its sibling, 1 to one that has gone.
        let ask = |victim: &TaskId| {
            let sibling = if victim.tid == 1 { id(1) } else { id(0) };
            [(id(2), 30.0), (sibling, 20.0), (TaskId { pid: 9, tid: 9, started: 9 }, 1.0)].map(taken).to_vec()
        };
        let told = |from: &Key| -> Vec<(String, f64, bool)> {
            takers(&scene, from, &ask).into_iter().map(|t| (t.name, t.took_ms_per_s, t.own)).collect()
        };
        let of_process = told(&Key::Process(1));
        assert_eq!(of_process, [("proc-2".to_owned(), 60.0, false), ("proc-1".to_owned(), 40.0, true)]);
        assert_eq!(told(&Key::Group("/web".into()))[1], ("proc-1".to_owned(), 40.0, false));
        assert_eq!(
            told(&Key::Thread(id(0))),
            [("hog".to_owned(), 30.0, false), ("b".to_owned(), 20.0, false)]
        );
        assert_eq!(told(&Key::Process(3)), [], "who does not wait is robbed by nobody");
    }
}
