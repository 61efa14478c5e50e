//! Processors and devices: what is divided equally among all that use it at once (processor sharing).
//!
//! Everybody advances by the share of one job a nanosecond; a job is done when that clock, of its class, has gone on by what the job
//! needs. So a change of how many there are moves no job: only the clocks' speeds change. A class has a clock of its own because it may
//! be held to a part of the whole, and what it must leave goes to the others (water-filling).

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use plimsoll_core::Nanos;

/// How much of a unit counts as none, against rounding.
const NOTHING: f64 = 1e-6;

/// A job's claim to be done when its class's clock stands at `at`.
#[derive(Clone, Copy, Debug)]
struct Finish {
    at: f64,
    order: u64,
    job: Job,
}

/// Whose it is: a task's place, and which of its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The place.
    pub task: u32,
    /// Grows with every operation of whatever task is at the place.
    pub token: u32,
}

impl PartialEq for Finish {
    fn eq(&self, other: &Finish) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Finish {}
impl PartialOrd for Finish {
    fn partial_cmp(&self, other: &Finish) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
/// The earliest is the greatest, as the heap wants it; at one time, first come first.
impl Ord for Finish {
    fn cmp(&self, other: &Finish) -> Ordering {
        other.at.total_cmp(&self.at).then(other.order.cmp(&self.order))
    }
}

#[derive(Clone, Debug)]
struct Group {
    /// Units that a job of weight 1 has been given since the beginning.
    clock: f64,
    /// Units that it is given in a nanosecond.
    speed: f64,
    /// The weights of all jobs.
    weight: f64,
    /// Units that all of them together are given in a nanosecond at most.
    cap: f64,
    finishes: BinaryHeap<Finish>,
}

/// Something shared.
#[derive(Clone, Debug)]
pub struct Fluid {
    /// Units in a nanosecond.
    capacity: f64,
    /// Units in a nanosecond that a job of weight 1 is given at most.
    each: f64,
    groups: Vec<Group>,
    now: Nanos,
    order: u64,
    is_stopped: bool,
    /// By which resource it was stopped last, and for how long it has been stopped in all, at `now`.
    stopper: u32,
    stopped: Nanos,
    next: Nanos,
}

impl Fluid {
    /// `capacity` and `each` in units a nanosecond; for so many classes.
    pub fn new(capacity: f64, each: f64, classes: usize) -> Fluid {
        let group =
            Group { clock: 0.0, speed: 0.0, weight: 0.0, cap: f64::INFINITY, finishes: BinaryHeap::new() };
        let groups = vec![group; classes];
        Fluid {
            capacity,
            each,
            groups,
            now: Nanos::ZERO,
            order: 0,
            is_stopped: false,
            stopper: 0,
            stopped: Nanos::ZERO,
            next: Nanos::MAX,
        }
    }

    /// What a job of weight 1 has been given up to `now`, since the beginning.
    #[inline]
    pub fn clock(&self, class: u32, now: Nanos) -> f64 {
        let group = &self.groups[class as usize];
        group.clock + group.speed * now.since(self.now).0 as f64
    }

    /// When the next job is done, if nothing changes.
    #[inline]
    pub fn next(&self) -> Nanos {
        self.next
    }

    /// A job of a class begins that needs so many units.
    pub fn begin(&mut self, job: Job, class: u32, weight: f64, units: f64, now: Nanos) {
        self.advance(now);
        let group = &mut self.groups[class as usize];
        group.weight += weight;
        self.order += 1;
        group.finishes.push(Finish { at: group.clock + units.max(0.0) / weight, order: self.order, job });
        self.share();
    }

    /// The next job that is done by now, of those that `is_there`, and its class. [`Fluid::end`] is to be called for it.
    pub fn done(&mut self, now: Nanos, is_there: impl Fn(Job) -> bool) -> Option<Job> {
        self.advance(now);
        for group in &mut self.groups {
            while let Some(&Finish { at, job, .. }) = group.finishes.peek() {
                let gone = !is_there(job);
                // What is left takes less than the nanosecond by which times are rounded.
                if !gone && at - group.clock > NOTHING.max(group.speed) {
                    break;
                }
                group.finishes.pop();
                if !gone {
                    return Some(job);
                }
            }
        }
        self.share();
        None
    }

    /// A job ends, because it is done or because its task is gone.
    pub fn end(&mut self, class: u32, weight: f64, now: Nanos) {
        self.advance(now);
        let group = &mut self.groups[class as usize];
        group.weight -= weight;
        if group.weight < NOTHING {
            group.weight = 0.0;
            group.finishes.clear();
        }
        self.share();
    }

    /// All jobs of a class together are given so much of the whole at most, in thousandths.
    pub fn cap(&mut self, class: u32, thousandths: u64, now: Nanos) {
        self.advance(now);
        self.groups[class as usize].cap = self.capacity * (thousandths.max(1) as f64 / 1e3);
        self.share();
    }

    /// Stands still, stopped by a resource.
    pub fn stop(&mut self, stopper: u32, now: Nanos) {
        self.advance(now);
        (self.is_stopped, self.stopper) = (true, stopper);
        self.share();
    }

    /// Goes on.
    pub fn go_on(&mut self, now: Nanos) {
        self.advance(now);
        self.is_stopped = false;
        self.share();
    }

    /// For how long it has stood still up to `now`, since the beginning, and what stopped it last.
    pub fn stopped(&self, now: Nanos) -> (Nanos, u32) {
        let still = if self.is_stopped { now.since(self.now) } else { Nanos::ZERO };
        (self.stopped + still, self.stopper)
    }

    fn advance(&mut self, now: Nanos) {
        let passed = now.since(self.now).0 as f64;
        if passed > 0.0 {
            self.groups.iter_mut().for_each(|group| group.clock += group.speed * passed);
            self.stopped = self.stopped(now).0;
            self.now = now;
        }
    }

