//! What a controller orders, carried out as an application would.

use plimsoll_cancellation::Order;

use super::engine::{Engine, Gone};
use super::live::{Cancelling, Doing};
use super::ran::{Done, Fate};
use super::resource::State;

impl Engine<'_> {
    /// Does what is ordered, where that is possible.
    pub(super) fn obey(&mut self, order: Order) {
        match order {
            Order::Cancel { task, .. } => self.cancel(task),
            Order::Drop { task } => self.drop(task),
            Order::Delay { task, pause } => {
                if let Some(place) = self.tasks.find(task) {
                    let live = self.tasks.at(place);
                    live.pause = pause;
                    self.ran.pauses += 1;
                }
            }
            Order::Cap { resource, class, units } => self.cap(resource, class, units),
            Order::Rerun { task } => {
                if let Some(Gone { class, record }) = self.gone.remove(&task) {
                    self.act(Done::Rerun, class, task);
                    self.ran.records[record as usize].fate = Fate::Unfinished;
                    self.start(class, record, false);
                }
            }
            Order::Abandon { task } => {
                if let Some(Gone { class, .. }) = self.gone.remove(&task) {
                    self.act(Done::Abandoned, class, task);
                }
            }
        }
    }

    /// The application is asked to cancel a task. It takes a moment until the task finds out, and then it ends at the next point at
    /// which it looks: where it waits or sleeps, or between two operations.
    fn cancel(&mut self, task: u64) {
        let Some(place) = self.tasks.find(task) else { return };
        let live = self.tasks.at(place);
        if !live.cancellable || live.cancelling != Cancelling::No {
            return;
        }
        live.cancelling = Cancelling::Ordered;
        let class = live.class;
        let after = self.case.classes[class as usize].cancel_after;
        self.act(Done::Cancelled, class, task);
        self.cancel_in(task, after);
    }

    /// A task that was cancelled finds out.
    pub(super) fn cancel_now(&mut self, task: u64) {
        let Some(place) = self.tasks.find(task) else { return };
        let live = self.tasks.at(place);
        live.cancelling = Cancelling::Due;
        match live.doing {
            Doing::Queued(_) => {
                self.leave_queue(place);
                self.wake(place);
            }
            Doing::Asleep => {
                live.token = live.token.wrapping_add(1);
                self.wake(place);
            }
            Doing::Ready | Doing::Working(_) => {}
        }
    }

    /// A request that waits gives up, as after a time-out of its own.
    fn drop(&mut self, task: u64) {
        let Some(place) = self.tasks.find(task) else { return };
        let live = self.tasks.at(place);
        let class = live.class;
        if matches!(live.doing, Doing::Queued(_)) && live.cancelling == Cancelling::No {
            self.act(Done::Dropped, class, task);
            self.end(place, Fate::Dropped);
        }
    }

    fn cap(&mut self, resource: u32, class: u32, units: u64) {
        let now = self.now;
        if class as usize >= self.case.classes.len() {
            return;
        }
        match self.states.get_mut(resource as usize) {
            Some(State::Cpu(fluid) | State::Device(fluid)) => fluid.cap(class, units, now),
            Some(State::Pool(pool)) => {
                pool.classes[class as usize].1 = units;
                self.grant(resource);
            }
            Some(State::Pages(pages, _)) => pages.cap(class, units),
            // Nobody can have a part of a lock, and a collected heap is everybody's.
            Some(State::Lock(_) | State::Heap(_)) | None => {}
        }
    }
}
