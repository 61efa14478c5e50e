//! Who is there: threads come, are read with every sample, and go. What each model knows of one besides its counters is its own.

use plimsoll_core::Nanos;
use rustc_hash::FxHashMap;

use crate::allocation::Allocations;
use crate::task::TaskId;
use crate::timeline::Timeline;
use crate::usage::{Spent, Usage, WINDOW};

/// Samples further apart than this are not of the same time: the host slept, or nobody sampled. A herald with much to read samples
/// every half a minute.
const GAP: Nanos = Nanos::from_secs(60);

/// Who, and its counters in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub id: TaskId,
    pub run_ns: u64,
    pub wait_ns: u64,
}

/// What a model knows of a thread.
pub(crate) trait Known {
    /// What is sampled of one.
    type Sample;
    fn reading(sample: &Self::Sample) -> Reading;
    fn begin(sample: &Self::Sample) -> Self;
    /// The thread was seen again; what is new of it is so since `at`, as far as is known.
    fn renew(&mut self, sample: &Self::Sample, at: Nanos);
    /// It has wanted nothing for long, and is left alone until it does.
    fn rest(&mut self) {}
}

/// A thread.
pub(crate) struct Member<K> {
    pub id: TaskId,
    pub usage: Usage,
    /// When it was missing first. It is remembered for as long as it is part of the others' windows.
    pub died: Option<Nanos>,
    /// Of the last second.
    pub window: Spent,
    /// The part of a CPU that it wants (Eq. 1).
    pub demand: f64,
    /// Of `demand`.
    pub low_confidence: bool,
    pub known: K,
    seen: u64,
    fixed_work: bool,
    /// It has done nothing for so long that nothing is to be found out.
    still: bool,
}

impl<K> Member<K> {
    /// What was measured; nothing is predicted yet.
    pub fn measured(&self) -> Allocations {
        Allocations {
            desired_ms_per_s: 1e3 * self.demand,
            actual_ms_per_s: 1e3 * self.window.ran(),
            waited_ms_per_s: 1e3 * self.window.waited(),
            low_confidence: self.low_confidence,
            ..Allocations::default()
        }
    }
}

/// The threads of a host.
pub(crate) struct Census<K> {
    max: usize,
    sampled: Option<Nanos>,
    round: u64,
    index: FxHashMap<TaskId, usize>,
    alive: usize,
    left_out: usize,
    pub timeline: Timeline,
    /// When between the last two samples what changed has changed, as far as is known.
    pub between: Nanos,
    pub members: Vec<Member<K>>,
    /// Those of them that are not still, the dead included.
    pub active: Vec<u32>,
}

impl<K: Known> Census<K> {
    pub fn new(max: usize) -> Census<K> {
        Census {
            max,
            sampled: None,
            round: 0,
            index: FxHashMap::default(),
            alive: 0,
            left_out: 0,
            timeline: Timeline::new(),
            between: Nanos::ZERO,
            members: Vec::new(),
            active: Vec::new(),
        }
    }

    /// Takes a sample of all threads. One that is not later than the one before, or much later, starts the counting anew and leaves out the time
    /// between.
    pub fn take(&mut self, now: Nanos, samples: &[K::Sample]) -> [Option<usize>; 3] {
        let elapsed = self.sampled.map_or(Nanos::ZERO, |before| now.since(before));
        let elapsed = if elapsed > GAP { Nanos::ZERO } else { elapsed };
        self.sampled = Some(now);
        self.round += 1;
        // The very first is a place too. Without time there is no other one.
        let places =
            if elapsed > Nanos::ZERO || self.round == 1 { self.timeline.advance(elapsed) } else { [None; 3] };
        self.between = self.timeline.now().since(Nanos(elapsed.0 / 2));
        self.left_out = 0;
        // Who died makes room for who is new. Samples mostly come in the order of the last time.
        let (mut next, mut known) = (0, 0);
        let new: Vec<&K::Sample> = samples
            .iter()
            .filter(|sample| match self.place(&K::reading(sample).id, next) {
                Some(at) => {
                    known += usize::from(self.read(at, sample, elapsed));
                    next = at + 1;
                    false
                }
                None => true,
            })
            .collect();
        if known < self.members.len() {
            self.bury();
        }
        new.into_iter().for_each(|sample| self.admit(sample, elapsed));
        self.find_out(places[1].is_some());
        places
    }

