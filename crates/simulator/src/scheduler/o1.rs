//! The O(1) scheduler: Linux 2.6 before 2.6.23, of which the paper's Fig. 2 and 9 to 11 are.
//!
//! Every CPU has an active and an expired array. It runs the first task of the best priority in the active one; a task that has used
//! its timeslice up goes to the expired one, and when nobody is active the two change places. A task's *dynamic* priority is its
//! static one, from nice, bettered or worsened by up to five by how much it has slept lately; one that has slept enough is
//! *interactive* and goes back to the active array, unless those who expired have been waiting for too long. So of equals, those who
//! have slept more get nearly all, and those in the expired array next to nothing, for [`STARVATION_LIMIT`] times the number of
//! ready tasks.
//!
//! The parameters below and the rules are those of Linux 2.6.18 (`kernel/sched.c`, `include/linux/topology.h`; described by Bovet
//! and Cesati, *Understanding the Linux Kernel*, 3rd edition, chapter 7, which the paper cites), at 1,000 ticks a second as RHEL 5 had it.
//!
//! **Where it is simpler**: whatever a task waits for, interrupts wake it up (so it is credited for all of its wait for the CPU, and for none
//! after a disk), not other tasks; an idle CPU looks for work at every tick; and a CPU that is not takes from the busiest other by
//! the weights of the moment, without their history.

use plimsoll_core::Nanos;
use plimsoll_cpufutures::Policy;

use super::array::{PRIORITIES, PriorityArray};
use super::machine::{Attributes, Left, Scheduler, Sleep, Task};

/// Between two ticks (`HZ` = 1000).
pub const TICK: Nanos = Nanos::from_millis(1);
/// The timeslice of nice 0 (`DEF_TIMESLICE`), and the shortest (`MIN_TIMESLICE`), in ticks.
const TIMESLICE: u32 = 100;
const SHORTEST_TIMESLICE: u32 = 5;
/// The best bonus (`MAX_BONUS`: 25 % of 40 priorities). Half of it is neutral.
pub const MOST_BONUS: u64 = 10;
/// By how much a nice-0 task must be bettered to be interactive (`INTERACTIVE_DELTA`).
const INTERACTIVE_DELTA: i64 = 2;
/// The sleep that gives the best bonus (`MAX_SLEEP_AVG`).
const MOST_SLEEP: u64 = TIMESLICE as u64 * MOST_BONUS * TICK.0;
/// For how long a ready task each the interactive may keep the expired waiting (`STARVATION_LIMIT`).
pub const STARVATION_LIMIT: Nanos = Nanos(MOST_SLEEP);
/// After so many ticks an interactive task lets its equals run, times the CPUs and by its bonus (`GRANULARITY`).
const GRANULARITY: u64 = 10;
/// How much of its parent's sleep a new task has, in per cent (`CHILD_PENALTY`).
const CHILD_PENALTY: u64 = 95;
/// How much busier another CPU must be for tasks to be taken from it, in per cent (`imbalance_pct`).
const IMBALANCE_PCT: u64 = 125;
/// Between two such looks of a busy CPU, in ticks (`min_interval` times `busy_factor`).
const BALANCE_TICKS: u64 = 64;
/// A task that ran so lately stays where its cache is (`cache_hot_time`), unless the CPU that wants it is idle.
const CACHE_HOT: Nanos = Nanos::from_micros(2_500);

/// What becomes of the wait for a CPU that follows a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credit {
    None,
    /// It counts as sleep, since an interrupt ended the sleep before it.
    All,
}

#[derive(Clone, Debug)]
struct Thread {
    nice: i8,
    batch: bool,
    cpu: usize,
    /// What is credited to it for sleeping, in nanoseconds.
    slept: u64,
    /// When it last became ready, or stopped or began to run.
    timestamp: Nanos,
    /// When it last ran.
    last_ran: Nanos,
    /// What is left of its timeslice, in ticks.
    timeslice: u32,
    credit: Credit,
    /// 0, the best, to 39.
    priority: usize,
    /// Which array it is in, of its CPU, if it is ready or runs.
    array: Option<usize>,
}

impl Thread {
    fn static_priority(&self) -> i64 {
        i64::from(self.nice) + 20
    }

    /// In ticks.
    fn whole_timeslice(&self) -> u32 {
        let base = if self.nice < 0 { 4 * TIMESLICE } else { TIMESLICE };
        (base * (PRIORITIES as i64 - self.static_priority()) as u32 / 20).max(SHORTEST_TIMESLICE)
    }

