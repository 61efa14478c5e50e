//! `workers = "adaptive"`: how many requests the servers of a pool really work on at once, found by watching.
//!
//! A server given more than it can work on answers everything slower and nothing sooner. So the times under full use
//! are compared with the times under light use, class by class, because a mix that shifts towards dear requests
//! is not a slower server. Their ratio drives a [`Limit`], and that is [`Gradient2`], whose baseline is therefore one.
//! The others would not do: Vegas finds a baseline of its own, the shortest time, which for a ratio that varies by chance
//! is always below one; AIMD needs a timeout, and there is none that is right for every server. A key to choose among them
//! would have one sensible value, so there is none.
//!
//! Light use comes by itself while there is no overload. In a long one it has to be made, or the baseline would
//! drift with the overload and the limit with it: now and then the slots *dip* to half for a few service times.
//! That costs at most 2 % of the capacity, and only while the slots are what holds requests back.

use plimsoll_core::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use plimsoll_core::{ClassId, Nanos};

use crate::limit::{Gradient2, Limit, Sample};

/// Measurements that make a window.
const WINDOW: u64 = 50;
/// The longest a window takes.
const WINDOW_MAX: Nanos = Nanos::from_secs(1);
/// How often [`AdaptiveSlots::tick`] looks.
const STEP: Nanos = Nanos::from_millis(50);
/// How much slower than under light use is still full use without a queue in the server.
const TOLERANCE: f64 = 1.15;
const DIP_TO: f64 = 0.5;
/// The shortest time between dips, and how many times longer than a dip it must be.
const DIP_EVERY: Nanos = Nanos::from_secs(15);
const DIP_SPACING: u64 = 25;
/// Slots lost since the last dip after which the baseline itself is in doubt and the next dip comes at once: a server
/// that became slower for good is no faster for having less to do.
const DOUBT: f64 = 0.5;
/// Measurements that a dip wants, and for how many times its first part it waits for them.
const DIP_SAMPLES: u64 = 20;
const DIP_PATIENCE: u64 = 4;
/// What one light measurement weighs in the baseline, and what that of a dip does.
const LIGHT_WEIGHT: f64 = 0.3;
const DIP_WEIGHT: f64 = 0.8;

/// Finds a number of slots.
pub struct AdaptiveSlots {
    in_service: AtomicU32,
    slots: AtomicU32,
    /// What somebody else found, who sees more; zero while nobody does.
    told: AtomicU32,
    max: AtomicU32,
    classes: Box<[Measured]>,
    // Only `tick` touches it, and only tries.
    #[allow(clippy::disallowed_types)]
    control: std::sync::Mutex<Control>,
}

/// Times of one class in the current window, under light and under full use.
#[derive(Default)]
struct Measured {
    light: [AtomicU64; 2],
    full: [AtomicU64; 2],
}

struct Control {
    limit: Gradient2,
    /// The slots between dips, and what they were at the last one.
    level: f64,
    level_at_dip: f64,
    /// Mean time of each class under light use; zero while unknown.
    baseline_ns: Vec<f64>,
    window_began: Nanos,
    /// Doubles every window until the servers first slow down.
    slow_start: bool,
    dip: Dip,
}

#[derive(Clone, Copy)]
enum Dip {
    Next(Nanos),
    /// For this long: waiting, after the time given, for what was started before to leave.
    Draining(Nanos, Nanos),
    /// For this long, after the time given.
    Measuring(Nanos, Nanos),
}

impl AdaptiveSlots {
    /// Starts at `initial` and stays within 1 and `max`.
    #[allow(clippy::disallowed_types)]
    pub fn new(initial: u32, max: u32, classes: usize, now: Nanos) -> AdaptiveSlots {
        let level = f64::from(initial);
        AdaptiveSlots {
            in_service: AtomicU32::new(0),
            slots: AtomicU32::new(initial),
            told: AtomicU32::new(0),
            max: AtomicU32::new(max),
            classes: (0..classes).map(|_| Measured::default()).collect(),
            control: std::sync::Mutex::new(Control {
                limit: Gradient2::slots(level, f64::from(max), TOLERANCE, 1e9),
                level,
                level_at_dip: level,
                baseline_ns: vec![0.0; classes],
                window_began: now,
                slow_start: true,
                dip: Dip::Next(now + DIP_EVERY),
            }),
        }
    }

    /// The slots found so far, or told.
    pub fn slots(&self) -> u32 {
        match self.told.load(Relaxed) {
            0 => self.slots.load(Relaxed),
            told => told,
        }
    }

