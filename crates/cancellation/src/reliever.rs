//! The reliever: looks, decides whether the objectives are missed because of somebody, and cancels that one (ATROPOS).
//!
//! Every look goes the same way. What happened since the last one is added to what is known ([`Detector`], [`Contention`], [`Usual`]).
//! If objectives are missed while no more is being done than before, and requests lose their time to a resource, and somebody is to
//! blame for that ([`Chooser`]), the one whose cancellation helps most is cancelled, if the budget allows. If nobody is to blame, it is
//! plain overload, which admission control deals with. What was cancelled waits to be run again ([`Cancelled`]).

use plimsoll_core::{Nanos, Slo};

use crate::again::Cancelled;
use crate::budget::{self, Budget};
use crate::choose::{self, Alike, Blame, CONTENDED, Chooser, Known, Objective};
use crate::contention::Contention;
use crate::controller::{Controller, Order};
use crate::decision::{Again, Decision, Outcome, Restraint, State};
use crate::detector::Detector;
use crate::gain::Gain;
use crate::rise::Rise;
use crate::scene::{Scene, Use};
use crate::usual::Usual;

pub use crate::choose::CANDIDATES;

/// How long plain overload must last before it is called so: what waited behind a culprit is still late when that is gone.
const REGULAR_AFTER: Nanos = Nanos::from_millis(500);
/// How long a task that was cancelled may take to end before the next is. Nobody knows yet what its end frees.
const TAKES_EFFECT: Nanos = Nanos::from_millis(250);
/// For no less than this after its end it may still explain what there is to see: what waited behind it is late, and so is what came meanwhile.
/// To work that off takes the longer the longer objectives had been missed, so it may for as long as that, up to a limit: somebody else may have
/// come meanwhile.
const AFTERMATH: Nanos = Nanos::from_millis(500);
const LONGEST_AFTERMATH: Nanos = Nanos::from_secs(2);
/// How long stamps stay exact after the last suspicion.
const LINGER: Nanos = Nanos::from_secs(2);
/// What is not there for so long is forgotten.
const FORGOTTEN: Nanos = Nanos::from_secs(60);

/// What a reliever is held to. All but the objectives has a default that works.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What requests were promised.
    pub slo: Slo,
    /// How many may be cancelled.
    pub budget: budget::Terms,
    /// Who may be to blame; other than the default only for Fig. 13.
    pub blame: Blame,
    /// What a gain is measured by; other than the default only for Fig. 13.
    pub gain: Gain,
    /// How gains are made into one number; other than the default only for Fig. 13.
    pub objective: Objective,
}

impl Terms {
    /// The defaults.
    pub fn new(slo: Slo) -> Terms {
        Terms {
            slo,
            budget: budget::Terms::default(),
            blame: Blame::default(),
            gain: Gain::default(),
            objective: Objective::default(),
        }
    }
}

/// One that was cancelled and may still be there.
#[derive(Clone, Debug)]
struct Ending {
    task: u64,
    since: Nanos,
    /// When it was last seen, and for how long it held what then.
    seen: Nanos,
    held: Vec<(usize, u64)>,
    /// When the first was cancelled of those that one after the other had an effect, and who is like this one.
    first: Nanos,
    alike: Vec<Alike>,
    /// Once it is gone: for how long that may explain what there is to see.
    aftermath: Option<Nanos>,
    /// The application could not cancel it.
    failed: bool,
}

impl Ending {
    fn is_gone(&self) -> bool {
        self.aftermath.is_some()
    }

    /// Whether it may still end, of which nobody knows yet what that frees.
    fn takes_effect(&self, now: Option<Nanos>) -> bool {
        !self.is_gone() && !self.failed && now.is_some_and(|now| now.since(self.since) < TAKES_EFFECT)
    }

    /// Whether it may still explain what there is to see.
    fn settles(&self, now: Nanos) -> bool {
        let from = if self.is_gone() { self.seen } else { self.since };
        !self.failed && now.since(from) < self.aftermath.unwrap_or(AFTERMATH)
    }
}

/// That objectives are missed, or were of late: since when, however often they were kept for less than [`AFTERMATH`] in between, and when last.
#[derive(Clone, Copy, Debug)]
struct Missed {
    since: Nanos,
    last: Nanos,
}

/// Decides for one application.
pub struct Reliever {
    limit: Nanos,
    choice: choose::Terms,
    detector: Detector,
    contention: Contention,
    rise: Rise,
    usual: Usual,
    chooser: Chooser,
    budget: Budget,
    cancelled: Cancelled,
    endings: Vec<Ending>,
    last: Option<Nanos>,
    missed: Option<Missed>,
    suspected: Option<Nanos>,
    unexplained_since: Option<Nanos>,
    decision: Decision,
}