    fn bonus(&self) -> u64 {
        self.slept * MOST_BONUS / MOST_SLEEP
    }

    fn dynamic_priority(&self) -> usize {
        let bonus = self.bonus() as i64 - MOST_BONUS as i64 / 2;
        (self.static_priority() - bonus).clamp(0, PRIORITIES as i64 - 1) as usize
    }

    /// By how much it must be bettered to be interactive.
    fn delta(&self) -> i64 {
        let scaled = self.static_priority() * MOST_BONUS as i64 / PRIORITIES as i64;
        scaled - MOST_BONUS as i64 / 2 + INTERACTIVE_DELTA
    }

    fn interactive(&self) -> bool {
        self.priority as i64 <= self.static_priority() - self.delta()
    }

    /// The most that one long sleep, or waiting for disks, may credit: just enough to be interactive.
    fn ceiling(&self) -> u64 {
        let bonus = MOST_BONUS as i64 / 2 + self.delta() + 1;
        (MOST_SLEEP as i64 * bonus / MOST_BONUS as i64).max(0) as u64 - TICK.0
    }

    /// Credits a sleep that ended at `now`.
    fn credit(&mut self, now: Nanos) {
        let slept = if self.batch { 0 } else { now.since(self.timestamp).0 };
        let ceiling = self.ceiling();
        if slept > ceiling && self.slept < ceiling {
            self.slept = ceiling;
            self.credit = Credit::None;
        } else if self.credit == Credit::None {
            self.slept = self.slept.max((self.slept + slept).min(ceiling));
        } else {
            self.slept += slept;
        }
        self.slept = self.slept.min(MOST_SLEEP);
        self.priority = self.dynamic_priority();
    }
}

#[derive(Clone, Debug, Default)]
struct Queue {
    arrays: [PriorityArray; 2],
    active: usize,
    running: Option<Task>,
    /// When the first timeslice was used up since the arrays changed places.
    expired_since: Option<Nanos>,
    /// The best static priority among the expired.
    best_expired: Option<i64>,
    /// Of its ready and running tasks, each as much as its timeslice.
    load: u64,
    next_tick: Nanos,
    ticks: u64,
}

impl Queue {
    fn len(&self) -> usize {
        self.arrays.iter().map(PriorityArray::len).sum()
    }
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct O1 {
    queues: Vec<Queue>,
    threads: Vec<Option<Thread>>,
    /// Where a task is put that has no parent.
    next_cpu: usize,
}

impl O1 {
    /// With so many CPUs, at least one. Their ticks are spread evenly.
    pub fn new(cpus: usize) -> O1 {
        let cpus = cpus.max(1);
        let tick = |cpu: usize| Nanos(TICK.0 * (cpu as u64 + 1) / cpus as u64);
        let queues = (0..cpus).map(|cpu| Queue { next_tick: tick(cpu), ..Queue::default() }).collect();
        O1 { queues, threads: Vec::new(), next_cpu: 0 }
    }

    /// The dynamic priority that `task` has, or last had: 0, the best, to 39.
    pub fn priority(&self, task: Task) -> usize {
        self.thread(task).priority
    }

    /// The dynamic priority that `task` has, or would have if it became ready at `now`.
    pub fn expected_priority(&self, task: Task, now: Nanos) -> usize {
        let mut thread = self.thread(task).clone();
        if thread.array.is_none() {
            thread.credit = Credit::All;
            thread.credit(now);
        }
        thread.priority
    }

    /// The bonus of `task`, from 0 to [`MOST_BONUS`]; 5 is neutral.
    pub fn bonus(&self, task: Task) -> u64 {
        self.thread(task).bonus()
    }

    fn thread(&self, task: Task) -> &Thread {
        self.threads[task].as_ref().expect("the machine knows which tasks are here")
    }

    fn thread_mut(&mut self, task: Task) -> &mut Thread {
        self.threads[task].as_mut().expect("the machine knows which tasks are here")
    }

    fn enqueue(&mut self, task: Task, cpu: usize, array: usize) {
        let thread = self.thread_mut(task);
        (thread.cpu, thread.array) = (cpu, Some(array));
        let (priority, load) = (thread.priority, u64::from(thread.whole_timeslice()));
        self.queues[cpu].arrays[array].push(task, priority);
        self.queues[cpu].load += load;
    }

