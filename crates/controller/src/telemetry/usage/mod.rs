//! How busy services are, how long their queues, and what they get done: asked of Prometheus, of exporters, and of agents of ours.

pub mod exposition;
pub mod query;

pub(super) mod ask;
mod board;
mod fetch;
mod front;
mod scrape;

use plimsoll_core::Nanos;

/// What is known now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// In order of the names; only what is not stale.
    pub services: Vec<Known>,
    /// Whoever is asked.
    pub sources: Vec<Source>,
}

/// A service of which something is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Its name.
    pub service: String,
    /// The part that it uses of what it may use, 0..1.
    pub utilization: Option<Figure>,
    /// How long a request that comes now waits until it is worked on, in seconds: the mean of its instances.
    pub queue_s: Option<Figure>,
    /// Requests a second that it has done.
    pub served_per_s: Option<Figure>,
}

impl Known {
    /// All there are.
    pub fn figures(&self) -> impl Iterator<Item = Figure> {
        [self.utilization, self.queue_s, self.served_per_s].into_iter().flatten()
    }
}

/// A number that was told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// When it was told.
    pub at: Nanos,
    /// When it was last told something new. What is told again was counted once.
    pub changed: Nanos,
}

/// Somebody who is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    /// Where it is.
    pub name: String,
    /// Whether it answered the last time.
    pub answers: bool,
    /// Times that it did not, or not with an answer.
    pub failures: u64,
    /// Values that cannot be, and services that are too many.
    pub nonsense: u64,
    /// What was wrong, while it lasts.
    pub trouble: Option<String>,
}

/// What can be said of an instance of a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// What it uses, and what it may use, in any unit.
    Uses {
        /// The former.
        used: f64,
        /// The latter.
        of: f64,
    },
    /// How long a request that comes now waits, in seconds.
    Waits(f64),
    /// What it gets done, a second.
    Serves(f64),
}

/// What one source says of one instance of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Whom it is about.
    pub service: String,
    /// Which of them.
    pub instance: String,
    /// What of it.
    pub what: What,
    /// Whether it was counted anew; nothing where the source does not say.
    pub is_new: Option<bool>,
}
