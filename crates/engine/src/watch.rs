//! One source being watched: look, decide, tell, act, over and over.

mod promise;
mod wording;

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_cancellation::decision::{Decision, Outcome, Restraint, State};
use plimsoll_cancellation::{Kind, Reliever, Scene};
use plimsoll_core::Nanos;
use plimsoll_core::config::Mode;
use tokio::time::sleep;

use crate::clock;
use crate::ease::Sentry;
use crate::event::{Event, LateWords, What, contention};
use crate::events::Events;
use crate::incident::{Incident, Note};
use crate::record::Recorder;
use crate::retry::Retry;
use crate::source::{Sent, Source, Trouble, Words};
use crate::status::{Board, Watched};

pub use promise::{Promise, terms};

/// An error that goes on is told again after so long.
const AGAIN: Nanos = Nanos::from_secs(60);
/// How often the status is written while nothing happens.
const NOTED: Nanos = Nanos::from_millis(500);

/// Where what happens is told.
#[derive(Clone)]
pub struct Outlets {
    /// As lines of JSON.
    pub events: Events,
    /// On the page and in metrics.
    pub board: Board,
    /// In a record, if there is one.
    pub recorder: Option<Recorder>,
    /// The sentry in front, if there is one in the config.
    pub sentry: Option<Sentry>,
}

/// A source and all that is known of it.
pub struct Watch<S: Source> {
    source: S,
    promise: Promise,
    reliever: Reliever,
    incident: Incident,
    scene: Scene,
    events: Events,
    board: Board,
    recorded: Option<(Recorder, u32)>,
    status: Watched,
    /// Words of the tasks that were spoken of.
    known: HashMap<u64, Words>,
    retry: Retry,
    noted: Nanos,
    /// The trouble that was told last, and when.
    told: Option<(String, Nanos)>,
}

impl<S: Source> Watch<S> {
    /// One that has not looked yet.
    pub fn new(source: S, promise: Promise, outlets: &Outlets) -> Watch<S> {
        let Outlets { events, board, recorder, .. } = outlets.clone();
        let recorded = recorder.map(|recorder| {
            let watch = recorder.watch(&promise.name, &promise.slo, &promise.budget);
            (recorder, watch)
        });
        let status = Watched {
            app: promise.app.clone(),
            source: promise.source,
            mode: promise.mode.as_str(),
            state: "calm",
            ..Watched::default()
        };
        board.note(&promise.name, &status);
        Watch {
            reliever: Reliever::new(terms(&promise.slo, &promise.budget)),
            incident: Incident::new(source.is_silent()),
            scene: Scene::default(),
            known: HashMap::new(),
            retry: Retry::default(),
            noted: Nanos::ZERO,
            told: None,
            source,
            promise,
            events,
            board,
            recorded,
            status,
        }
    }

    /// Watches until the source is gone; why it is.
    pub async fn run(mut self) -> String {
        loop {
            let began = clock::now();
            match self.source.look(&mut self.scene).await {
                Ok(now) => {
                    let wait = self.looked(now, began).await;
                    sleep(wait.saturating_sub(clock::now().since(began).into())).await;
                }
                Err(trouble) => {
                    self.failed(&trouble);
                    if trouble.gone {
                        return trouble.why;
                    }
                    sleep(self.retry.failed()).await;
                }
            }
        }
    }

