//! The futures of all threads of a host, renewed with every sample.

use plimsoll_core::Nanos;

use crate::allocation::Allocations;
use crate::census::{Census, Known, Member, Reading, Told};
use crate::predict::{Outlook, Predictor, Terrain};
use crate::step::Step;
use crate::takers::{self, Taker};
use crate::task::{Group, Host, Policy, TaskId, TaskSample, Terms};
use crate::usage::WINDOW;

/// For so long after [`Futures::reweigh`] samples may still have the policy and the nice value of before.
const OLD_NEWS: Nanos = Nanos::from_secs(2);

/// What may be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The most threads that are followed, about 0.8 KiB each; those beyond are left out and counted ([`Futures::left_out`]).
    pub max_tasks: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { max_tasks: 32_768 }
    }
}

/// The four allocations of every thread of a host.
pub struct Futures {
    census: Census<Outlook>,
    host: Host,
    /// Its groups as they were before their weights changed, and when that was.
    groups_before: Option<(Nanos, Vec<Group>)>,
    samples: Vec<TaskSample>,
    predictor: Predictor,
}

impl Known for Outlook {
    type Sample = TaskSample;

    fn reading(sample: &TaskSample) -> Reading {
        Reading { id: sample.id, run_ns: sample.run_ns, wait_ns: sample.wait_ns, born: sample.born }
    }

    fn begin(sample: &TaskSample) -> Outlook {
        Outlook::new(sample.terms())
    }

    fn renew(&mut self, sample: &TaskSample, at: Nanos) {
        // Who reads policies and nice values reads them rarely: what it says may be of before.
        let old = self.told.is_some_and(|told| at.since(told) < OLD_NEWS);
        let terms = sample.terms();
        let Terms { policy, nice, .. } = if old { self.terms } else { terms };
        self.reschedule(at, Terms { policy, nice, ..terms });
    }

    fn rest(&mut self) {
        self.step = None;
        self.wants_nothing();
    }
}

impl Futures {
    /// Of a host of which nothing is known yet.
    pub fn new(settings: Settings) -> Futures {
        Futures {
            census: Census::new(settings.max_tasks),
            host: Host::plain(1),
            groups_before: None,
            samples: Vec::new(),
            predictor: Predictor::default(),
        }
    }

    /// Takes a sample of all threads of the host, about every 100 ms. Those that are missing have died. A sample that is not later
    /// than the one before, or more than a minute later (the host slept), starts the counting anew and leaves out the time between.
    ///
    /// A group or set that the host does not have counts as the root or as all CPUs, a parent that does not come before its child as the root.
    pub fn sample(&mut self, now: Nanos, host: &Host, tasks: &[TaskSample]) {
        self.take(now, host, Told::All(tasks));
    }

    /// The same by what is new: `changed` are those that are not as they were in the sample before, or are new, `gone` those that died since. All
    /// others are as they were, and cost nothing: on most hosts nearly all threads sleep.
    pub fn sample_news(&mut self, now: Nanos, host: &Host, changed: &[TaskSample], gone: &[TaskId]) {
        self.take(now, host, Told::News { changed, gone });
    }

    fn take(&mut self, now: Nanos, host: &Host, told: Told<TaskSample>) {
        let (regrouped, before) = self.take_host(host);
        let (groups, sets) = (self.host.groups.len() as u32, self.host.sets.len() as u32);
        let (Told::All(tasks) | Told::News { changed: tasks, .. }) = &told;
        self.samples.clear();
        self.samples.extend(tasks.iter().map(|task| TaskSample {
            group: if task.group < groups { task.group } else { 0 },
            cpus: if task.cpus < sets { task.cpus } else { 0 },
            ..*task
        }));
        let told = match told {
            Told::All(_) => Told::All(self.samples.as_slice()),
            Told::News { gone, .. } => Told::News { changed: &self.samples, gone },
        };
        self.census.take(now, told);
        let now = self.census.timeline.now();
        if let Some(before) = before {
            self.groups_before = Some((self.census.between, before));
        }
        if regrouped {
            // Numbers of groups and sets mean others now.
            for known in self.census.members.iter_mut().map(|member| &mut member.known) {
                known.terms.group = known.terms.group.min(groups - 1);
                known.terms.cpus = known.terms.cpus.min(sets - 1);
                let Terms { group, cpus, .. } = known.terms;
                known.before = known.before.map(|(at, before)| (at, Terms { group, cpus, ..before }));
            }
        }
        let Census { members, active, timeline, .. } = &mut self.census;
        for &at in active.iter() {
            let member = &mut members[at as usize];
            if member.known.before.is_some_and(|(at, _)| now.since(at) > WINDOW) {
                member.known.before = None;
            }
            if member.died.is_none() {
                member.known.step = Step::of(&member.usage, timeline);
            }
        }
        self.predict();
    }

