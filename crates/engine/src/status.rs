//! What is seen, as the agent's page shows it and its metrics count it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::watch;

use crate::event::{CandidateWords, Contended, LateWords};

/// Everything, by name of the application or database, and by process where there are several.
#[derive(Debug, Default, Serialize)]
pub struct Status {
    /// What is watched.
    pub watched: BTreeMap<String, Watched>,
    /// Ledgers that are left alone, and why.
    pub left_alone: BTreeMap<String, String>,
    /// Events that could not be written.
    pub events_lost: u64,
}

/// One application or database.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Watched {
    /// The name in the config.
    pub app: String,
    /// `ledger` or `postgres`.
    pub source: &'static str,
    /// off, shadow or enforce.
    pub mode: &'static str,
    /// calm, suspected, `regular_overload`, overload.
    pub state: &'static str,
    /// What keeps it from being looked at, while it lasts.
    pub trouble: Option<String>,
    /// What cannot be seen or done.
    pub warnings: Vec<String>,
    /// Tasks that run.
    pub tasks: usize,
    /// Those of them that are requests.
    pub requests: usize,
    /// Requests that ended, since it is watched.
    pub completed: u64,
    /// How long tasks have waited for workers, permits and connections (all resources of the kind QUEUE), since it is watched.
    pub queued_s: f64,
    /// The objective that is missed.
    pub late: Option<LateWords>,
    /// Resources to which time is lost.
    pub contention: Vec<Contended>,
    /// Who is to blame now.
    pub candidates: Vec<CandidateWords>,
    /// Looks that were taken.
    pub looks: u64,
    /// How long a look takes, the mean of the recent ones in ms, from the question to the decision.
    pub look_ms: f64,
    /// Overloads for which somebody was to blame.
    pub overloads: u64,
    /// Overloads for which nobody was.
    pub regular_overloads: u64,
    /// Tasks that were told to end.
    pub cancelled: u64,
    /// Tasks that would have been, in shadow.
    pub would_cancel: u64,
    /// Cancellations that failed.
    pub failed: u64,
    /// Looks that failed.
    pub errors: u64,
}

/// Where the status is kept. Cheap to clone.
#[derive(Clone)]
pub struct Board(Arc<watch::Sender<Status>>);

impl Board {
    /// An empty one, and what shows it.
    pub fn new() -> (Board, watch::Receiver<Status>) {
        let (sender, receiver) = watch::channel(Status::default());
        (Board(Arc::new(sender)), receiver)
    }

    /// Notes what is watched under this name.
    pub fn note(&self, name: &str, watched: &Watched) {
        self.0.send_modify(|status| {
            status.watched.insert(name.to_owned(), watched.clone());
        });
    }

    /// It is watched no more.
    pub fn forget(&self, name: &str) {
        self.0.send_modify(|status| {
            status.watched.remove(name);
        });
    }

    /// Changes anything.
    pub fn change(&self, change: impl FnOnce(&mut Status)) {
        self.0.send_modify(change);
    }
}