    /// Where a member is, the first place to look being `likely`.
    fn place(&self, id: &TaskId, likely: usize) -> Option<usize> {
        let there = self.members.get(likely).is_some_and(|member| member.id == *id);
        if there { Some(likely) } else { self.index.get(id).copied() }
    }

    /// Whether it is the first time in this sample: twice counts once.
    fn read(&mut self, at: usize, sample: &K::Sample, elapsed: Nanos) -> bool {
        let member = &mut self.members[at];
        if member.seen == self.round {
            return false;
        }
        self.alive += usize::from(member.died.take().is_some());
        member.usage.read(&K::reading(sample), &self.timeline, elapsed);
        member.known.renew(sample, self.between);
        member.seen = self.round;
        true
    }

    fn admit(&mut self, sample: &K::Sample, elapsed: Nanos) {
        let reading = K::reading(sample);
        if self.index.contains_key(&reading.id) {
            return; // twice in one sample
        }
        if self.alive >= self.max {
            self.left_out += 1;
            return;
        }
        self.alive += 1;
        self.index.insert(reading.id, self.members.len());
        self.members.push(Member {
            id: reading.id,
            usage: Usage::new(&reading, &self.timeline, elapsed),
            died: None,
            window: Spent::default(),
            demand: 0.0,
            low_confidence: true,
            known: K::begin(sample),
            seen: self.round,
            fixed_work: false,
            still: false,
        });
    }

    /// What all did and want; once a second also whether they always do the same.
    fn find_out(&mut self, second: bool) {
        self.active.clear();
        for (at, member) in self.members.iter_mut().enumerate() {
            if member.usage.is_still(&self.timeline) {
                if !member.still {
                    (member.still, member.fixed_work, member.low_confidence) = (true, false, false);
                    (member.window, member.demand) =
                        (Spent { span: WINDOW.0 as f64, ..Spent::default() }, 0.0);
                    member.known.rest();
                }
                continue;
            }
            member.still = false;
            self.active.push(at as u32);
            if member.died.is_some() {
                continue;
            }
            let little;
            (member.window, member.demand, little) = member.usage.wanted(&self.timeline);
            if second {
                member.fixed_work = member.usage.has_fixed_work(&self.timeline);
            }
            member.low_confidence = little || member.fixed_work || member.window.span <= 0.0;
        }
    }

    /// Those that were not seen died, on average half a period ago; they are forgotten a second later.
    fn bury(&mut self) {
        let now = self.timeline.now();
        let mut at = 0;
        while let Some(member) = self.members.get_mut(at) {
            if member.seen != self.round {
                self.alive -= usize::from(member.died.is_none());
                member.died.get_or_insert(self.between);
            }
            let forget = member.died.is_some_and(|died| now.since(died) >= WINDOW);
            if !forget && (member.died.is_none() || self.members.len() <= 2 * self.max) {
                at += 1;
                continue;
            }
            self.index.remove(&self.members[at].id);
            self.members.swap_remove(at);
            if let Some(moved) = self.members.get(at) {
                self.index.insert(moved.id, at);
            }
        }
    }

    /// Where it is, while it lives.
    pub fn find(&self, id: &TaskId) -> Option<usize> {
        self.index.get(id).copied().filter(|&at| self.members[at].died.is_none())
    }

    /// Those that live.
    pub fn living(&self) -> impl Iterator<Item = &Member<K>> {
        self.members.iter().filter(|member| member.died.is_none())
    }

    pub fn len(&self) -> usize {
        self.alive
    }

    pub fn left_out(&self) -> usize {
        self.left_out
    }
}
