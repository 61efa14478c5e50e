//! What is kept in memory: pages that push each other out, and a heap that is collected.

use plimsoll_core::Nanos;
use rand::RngExt;

use super::case::Miss;
use super::engine::Engine;
use super::live::Doing;
use super::pages::Read;
use super::program::{Amount, Reads};
use super::ran::Fate;
use super::resource::State;
use super::work::Then;

impl Engine<'_> {
    pub(super) fn touch(&mut self, task: u32, at: u32, pages: Amount, reads: Reads) -> Then {
        let Reads { first, among, in_order, cost, depth } = reads;
        let now = self.now;
        let live = self.tasks.at(task);
        if live.phase == 0 {
            live.left = pages.draw(&mut live.rng).round().max(0.0) as u32;
            live.phase = 1;
        }
        while live.left > 0 {
            live.left -= 1;
            let page = if in_order {
                live.cursor = live.cursor.wrapping_add(1);
                live.cursor % among
            } else {
                live.rng.random_range(0..among)
            };
            let State::Pages(cache, miss) = &mut self.states[at as usize] else { return Then::Next };
            let read = cache.read(first + page, live.class);
            let tally = &mut self.tallies[at as usize];
            tally.get(live.account(at), 1, now);
            if read == Read::Hit {
                continue;
            }
            live.evicting = read == Read::Evicted;
            tally.sum.slows += u64::from(live.evicting);
            let (on, units) = match *miss {
                Miss::Read { device, bytes, evict } => {
                    (device, if live.evicting { bytes + evict } else { bytes })
                }
                Miss::Compute { cpu, work } => (cpu, work),
            };
            self.begin_work(task, on, units * cost, depth);
            return Then::Wait;
        }
        Then::Next
    }

    pub(super) fn allocate(&mut self, task: u32, at: u32, units: Amount, keep: bool) -> Then {
        let now = self.now;
        let live = self.tasks.at(task);
        if live.phase == 0 {
            live.left = units.draw(&mut live.rng).round().max(0.0) as u32;
        }
        let State::Heap(heap) = &mut self.states[at as usize] else { return Then::Next };
        let want = f64::from(live.left);
        if heap.live + want > heap.units {
            return Then::End(Fate::Failed);
        }
        let tally = &mut self.tallies[at as usize];
        if heap.live + heap.garbage + want > heap.units {
            live.phase = 1;
            live.doing = Doing::Queued(at);
            tally.wait(live.account(at), 0, now);
            heap.waiting.push(task);
            self.collect(at);
            return Then::Wait;
        }
        if keep {
            heap.live += want;
            let units = u64::from(live.left);
            tally.get(live.account(at), units, now);
        } else {
            heap.garbage += want;
            tally.waited(live.account(at), now);
            tally.sum.gets += u64::from(live.left);
            live.account(at).units += want;
        }
        Then::Next
    }

    fn collect(&mut self, at: u32) {
        let now = self.now;
        let State::Heap(heap) = &mut self.states[at as usize] else { return };
        if heap.collecting {
            return;
        }
        heap.collecting = true;
        let time = heap.pause + Nanos((heap.live * heap.pause_per_unit_ns) as u64);
        let cpu = heap.cpu as usize;
        if let Some(fluid) = self.states[cpu].fluid_mut() {
            fluid.stop(at, now);
        }
        self.collect_for(at, time);
    }

    /// A collection is over: whoever waited for memory tries again.
    pub(super) fn collected(&mut self, at: u32) {
        let now = self.now;
        let State::Heap(heap) = &mut self.states[at as usize] else { return };
        heap.collecting = false;
        // What is collected is evicted, and whoever stood still meanwhile waited for the heap (see `settle`).
        self.tallies[at as usize].sum.slows += std::mem::take(&mut heap.garbage) as u64;
        let (cpu, waiting) = (heap.cpu as usize, std::mem::take(&mut heap.waiting));
        if let Some(fluid) = self.states[cpu].fluid_mut() {
            fluid.go_on(now);
        }
        for task in waiting {
            let live = self.tasks.at(task);
            self.tallies[at as usize].waited(live.account(at), now);
            self.wake(task);
        }
    }
}