impl Reliever {
    /// One that has seen nothing yet.
    pub fn new(terms: Terms) -> Reliever {
        Reliever {
            limit: terms.slo.owed().unwrap_or(Nanos::MAX),
            choice: choose::Terms { blame: terms.blame, gain: terms.gain, objective: terms.objective },
            detector: Detector::new(&terms.slo),
            contention: Contention::default(),
            rise: Rise::default(),
            usual: Usual::default(),
            chooser: Chooser::default(),
            budget: Budget::new(terms.budget),
            cancelled: Cancelled::default(),
            endings: Vec::new(),
            last: None,
            missed: None,
            suspected: None,
            unexplained_since: None,
            decision: Decision::default(),
        }
    }

    /// Looks at the application and says what is to be done. The host carries out [`Decision::cancel`] and [`Decision::again`], and tells
    /// of the former what became of it ([`Reliever::outcome`]). A look at the same time as the last one decides nothing.
    pub fn look(&mut self, now: Nanos, scene: &Scene) -> &Decision {
        let elapsed = now.since(self.last.replace(now).unwrap_or(now));
        self.decision.cancel = None;
        self.decision.restraint = None;
        self.decision.again.clear();
        self.decision.candidates.clear();
        if elapsed == Nanos::ZERO {
            return &self.decision;
        }
        self.detector.look(now, elapsed, scene);
        self.contention.look(now, elapsed, scene);
        self.budget.look(elapsed, scene.completions());
        let missed = self.detector.missed();
        let calm = missed.is_none();
        let lately = self.missed.filter(|missed| now.since(missed.last) < AFTERMATH);
        if !calm {
            self.missed = Some(Missed { since: lately.map_or(now, |missed| missed.since), last: now });
        }
        // Who held others up is perhaps seen to be done only when nobody is late any more; that was not usual.
        let settled = calm && lately.is_none();
        let endings = &self.endings;
        self.usual.look(elapsed, scene, settled, |task| endings.iter().any(|ending| ending.task == task));
        self.follow(now, scene);

        let levels = match (self.choice.blame, self.choice.objective) {
            (Blame::FarAboveUsual, Objective::All) => self.contention.levels(),
            _ => self.contention.measured(),
        };
        let ran_ns = self.contention.ran_ns();
        let known = Known { levels, ran_ns, rise: &self.rise, usual: &self.usual, limit: self.limit };
        self.chooser.look(scene, known, self.choice);
        if calm {
            self.rise.kept(now, self.limit, levels, ran_ns);
        }
        if settled {
            self.chooser.heavy().enumerate().for_each(|(r, taken)| self.usual.heavy(r, elapsed, taken));
        }
        self.decision.contention.clear();
        self.decision.contention.extend_from_slice(levels);
        self.decision.late = missed;
        self.decision.state = self.judge(now, elapsed, scene);
        let room = self.decision.state == State::Calm
            && self.contention.levels().iter().all(|&level| level < CONTENDED);
        let runs = |task| self.endings.iter().any(|ending| ending.task == task && !ending.is_gone());
        self.cancelled.look(now, room, runs, &mut self.decision.again);
        if self.decision.state == State::Resource {
            self.choose(now, elapsed, scene);
        }
        &self.decision
    }

    /// Whether somebody was told to end of whom it is not seen yet that it has: a look that shows it lets the next one be chosen.
    pub fn awaits_an_end(&self) -> bool {
        self.endings.iter().any(|ending| ending.takes_effect(self.last))
    }

    /// What became of a cancellation.
    pub fn outcome(&mut self, task: u64, outcome: Outcome) {
        match outcome {
            Outcome::Cancelled => {}
            Outcome::Finished | Outcome::Failed => self.cancelled.remove(task),
        }
        if let Some(ending) = self.endings.iter_mut().find(|ending| ending.task == task) {
            ending.failed |= outcome == Outcome::Failed;
        }
    }

    /// What the last look came to.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Whether the application should stamp what happens exactly: objectives are missed or may soon be.
    pub fn wants_exact(&self) -> bool {
        self.suspected.is_some()
    }