    /// Divides the whole anew, and finds who is done next.
    fn share(&mut self) {
        let total: f64 = self.groups.iter().map(|group| group.weight).sum();
        let (mut left, mut weight) = (if self.is_stopped { 0.0 } else { self.capacity }, total);
        let each = self.each;
        // Those that may not or cannot use an equal share leave the rest to the others, the most limited first.
        let limit = |group: &Group| each.min(group.cap / group.weight);
        let mut open: u64 = 0;
        self.groups.iter().enumerate().filter(|(_, g)| g.weight > 0.0).for_each(|(i, _)| open |= 1 << i);
        while open != 0 {
            let fair = left / weight;
            let mut settled = 0u64;
            for (i, group) in self.groups.iter_mut().enumerate() {
                if open & (1 << i) != 0 && limit(group) <= fair {
                    group.speed = limit(group);
                    left -= group.speed * group.weight;
                    weight -= group.weight;
                    settled |= 1 << i;
                }
            }
            open &= !settled;
            if settled == 0 {
                for (i, group) in self.groups.iter_mut().enumerate() {
                    if open & (1 << i) != 0 {
                        group.speed = fair.max(0.0);
                    }
                }
                break;
            }
        }
        self.next = self.groups.iter().map(|group| group.next_after(self.now)).min().unwrap_or(Nanos::MAX);
    }
}

impl Group {
    fn next_after(&self, now: Nanos) -> Nanos {
        match self.finishes.peek() {
            Some(finish) if self.weight > 0.0 && self.speed > 0.0 => {
                now + Nanos(((finish.at - self.clock).max(0.0) / self.speed).ceil() as u64)
            }
            _ => Nanos::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: fn(u32) -> Job = |task| Job { task, token: 0 };

    /// Lets all jobs finish; when each did, in order.
    fn run(fluid: &mut Fluid, classes: &[(u32, f64)]) -> Vec<(u32, u64)> {
        let mut finished = Vec::new();
        while fluid.next() < Nanos::MAX {
            let now = fluid.next();
            while let Some(job) = fluid.done(now, |_| true) {
                let (class, weight) = classes[job.task as usize];
                fluid.end(class, weight, now);
                finished.push((job.task, now.0));
            }
        }
        finished
    }

    /// By hand: two cores, three jobs of 30, 30 and 60 ns. All three get 2/3 of a core, so the first two end at 45; the third has
    /// had 30 then and gets a core of its own.
    #[test]
    fn what_there_is_is_divided_equally_and_nobody_gets_more_than_one() {
        let mut fluid = Fluid::new(2.0, 1.0, 1);
        for (task, units) in [(0, 30.0), (1, 30.0), (2, 60.0)] {
            fluid.begin(JOB(task), 0, 1.0, units, Nanos::ZERO);
        }
        assert_eq!(run(&mut fluid, &[(0, 1.0); 3]), [(0, 45), (1, 45), (2, 75)]);
    }

    /// Four cores: one class, held to one of them, has two jobs, which get half a core each; the other's two get one each.
    #[test]
    fn a_class_is_held_to_its_part() {
        let mut fluid = Fluid::new(4.0, 1.0, 2);
        fluid.cap(0, 250, Nanos::ZERO);
        for (task, class) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
            fluid.begin(JOB(task), class, 1.0, 100.0, Nanos::ZERO);
        }
        let classes = [(0, 1.0), (0, 1.0), (1, 1.0), (1, 1.0)];
        assert_eq!(run(&mut fluid, &classes), [(2, 100), (3, 100), (0, 200), (1, 200)]);
    }

    /// A job of weight 3 beside one of weight 1 on two cores has 1.5 of them.
    #[test]
    fn several_threads_get_several_shares() {
        let mut fluid = Fluid::new(2.0, 1.0, 1);
        fluid.begin(JOB(0), 0, 3.0, 150.0, Nanos::ZERO);
        fluid.begin(JOB(1), 0, 1.0, 100.0, Nanos::ZERO);
        // The first ends at 100, then the second, having had 50, has a core.
        assert_eq!(run(&mut fluid, &[(0, 3.0), (0, 1.0)]), [(0, 100), (1, 150)]);
    }

    #[test]
    fn who_is_gone_takes_nothing_and_is_not_reported() {
        let mut fluid = Fluid::new(1.0, 1.0, 1);
        fluid.begin(JOB(0), 0, 1.0, 10.0, Nanos::ZERO);
        fluid.begin(JOB(1), 0, 1.0, 40.0, Nanos::ZERO);
        fluid.end(0, 1.0, Nanos(10));
        let is_there = |job: Job| job.task == 1;
        assert_eq!(fluid.done(Nanos(15), is_there), None);
        assert_eq!(fluid.next(), Nanos(45));
        assert_eq!(fluid.done(Nanos(45), is_there), Some(JOB(1)));
        fluid.end(0, 1.0, Nanos(45));
        assert_eq!(fluid.next(), Nanos::MAX);
    }

    #[test]
    fn while_it_stands_still_nothing_goes_on() {
        let mut fluid = Fluid::new(1.0, 1.0, 1);
        fluid.begin(JOB(0), 0, 1.0, 10.0, Nanos::ZERO);
        fluid.stop(7, Nanos(4));
        assert_eq!(fluid.next(), Nanos::MAX);
        assert_eq!(fluid.stopped(Nanos(50)), (Nanos(46), 7));
        fluid.go_on(Nanos(100));
        assert_eq!(fluid.stopped(Nanos(102)), (Nanos(96), 7));
        assert_eq!((fluid.next(), fluid.clock(0, Nanos(102))), (Nanos(106), 6.0));
    }
}
