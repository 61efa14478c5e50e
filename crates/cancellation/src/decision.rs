//! What a look came to: how things stand, who could be cancelled and what that would free, and what is to be done.

use plimsoll_core::Nanos;

/// How things stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The objectives are kept.
    #[default]
    Calm,
    /// They may soon not be: whoever keeps the accounts should stamp them exactly now.
    Suspected,
    /// They are not, and nobody in particular is to blame: admission control's business (section 3.3).
    Regular,
    /// They are not, because of a resource that somebody holds up.
    Resource,
}

impl State {
    /// The name in events and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Calm => "calm",
            State::Suspected => "suspected",
            State::Regular => "regular_overload",
            State::Resource => "overload",
        }
    }
}

/// A task that is to blame for a contended resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its number.
    pub task: u64,
    /// What cancelling it is worth: the sum over resources of contention times gain (Alg. 1, lines 12-20).
    pub score: f64,
    /// What of the future use of each contended resource it makes up, in 0..=1: index of the resource, gain.
    pub gains: Vec<(u32, f64)>,
    /// Whether it can be cancelled. One that can not is named, and left alone.
    pub cancellable: bool,
}

/// Why nobody is cancelled although somebody is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restraint {
    /// All who are to blame can not be cancelled.
    NotCancellable,
    /// The last cancellation is so recent that its effect is not seen yet.
    TooSoon,
    /// There were as many cancellations as the budget allows for the time.
    Rate,
    /// There were as many cancellations as the budget allows for the requests that were completed.
    Ratio,
}

impl Restraint {
    /// The name in events and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Restraint::NotCancellable => "not_cancellable",
            Restraint::TooSoon => "too_soon",
            Restraint::Rate => "rate_budget",
            Restraint::Ratio => "ratio_budget",
        }
    }
}

/// What is to become of a task that was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Run it again: there has been room for a while, or it has waited long enough.
    Rerun(u64),
    /// Do not: its deadline has passed.
    Abandon(u64),
}

/// What a look came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// How things stand.
    pub state: State,
    /// The objective that is missed: its share of requests that may be late, and the share that is.
    pub late: Option<Late>,
    /// Contention of each resource of the scene: what part of the requests' execution time is lost to it (`C_r`, section 3.5).
    pub contention: Vec<f64>,
    /// Who is to blame, best first; at most [`crate::reliever::CANDIDATES`].
    pub candidates: Vec<Candidate>,
    /// The one to cancel now, which is the first candidate that can be cancelled, and the resource that it holds up most.
    pub cancel: Option<(u64, u32)>,
    /// Why nobody is cancelled although somebody is to blame.
    pub restraint: Option<Restraint>,
    /// Tasks that were cancelled and whose fate is decided now.
    pub again: Vec<Again>,
}

/// By how much an objective is missed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Late {
    /// The limit, in ns.
    pub limit: Nanos,
    /// The share of requests that may take longer.
    pub allowed: f64,
    /// The share of the recent requests that did, or do.
    pub share: f64,
}

/// What became of a cancellation, as the host saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The task ended because of it.
    Cancelled,
    /// It had ended by itself.
    Finished,
    /// The application could not cancel it. It is not tried again.
    Failed,
}
