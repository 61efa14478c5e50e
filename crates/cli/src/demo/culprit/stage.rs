//! What every server has to show: when what happens, and what becomes of everybody.

use std::path::Path;

use plimsoll_core::Nanos;

use super::super::Side;

/// Right after the start caches are cold.
const WARM_UP: Nanos = Nanos::from_secs(1);
/// After the culprit has come things may be bad for so long, whatever is done about it.
const AT_FIRST: Nanos = Nanos::from_secs(2);

/// When everything happens, since the beginning of the load.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    /// From when on requests count.
    pub warm: Nanos,
    /// When the culprit comes.
    pub culprit: Nanos,
    /// When it leaves if nobody does anything about it.
    pub gone: Nanos,
    /// When no more requests come.
    pub end: Nanos,
}

impl Phases {
    /// The culprit has the middle half.
    pub fn within(length: Nanos) -> Phases {
        let quarter = Nanos(length.0 / 4);
        Phases { warm: WARM_UP, culprit: quarter, gone: Nanos(3 * quarter.0), end: length }
    }

    /// For how long the culprit holds what others need.
    pub fn hold(&self) -> Nanos {
        self.gone.since(self.culprit)
    }

    /// Each that is told apart: its name, its name for people, where it begins and where it ends.
    pub fn each(&self) -> [(&'static str, &'static str, Nanos, Nanos); 3] {
        let first = self.culprit + AT_FIRST;
        [
            ("before", "before it comes", self.warm, self.culprit),
            ("first", "its first 2 s", self.culprit, first),
            ("later", "from then on", first, self.end),
        ]
    }
}

/// What happens on a server, in words.
pub struct Story {
    /// For scripts.
    pub name: &'static str,
    /// What is started: "two ...".
    pub servers: &'static str,
    /// What the load asks for, as a sentence.
    pub load: &'static str,
    /// What the agent may do, or how it goes about it, as a sentence.
    pub agent: &'static str,
    /// What will happen: "After 5 s ...".
    pub plot: &'static str,
    /// That it happens.
    pub comes: &'static str,
    /// Who was there and was left alone, as a sentence.
    pub spared: &'static str,
}

/// A server on which somebody can hold what everybody needs.
pub trait Server: Sized {
    const STORY: Story;
    const RATE_PER_S: f64;
    /// Within so many ms 99 of 100 requests are promised to be answered.
    const SLO_MS: u64;

    /// Starts one that keeps its files in a directory, apart from those of the other side.
    async fn start(directory: &Path, side: Side) -> Result<Self, String>;

    /// How the agent's config goes on after the address in `[agent]`.
    fn watched(&self) -> String;

    /// Sends the load, and the culprit when its time has come. `observe` is told now and then which requests have ended.
    async fn perform(
        &self,
        phases: Phases,
        seed: u64,
        observe: impl FnMut(Nanos, Vec<Request>),
    ) -> Result<Run, String>;
}

/// One request of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// When it was to be sent, since the beginning of the load.
    pub at: Nanos,
    /// From then until its end.
    pub latency: Nanos,
    /// What became of it.
    pub fate: Fate,
}

impl Request {
    /// When it was answered, if it was.
    pub fn answered_at(&self) -> Option<Nanos> {
        (self.fate == Fate::Answered).then(|| self.at + self.latency)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Answered,
    /// Somebody ended it as if it were to blame.
    Cancelled,
    /// Nobody waited any longer, or there was no room for it.
    Lost,
}

/// Somebody beside the load.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    /// As the agent names it.
    pub name: String,
    /// How long it was there.
    pub lasted: Nanos,
    pub ending: Ending,
}

/// How somebody beside the load ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It had done all that it wanted to.
    Finished,
    /// It was told to end.
    Cancelled,
    /// Something else.
    Failed(String),
}

/// What became of everybody on one side.
pub struct Run {
    pub requests: Vec<Request>,
    /// Who holds up everybody.
    pub culprit: Other,
    /// Who takes as long and is innocent.
    pub bystander: Other,
}
