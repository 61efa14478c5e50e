//! What is told of an overload from its first look to its last: pure, so that what scripts rely on is tested without waiting.

use plimsoll_cancellation::decision::{Decision, Outcome, Restraint, State};
use plimsoll_cancellation::scene::Scene;
use plimsoll_core::Nanos;
use plimsoll_core::config::Mode;

/// An overload is over when there has been none for so long: one that flickers is one.
const OVER: Nanos = Nanos::from_secs(1);
/// Whoever is still there so long after it was told to end ignores that.
const IGNORED: Nanos = Nanos::from_secs(1);
/// So often it is tried again, each time after twice as long.
pub const TRIES: u32 = 4;
/// For so long the source may still say what became of a task after what that held up is free.
const SAID: Nanos = Nanos::from_millis(500);
/// Plain overload that goes on is told again after so long.
const AGAIN: Nanos = Nanos::from_secs(60);

/// Something to tell or to do. Tasks and resources are numbers; whoever tells has the words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Note {
    /// An overload began for which somebody is to blame.
    Overload,
    /// An overload began for which nobody is.
    Regular,
    /// Cancel this task now.
    Cancel {
        /// Whom.
        task: u64,
        /// What it holds up.
        resource: u32,
    },
    /// It would be cancelled, in shadow.
    WouldCancel {
        /// Whom.
        task: u64,
        /// What it holds up.
        resource: u32,
    },
    /// It was told to end so often and is still there; tell it again, or see to it otherwise.
    Ignored {
        /// Whom.
        task: u64,
        /// How often it was told.
        tries: u32,
    },
    /// The first to blame can not be cancelled.
    NotCancellable {
        /// Whom.
        task: u64,
    },
    /// What a task held up is free.
    Released {
        /// Who.
        task: u64,
        /// What.
        resource: u32,
        /// How long after it was told to end.
        after: Nanos,
        /// What became of it, if the source said; nothing in shadow.
        outcome: Option<Outcome>,
    },
    /// The overload ended without anybody being told to end.
    Over {
        /// How long it had lasted.
        after: Nanos,
    },
}

impl Note {
    /// Whom to cancel, because of what.
    pub fn cancels(&self) -> Option<(u64, u32)> {
        match *self {
            Note::Cancel { task, resource } => Some((task, resource)),
            _ => None,
        }
    }

    /// Whether what is told of it names the candidates.
    pub fn names_candidates(&self) -> bool {
        matches!(self, Note::Overload | Note::Cancel { .. } | Note::WouldCancel { .. })
    }
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    task: u64,
    resource: u32,
    at: Nanos,
    shadow: bool,
    tries: u32,
    retry_at: Nanos,
    outcome: Option<Outcome>,
    /// Since when what it held up is free, and whether that was told.
    freed: Option<Nanos>,
    told: bool,
}

/// One application's or database's overloads.
#[derive(Debug, Default)]
pub struct Incident {
    /// Whether the source never says what became of a task.
    silent: bool,
    since: Option<Nanos>,
    /// Last look at which there was one.
    last: Nanos,
    anybody: bool,
    regular: Option<Nanos>,
    sent: Vec<Sent>,
    blamed: Vec<u64>,
}

impl Incident {
    /// None yet; `silent` tells whether the source never says what became of a task.
    pub fn new(silent: bool) -> Incident {
        Incident { silent, ..Incident::default() }
    }

    /// What a look is to be told of.
    pub fn observe(
        &mut self,
        now: Nanos,
        mode: Mode,
        scene: &Scene,
        decision: &Decision,
        notes: &mut Vec<Note>,
    ) {
        self.follow(now, scene, notes);
        match decision.state {
            State::Resource => {
                if self.since.is_none() {
                    self.since = Some(now);
                    notes.push(Note::Overload);
                }
                self.last = now;
                self.regular = None;
                self.decide(now, mode, decision, notes);
            }
            State::Regular => {
                if self.regular.is_none_or(|told| now.since(told) >= AGAIN) {
                    self.regular = Some(now);
                    notes.push(Note::Regular);
                }
            }
            State::Calm => self.regular = None,
            State::Suspected => {}
        }
        self.end(now, notes);
    }

    fn decide(&mut self, now: Nanos, mode: Mode, decision: &Decision, notes: &mut Vec<Note>) {
        if decision.restraint == Some(Restraint::NotCancellable)
            && let Some(first) = decision.candidates.first()
            && !self.blamed.contains(&first.task)
        {
            self.blamed.push(first.task);
            notes.push(Note::NotCancellable { task: first.task });
        }
        let Some((task, resource)) = decision.cancel else { return };
        // In shadow the culprit stays. Who is to blame beside it would not be if it were gone, so nobody else is named until it is.
        let shadow = mode != Mode::Enforce;
        if shadow && self.sent.iter().any(|sent| sent.shadow && !sent.told) {
            return;
        }
        self.anybody = true;
        let retry_at = now + IGNORED;
        self.sent.push(Sent {
            task,
            resource,
            at: now,
            shadow,
            tries: 1,
            retry_at,
            outcome: None,
            freed: None,
            told: false,
        });
        notes.push(match shadow {
            true => Note::WouldCancel { task, resource },
            false => Note::Cancel { task, resource },
        });
    }