    /// Somebody who sees how the servers' workers fare found so many slots, at least one; that holds until told otherwise. With nothing, it
    /// watches again, and goes on from what it was told last. False, and nothing done, where a tick is under way.
    pub fn tell(&self, slots: Option<u32>) -> bool {
        let Ok(mut control) = self.control.try_lock() else { return false };
        let before = self.told.swap(slots.map_or(0, |slots| slots.max(1)), Relaxed);
        if slots.is_none() && before > 0 {
            self.take();
            control.level = f64::from(before.min(self.max.load(Relaxed)));
            control.level_at_dip = control.level;
            control.slow_start = false;
            let level = control.level;
            control.limit.move_to(level);
            if !matches!(control.dip, Dip::Next(_)) {
                control.dip = Dip::Next(control.window_began + DIP_EVERY);
            }
            self.publish(level);
        }
        true
    }

    /// There are `to` instead of `from` of what the slots were found for, both at least one: what was found holds in
    /// proportion, up to `max`. False, and nothing done, where a tick is under way.
    pub fn scale(&self, from: u32, to: u32, max: u32) -> bool {
        let Ok(mut control) = self.control.try_lock() else { return false };
        self.max.store(max.max(1), Relaxed);
        let (factor, max) = (f64::from(to) / f64::from(from), f64::from(max.max(1)));
        let level = (control.level * factor).clamp(1.0, max);
        control.level = level;
        control.level_at_dip *= factor;
        control.limit.scale_to(level, max);
        // A dip publishes what it goes back to when it ends.
        if let Dip::Next(_) = control.dip {
            self.publish(control.level);
        }
        true
    }

    /// A request takes a slot.
    pub fn started(&self) {
        self.in_service.fetch_add(1, Relaxed);
    }

    /// A request gives its slot back. `measured` is false where its time says nothing about the server.
    pub fn finished(&self, class: ClassId, served: Nanos, measured: bool) {
        let in_service = f64::from(self.in_service.fetch_sub(1, Relaxed));
        if !measured {
            return;
        }
        let slots = f64::from(self.slots());
        let measured = &self.classes[class.index()];
        // During a dip the slots themselves are low, so what runs then is compared with the level in `tick`.
        let into = if in_service >= 0.9 * slots { &measured.full } else { &measured.light };
        into[0].fetch_add(1, Relaxed);
        into[1].fetch_add(served.0, Relaxed);
    }

    /// Ends a window where it is full; returns when it wants to look again.
    pub fn tick(&self, now: Nanos) -> Nanos {
        if let Ok(mut control) = self.control.try_lock() {
            match self.told.load(Relaxed) {
                0 => self.step(&mut control, now),
                _ => control.window_began = now,
            }
        }
        now + STEP
    }

    fn step(&self, control: &mut Control, now: Nanos) {
        match control.dip {
            Dip::Draining(length, began) if now.since(began) >= length => {
                self.take();
                control.dip = Dip::Measuring(length, now);
            }
            Dip::Measuring(length, began)
                if self.seen() >= DIP_SAMPLES || now.since(began) >= Nanos(DIP_PATIENCE * length.0) =>
            {
                // Everything measured in a dip is light use of the level around it.
                let taken = self.take();
                control.learn_light(taken.iter().map(|&[light, full]| light.plus(full)), DIP_WEIGHT);
                let dip = length + now.since(began);
                control.dip = Dip::Next(now + DIP_EVERY.max(Nanos(DIP_SPACING * dip.0)));
                control.level_at_dip = control.level;
                control.window_began = now;
                self.publish(control.level);
            }
            Dip::Draining(..) | Dip::Measuring(..) => {}
            Dip::Next(at) => {
                let seen = self.seen();
                if seen >= WINDOW || now.since(control.window_began) >= WINDOW_MAX && seen > 0 {
                    let taken = self.take();
                    control.window_began = now;
                    let full_use = control.end_window(&taken, f64::from(self.max.load(Relaxed)));
                    self.publish(control.level);
                    if full_use && (now >= at || control.level < DOUBT * control.level_at_dip) {
                        let mean =
                            taken.iter().fold(Times::default(), |sum, t| sum.plus(t[0]).plus(t[1])).mean_ns();
                        control.dip = Dip::Draining(Nanos((3.0 * mean) as u64).max(STEP), now);
                        self.publish((control.level * DIP_TO).floor());
                    }
                }
            }
        }
    }

    /// Measurements in the current window.
    fn seen(&self) -> u64 {
        self.classes.iter().map(|m| m.light[0].load(Relaxed) + m.full[0].load(Relaxed)).sum()
    }

    fn publish(&self, slots: f64) {
        self.slots.store((slots.round() as u32).clamp(1, self.max.load(Relaxed)), Relaxed);
    }

    /// What was measured of each class since the last call, under light and under full use.
    fn take(&self) -> Vec<[Times; 2]> {
        let take = |m: &[AtomicU64; 2]| Times {
            count: m[0].swap(0, Relaxed) as f64,
            sum_ns: m[1].swap(0, Relaxed) as f64,
        };
        self.classes.iter().map(|m| [take(&m.light), take(&m.full)]).collect()
    }
}

#[derive(Clone, Copy, Default)]
struct Times {
    count: f64,
    sum_ns: f64,
}

