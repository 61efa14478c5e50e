//! What the threads of a host will get: what they got, changed as the model says that it changes.
//!
//! The model knows nothing of how long a thread runs at a time, or of how well the kernel balances its CPUs; what was measured does. So
//! the model is only asked what changes: how fast a thread runs from now on against how fast it ran in the window that was
//! measured. While threads, weights and demands stay what they are, the prediction is what was measured.
//!
//! The window may have had several times with different competitors: threads came and went, were given other weights, began to want more. Each of these
//! times is modelled by itself.

use plimsoll_core::Nanos;

use crate::census::Member;
use crate::compete::{Competition, Contender};
use crate::share::present;
use crate::step::Step;
use crate::task::{CpuSet, Group, Policy, Terms};
use crate::timeline::{Mark, Timeline};
use crate::usage::{Spent, WINDOW};
use crate::weights;

/// What begins or ends with less demand than this changes nothing for others.
const NOTHING: f64 = 0.02;
/// Times shorter than this are no times of their own.
const SHORT: Nanos = Nanos::from_millis(60);
/// So much of the measured time is as the model says: what was measured for less says little.
const TRUST_NS: f64 = 30e6;
/// What was measured since the last change counts so many times more than what was measured before.
const SINCE_CHANGE: f64 = 3.0;
/// What a measured wait may differ from a modelled one, as a factor.
const WRONG: f64 = 4.0;
/// After a change a thread that may run on several CPUs shares one with whomever chance has put there, until the scheduler moves somebody. Of how
/// far its speed is off the model's then, this part is taken to last.
const LASTS: f64 = 0.5;
/// A change of the modelled speed by less than this is none.
const CHANGED: f64 = 0.05;

/// What is known of a thread for prediction.
#[derive(Clone, Debug)]
pub(crate) struct Outlook {
    pub terms: Terms,
    /// How it was scheduled until then.
    pub before: Option<(Nanos, Terms)>,
    pub step: Option<Step>,
    /// When the host was last told of another policy or nice value than samples have.
    pub told: Option<Nanos>,
    /// The last that the model said.
    pub speed: f64,
    /// Parts of a CPU.
    pub predicted: f64,
    pub potential: f64,
}

impl Outlook {
    pub fn new(terms: Terms) -> Outlook {
        Outlook { terms, before: None, step: None, told: None, speed: 1.0, predicted: 0.0, potential: 1.0 }
    }

    /// From `at` on it is scheduled like this.
    pub fn reschedule(&mut self, at: Nanos, terms: Terms) {
        if terms != self.terms {
            self.before = Some((at, self.terms));
            self.terms = terms;
        }
    }

    /// What one is to expect that wants nothing.
    pub fn wants_nothing(&mut self) {
        (self.predicted, self.potential) = (0.0, 1.0);
    }

    pub fn contender(&self, at: Nanos, demand: f64) -> Contender {
        let Terms { policy, nice, group, cpus } =
            self.before.filter(|&(until, _)| at < until).map_or(self.terms, |(_, before)| before);
        Contender {
            group,
            set: cpus,
            weight: f64::from(weights::of_thread(policy, nice)),
            real_time: policy == Policy::RealTime,
            demand,
        }
    }
}

/// What threads compete for.
pub(crate) struct Terrain<'a> {
    pub online: &'a CpuSet,
    pub sets: &'a [CpuSet],
    pub groups: &'a [Group],
    /// The groups as they were until then.
    pub before: Option<(Nanos, &'a [Group])>,
}

impl Terrain<'_> {
    /// Whether it may run on more than one CPU.
    fn may_move(&self, contender: &Contender) -> bool {
        self.sets[contender.set as usize].len() > 1
    }
}

/// Predicts. Kept between uses for the memory it has.
#[derive(Default)]
pub(crate) struct Predictor {
    pub competition: Competition,
    changes: Vec<Nanos>,
    contenders: Vec<Contender>,
    /// Where each contender is among the active.
    who: Vec<u32>,
    speeds: Vec<f64>,
    /// By active thread, what it was eligible for and ran in the window as the model has it.
    modelled: Vec<(f64, f64)>,
}

impl Predictor {
    /// For those that are `active`; all others want nothing, and change nothing for anybody.
    pub fn predict(
        &mut self,
        timeline: &Timeline,
        terrain: &Terrain,
        members: &mut [Member<Outlook>],
        active: &[u32],
    ) {
        let now = timeline.now();
        self.find_changes(now, terrain, members, active);
        self.modelled.clear();
        self.modelled.resize(active.len(), (0.0, 0.0));
        // What was measured since the last change is of a time that is as things are now.
        let last = self.changes.last().copied();
        let since = last.and_then(|change| timeline.steps().take_while(|mark| mark.at >= change).last());
        let mut begin = now.since(WINDOW);
        for change in 0..=self.changes.len() {
            let end = self.changes.get(change).copied();
            // The last time goes on: it is as things are now.
            let at = end.map_or(now, |end| Nanos(begin.0.midpoint(end.0)));
            let mut length = end.unwrap_or(now).since(begin).0 as f64;
            if end.is_none() {
                length += since.map_or(0.0, |mark| (SINCE_CHANGE - 1.0) * now.since(mark.at).0 as f64);
            }
            self.model(at, terrain, members, active);
            for ((&who, &speed), contender) in self.who.iter().zip(&self.speeds).zip(&self.contenders) {
                let eligible = length * present(contender.demand, speed);
                let (all, ran) = &mut self.modelled[who as usize];
                (*all, *ran) = (*all + eligible, *ran + eligible * speed);
                members[active[who as usize] as usize].known.speed = speed;
            }
            begin = end.unwrap_or(now);
        }
        for &at in active {
            members[at as usize].known.wants_nothing();
        }
        for (&who, contender) in self.who.iter().zip(&self.contenders) {
            let (eligible, ran) = self.modelled[who as usize];
            let member = &mut members[active[who as usize] as usize];
            let next = member.known.speed;
            let window = if eligible > 0.0 { ran / eligible } else { next };
            let Spent { run, wait, .. } = weighed(member, timeline, since);
            let mut speed = corrected(run, wait, window, next);
            let is_new = member.usage.born() > now.since(WINDOW);
            if terrain.may_move(contender) && (is_new || (next - window).abs() >= CHANGED) {
                speed = next + LASTS * (speed - next);
            }
            let predicted = speed * present(contender.demand, speed);
            member.known.predicted = predicted.min(member.demand);
            member.known.potential = next.max(member.known.predicted);
        }
        let total: f64 = active.iter().map(|&at| members[at as usize].known.predicted).sum();
        let most = terrain.online.len().max(1) as f64;
        if total > most {
            active.iter().for_each(|&at| members[at as usize].known.predicted *= most / total);
        }
    }

