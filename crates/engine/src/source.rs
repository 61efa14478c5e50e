//! What can be watched: something that yields a scene at each look, has words for what is in it, and can end a task.

use std::time::Duration;

use plimsoll_cancellation::Scene;
use plimsoll_cancellation::decision::{Again, Outcome, State};
use plimsoll_core::Nanos;

use crate::event::About;

/// Why a source could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What is wrong, and what to do about it, in one line and without secrets.
    pub why: String,
    /// Whether to try again at all; if not, the source is gone for good.
    pub gone: bool,
}

impl Trouble {
    /// One that may pass.
    pub fn passing(why: impl Into<String>) -> Trouble {
        Trouble { why: why.into(), gone: false }
    }
}

/// A task in words.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// `backend 4711`, `task 17 (GET /report)`.
    pub name: String,
    /// The process, where the task is one.
    pub pid: Option<u32>,
    /// What is known of it.
    pub about: About,
}

/// What came of telling a task to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was told.
    Told,
    /// It was gone already.
    Gone,
    /// It was ended by stronger means.
    Terminated,
    /// It cannot be ended, for this reason.
    Failed(String),
}

/// Something that can be watched.
pub trait Source {
    /// Looks, and fills in the scene. The time that it returns is that of the scene: later than at the last look.
    fn look(&mut self, scene: &mut Scene) -> impl Future<Output = Result<Nanos, Trouble>>;

    /// How things stood at the last look, for what may cost more or less; returns how long to wait until the next.
    fn judged(&mut self, state: State, exact: bool) -> Duration;

    /// Warnings since the last call: what cannot be seen or done, and what to do about it.
    fn warnings(&mut self) -> Vec<String>;

    /// Whether the warnings of the next call are all that hold, and those of before do not: what warned began anew, as a connection does.
    fn starts_over(&mut self) -> bool {
        false
    }

    /// A resource's name.
    fn resource(&self, index: u32) -> String;

    /// These tasks in words, in the same order; what is not known any more has a name all the same.
    fn words(&mut self, tasks: &[u64]) -> impl Future<Output = Vec<Words>>;

    /// Whether a task could be told to end now.
    fn reaches(&self) -> bool {
        true
    }

    /// Tells a task to end, because of `resource` and for this reason. `tries` counts how often it was told before.
    fn cancel(&mut self, task: u64, resource: u32, reason: &str, tries: u32) -> impl Future<Output = Sent>;

    /// Lets what was cancelled run again, or not.
    fn again(&mut self, _: Again) {}

    /// What became of cancellations since the last call, with a word about failures.
    fn outcomes(&mut self) -> Vec<(u64, Outcome, Option<String>)> {
        Vec::new()
    }

    /// Whether a cancellation that nobody spoke of since has worked when its task is gone.
    fn is_silent(&self) -> bool;

    /// Gives back what it holds; the source is watched no more.
    fn close(&mut self) {}
}
