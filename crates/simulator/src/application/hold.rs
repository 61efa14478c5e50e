//! What is held for a time: permits and locks, the queues before them, and group commit.

use super::engine::Engine;
use super::live::Doing;
use super::program::Op;
use super::resource::State;
use super::work::Then;

impl Engine<'_> {
    pub(super) fn enter(&mut self, task: u32, at: u32) -> Then {
        let now = self.now;
        let live = self.tasks.at(task);
        let State::Pool(pool) = &mut self.states[at as usize] else { return Then::Next };
        let tally = &mut self.tallies[at as usize];
        if pool.waiting.first(|class| pool.is_free_for(class)).is_none() && pool.is_free_for(live.class) {
            pool.taken += 1;
            pool.classes[live.class as usize].0 += 1;
            tally.get(live.account(at), 1, now);
            return Then::Next;
        }
        pool.waiting.push(live.class, task);
        tally.wait(live.account(at), 1, now);
        live.doing = Doing::Queued(at);
        Then::Wait
    }

    pub(super) fn lock(&mut self, task: u32, at: u32, exclusive: bool) -> Then {
        let now = self.now;
        let live = self.tasks.at(task);
        let State::Lock(lock) = &mut self.states[at as usize] else { return Then::Next };
        let tally = &mut self.tallies[at as usize];
        if lock.waiting.is_empty() && lock.is_free_for(exclusive) {
            lock.holders += 1;
            lock.exclusive = exclusive;
            tally.get(live.account(at), 1, now);
            return Then::Next;
        }
        lock.waiting.push(0, task);
        tally.wait(live.account(at), 1, now);
        live.doing = Doing::Queued(at);
        Then::Wait
    }

    /// Gives back a permit or a lock, if it has one.
    pub(super) fn release(&mut self, task: u32, at: u32) -> Then {
        let now = self.now;
        let live = self.tasks.at(task);
        let class = live.class as usize;
        let account = live.account(at);
        if account.held == 0 {
            return Then::Next;
        }
        self.tallies[at as usize].free(account, now);
        match &mut self.states[at as usize] {
            State::Pool(pool) => {
                pool.taken -= 1;
                pool.classes[class].0 -= 1;
            }
            State::Lock(lock) => {
                lock.holders -= 1;
                lock.exclusive &= lock.holders > 0;
            }
            _ => {}
        }
        self.grant(at);
        Then::Next
    }

    /// Gives what is free to those that wait for it.
    pub(super) fn grant(&mut self, at: u32) {
        let now = self.now;
        loop {
            let class = match &mut self.states[at as usize] {
                State::Pool(pool) => pool.waiting.first(|class| pool.is_free_for(class)),
                State::Lock(lock) => lock.waiting.first(|_| true),
                _ => None,
            };
            let Some((queue, task)) = class else { return };
            let live = self.tasks.at(task);
            let op = self.case.classes[live.class as usize].program.ops[live.pc as usize];
            match &mut self.states[at as usize] {
                State::Pool(pool) => {
                    pool.taken += 1;
                    pool.classes[queue as usize].0 += 1;
                    pool.waiting.pop(queue);
                }
                State::Lock(lock) => {
                    let exclusive = !matches!(op, Op::Lock { exclusive: false, .. });
                    if !lock.is_free_for(exclusive) {
                        return;
                    }
                    lock.holders += 1;
                    lock.exclusive = exclusive;
                    lock.waiting.pop(queue);
                }
                _ => {}
            }
            self.tallies[at as usize].get(live.account(at), 1, now);
            match op {
                Op::Commit { .. } => live.phase = 1,
                _ => live.jump(live.pc + 1),
            }
            self.wake(task);
        }
    }

    /// Begins to write a commit, and with it all that wait to do the same.
    pub(super) fn write_all(&mut self, task: u32, at: u32, device: u32) -> Then {
        let case = self.case;
        let State::Lock(lock) = &mut self.states[at as usize] else { return Then::Next };
        // What waits behind somebody who wants the lock for something else goes along: a flush writes all that is in the buffer.
        let tasks = &self.tasks;
        let commits = lock.waiting.take(|place| {
            let live = tasks.peek(place);
            let op = case.classes[live.class as usize].program.ops[live.pc as usize];
            matches!(op, Op::Commit { .. })
        });
        let mut all = 0.0;
        for &place in commits.iter().chain([&task]) {
            let live = self.tasks.at(place);
            if let Op::Commit { bytes, .. } = case.classes[live.class as usize].program.ops[live.pc as usize]
            {
                all += bytes.draw(&mut live.rng);
            }
        }
        if let State::Lock(lock) = &mut self.states[at as usize] {
            lock.followers = commits;
        }
        self.tasks.at(task).phase = 1;
        self.begin_work(task, device, all, 1.0);
        Then::Wait
    }

    /// A commit is written: whoever's went along with it goes on, and the lock is free.
    pub(super) fn written(&mut self, task: u32, at: u32) {
        let followers = match &mut self.states[at as usize] {
            State::Lock(lock) => std::mem::take(&mut lock.followers),
            _ => Vec::new(),
        };
        for follower in followers {
            let now = self.now;
            let live = self.tasks.at(follower);
            self.tallies[at as usize].waited(live.account(at), now);
            live.jump(live.pc + 1);
            self.wake(follower);
        }
        let _ = self.release(task, at);
    }

    /// Takes a task out of the queue that it waits in.
    pub(super) fn leave_queue(&mut self, task: u32) {
        let now = self.now;
        let live = self.tasks.at(task);
        let class = live.class;
        let Doing::Queued(at) = live.doing else { return };
        live.doing = Doing::Ready;
        self.tallies[at as usize].waited(live.account(at), now);
        match &mut self.states[at as usize] {
            State::Pool(pool) => pool.waiting.remove(class, task),
            State::Lock(lock) => {
                lock.waiting.remove(0, task);
                lock.followers.retain(|&other| other != task);
            }
            State::Heap(heap) => heap.waiting.retain(|&other| other != task),
            _ => {}
        }
        // Somebody behind it may be able to have what it could not.
        self.grant(at);
    }

    /// Gives all that a task holds back.
    pub(super) fn give_back(&mut self, task: u32) {
        let now = self.now;
        for i in 0..self.tasks.at(task).accounts.len() {
            let account = &mut self.tasks.at(task).accounts[i];
            let (at, held) = (account.resource, account.held);
            if held == 0 {
                continue;
            }
            match &mut self.states[at as usize] {
                State::Lock(_) | State::Pool(_) => {
                    let _ = self.release(task, at);
                    continue;
                }
                State::Heap(heap) => {
                    heap.live -= held as f64;
                    heap.garbage += held as f64;
                }
                _ => {}
            }
            self.tallies[at as usize].free(account, now);
        }
    }
}
