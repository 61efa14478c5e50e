//! What is told: one JSON object a line (`--events`). Scripts rely on the names; `docs/agent.md` is the page for people.

use plimsoll_cancellation::decision::{Candidate, Decision, Late};
use serde::{Serialize, Serializer};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Objectives are missed because of a resource that somebody holds up.
    Overload,
    /// A task was told to end.
    Cancel,
    /// A task would have been, in shadow.
    WouldCancel,
    /// What was held up is free again.
    Released,
    /// A task that is to blame cannot be ended, or ignores it: a matter for people, or for stronger means.
    Escalate,
    /// Objectives are missed, and nobody in particular is to blame.
    RegularOverload,
    /// A source cannot be looked at, or not fully.
    AdapterError,
}

/// One event. What does not apply is left out, but for the fields of the contract, which are null.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Seconds since 1970.
    pub ts: f64,
    /// What happened.
    pub event: What,
    /// The name of the application or database in the config.
    pub app: String,
    /// Whom it is about: `backend 4711`, `task 17 (GET /report)`.
    pub task: Option<String>,
    /// What is held up.
    pub resource: Option<String>,
    /// Why, in words.
    pub reason: String,
    /// The process: of a database, the backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What the task is, as far as its source can say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
    /// What became of it: `cancelled`, `finished`, `failed`, `terminated`, `by_itself`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    /// How long after the cancellation the resource was free, in ms; without one, how long the overload lasted.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "ms")]
    pub after_ms: Option<f64>,
    /// The objective that is missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<LateWords>,
    /// What part of the requests' time is lost to each resource, the worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contention: Vec<Contended>,
    /// Who is to blame, the best to cancel first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<CandidateWords>,
}

/// To the microsecond: more is noise.
fn ms<S: Serializer>(ms: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    ms.map(rounded).serialize(serializer)
}

/// At most three decimals.
pub fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// What a task is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct About {
    /// What it does: a statement with its literals masked, a label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// What kind of process or task it is, where that matters: `autovacuum worker`, `background`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What it is doing: `active`, `idle in transaction`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// As whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// What its client calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// For how long it has been running, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// How far it is, in per cent, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_pct: Option<f64>,
    /// Who waits for whom, from one that waits to the root: `backend 3 -> backend 2 -> backend 1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// How many wait because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds_up: Option<usize>,
    /// Why it cannot be cancelled, and what would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_cancellable: Option<String>,
    /// What its application can do with it once it is cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again: Option<&'static str>,
}

/// An objective and by how much it is missed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LateWords {
    /// What requests may take, in ms.
    pub limit_ms: f64,
    /// The share of them that may take longer, in per cent.
    pub allowed_pct: f64,
    /// The share of the recent ones that did or do.
    pub late_pct: f64,
}

impl From<Late> for LateWords {
    fn from(late: Late) -> LateWords {
        LateWords {
            limit_ms: rounded(late.limit.as_millis_f64()),
            allowed_pct: rounded(100.0 * late.allowed),
            late_pct: rounded(100.0 * late.share),
        }
    }
}

/// A resource to which time is lost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contended {
    /// Its name.
    pub resource: String,
    /// LOCK, MEMORY, QUEUE, CPU or IO.
    pub kind: &'static str,
    /// What part of the requests' time is lost to it.
    pub contention: f64,
}

/// Somebody who is to blame.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateWords {
    /// Who.
    pub task: String,
    /// The process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What cancelling it is worth.
    pub score: f64,
    /// Whether it can be cancelled.
    pub cancellable: bool,
    /// What part of the future use of each resource is its own.
    pub gains: Vec<GainWords>,
    /// What it is.
    pub about: About,
}

/// A gain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GainWords {
    /// On what.
    pub resource: String,
    /// In 0..1.
    pub gain: f64,
}

impl Event {
    /// With nothing but the contract's fields.
    pub fn new(event: What, app: &str, reason: String) -> Event {
        Event {
            ts: crate::clock::wall_s(),
            event,
            app: app.to_owned(),
            task: None,
            resource: None,
            reason,
            pid: None,
            about: None,
            outcome: None,
            after_ms: None,
            late: None,
            contention: Vec::new(),
            candidates: Vec::new(),
        }
    }
}

/// Resources that are told.
const TOLD: usize = 8;
/// Less than this is nothing.
const NOTHING: f64 = 0.001;

/// The contended resources of a decision, the worst first.
pub fn contention(decision: &Decision, named: impl Fn(u32) -> (String, &'static str)) -> Vec<Contended> {
    let mut levels: Vec<(u32, f64)> =
        decision.contention.iter().enumerate().map(|(i, &level)| (i as u32, level)).collect();
    levels.retain(|&(_, level)| level >= NOTHING);
    levels.sort_by(|a, b| b.1.total_cmp(&a.1));
    let told = levels.into_iter().take(TOLD).map(|(index, level)| {
        let (resource, kind) = named(index);
        Contended { resource, kind, contention: rounded(level) }
    });
    told.collect()
}

/// The gains of a candidate in words.
pub fn gains(candidate: &Candidate, named: impl Fn(u32) -> String) -> Vec<GainWords> {
    let word = |&(index, gain): &(u32, f64)| GainWords { resource: named(index), gain: rounded(gain) };
    candidate.gains.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_the_contract_are_always_there() {
        let line = serde_json::to_value(Event::new(What::RegularOverload, "main", "why".to_owned())).unwrap();
        let mut keys: Vec<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["app", "event", "reason", "resource", "task", "ts"]);
        assert_eq!(line["event"], "regular_overload");
        for (what, word) in [
            (What::Overload, "overload"),
            (What::Cancel, "cancel"),
            (What::WouldCancel, "would_cancel"),
            (What::Released, "released"),
            (What::Escalate, "escalate"),
            (What::AdapterError, "adapter_error"),
        ] {
            assert_eq!(serde_json::to_value(what).unwrap(), word);
        }
    }
}