    /// Takes it out of its array. Which that was.
    fn dequeue(&mut self, task: Task) -> usize {
        let thread = self.thread_mut(task);
        let (cpu, priority, load) = (thread.cpu, thread.priority, u64::from(thread.whole_timeslice()));
        let array = thread.array.take().expect("it is ready");
        self.queues[cpu].arrays[array].remove(task, priority);
        self.queues[cpu].load -= load;
        array
    }

    /// Whether `task` is better than who runs on its CPU.
    fn preempts(&self, task: Task) -> Option<usize> {
        let thread = self.thread(task);
        let running = self.queues[thread.cpu].running;
        let better = running.is_none_or(|running| thread.priority < self.thread(running).priority);
        (better && running != Some(task)).then_some(thread.cpu)
    }

    /// Whether those who expired on `cpu` have waited for too long, or somebody of a better nice value is among them.
    fn starving(&self, cpu: usize, now: Nanos) -> bool {
        let queue = &self.queues[cpu];
        let limit = Nanos(STARVATION_LIMIT.0 * queue.len() as u64);
        let running = queue.running.map(|task| self.thread(task).static_priority());
        queue.best_expired.is_some_and(|best| running > Some(best))
            || queue.expired_since.is_some_and(|since| now.since(since) > limit)
    }

    /// A tick finds `task` running on `cpu`. Whether the CPU should choose again.
    fn tick(&mut self, cpu: usize, task: Task, now: Nanos) -> bool {
        if self.thread(task).array != Some(self.queues[cpu].active) {
            return true;
        }
        let cpus = self.queues.len() as u64;
        let thread = self.thread_mut(task);
        thread.timeslice -= 1;
        if thread.timeslice > 0 {
            let granularity = (GRANULARITY * cpus) << ((MOST_BONUS - thread.bonus()).max(1) - 1);
            let used = u64::from(thread.whole_timeslice().saturating_sub(thread.timeslice));
            let steps_back = thread.interactive()
                && used.is_multiple_of(granularity)
                && u64::from(thread.timeslice) >= granularity;
            if steps_back {
                let array = self.dequeue(task);
                self.enqueue(task, cpu, array);
            }
            return steps_back;
        }
        let queue = &mut self.queues[cpu];
        queue.expired_since.get_or_insert(now);
        let active = queue.active;
        let starving = self.starving(cpu, now);
        self.dequeue(task);
        let thread = self.thread_mut(task);
        thread.priority = thread.dynamic_priority();
        thread.timeslice = thread.whole_timeslice();
        if thread.interactive() && !starving {
            self.enqueue(task, cpu, active);
        } else {
            let own = thread.static_priority();
            self.enqueue(task, cpu, 1 - active);
            let best = &mut self.queues[cpu].best_expired;
            *best = Some(best.map_or(own, |best| best.min(own)));
        }
        true
    }

    /// Takes tasks for `cpu` from the busiest other CPU until about half of what is between them is moved, at least one if it is `idle`. Whether any came.
    fn balance(&mut self, cpu: usize, idle: bool, now: Nanos) -> bool {
        let others = (0..self.queues.len()).filter(|&other| other != cpu && self.queues[other].len() > 1);
        let Some(busiest) = others.max_by_key(|&other| (self.queues[other].load, usize::MAX - other)) else {
            return false;
        };
        let (most, own) = (self.queues[busiest].load, self.queues[cpu].load);
        if most * 100 <= own * IMBALANCE_PCT {
            return false;
        }
        let mut wanted = (most - own) / 2;
        let mut moved = false;
        for expired in [true, false] {
            let of = |queue: &Queue| if expired { 1 - queue.active } else { queue.active };
            let candidates: Vec<Task> =
                self.queues[busiest].arrays[of(&self.queues[busiest])].for_balancer().collect();
            for task in candidates {
                let thread = self.thread(task);
                let load = u64::from(thread.whole_timeslice());
                let hot = !idle && now.since(thread.last_ran) < CACHE_HOT;
                let fits = load <= wanted || (idle && !moved);
                if self.queues[busiest].running == Some(task) || hot || !fits {
                    continue;
                }
                self.dequeue(task);
                let array = of(&self.queues[cpu]);
                self.enqueue(task, cpu, array);
                wanted = wanted.saturating_sub(load);
                moved = true;
            }
        }
        moved
    }
}

impl Scheduler for O1 {
    fn cpus(&self) -> usize {
        self.queues.len()
    }