    /// When within the window something changed.
    fn find_changes(&mut self, now: Nanos, terrain: &Terrain, members: &[Member<Outlook>], active: &[u32]) {
        let begin = now.since(WINDOW);
        let changes = &mut self.changes;
        changes.clear();
        changes.extend(terrain.before.map(|(until, _)| until));
        for member in active.iter().map(|&at| &members[at as usize]) {
            if member.demand >= NOTHING {
                changes.push(member.usage.born());
                changes.extend(member.died);
                changes.extend(member.known.before.map(|(until, _)| until));
            }
            changes.extend(member.known.step.map(|step| step.at));
        }
        changes.retain(|&change| change > begin && change <= now);
        changes.sort_unstable();
        changes.dedup_by(|later, earlier| later.since(*earlier) < SHORT);
    }

    /// How fast everybody runs at a time.
    fn model(&mut self, at: Nanos, terrain: &Terrain, members: &[Member<Outlook>], active: &[u32]) {
        self.contenders.clear();
        self.who.clear();
        self.speeds.clear();
        for (who, &place) in active.iter().enumerate() {
            let member = &members[place as usize];
            let demand = match member.known.step {
                Some(step) if at < step.at => step.before,
                Some(step) => step.after,
                None => member.demand,
            };
            let there = member.usage.born() <= at && member.died.is_none_or(|died| at < died);
            if there && demand > 0.0 {
                self.contenders.push(member.known.contender(at, demand));
                self.who.push(who as u32);
                self.speeds.push(member.known.speed);
            }
        }
        let groups =
            terrain.before.filter(|&(until, _)| at < until).map_or(terrain.groups, |(_, before)| before);
        self.competition.speeds(terrain.online, terrain.sets, groups, &self.contenders, &mut self.speeds);
    }
}

/// What was measured of a thread in the window, where what is since a change counts more.
fn weighed(member: &Member<Outlook>, timeline: &Timeline, since: Option<Mark>) -> Spent {
    let recent = since.map_or(Spent::default(), |mark| member.usage.since(timeline, mark.place, mark.at));
    let more = SINCE_CHANGE - 1.0;
    Spent {
        run: member.window.run + more * recent.run,
        wait: member.window.wait + more * recent.wait,
        span: member.window.span,
    }
}

/// The speed to expect of a thread that ran and waited for so long, where the model says one speed of that time and another of what
/// is next. What is corrected is how much longer than it runs a thread waits, since nobody waits where there is nobody else.
fn corrected(run: f64, wait: f64, window: f64, next: f64) -> f64 {
    if run + wait <= 0.0 {
        return next;
    }
    let waits = |speed: f64| (1.0 - speed) / speed.max(1e-6);
    let (run, wait) = (run.max(0.0), wait.max(0.0));
    let measured = run / (run + wait);
    let blended = (run + TRUST_NS * window) / (run + wait + TRUST_NS);
    // Beside waits this short no factor tells anything.
    let least = 0.02;
    let factor = ((waits(blended) + least) / (waits(window) + least)).clamp(1.0 / WRONG, WRONG);
    let speed = |model: f64| 1.0 / (1.0 + factor * waits(model));
    (measured + speed(next) - speed(window)).clamp(1e-6, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_where_the_model_says_so() {
        for (run, wait) in [(1e9, 0.0), (1e8, 9e8), (3e8, 1e8), (0.0, 1e9)] {
            let speed = corrected(run, wait, 0.4, 0.4);
            assert!((speed - run / (run + wait)).abs() < 1e-5, "{run} {wait} {speed}");
        }
        assert_eq!(corrected(0.0, 0.0, 1.0, 0.3), 0.3);
    }

    #[test]
    fn who_is_alone_waits_for_nobody_and_who_was_alone_waits_as_the_model_says() {
        assert_eq!(corrected(1e8, 4e8, 0.3, 1.0), (0.2 + 1.0 - corrected_window(1e8, 4e8, 0.3)).min(1.0));
        assert!((corrected(1e9, 0.0, 1.0, 0.5) - 0.5).abs() < 1e-9);
        assert!(corrected(1e8, 4e8, 0.3, 1.0) > 0.95);
    }

    fn corrected_window(run: f64, wait: f64, window: f64) -> f64 {
        let waits = |speed: f64| (1.0 - speed) / speed;
        let blended = (run + TRUST_NS * window) / (run + wait + TRUST_NS);
        1.0 / (1.0 + (waits(blended) + 0.02) / (waits(window) + 0.02) * waits(window))
    }
}
