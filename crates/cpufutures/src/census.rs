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

/// Who, its counters in nanoseconds, and when it started, where that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub id: TaskId,
    pub run_ns: u64,
    pub wait_ns: u64,
    pub born: Option<Nanos>,
}

/// What is told of the threads at one time.
#[derive(Debug)]
pub(crate) enum Told<'a, S> {
    /// All that live. Those that are missing have died.
    All(&'a [S]),
    /// Those that are not as they were at the time before, and those that died since.
    News { changed: &'a [S], gone: &'a [TaskId] },
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

    /// Takes what is told of the threads. What is not later than the time before, or much later, starts the counting anew and leaves out the time
    /// between.
    pub fn take(&mut self, now: Nanos, told: Told<K::Sample>) -> [Option<usize>; 3] {
        let elapsed = self.sampled.map_or(Nanos::ZERO, |before| now.since(before));
        let elapsed = if elapsed > GAP { Nanos::ZERO } else { elapsed };
        self.sampled = Some(now);
        self.round += 1;
        // The very first is a place too. Without time there is no other one.
        let places =
            if elapsed > Nanos::ZERO || self.round == 1 { self.timeline.advance(elapsed) } else { [None; 3] };
        self.between = self.timeline.now().since(Nanos(elapsed.0 / 2));
        let new = match told {
            Told::All(samples) => {
                self.left_out = 0;
                let (known, new) = self.read_known(samples, elapsed);
                if known < self.members.len() {
                    self.bury_unseen();
                }
                new
            }
            Told::News { changed, gone } => {
                let (_, new) = self.read_known(changed, elapsed);
                gone.iter().for_each(|id| self.bury(id));
                new
            }
        };
        // Who died makes room for who is new.
        if self.alive < self.members.len() {
            self.forget();
        }
        new.into_iter().for_each(|sample| self.admit(sample, now, elapsed));
        self.find_out(places[1].is_some());
        places
    }

    /// Reads those that are known: how many of them there were, and who is new. Samples mostly come in the order of the last time.
    fn read_known<'a>(&mut self, samples: &'a [K::Sample], elapsed: Nanos) -> (usize, Vec<&'a K::Sample>) {
        let (mut next, mut known) = (0, 0);
        let new = samples
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
        (known, new)
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
        if member.still && !member.usage.is_still(&self.timeline) {
            member.still = false;
            self.active.push(at as u32);
        }
        true
    }

    fn admit(&mut self, sample: &K::Sample, now: Nanos, elapsed: Nanos) {
        let reading = K::reading(sample);
        if self.index.contains_key(&reading.id) {
            return; // twice in one sample
        }
        if self.alive >= self.max {
            self.left_out += 1;
            return;
        }
        let age = reading.born.map(|born| now.since(born));
        self.alive += 1;
        self.index.insert(reading.id, self.members.len());
        self.active.push(self.members.len() as u32);
        self.members.push(Member {
            id: reading.id,
            usage: Usage::new(&reading, age, &self.timeline, elapsed),
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
        let Census { members, active, timeline, .. } = self;
        active.retain(|&at| {
            let member = &mut members[at as usize];
            if member.usage.is_still(timeline) {
                (member.still, member.fixed_work, member.low_confidence) = (true, false, false);
                (member.window, member.demand) = (Spent { span: WINDOW.0 as f64, ..Spent::default() }, 0.0);
                member.known.rest();
                return false;
            }
            if member.died.is_some() {
                return true;
            }
            let little;
            (member.window, member.demand, little) = member.usage.wanted(timeline);
            if second {
                member.fixed_work = member.usage.has_fixed_work(timeline);
            }
            member.low_confidence = little || member.fixed_work || member.window.span <= 0.0;
            true
        });
    }

    /// One died, on average half a period ago.
    fn bury(&mut self, id: &TaskId) {
        let Some(at) = self.find(id) else { return };
        self.members[at].died = Some(self.between);
        self.alive -= 1;
    }

    /// Those that were not seen died.
    fn bury_unseen(&mut self) {
        for member in &mut self.members {
            if member.seen != self.round && member.died.is_none() {
                member.died = Some(self.between);
                self.alive -= 1;
            }
        }
    }

    /// Those that died are forgotten a second later.
    fn forget(&mut self) {
        let now = self.timeline.now();
        let (mut at, before) = (0, self.members.len());
        while let Some(member) = self.members.get(at) {
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
        if self.members.len() < before {
            // Others have their places now.
            let moving = self.members.iter().enumerate().filter(|(_, member)| !member.still);
            self.active = moving.map(|(at, _)| at as u32).collect();
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
