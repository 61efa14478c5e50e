//! What a controller is shown: what a ledger would hold, and no more.

use plimsoll_cancellation::{Scene, Task, Use};

use super::engine::Engine;

impl Engine<'_> {
    /// Fills the scene with what is there now, and what happened since this was last called.
    pub(super) fn show(&mut self, scene: &mut Scene) {
        scene.clear();
        let now = self.now;
        let places: Vec<u32> = self.tasks.iter().map(|(place, _)| place).collect();
        places.into_iter().for_each(|place| self.settle(place));
        let (case, tallies) = (self.case, &mut self.tallies);
        for (i, live) in (0u32..).zip(self.tasks.iter_mut()) {
            let class = &case.classes[live.class as usize];
            scene.tasks.push(Task {
                id: live.id,
                class: live.class,
                started_ns: live.started.0,
                deadline_ns: class.deadline.map_or(0, |deadline| (live.started + deadline).0),
                done: live.done,
                total: class.program.total,
                request: !class.background,
                cancellable: live.cancellable,
                rerunnable: live.rerunnable,
            });
            for account in &mut live.accounts {
                let spec = &case.resources[account.resource as usize];
                tallies[account.resource as usize].going_on(account, now);
                // An account only counts; that no more can be held than there is, the reader knows.
                let capacity = spec.is.capacity();
                let held = if capacity > 0 { account.held.min(capacity) } else { account.held };
                scene.uses.push(Use {
                    task: i,
                    resource: account.resource,
                    held,
                    held_ns: account.held_ns(now),
                    used: account.used(spec.is.kind(), now),
                    recent: account.recent(spec.is.kind(), now),
                    waiting_ns: account.waiting_ns(now),
                });
            }
        }
        scene.resources.extend(tallies.iter_mut().map(|tally| tally.take(now)));
        scene.finished_ns = self.latencies.take(&mut scene.finished);
    }
}
