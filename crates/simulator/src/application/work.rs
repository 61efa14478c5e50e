//! What tasks do: their operations, one after the other, and work on what is shared.
//!
//! An operation that cannot be done at once leaves its task waiting; what ends the wait lets the task go on, at the same operation
//! with the phase that it left there, or at the next one.

use plimsoll_core::Nanos;

use super::engine::Engine;
use super::fluid::Job;
use super::live::{Burst, Cancelling, Doing};
use super::program::{Amount, Op};
use super::ran::Fate;
use super::resource::State;

fn is_lock(states: &[State], at: u32) -> bool {
    matches!(states[at as usize], State::Lock(_))
}

/// What comes of trying an operation.
pub(super) enum Then {
    /// The next one.
    Next,
    /// The one at this place.
    Jump(u32),
    /// It waits.
    Wait,
    /// It is over.
    End(Fate),
}

impl Engine<'_> {
    /// Lets a task do all that it can do at once.
    pub(super) fn go_on(&mut self, task: u32) {
        let case = self.case;
        loop {
            let live = self.tasks.at(task);
            let program = &case.classes[live.class as usize].program;
            if live.cancelling == Cancelling::Due {
                live.cancelling = Cancelling::Undoing;
                let undo = program.undo;
                live.jump(undo);
                live.depth = 0;
            }
            let live = self.tasks.at(task);
            // Where it holds a lock it would only stop others for longer, and nobody is to be stopped on its way out.
            if live.pause > Nanos::ZERO
                && live.cancelling == Cancelling::No
                && !live.holds_any(|at| is_lock(&self.states, at))
            {
                let pause = std::mem::take(&mut live.pause);
                return self.sleep(task, pause);
            }
            let Some(&op) = program.ops.get(live.pc as usize) else {
                let cancelled = live.cancelling == Cancelling::Undoing;
                return self.end(task, if cancelled { Fate::Cancelled } else { Fate::Done });
            };
            match self.attempt(task, op) {
                Then::Next => {
                    let live = self.tasks.at(task);
                    live.jump(live.pc + 1);
                }
                Then::Jump(pc) => self.tasks.at(task).jump(pc),
                Then::Wait => return,
                Then::End(fate) => return self.end(task, fate),
            }
        }
    }

    fn attempt(&mut self, task: u32, op: Op) -> Then {
        let phase = self.tasks.at(task).phase;
        match op {
            Op::Enter(pool) => self.enter(task, pool),
            Op::Leave(pool) => self.release(task, pool),
            Op::Lock { lock, exclusive } => self.lock(task, lock, exclusive),
            Op::Unlock(lock) => self.release(task, lock),
            Op::Commit { lock, device, .. } => match phase {
                0 => match self.lock(task, lock, true) {
                    Then::Next => self.write_all(task, lock, device),
                    then => then,
                },
                1 => self.write_all(task, lock, device),
                _ => Then::Next,
            },
            Op::Touch { pool, pages, reads } => self.touch(task, pool, pages, reads),
            Op::Allocate { heap, units, keep } => self.allocate(task, heap, units, keep),
            Op::Cpu { cpu, work, threads } if phase == 0 => self.work(task, cpu, work, threads),
            Op::Io { device, bytes, depth } if phase == 0 => self.work(task, device, bytes, depth),
            Op::Cpu { .. } | Op::Io { .. } => Then::Next,
            Op::Sleep(time) if phase == 0 => {
                let live = self.tasks.at(task);
                live.phase = 1;
                let time = Nanos(time.draw(&mut live.rng) as u64);
                self.sleep(task, time);
                Then::Wait
            }
            Op::Sleep(_) => Then::Next,
            Op::Done(units) => {
                self.tasks.at(task).done += units;
                Then::Next
            }
            Op::Begin { times, end } => {
                let live = self.tasks.at(task);
                let rounds = times.draw(&mut live.rng).round();
                if rounds < 1.0 {
                    return Then::Jump(end);
                }
                live.loops[live.depth] = rounds as u64;
                live.depth += 1;
                Then::Next
            }
            Op::Again { body } => {
                let live = self.tasks.at(task);
                let rounds = &mut live.loops[live.depth - 1];
                *rounds -= 1;
                if *rounds > 0 {
                    return Then::Jump(body);
                }
                live.depth -= 1;
                Then::Next
            }
        }
    }

    /// Begins work on something shared; the task goes on in the next phase when it is done.
    fn work(&mut self, task: u32, resource: u32, amount: Amount, weight: f64) -> Then {
        let live = self.tasks.at(task);
        let units = amount.draw(&mut live.rng);
        self.begin_work(task, resource, units, weight);
        Then::Wait
    }

    pub(super) fn begin_work(&mut self, task: u32, resource: u32, units: f64, weight: f64) {
        let now = self.now;
        let live = self.tasks.at(task);
        live.phase += 1;
        live.token = live.token.wrapping_add(1);
        live.doing = Doing::Working(resource);
        let (job, class) = (Job { task, token: live.token }, live.class);
        if let Some(fluid) = self.states[resource as usize].fluid_mut() {
            fluid.begin(job, class, weight, units, now);
            let clock = fluid.clock(class, now);
            live.burst = Burst { weight, clock, stopped: fluid.stopped(now).0, since: now, began: now };
        }
        if let State::Device(_) = self.states[resource as usize] {
            self.tallies[resource as usize].sum.slows += 1;
        }
    }

    /// Everybody whose work on something shared is done goes on.
    pub(super) fn finish_work(&mut self, resource: usize) {
        loop {
            let (tasks, now) = (&self.tasks, self.now);
            let Some(fluid) = self.states[resource].fluid_mut() else { return };
            let Some(Job { task, .. }) = fluid.done(now, |job| tasks.of(job).is_some()) else { return };
            self.leave_work(task);
            let live = self.tasks.at(task);
            let op = self.case.classes[live.class as usize].program.ops[live.pc as usize];
            match op {
                Op::Touch { pool, .. } if live.evicting => {
                    live.evicting = false;
                    let took = now.since(live.burst.began).0;
                    self.tallies[pool as usize].sum.delay_ns += took;
                }
                Op::Commit { lock, .. } => self.written(task, lock),
                _ => {}
            }
            self.wake(task);
        }
    }

    /// Writes down what a task that works has been given since that was last done.
    pub(super) fn settle(&mut self, task: u32) {
        let now = self.now;
        let live = self.tasks.at(task);
        let Doing::Working(resource) = live.doing else { return };
        let state = &self.states[resource as usize];
        let Some(fluid) = state.fluid() else { return };
        let clock = fluid.clock(live.class, now);
        let given = (clock - live.burst.clock) * live.burst.weight;
        let passed = now.since(live.burst.since).0;
        let (stopped, stopper) = fluid.stopped(now);
        let stood = stopped.since(std::mem::replace(&mut live.burst.stopped, stopped)).0;
        live.burst.clock = clock;
        live.burst.since = now;
        live.account(resource).units += given;
        let sum = &mut self.tallies[resource as usize].sum;
        sum.gets += given as u64;
        if let State::Cpu(_) = state {
            sum.use_ns += given as u64;
            sum.delay_ns += (passed - stood).saturating_sub((given / live.burst.weight) as u64);
            // Who is stopped is in no run queue, and waits for what it was stopped by.
            if stood > 0 {
                self.tallies[stopper as usize].sum.delay_ns += stood;
            }
        } else {
            // What the system tells of a task is how long it was blocked, not what it would have taken alone.
            sum.delay_ns += passed;
        }
    }

    /// A task works no more, because it is done or because it ends.
    pub(super) fn leave_work(&mut self, task: u32) {
        self.settle(task);
        let now = self.now;
        let live = self.tasks.at(task);
        if let Doing::Working(resource) = live.doing
            && let Some(fluid) = self.states[resource as usize].fluid_mut()
        {
            fluid.end(live.class, live.burst.weight, now);
            live.token = live.token.wrapping_add(1);
            live.doing = Doing::Ready;
        }
    }
}