impl Times {
    fn plus(self, other: Times) -> Times {
        Times { count: self.count + other.count, sum_ns: self.sum_ns + other.sum_ns }
    }
    fn mean_ns(self) -> f64 {
        if self.count > 0.0 { self.sum_ns / self.count } else { 0.0 }
    }
}

impl Control {
    fn learn_light(&mut self, times: impl Iterator<Item = Times>, weight: f64) {
        for (baseline, times) in self.baseline_ns.iter_mut().zip(times).filter(|(_, t)| t.count > 0.0) {
            let weight = if *baseline == 0.0 { 1.0 } else { weight * (times.count / 10.0).min(1.0) };
            *baseline += weight * (times.mean_ns() - *baseline);
        }
    }

    /// Learns from a window; returns whether the slots were what held requests back.
    fn end_window(&mut self, taken: &[[Times; 2]], max: f64) -> bool {
        self.learn_light(taken.iter().map(|t| t[0]), LIGHT_WEIGHT);
        let (mut took, mut expected, mut full, mut all) = (0.0, 0.0, 0.0, 0.0);
        for (&[light, at_full], baseline) in taken.iter().zip(&mut self.baseline_ns) {
            all += light.count + at_full.count;
            full += at_full.count;
            if *baseline == 0.0 {
                // Never seen under light use: what is seen now has to do until the first dip.
                *baseline = at_full.mean_ns();
            }
            took += at_full.sum_ns;
            expected += at_full.count * *baseline;
        }
        let full_use = full > all / 2.0;
        if !full_use || expected <= 0.0 {
            return false;
        }
        let slowdown = took / expected;
        if self.slow_start && slowdown <= TOLERANCE {
            self.level = (self.level * 2.0).min(max);
            self.limit.move_to(self.level);
        } else {
            self.slow_start = false;
            let sample =
                Sample { took: Nanos((slowdown * 1e9) as u64), in_flight: self.level as u32, dropped: false };
            self.level = self.limit.update(sample);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::rng::seeded;
    use rand::RngExt;
    use std::collections::BinaryHeap;

    /// A server with `workers` behind its own queue, always offered as much as the slots let in; its classes take
    /// 5 and 20 ms, times `slow(now)`. Returns the slots found after every second.
    fn drive(workers: usize, seconds: u64, slow: impl Fn(f64) -> f64) -> Vec<u32> {
        let slots = AdaptiveSlots::new(4, 1_000, 2, Nanos::ZERO);
        let mut rng = seeded(7, 0);
        let mut free_at = vec![0u64; workers];
        let mut ends = BinaryHeap::new();
        let (mut now, mut next_tick, mut found) = (0u64, 0u64, Vec::new());
        while now < seconds * 1_000_000_000 {
            while ends.len() < slots.slots() as usize {
                let class = ClassId(u16::from(rng.random::<f64>() < 0.3));
                let base = [5e6, 20e6][class.index()] * slow(now as f64 / 1e9);
                let service = (base * (0.5 + rng.random::<f64>())) as u64;
                let worker = free_at.iter_mut().min().unwrap();
                *worker = now.max(*worker) + service;
                slots.started();
                ends.push(std::cmp::Reverse((*worker, now, class.0)));
            }
            let std::cmp::Reverse((end, began, class)) = ends.pop().unwrap();
            now = end;
            slots.finished(ClassId(class), Nanos(now - began), true);
            while next_tick <= now {
                next_tick = slots.tick(Nanos(next_tick)).0;
                if next_tick % 1_000_000_000 == 0 {
                    found.push(slots.slots());
                }
            }
        }
        found
    }

    #[test]
    fn finds_the_workers_and_does_not_drift_in_a_long_overload() {
        for workers in [1, 8, 50] {
            let found = drive(workers, 300, |_| 1.0);
            let late = &found[60..];
            let mean = late.iter().sum::<u32>() as f64 / late.len() as f64;
            let truth = workers as f64;
            assert!((0.8 * truth..1.5 * truth + 1.5).contains(&mean), "{workers} workers: {mean} {found:?}");
        }
    }

    #[test]
    fn what_was_found_for_two_servers_is_half_for_one_and_bounded_for_many() {
        let slots = AdaptiveSlots::new(40, 100, 1, Nanos::ZERO);
        assert!(slots.scale(2, 1, 50));
        assert_eq!(slots.slots(), 20);
        assert!(slots.scale(1, 60, 1_000));
        assert_eq!(slots.slots(), 1_000);
        assert!(slots.scale(60, 1, 1_000) && slots.scale(1_000, 1, 1_000));
        assert_eq!(slots.slots(), 1, "there is always one");
    }

    #[test]
    fn a_server_that_becomes_slower_for_good_is_not_throttled_for_ever() {
        let found = drive(16, 400, |s| if s < 100.0 { 1.0 } else { 2.5 });
        let late = &found[300..];
        let mean = late.iter().sum::<u32>() as f64 / late.len() as f64;
        assert!((12.0..30.0).contains(&mean), "{mean} {found:?}");
    }
}
