//! Cancellations from their order to their outcome, and what was cancelled until it is run again or dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_ledger::Writer;
use plimsoll_ledger::control::{FromSdk, Outcome};

use super::helpers::{Act, Helper, Redo, act, redo};
use super::{Absent, Control, Note};
use crate::cancel::{Again, Cancellation, Rerun, Second, State};

/// Cancellations that go on at once.
const MOST_GOING_ON: usize = 1024;
/// What waits to be run again.
const MOST_WAITING: usize = 1024;

/// Why something is not run again.
const LATE: &str = "its deadline has passed";

/// One that was ordered and has no outcome yet.
struct GoingOn {
    /// The agent's number for it; `None` once its connection has ended.
    id: Option<u64>,
    state: Arc<State>,
    /// Whether its action has returned.
    acted: bool,
    /// How the task has ended, if it has.
    ended: Option<bool>,
    /// Whether the agent was told how it went.
    told: bool,
}

/// Work that was cancelled and can be run again.
struct Waiting {
    id: Option<u64>,
    again: Again,
    rerun: Rerun,
    /// When it is run even if nobody says so.
    until_ns: u64,
}

/// All of them, by numbers of our own.
pub(super) struct Cancels {
    control: &'static Control,
    writer: &'static Writer,
    next: u64,
    going_on: BTreeMap<u64, GoingOn>,
    /// In the order in which actions are called, and since when the first one runs.
    acting: VecDeque<u64>,
    since_ns: u64,
    waiting: Vec<Waiting>,
    actions: Helper<Act>,
    reruns: Helper<Redo>,
    /// What the agent is to be told.
    pub say: Vec<FromSdk>,
}

fn outcome(id: u64, outcome: Outcome, text: &str) -> FromSdk {
    FromSdk::Outcome { id, outcome, text: text.to_owned() }
}