    /// How things stand; where somebody is to blame, the candidates are filled in.
    fn judge(&mut self, now: Nanos, elapsed: Nanos, scene: &Scene) -> State {
        if self.decision.late.is_some() || self.detector.may_soon_miss() {
            self.suspected = Some(now);
        } else if self.suspected.is_some_and(|since| now.since(since) >= LINGER) {
            self.suspected = None;
        }
        if self.decision.late.is_none() {
            self.unexplained_since = None;
            return if self.suspected == Some(now) { State::Suspected } else { State::Calm };
        }
        let endings = &self.endings;
        // Who was told to end and goes on, as it does not hear or as nobody tells it in shadow, explains it still.
        let mut goes_on = false;
        let spared = |task| {
            let is_ending = endings.iter().any(|ending| ending.task == task);
            goes_on |= is_ending;
            is_ending
        };
        let settling = endings.iter().filter(|ending| ending.settles(now));
        let settles = settling.clone().next().is_some();
        let alike: Vec<_> = settling.flat_map(|ending| ending.alike.iter().copied()).collect();
        let alike = (settles && self.choice.blame == Blame::FarAboveUsual).then_some(&*alike);
        let candidates = self.chooser.candidates(elapsed, scene, &self.usual, spared, alike);
        if !candidates.is_empty() || settles || goes_on {
            self.decision.candidates.extend_from_slice(candidates);
            self.unexplained_since = None;
            return State::Resource;
        }
        let since = *self.unexplained_since.get_or_insert(now);
        let lasts = now.since(since) >= REGULAR_AFTER;
        if lasts && !self.detector.is_rising() { State::Regular } else { State::Suspected }
    }

    /// Cancels the best candidate, if nothing stands against it.
    fn choose(&mut self, now: Nanos, elapsed: Nanos, scene: &Scene) {
        let Some(best) = self.decision.candidates.first() else { return };
        // What was held up and is free is done all at once, which is no growth.
        let grows = self.detector.is_rising() && !self.endings.iter().any(|ending| ending.settles(now));
        self.decision.restraint = if !best.cancellable {
            Some(Restraint::NotCancellable)
        } else if grows || self.awaits_an_end() {
            Some(Restraint::TooSoon)
        } else {
            self.budget.restraint(now)
        };
        if self.decision.restraint.is_some() {
            return;
        }
        self.decision.cancel = Some((best.task, self.chooser.held_up(best)));
        self.budget.spend(now);
        let first = self.endings.iter().filter(|ending| ending.settles(now)).map(|ending| ending.first).min();
        let first = first.unwrap_or(now);
        let task = scene.tasks.iter().find(|task| task.id == best.task).expect("a candidate is in the scene");
        if task.rerunnable {
            self.decision.again.extend(self.cancelled.push(now, task));
        }
        self.endings.push(Ending {
            task: best.task,
            since: now,
            seen: now,
            held: Vec::new(),
            first,
            alike: self.chooser.alike(elapsed, first, task, uses_of(scene, best.task)).collect(),
            aftermath: None,
            failed: false,
        });
        self.note_holds(now, scene);
    }

    /// Follows those who were cancelled: what they held was not usual, and when they are gone the next may be.
    fn follow(&mut self, now: Nanos, scene: &Scene) {
        if self.endings.is_empty() {
            return;
        }
        self.note_holds(now, scene);
        for ending in self.endings.iter_mut().filter(|ending| !ending.is_gone() && ending.seen != now) {
            let missed_for = self.missed.map_or(Nanos::ZERO, |missed| ending.seen.since(missed.since));
            ending.aftermath = Some(missed_for.clamp(AFTERMATH, LONGEST_AFTERMATH));
            ending.held.drain(..).for_each(|(resource, held_ns)| self.usual.forget(resource, held_ns));
        }
        self.endings.retain(|ending| now.since(ending.seen) < FORGOTTEN);
    }

    fn note_holds(&mut self, now: Nanos, scene: &Scene) {
        for ending in self.endings.iter_mut().filter(|ending| !ending.is_gone()) {
            if scene.tasks.iter().any(|task| task.id == ending.task) {
                ending.seen = now;
                let held = uses_of(scene, ending.task).filter(|used| used.held_ns > 0);
                ending.held.clear();
                ending.held.extend(held.map(|used| (used.resource as usize, used.held_ns)));
            }
        }
    }
}

/// What a task does with which resources.
fn uses_of(scene: &Scene, task: u64) -> impl Iterator<Item = &Use> {
    let index = scene.tasks.iter().position(|t| t.id == task).unwrap_or(scene.tasks.len());
    let from = scene.uses.partition_point(|used| (used.task as usize) < index);
    scene.uses[from..].iter().take_while(move |used| used.task as usize == index)
}

impl Controller for Reliever {
    fn name(&self) -> &'static str {
        "atropos"
    }

    fn look(&mut self, now: Nanos, scene: &Scene, orders: &mut Vec<Order>) {
        let decision = Reliever::look(self, now, scene);
        orders.extend(decision.cancel.map(|(task, resource)| Order::Cancel { task, resource }));
        orders.extend(decision.again.iter().map(|again| match *again {
            Again::Rerun(task) => Order::Rerun { task },
            Again::Abandon(task) => Order::Abandon { task },
        }));
    }
}
