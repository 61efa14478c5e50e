//! What the controller knows and does, as `/plan` shows it.

use std::collections::VecDeque;

use plimsoll_core::config::Mode;
use serde::{Serialize, Serializer};

use crate::wanted::Wanted;

/// Changes of plan that are kept; the oldest goes first.
const KEPT: usize = 100;

/// Everything.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Whether it acts.
    #[serde(serialize_with = "as_text")]
    pub mode: Mode,
    /// Who leads; nothing where this one would not act if it did.
    pub leadership: Option<Leadership>,
    /// The sentries, in the order of their shares.
    pub sentries: Vec<SentryStatus>,
    /// The further ones, where there may be any.
    pub more_sentries: Option<MoreSentries>,
    /// Pools with `provision`.
    pub pools: Vec<PoolStatus>,
    /// What may enter the fleet, where this sets rates and leads, or would set them if it acted.
    pub rates: Option<RatesStatus>,
    /// Services that pools are.
    #[serde(skip)]
    pub services: Vec<String>,
    /// What changed, the latest last.
    pub changes: VecDeque<Change>,
    /// Values that sentries reported and that cannot be.
    pub nonsense: u64,
    /// Looks at sentries and orders to them that failed.
    pub sentry_failures: u64,
}

fn as_text<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(mode)
}

/// Who leads, as far as this controller knows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Leadership {
    /// What says so: "file" or "etcd".
    pub by: &'static str,
    /// Whether it is this one.
    pub leads: bool,
    /// With this revision.
    pub revision: Option<u64>,
    /// What it is called, where that is known.
    pub leader: Option<String>,
    /// What is wrong with the etcd.
    pub trouble: Option<String>,
    /// Requests to it that failed.
    pub failures: u64,
}

/// One sentry.
#[derive(Clone, Debug, Serialize)]
pub struct SentryStatus {
    /// Its admin address.
    pub address: String,
    /// Whether it answered.
    pub answers: bool,
    /// The share of its CPU that it uses, in 0..1.
    pub busy: Option<f64>,
    /// What was wrong.
    pub trouble: Option<String>,
}

/// Sentries that are started and returned.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MoreSentries {
    /// How many there should be.
    pub planned: u32,
    /// Those that are not ready yet.
    pub starting: u32,
    /// Those that finish what they have.
    pub leaving: u32,
    /// What went wrong last with starting them, while it lasts.
    pub trouble: Option<String>,
    /// Attempts that failed.
    pub failures: u64,
}

/// One pool.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PoolStatus {
    /// As the config calls it.
    pub name: String,
    /// Servers that there should be.
    pub planned: u32,
    /// Why.
    pub reason: String,
    /// Servers that take requests, those of `servers` among them.
    pub ready: Vec<String>,
    /// Servers that are not ready yet.
    pub starting: u32,
    /// Servers that finish what they have.
    pub leaving: u32,
    /// What went wrong last with starting them, while it lasts.
    pub trouble: Option<String>,
    /// Attempts that failed.
    pub failures: u64,
    /// Requests a second that arrive.
    pub per_s: Option<f64>,
    /// Their mean service time, ms.
    pub service_ms: Option<f64>,
    /// The share that is refused, in 0..1.
    pub refused: Option<f64>,
    /// The mean response time that is owed, ms.
    pub target_ms: Option<f64>,
    /// Classes whose objective no number of servers meets, and why.
    pub unattainable: Vec<String>,
}

/// What may enter, and who is told.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RatesStatus {
    /// Of this leader.
    pub revision: u64,
    /// Sentries' workers and Envoys that report.
    pub streams: usize,
    /// Services that are overloaded, as far as is known.
    pub overloaded: Vec<String>,
    /// What would come to each service of the fleet if all that is sent were let in, as of a second ago at most.
    pub services: Services,
    /// In the order of the config.
    pub classes: Vec<ClassRate>,
    /// Reports of buckets that stand for no class.
    pub unknown: u64,
    /// Reports that cannot be.
    pub nonsense: u64,
}

/// Services by name, a map in JSON.
#[derive(Clone, Debug, Default)]
pub struct Services(pub Vec<(String, Wanted)>);

impl Serialize for Services {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, wanted)| (name, wanted)))
    }
}

/// One class, at all that report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClassRate {
    /// As the config calls it.
    pub name: String,
    /// Requests a second that may enter; as many as come, where there is no number.
    pub may_enter_per_s: Option<f64>,
    /// Why it is this number, where it is not the operator's.
    pub why: Option<String>,
    /// Requests a second that come.
    pub offered_per_s: f64,
    /// Those of them that enter.
    pub admitted_per_s: f64,
    /// Responses a second within the objective, as the sentries count them.
    pub goodput_per_s: Option<f64>,
    /// What 95 % of the responses took at most.
    pub p95_ms: Option<f64>,
}

/// A change of plan.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Seconds since 1970.
    pub ts: f64,
    /// The pool, or `sentries`.
    pub of: String,
    /// So many there were to be,
    pub from: u32,
    /// and so many there are to be.
    pub to: u32,
    /// Why.
    pub reason: String,
    /// Whether it is being done, or only said.
    pub enforced: bool,
}

impl Status {
    /// Of a controller that has just begun.
    pub fn new(mode: Mode) -> Status {
        Status {
            mode,
            leadership: None,
            sentries: Vec::new(),
            more_sentries: None,
            pools: Vec::new(),
            rates: None,
            services: Vec::new(),
            changes: VecDeque::with_capacity(KEPT),
            nonsense: 0,
            sentry_failures: 0,
        }
    }

    /// It acts no more: nothing of what it saw and did is still so, but what it has changed.
    pub fn stand_by(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        let (leadership, services) = (self.leadership.take(), std::mem::take(&mut self.services));
        *self = Status { changes, leadership, services, ..Status::new(self.mode) };
    }

    /// Notes a change, and says it in the log.
    pub fn changed(&mut self, change: Change) {
        let Change { of, from, to, reason, enforced, .. } = &change;
        log::info!(of:%, from, to, reason:%, enforced; "plan changed");
        if self.changes.len() == KEPT {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }
}