fn after(now_ns: u64, duration: Duration) -> u64 {
    now_ns.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl Cancels {
    pub fn new(control: &'static Control, writer: &'static Writer) -> Cancels {
        Cancels {
            control,
            writer,
            next: 1,
            going_on: BTreeMap::new(),
            acting: VecDeque::new(),
            since_ns: 0,
            waiting: Vec::new(),
            actions: Helper::new("plimsoll-cancel"),
            reruns: Helper::new("plimsoll-rerun"),
            say: Vec::new(),
        }
    }

    /// The agent orders a cancellation.
    pub fn cancel(&mut self, now_ns: u64, id: u64, record: u32, turn: u64, resource: u16, reason: String) {
        let failed = |text: &str| outcome(id, Outcome::Failed, text);
        if self.is_stuck(now_ns) {
            return self.say.push(failed("an earlier cancel action has not returned"));
        }
        if self.going_on.len() >= MOST_GOING_ON {
            return self.say.push(failed("too many cancellations go on"));
        }
        let serial = self.next;
        let state = match self.control.accept(self.writer, record, turn, serial) {
            Ok(state) => state,
            Err(Absent::Not(why)) => return self.say.push(failed(why)),
            Err(Absent::Finished) => return self.say.push(outcome(id, Outcome::Finished, "")),
            Err(Absent::Gone) => return self.say.push(outcome(id, Outcome::Gone, "")),
        };
        self.next += 1;
        self.say.push(FromSdk::Acknowledge { id });
        let resource_name = self.writer.resource_name(resource).unwrap_or_default();
        let cancellation = Cancellation { key: state.key, resource, resource_name, reason };
        let job = Act { serial, state: Arc::clone(&state), cancellation };
        let given = self.actions.give(job, &self.control.notes, act);
        let mut going_on = GoingOn { id: Some(id), state, acted: false, ended: None, told: false };
        match given {
            Ok(()) => {
                if self.acting.is_empty() {
                    self.since_ns = now_ns;
                }
                self.acting.push_back(serial);
            }
            Err(why) => {
                self.say.push(failed(&why));
                (going_on.acted, going_on.told) = (true, true);
            }
        }
        self.going_on.insert(serial, going_on);
    }

    /// Whether an action takes too long.
    fn is_stuck(&self, now_ns: u64) -> bool {
        !self.acting.is_empty() && now_ns >= after(self.since_ns, self.control.limits.action)
    }

    /// What came of something.
    pub fn note(&mut self, now_ns: u64, note: Note) {
        match note {
            Note::Acted { serial, failed } => {
                self.acting.retain(|&other| other != serial);
                self.since_ns = now_ns;
                if let Some(going_on) = self.going_on.get_mut(&serial) {
                    going_on.acted = true;
                    if let Some(why) = failed {
                        tell(&mut self.say, going_on, Outcome::Failed, &why);
                    }
                }
                self.settle(now_ns, serial);
            }
            Note::Ended { serial, cancelled } => {
                if let Some(going_on) = self.going_on.get_mut(&serial) {
                    going_on.ended = Some(cancelled);
                }
                self.settle(now_ns, serial);
            }
            Note::Reran { id } => self.say.extend(id.map(|id| FromSdk::Reran { id })),
        }
    }

    /// Tells how it went once the task has ended, and forgets it once its action has returned as well.
    fn settle(&mut self, now_ns: u64, serial: u64) {
        let Some(going_on) = self.going_on.get_mut(&serial) else { return };
        let Some(cancelled) = going_on.ended else { return };
        tell(&mut self.say, going_on, if cancelled { Outcome::Cancelled } else { Outcome::Finished }, "");
        let (id, rerun) = (going_on.id, crate::app::lock(&going_on.state.rerun).take());
        if going_on.acted {
            self.going_on.remove(&serial);
        }
        if let Some((again, rerun)) = rerun.filter(|_| cancelled) {
            let waiting = Waiting { id, again, rerun, until_ns: after(now_ns, self.control.limits.rerun) };
            match self.waiting.len() < MOST_WAITING {
                true => self.waiting.push(waiting),
                false => self.drop_it(waiting, "too much waits to be run again"),
            }
        }
    }

    /// There is room again for what this cancelled.
    pub fn rerun(&mut self, now_ns: u64, id: u64) {
        if let Some(place) = self.waiting.iter().position(|waiting| waiting.id == Some(id)) {
            let waiting = self.waiting.remove(place);
            self.run(now_ns, waiting);
        }
    }

    /// It is not to be run again.
    pub fn forget(&mut self, id: u64) {
        if let Some(place) = self.waiting.iter().position(|waiting| waiting.id == Some(id)) {
            let waiting = self.waiting.remove(place);
            self.drop_it(waiting, LATE);
        }
    }

    /// Runs it, unless it is of no use any more.
    fn run(&mut self, now_ns: u64, waiting: Waiting) {
        if waiting.again.is_late(now_ns) {
            return self.drop_it(waiting, LATE);
        }
        let Waiting { id, again, rerun, .. } = waiting;
        self.redo(Redo { id, rerun, second: Second::Again(again) });
    }

    fn drop_it(&mut self, Waiting { id, rerun, .. }: Waiting, why: &str) {
        self.redo(Redo { id, rerun, second: Second::Dropped(why.to_owned()) });
        self.say.extend(id.map(|id| FromSdk::Dropped { id }));
    }

    fn redo(&mut self, job: Redo) {
        if let Err(why) = self.reruns.give(job, &self.control.notes, redo) {
            crate::quiet::once(format!("cancelled work is not run again: {why}"));
        }
    }

    /// What time brings: actions that have failed, and work that waited long enough. When it must be called next.
    pub fn tick(&mut self, now_ns: u64) -> u64 {
        if self.is_stuck(now_ns) {
            let seconds = self.control.limits.action.as_secs_f64();
            let why = format!("the cancel action has not returned for {seconds} s");
            for serial in &self.acting {
                if let Some(going_on) = self.going_on.get_mut(serial) {
                    tell(&mut self.say, going_on, Outcome::Failed, &why);
                }
            }
        }
        while let Some(place) = self.waiting.iter().position(|waiting| waiting.until_ns <= now_ns) {
            let waiting = self.waiting.remove(place);
            self.run(now_ns, waiting);
        }
        self.waiting.iter().map(|waiting| waiting.until_ns).min().unwrap_or(u64::MAX)
    }

    /// The connection has ended: nobody is there to say when there is room, so what waits is run.
    pub fn alone(&mut self, now_ns: u64) {
        self.say.clear();
        for going_on in self.going_on.values_mut() {
            going_on.id = None;
        }
        for mut waiting in std::mem::take(&mut self.waiting) {
            waiting.id = None;
            self.run(now_ns, waiting);
        }
    }
}

/// Tells the agent how it went, once.
fn tell(say: &mut Vec<FromSdk>, going_on: &mut GoingOn, how: Outcome, text: &str) {
    if !going_on.told {
        going_on.told = true;
        say.extend(going_on.id.map(|id| outcome(id, how, text)));
    }
}