    async fn looked(&mut self, now: Nanos, began: Nanos) -> Duration {
        if self.retry.succeeded() > 0 || self.told.is_some() {
            log::info!(app:% = self.promise.name; "watching");
            (self.told, self.status.trouble) = (None, None);
        }
        let before = match self.source.starts_over() {
            true => std::mem::take(&mut self.status.warnings),
            false => Vec::new(),
        };
        for warning in self.source.warnings() {
            self.warn(warning, &before);
        }
        for (task, outcome, why) in self.source.outcomes() {
            self.came_of(task, outcome, why);
        }
        // Who cannot be told now perhaps can at a later look, and is told once.
        if self.promise.mode == Mode::Enforce && !self.source.reaches() {
            self.scene.tasks.iter_mut().for_each(|task| task.cancellable = false);
        }
        let decision = self.reliever.look(now, &self.scene).clone();
        if let Some((recorder, watch)) = &self.recorded {
            recorder.look(*watch, now, &self.scene, &decision);
        }
        let mut notes = Vec::new();
        self.incident.observe(now, self.promise.mode, &self.scene, &decision, &mut notes);
        // First what matters, then what is told of it: a server in trouble may take long to say who is who.
        let mut sent = None;
        let cancel = notes.iter().find_map(Note::cancels);
        if let Some((task, resource)) = cancel {
            sent = Some(self.send(task, resource, &decision).await);
        }
        if notes.iter().any(Note::names_candidates) {
            // Whoever has just been told to end may be gone, and has been asked about.
            let candidates = decision.candidates.iter().map(|candidate| candidate.task);
            let others = candidates.filter(|&task| cancel.is_none_or(|(asked, _)| asked != task));
            self.learn(&others.collect::<Vec<_>>()).await;
        }
        for &note in &notes {
            self.carry_out(note, &decision, &mut sent).await;
        }
        for &again in &decision.again {
            self.source.again(again);
        }
        if let (State::Regular, Mode::Enforce, Some(sentry)) =
            (decision.state, self.promise.mode, &mut self.promise.sentry)
        {
            sentry.ease(clock::now());
        }
        self.note(began, &decision, !notes.is_empty());
        let wait = self.source.judged(decision.state, self.reliever.wants_exact());
        if self.reliever.awaits_an_end() { wait.min(self.promise.budget.interval.into()) } else { wait }
    }

    async fn carry_out(&mut self, note: Note, decision: &Decision, sent: &mut Option<(String, Sent)>) {
        match note {
            Note::Overload => self.overload(decision),
            Note::Regular => {
                self.status.regular_overloads += 1;
                let reason = "the objective is missed and nobody in particular is to blame: too much work, or too little capacity";
                let event = self.event(What::RegularOverload, decision, reason.to_owned());
                self.events.tell(&event);
            }
            Note::Cancel { task, resource } => {
                if let Some((reason, sent)) = sent.take() {
                    self.cancelled(task, resource, reason, sent, decision);
                }
            }
            Note::WouldCancel { task, resource } => {
                self.status.would_cancel += 1;
                let reason = self.reason(task, resource, decision);
                let mut event = self.about(What::WouldCancel, task, Some(resource), reason, decision);
                event.candidates = self.candidates(decision);
                self.events.tell(&event);
            }
            Note::Ignored { task, tries } => self.ignored(task, tries, decision).await,
            Note::NotCancellable { task } => {
                self.learn(&[task]).await;
                let why = self.known.get(&task).and_then(|words| words.about.not_cancellable.clone());
                let why = why.unwrap_or_else(|| "its application does not offer to cancel it".to_owned());
                let resource = decision.candidates.first().and_then(|first| first.gains.first()).map(|g| g.0);
                let event =
                    self.about(What::Escalate, task, resource, format!("not cancellable: {why}"), decision);
                self.events.tell(&event);
            }
            Note::Released { task, resource, after, outcome } => {
                let word = self.outcome_word(outcome);
                let reason = format!("{} is free again", self.source.resource(resource));
                let mut event = self.about(What::Released, task, Some(resource), reason, decision);
                event.outcome = Some(word);
                event.after_ms = Some(after.as_millis_f64());
                self.events.tell(&event);
            }
            Note::Over { after } => {
                let mut event =
                    self.event(What::Released, decision, "the overload ended by itself".to_owned());
                event.outcome = Some("by_itself");
                event.after_ms = Some(after.as_millis_f64());
                self.events.tell(&event);
            }
        }
    }

    fn overload(&mut self, decision: &Decision) {
        self.status.overloads += 1;
        let first = decision.candidates.first().map(|first| first.task);
        let mut reason = "requests lose their time to a resource that somebody holds up".to_owned();
        if let Some(restraint) = decision.restraint.filter(|&r| r != Restraint::NotCancellable) {
            reason += &format!(" (nobody is cancelled now: {})", restraint.as_str());
        }
        let mut event = self.event(What::Overload, decision, reason);
        if let Some(words) = first.and_then(|task| self.known.get(&task)) {
            (event.task, event.pid) = (Some(words.name.clone()), words.pid);
        }
        event.resource = event.contention.first().map(|worst| worst.resource.clone());
        event.candidates = self.candidates(decision);
        self.events.tell(&event);
    }

    /// Tells a task to end, and why.
    async fn send(&mut self, task: u64, resource: u32, decision: &Decision) -> (String, Sent) {
        self.learn(&[task]).await;
        let reason = self.reason(task, resource, decision);
        let sent = self.source.cancel(task, resource, &reason, 0).await;
        (reason, sent)
    }