    fn add(&mut self, task: Task, attributes: Attributes, parent: Option<Task>, now: Nanos) {
        let parent = parent.and_then(|parent| self.threads.get(parent)?.as_ref());
        // Without a parent it is as one whose parent slept neither much nor little.
        let bonus = parent.map_or(MOST_BONUS / 2, Thread::bonus);
        let mut thread = Thread {
            nice: attributes.nice.clamp(-20, 19),
            batch: attributes.policy != Policy::Normal,
            cpu: self.next_cpu,
            slept: bonus * CHILD_PENALTY / 100 * MOST_SLEEP / MOST_BONUS,
            timestamp: now,
            last_ran: now,
            timeslice: 0,
            credit: Credit::None,
            priority: 0,
            array: None,
        };
        self.next_cpu = (self.next_cpu + 1) % self.queues.len();
        thread.timeslice = thread.whole_timeslice();
        thread.priority = thread.dynamic_priority();
        if self.threads.len() <= task {
            self.threads.resize(task + 1, None);
        }
        self.threads[task] = Some(thread);
    }

    fn wake(&mut self, task: Task, after: Sleep, now: Nanos) -> Option<usize> {
        let thread = self.thread_mut(task);
        thread.credit = if after == Sleep::Disk { Credit::None } else { Credit::All };
        thread.credit(now);
        thread.timestamp = now;
        let (cpu, batch) = (thread.cpu, thread.batch);
        let active = self.queues[cpu].active;
        self.enqueue(task, cpu, if batch { 1 - active } else { active });
        self.preempts(task)
    }

    fn pick(&mut self, cpu: usize, now: Nanos) -> Option<Task> {
        if self.queues[cpu].len() == 0 {
            self.balance(cpu, true, now);
        }
        let queue = &mut self.queues[cpu];
        if queue.arrays[queue.active].is_empty() {
            if queue.len() > 0 {
                queue.active = 1 - queue.active;
            }
            (queue.expired_since, queue.best_expired) = (None, None);
        }
        let task = queue.arrays[queue.active].first()?;
        let thread = self.thread(task);
        if thread.credit == Credit::All && now > thread.timestamp {
            // What it waited for the CPU since an interrupt woke it counts as sleep.
            let array = self.dequeue(task);
            self.thread_mut(task).credit(now);
            self.enqueue(task, cpu, array);
        }
        let thread = self.thread_mut(task);
        (thread.credit, thread.timestamp) = (Credit::None, now);
        self.queues[cpu].running = Some(task);
        Some(task)
    }

    fn put(&mut self, cpu: usize, left: Left, now: Nanos) {
        let Some(task) = self.queues[cpu].running.take() else { return };
        let thread = self.thread_mut(task);
        // Those who have slept much lose it slowly.
        let ran = now.since(thread.timestamp).0.min(MOST_SLEEP) / thread.bonus().max(1);
        thread.slept = thread.slept.saturating_sub(ran);
        (thread.timestamp, thread.last_ran) = (now, now);
        if left != Left::Ready {
            self.dequeue(task);
        }
        if left == Left::Ended {
            self.threads[task] = None;
        }
    }

    fn next_look(&self, cpu: usize) -> Nanos {
        self.queues[cpu].next_tick
    }

    fn look(&mut self, cpu: usize, now: Nanos) -> bool {
        let queue = &mut self.queues[cpu];
        queue.next_tick += TICK;
        queue.ticks += 1;
        let (ticks, running) = (queue.ticks, queue.running);
        let Some(running) = running else { return self.balance(cpu, true, now) };
        let again = self.tick(cpu, running, now);
        if !ticks.is_multiple_of(BALANCE_TICKS) || !self.balance(cpu, false, now) {
            return again;
        }
        let best = self.queues[cpu].arrays[self.queues[cpu].active].first();
        again || best.is_some_and(|best| self.preempts(best).is_some())
    }

    fn renice(&mut self, task: Task, nice: i8, _: Nanos) -> Option<usize> {
        let array = self.thread(task).array.is_some().then(|| self.dequeue(task));
        let thread = self.thread_mut(task);
        thread.nice = nice.clamp(-20, 19);
        thread.priority = thread.dynamic_priority();
        let cpu = thread.cpu;
        self.enqueue(task, cpu, array?);
        // It may be better than who runs, or worse than who waits.
        Some(cpu)
    }
}