    /// What the source said about a cancellation.
    pub fn outcome(&mut self, task: u64, outcome: Outcome) {
        if let Some(sent) = self.sent.iter_mut().find(|sent| sent.task == task) {
            sent.outcome = Some(outcome);
        }
    }

    fn follow(&mut self, now: Nanos, scene: &Scene, notes: &mut Vec<Note>) {
        let silent = self.silent;
        self.sent.retain_mut(|sent| {
            if !holds(scene, sent.task, sent.resource) {
                let Sent { task, resource, at, outcome, shadow, .. } = *sent;
                let freed = *sent.freed.get_or_insert(now);
                // The application's word may come a moment later than the look that sees it.
                let said = silent || shadow || outcome.is_some() || now.since(freed) >= SAID;
                if said && !std::mem::replace(&mut sent.told, true) {
                    notes.push(Note::Released { task, resource, after: freed.since(at), outcome });
                }
                // As long as it is there it may have it again; or have had it all the time, while nobody waited who would have shown that.
                return !said || place(scene, task).is_some();
            }
            (sent.freed, sent.told) = (None, false);
            if !sent.shadow && now >= sent.retry_at {
                notes.push(Note::Ignored { task: sent.task, tries: sent.tries });
                sent.retry_at = now + Nanos(IGNORED.0 << sent.tries.min(6));
                sent.tries += 1;
                return sent.tries <= TRIES;
            }
            true
        });
    }

    fn end(&mut self, now: Nanos, notes: &mut Vec<Note>) {
        let Some(since) = self.since else { return };
        if now.since(self.last) < OVER {
            return;
        }
        if !self.anybody {
            notes.push(Note::Over { after: self.last.since(since) });
        }
        (self.since, self.anybody) = (None, false);
        self.blamed.clear();
    }
}

fn place(scene: &Scene, task: u64) -> Option<usize> {
    scene.tasks.iter().position(|t| t.id == task)
}

/// Whether a task still has the resource. Of what is not held for a time, whether the task is still there.
fn holds(scene: &Scene, task: u64, resource: u32) -> bool {
    let Some(index) = place(scene, task) else { return false };
    let is_held = scene.resources.get(resource as usize).is_some_and(|resource| resource.kind.is_held());
    let mut uses = scene.uses.iter().filter(|used| used.task as usize == index && used.resource == resource);
    !is_held || uses.any(|used| used.held > 0)
}

#[cfg(test)]
mod tests {
    use plimsoll_cancellation::decision::Candidate;
    use plimsoll_cancellation::scene::{Kind, Resource, Task, Use};

    use super::*;

    const LOCK: u32 = 0;

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn scene(holder: Option<u64>) -> Scene {
        let task = |id| Task {
            id,
            class: 0,
            started_ns: 0,
            deadline_ns: 0,
            done: 0,
            total: 0,
            request: true,
            cancellable: true,
            rerunnable: false,
        };
        Scene {
            tasks: holder.into_iter().map(task).collect(),
            resources: vec![Resource::quiet(Kind::Lock, 1)],
            uses: holder.map(|_| Use { held: 1, held_ns: 1, ..Use::default() }).into_iter().collect(),
            ..Scene::default()
        }
    }

    fn blame(task: u64, cancel: bool) -> Decision {
        Decision {
            state: State::Resource,
            candidates: vec![Candidate { task, score: 1.0, gains: vec![(LOCK, 1.0)], cancellable: cancel }],
            cancel: cancel.then_some((task, LOCK)),
            restraint: (!cancel).then_some(Restraint::NotCancellable),
            ..Decision::default()
        }
    }

    fn state(state: State) -> Decision {
        Decision { state, ..Decision::default() }
    }

    fn look(
        incident: &mut Incident,
        ms: u64,
        mode: Mode,
        holder: Option<u64>,
        decision: &Decision,
    ) -> Vec<Note> {
        let mut notes = Vec::new();
        incident.observe(at(ms), mode, &scene(holder), decision, &mut notes);
        notes
    }

    #[test]
    fn an_overload_is_told_once_and_so_is_its_end() {
        let mut incident = Incident::new(true);
        let mut look =
            |ms, holder, decision: &Decision| look(&mut incident, ms, Mode::Enforce, holder, decision);
        let cancel = Note::Cancel { task: 7, resource: LOCK };
        assert_eq!(look(0, Some(7), &blame(7, true)), [Note::Overload, cancel]);
        let waiting = Decision { cancel: None, ..blame(7, true) };
        assert_eq!(look(50, Some(7), &waiting), []);
        let released = Note::Released { task: 7, resource: LOCK, after: at(100), outcome: None };
        assert_eq!(look(100, None, &waiting), [released]);
        for ms in (150..2_000).step_by(50) {
            assert_eq!(look(ms, None, &state(State::Calm)), [], "its end was told");
        }
        assert_eq!(look(2_000, Some(8), &blame(8, true))[0], Note::Overload);
    }