    fn cancelled(&mut self, task: u64, resource: u32, reason: String, sent: Sent, decision: &Decision) {
        let mut event = self.about(What::Cancel, task, Some(resource), reason, decision);
        event.candidates = self.candidates(decision);
        match sent {
            Sent::Told => self.status.cancelled += 1,
            Sent::Terminated => {
                self.status.cancelled += 1;
                event.outcome = Some("terminated");
            }
            Sent::Gone => {
                event.outcome = Some("finished");
                self.came_of(task, Outcome::Finished, None);
            }
            Sent::Failed(why) => {
                event.outcome = Some("failed");
                event.reason = format!("{}; it failed: {why}", event.reason);
                self.came_of(task, Outcome::Failed, None);
            }
        }
        self.events.tell(&event);
    }

    /// A task that was told to end is still there.
    async fn ignored(&mut self, task: u64, tries: u32, decision: &Decision) {
        let sent = self.source.cancel(task, 0, "told before", tries).await;
        let reason = match sent {
            // Once more, quietly; whoever ignores that is worth a word.
            Sent::Told if tries < 2 => return,
            Sent::Told => "it was told to end and goes on".to_owned(),
            Sent::Terminated => "it ignored being cancelled, and was terminated".to_owned(),
            Sent::Gone => return,
            Sent::Failed(why) => format!("it goes on: {why}"),
        };
        let event = self.about(What::Escalate, task, None, reason, decision);
        self.events.tell(&event);
    }

    /// What became of a cancellation, as the source said.
    fn came_of(&mut self, task: u64, outcome: Outcome, why: Option<String>) {
        if outcome == Outcome::Failed {
            self.status.failed += 1;
        }
        if let Some(why) = why {
            let name =
                self.known.get(&task).map_or_else(|| format!("task {task}"), |words| words.name.clone());
            log::warn!(app:% = self.promise.name, task:% = name, why:%; "cancellation failed");
        }
        self.incident.outcome(task, outcome);
        self.reliever.outcome(task, outcome);
        if let Some((recorder, watch)) = &self.recorded {
            recorder.outcome(*watch, task, outcome);
        }
    }

    fn note(&mut self, began: Nanos, decision: &Decision, is_news: bool) {
        let status = &mut self.status;
        status.looks += 1;
        let now = clock::now();
        let ms = now.since(began).as_millis_f64();
        status.look_ms = if status.looks == 1 { ms } else { status.look_ms + (ms - status.look_ms) / 16.0 };
        status.completed += self.scene.completions();
        let queues = self.scene.resources.iter().filter(|resource| resource.kind == Kind::Queue);
        status.queued_s += queues.map(|queue| queue.delay_ns as f64 / 1e9).sum::<f64>();
        status.state = decision.state.as_str();
        if !is_news && now.since(self.noted) < NOTED {
            return;
        }
        self.noted = now;
        self.status.tasks = self.scene.tasks.len();
        self.status.requests = self.scene.tasks.iter().filter(|task| task.request).count();
        self.status.late = decision.late.map(LateWords::from);
        self.status.contention = contention(decision, |index| self.named(index));
        self.status.candidates =
            decision.candidates.iter().map(|candidate| self.candidate(candidate)).collect();
        self.board.note(&self.promise.name, &self.status);
    }

    fn failed(&mut self, trouble: &Trouble) {
        self.status.errors += 1;
        self.status.trouble = Some(trouble.why.clone());
        let now = clock::now();
        let same = self.told.as_ref().filter(|(why, at)| *why == trouble.why && now.since(*at) < AGAIN);
        if same.is_none() && !trouble.gone {
            self.events.tell(&Event::new(What::AdapterError, &self.promise.app, trouble.why.clone()));
            self.told = Some((trouble.why.clone(), now));
        }
        self.board.note(&self.promise.name, &self.status);
    }

    /// Tells a warning once, also where it holds again that held `before`.
    fn warn(&mut self, warning: String, before: &[String]) {
        if self.status.warnings.contains(&warning) {
            return;
        }
        if !before.contains(&warning) {
            self.events.tell(&Event::new(What::AdapterError, &self.promise.app, warning.clone()));
        }
        self.status.warnings.push(warning);
    }
}

/// However it ends, the source is watched no more.
impl<S: Source> Drop for Watch<S> {
    fn drop(&mut self) {
        self.source.close();
        self.board.forget(&self.promise.name);
    }
}

#[cfg(test)]
mod tests;