    /// What is known of a thread.
    pub fn of(&self, id: &TaskId) -> Option<Allocations> {
        self.census.find(id).map(|at| self.allocations(&self.census.members[at]))
    }

    /// What is known of all threads, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, Allocations)> + '_ {
        self.census.living().map(|member| (member.id, self.allocations(member)))
    }

    /// How many threads are followed.
    pub fn len(&self) -> usize {
        self.census.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many threads of the last sample were left out because there were too many.
    pub fn left_out(&self) -> usize {
        self.census.left_out()
    }

    /// A thread was given another policy or nice value. What it and all others will get is different from now on; for two seconds
    /// this holds against samples that do not have it yet. False for a thread that is not known.
    pub fn reweigh(&mut self, id: &TaskId, policy: Policy, nice: i8) -> bool {
        self.reweigh_all([(*id, policy, nice)]) == 1
    }

    /// The same of many at once, which costs as much as one. How many of them are known.
    pub fn reweigh_all(&mut self, threads: impl IntoIterator<Item = (TaskId, Policy, i8)>) -> usize {
        let now = self.census.timeline.now();
        let known = threads
            .into_iter()
            .filter_map(|(id, policy, nice)| {
                let at = self.census.find(&id)?;
                let known = &mut self.census.members[at].known;
                known.reschedule(now, Terms { policy, nice, ..known.terms });
                known.told = Some(now);
                Some(())
            })
            .count();
        if known > 0 {
            self.predict();
        }
        known
    }

    /// Who ran while this thread waited, the greatest `n` of them: its waited time of the last second, apportioned by how long the
    /// others ran on CPUs that it may use. All of them together come to its waited time.
    pub fn takers(&self, id: &TaskId, n: usize) -> Vec<Taker> {
        let Some(at) = self.census.find(id) else { return Vec::new() };
        let Census { members, timeline, .. } = &self.census;
        let mut takers = takers::of(members, at, timeline, &self.host.online, &self.host.sets);
        takers.truncate(n);
        takers
    }

    fn allocations(&self, member: &Member<Outlook>) -> Allocations {
        let known = &member.known;
        let potential = if member.demand > 0.0 {
            known.potential
        } else {
            let contender = known.contender(self.census.timeline.now(), 1.0);
            self.predictor.competition.speed_of_another(&self.host.groups, &contender)
        };
        Allocations {
            predicted_ms_per_s: 1e3 * known.predicted,
            potential_ms_per_s: 1e3 * potential,
            ..member.measured()
        }
    }

    fn predict(&mut self) {
        let terrain = Terrain {
            online: &self.host.online,
            sets: &self.host.sets,
            groups: &self.host.groups,
            before: self.groups_before.as_ref().map(|(until, groups)| (*until, groups.as_slice())),
        };
        let Census { timeline, members, active, .. } = &mut self.census;
        self.predictor.predict(timeline, &terrain, members, active);
    }

    /// Takes over what threads share. Whether groups or sets are others than before; if they are the same, the groups as they were in case their
    /// weights changed.
    fn take_host(&mut self, host: &Host) -> (bool, Option<Vec<Group>>) {
        let before = std::mem::take(&mut self.host.groups);
        let mut groups = host.groups.clone();
        if groups.is_empty() {
            groups.push(Group::ROOT);
        }
        for (at, group) in groups.iter_mut().enumerate() {
            group.parent = if (group.parent as usize) < at { group.parent } else { 0 };
        }
        let parents = |groups: &[Group]| groups.iter().map(|group| group.parent).collect::<Vec<_>>();
        let regrouped = parents(&before) != parents(&groups) || self.host.sets != host.sets;
        let reweighed = (!regrouped && before != groups).then_some(before);
        self.host = Host { groups, ..host.clone() };
        if self.host.sets.is_empty() {
            self.host.sets.push(self.host.online.clone());
        }
        if regrouped {
            self.groups_before = None;
        }
        (regrouped, reweighed)
    }
}
