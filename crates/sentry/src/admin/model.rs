//! What the admin address tells, as types: the sentry writes them as JSON, `plimsoll explain` reads them. Times are
//! milliseconds, rates are per second, shares are percentages.

use std::collections::BTreeMap;

use plimsoll_core::{Quantity, Verdict};
use serde::{Deserialize, Serialize};

/// `/classes`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Overview {
    /// Seconds that the worker has been up.
    pub uptime_s: f64,
    /// Whether the worker is ending and takes no new connections.
    pub draining: bool,
    /// In the order of the config.
    pub pools: Vec<PoolView>,
    /// In the order of the config, `default` last.
    pub classes: Vec<ClassView>,
    /// Seconds that the rates and the measured percentiles look back.
    pub window_s: f64,
    /// How often the counters have been sampled, which is once a second.
    pub samples: u64,
}

/// A pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// `off`, `shadow` or `enforce`.
    pub mode: String,
    /// The name of its policy.
    pub policy: String,
    /// Which policer is at work, `batch` or `threshold`; nothing where the pool is not policed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policer: Option<String>,
    /// Requests that may be with the servers at once.
    pub slots: u32,
    /// Requests that are.
    pub slots_taken: u32,
    /// Slots left to a worker that drains or has just taken over.
    pub slots_withheld: u32,
    /// Requests that wait.
    pub queued: u32,
    /// Requests that may wait at most.
    pub max_queue: u32,
    /// How long one that came now would be expected to wait.
    pub expected_wait_ms: f64,
    /// Its servers.
    pub servers: Vec<ServerView>,
}

/// A server of a pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerView {
    /// As the config has it.
    pub address: String,
    /// Whether requests are sent to it.
    pub healthy: bool,
    /// Requests that it is working on.
    pub in_flight: u32,
}

/// A class.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClassView {
    /// Its name.
    pub name: String,
    /// The name of its pool.
    pub pool: String,
    /// 1 is the most important.
    pub priority: u32,
    /// Its objectives, or what stands in for them.
    pub percentiles: Vec<PercentileView>,
    /// Its expected time at the server.
    pub mean_ms: f64,
    /// Whether it has never been measured and is judged by everyone's times.
    pub borrowed: bool,
    /// Requests that wait.
    pub queued: u64,
    /// Work, over all slots, that may wait for a request of the class to be let in; negative: not even an empty queue.
    pub allowed_work_ms: f64,
    /// Since the worker started.
    pub total: Totals,
    /// Over the window.
    pub rate: Rates,
    /// Second by second, oldest first; only where the query asks for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Second>,
}

/// One percentile of a class.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PercentileView {
    /// As the config writes it: `p50`.
    pub percentile: String,
    /// What the config asks for, if anything.
    pub objective_ms: Option<f64>,
    /// What a request that came now would be expected to take; unknown while nothing has been measured.
    pub estimate_ms: Option<f64>,
    /// What was served within the window took, if anything was.
    pub measured_ms: Option<f64>,
}

/// Counters. What was offered is in the end in one of `admitted`, `unjudged`, `refused`, `would_refuse` and `gone`; what
/// waits is in none of them yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Requests that arrived.
    pub offered: u64,
    /// Let in by the policy, by its reason.
    pub admitted: BTreeMap<String, u64>,
    /// Let in without a judgement.
    pub unjudged: u64,
    /// Refused, by mechanism.
    pub refused: BTreeMap<String, u64>,
    /// Let in against the verdict, because the mode is shadow, by mechanism.
    pub would_refuse: BTreeMap<String, u64>,
    /// Left by their client while they waited.
    pub gone: u64,
    /// Responses that ended as they should.
    pub served: u64,
    /// Let in and not served, by what went wrong.
    pub failed: BTreeMap<String, u64>,
}

/// Rates, per second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Requests that arrived.
    pub offered: f64,
    /// Let in: by the policy, without a judgement, or against it in shadow mode.
    pub admitted: f64,
    /// Refused.
    pub refused: f64,
    /// What would have been refused if the mode were not shadow; among the admitted.
    pub would_refuse: f64,
    /// Left by their client while they waited.
    pub gone: f64,
    /// Responses that ended as they should.
    pub served: f64,
    /// Let in and not served.
    pub failed: f64,
}

/// One second of one class.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Requests that arrived.
    pub offered: u64,
    /// Let in: by the policy, without a judgement, or against it in shadow mode.
    pub admitted: u64,
    /// Refused.
    pub refused: u64,
    /// What would have been refused if the mode were not shadow; among the admitted.
    pub would_refuse: u64,
    /// What was served took so long, in the order of [`ClassView::percentiles`]; empty where nothing was.
    pub measured_ms: Vec<f64>,
}

/// An entry of `/decisions`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DecisionView {
    /// When, in UTC.
    pub time: String,
    /// The pool.
    pub pool: String,
    /// The class.
    pub class: String,
    /// `admit`, `refuse`, or `would-refuse` in shadow mode.
    pub verdict: String,
    /// `entry` where the rate of the class decided, else `gate`, or `queue` where the request had already been let in.
    pub stage: String,
    /// Requests that waited.
    pub queued: u32,
    /// Why it was let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// Why it was not.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalView>,
}

/// Why a request was refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RefusalView {
    /// What refused.
    pub mechanism: String,
    /// Which of its limits.
    pub limit: String,
    /// `ms`, `count`, `share` or `per_s`: what the next two are.
    pub unit: String,
    /// What the request was expected to need.
    pub estimate: f64,
    /// What it was allowed to need.
    pub objective: f64,
    /// What the client was told to wait, before jitter.
    pub retry_after_ms: f64,
}

impl RefusalView {
    /// The refusal of a verdict, if it is one.
    pub fn of(verdict: &Verdict) -> Option<RefusalView> {
        let Verdict::Refuse(refusal) = verdict else { return None };
        let number = |quantity: Quantity| match quantity {
            Quantity::Time(time) => ("ms", time.as_millis_f64()),
            Quantity::Count(count) => ("count", count as f64),
            Quantity::Share(share) => ("share", share),
            Quantity::Rate(per_s) => ("per_s", per_s),
        };
        let (unit, estimate) = number(refusal.estimate);
        Some(RefusalView {
            mechanism: refusal.mechanism.to_string(),
            limit: refusal.limit.to_string(),
            unit: unit.to_owned(),
            estimate,
            objective: number(refusal.objective).1,
            retry_after_ms: refusal.retry_after.as_millis_f64(),
        })
    }
}