    #[test]
    fn what_became_of_it_may_be_said_a_moment_later() {
        let quiet = state(State::Calm);
        let released = |outcome| Note::Released { task: 7, resource: LOCK, after: at(100), outcome };
        let freed_at_100 = || {
            let mut incident = Incident::new(false);
            look(&mut incident, 0, Mode::Enforce, Some(7), &blame(7, true));
            assert_eq!(look(&mut incident, 100, Mode::Enforce, None, &quiet), []);
            incident
        };
        let mut incident = freed_at_100();
        incident.outcome(7, Outcome::Cancelled);
        assert_eq!(
            look(&mut incident, 150, Mode::Enforce, None, &quiet),
            [released(Some(Outcome::Cancelled))]
        );
        let mut incident = freed_at_100();
        assert_eq!(look(&mut incident, 550, Mode::Enforce, None, &quiet), []);
        assert_eq!(look(&mut incident, 600, Mode::Enforce, None, &quiet), [released(None)]);
    }

    #[test]
    fn in_shadow_nobody_else_is_named_while_the_culprit_stays() {
        let mut incident = Incident::default();
        let notes = look(&mut incident, 0, Mode::Shadow, Some(7), &blame(7, true));
        assert_eq!(notes, [Note::Overload, Note::WouldCancel { task: 7, resource: LOCK }]);
        for ms in (50..60_000).step_by(50) {
            assert_eq!(look(&mut incident, ms, Mode::Shadow, Some(7), &blame(8, true)), []);
        }
        assert!(matches!(
            look(&mut incident, 60_000, Mode::Shadow, None, &state(State::Calm))[..],
            [Note::Released { task: 7, .. }, ..]
        ));
    }

    #[test]
    fn who_ignores_it_is_told_again_a_bounded_number_of_times() {
        let mut incident = Incident::default();
        look(&mut incident, 0, Mode::Enforce, Some(7), &blame(7, true));
        let mut tries = Vec::new();
        for ms in (50..600_000).step_by(50) {
            let notes = look(&mut incident, ms, Mode::Enforce, Some(7), &state(State::Suspected));
            tries.extend(notes.into_iter().filter_map(|note| match note {
                Note::Ignored { tries, .. } => Some((ms, tries)),
                _ => None,
            }));
        }
        assert_eq!(tries, [(1_000, 1), (3_000, 2), (7_000, 3), (15_000, 4)]);
    }

    #[test]
    fn who_has_it_again_has_ignored_it() {
        // Of a database it is known that somebody has a lock only while another waits for it.
        let mut incident = Incident::new(true);
        look(&mut incident, 0, Mode::Enforce, Some(7), &blame(7, true));
        let mut told = Vec::new();
        for ms in (50..2_000).step_by(50) {
            let nobody_waits = (300..1_300).contains(&ms);
            let scene =
                if nobody_waits { Scene { uses: Vec::new(), ..scene(Some(7)) } } else { scene(Some(7)) };
            incident.observe(at(ms), Mode::Enforce, &scene, &state(State::Suspected), &mut told);
        }
        let released = Note::Released { task: 7, resource: LOCK, after: at(300), outcome: None };
        assert_eq!(told, [released, Note::Ignored { task: 7, tries: 1 }]);
        // What it is told at last is that it is free.
        let mut last = Vec::new();
        incident.observe(at(2_000), Mode::Enforce, &scene(None), &state(State::Calm), &mut last);
        assert_eq!(last, [Note::Released { task: 7, resource: LOCK, after: at(2_000), outcome: None }]);
        assert!(incident.sent.is_empty());
    }

    #[test]
    fn who_cannot_be_cancelled_is_named_once() {
        let mut incident = Incident::default();
        let first = look(&mut incident, 0, Mode::Enforce, Some(7), &blame(7, false));
        assert_eq!(first, [Note::Overload, Note::NotCancellable { task: 7 }]);
        assert_eq!(look(&mut incident, 50, Mode::Enforce, Some(7), &blame(7, false)), []);
        let ended: Vec<_> = (100..2_000)
            .step_by(50)
            .flat_map(|ms| look(&mut incident, ms, Mode::Enforce, None, &state(State::Calm)))
            .collect();
        assert_eq!(ended, [Note::Over { after: at(50) }]);
    }

    #[test]
    fn plain_overload_is_told_when_it_begins_and_now_and_then() {
        let mut incident = Incident::default();
        let told: Vec<u64> = (0..150_000)
            .step_by(50)
            .filter(|&ms| !look(&mut incident, ms, Mode::Enforce, None, &state(State::Regular)).is_empty())
            .collect();
        assert_eq!(told, [0, 60_000, 120_000]);
        look(&mut incident, 150_000, Mode::Enforce, None, &state(State::Calm));
        assert_eq!(
            look(&mut incident, 150_050, Mode::Enforce, None, &state(State::Regular)),
            [Note::Regular]
        );
    }
}
