//! What is told of a source, in words: who its tasks are, why one is cancelled, and the events.

use plimsoll_cancellation::decision::{Candidate, Decision, Outcome};
use plimsoll_core::config::Mode;

use super::Watch;
use crate::event::{CandidateWords, Event, LateWords, What, contention, gains, rounded};
use crate::source::{Source, Words};

/// Tasks whose words are kept.
const REMEMBERED: usize = 256;

impl<S: Source> Watch<S> {
    pub(super) fn event(&self, what: What, decision: &Decision, reason: String) -> Event {
        let mut event = Event::new(what, &self.promise.app, reason);
        event.late = decision.late.map(LateWords::from);
        event.contention = contention(decision, |index| self.named(index));
        event
    }

    pub(super) fn about(
        &self,
        what: What,
        task: u64,
        resource: Option<u32>,
        reason: String,
        decision: &Decision,
    ) -> Event {
        let mut event = self.event(what, decision, reason);
        match self.known.get(&task) {
            Some(words) => {
                (event.task, event.pid, event.about) =
                    (Some(words.name.clone()), words.pid, Some(words.about.clone()));
            }
            None => event.task = Some(format!("task {task}")),
        }
        event.resource = resource.map(|index| self.source.resource(index));
        event
    }

    pub(super) fn named(&self, index: u32) -> (String, &'static str) {
        let kind = self.scene.resources.get(index as usize).map_or("", |resource| resource.kind.as_str());
        (self.source.resource(index), kind)
    }

    /// Asks for the words of tasks, while they are still there.
    pub(super) async fn learn(&mut self, tasks: &[u64]) {
        if self.known.len() > REMEMBERED {
            self.known.clear();
        }
        let words = self.source.words(tasks).await;
        self.known.extend(tasks.iter().copied().zip(words));
    }

    pub(super) fn candidates(&self, decision: &Decision) -> Vec<CandidateWords> {
        decision.candidates.iter().map(|candidate| self.candidate(candidate)).collect()
    }

    pub(super) fn candidate(&self, candidate: &Candidate) -> CandidateWords {
        let Words { name, pid, about } = self.known.get(&candidate.task).cloned().unwrap_or_default();
        CandidateWords {
            task: if name.is_empty() { format!("task {}", candidate.task) } else { name },
            pid,
            score: rounded(candidate.score),
            cancellable: candidate.cancellable,
            gains: gains(candidate, |index| self.source.resource(index)),
            about,
        }
    }

    /// Why a task is cancelled, in words.
    pub(super) fn reason(&self, task: u64, resource: u32, decision: &Decision) -> String {
        let gain = decision.candidates.iter().find(|candidate| candidate.task == task);
        let gain = gain.and_then(|c| c.gains.iter().find(|&&(r, _)| r == resource)).map_or(0.0, |&(_, g)| g);
        let lost = decision.contention.get(resource as usize).copied().unwrap_or(0.0);
        let held_up = self.known.get(&task).and_then(|words| words.about.holds_up);
        let mut reason = format!(
            "{:.0} % of the requests' time is lost to {}, and ",
            100.0 * lost,
            self.source.resource(resource)
        );
        match held_up {
            Some(others) if others > 0 => reason += &format!("it holds up {others} others"),
            _ => reason += &format!("{:.0} % of what is still to be used of it is its own", 100.0 * gain),
        }
        if let Some(late) = decision.late {
            let late = LateWords::from(late);
            reason += &format!("; {} % of requests take longer than {} ms", late.late_pct, late.limit_ms);
        }
        reason
    }

    pub(super) fn outcome_word(&self, outcome: Option<Outcome>) -> &'static str {
        match outcome {
            Some(Outcome::Cancelled) => "cancelled",
            Some(Outcome::Finished) => "finished",
            Some(Outcome::Failed) => "failed",
            None if self.promise.mode == Mode::Enforce && self.source.is_silent() => "cancelled",
            None => "by_itself",
        }
    }
}
