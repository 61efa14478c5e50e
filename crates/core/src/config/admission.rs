//! `admission = { ... }` of a pool: which policy decides, and what it was told.

use serde_json::json;
use toml::de::DeValue;

use super::report::Report;
use super::table::{choice, table};
use super::value::{Derived, Node, Shape, Tables, Value};
use crate::Nanos;

choice! {
    /// Whether a mechanism acts.
    pub enum Mode {
        /// Neither decides nor records.
        Off = "off",
        /// Decides and records, never acts.
        Shadow = "shadow",
        /// Acts.
        Enforce = "enforce",
    }
}

choice! {
    /// The admission policies, by name.
    pub enum PolicyKind {
        /// Percentile estimates against objectives.
        Bouncer = "bouncer",
        /// Admits while the queue is shorter than `limit`.
        MaxQl = "maxql",
        /// Admits while the expected wait is below `limit`.
        MaxQwt = "maxqwt",
        /// Admits the share of the demand that keeps utilisation below `max_util`.
        AcceptFraction = "accept-fraction",
        /// Drops what has stood in the queue for too long.
        Codel = "codel",
        /// Additive increase, multiplicative decrease of a concurrency limit.
        Aimd = "aimd",
        /// A concurrency limit from the queue that latencies suggest.
        Vegas = "vegas",
        /// A concurrency limit from the gradient of latencies.
        Gradient2 = "gradient2",
        /// Admits everything up to `max_queue`.
        None = "none",
    }
}

table! {
    /// The admission policy of a pool.
    pub struct AdmissionTable {
        /// What decides. "bouncer" holds the estimate of every class against its objective; the rest are its peers.
        policy: PolicyKind = "bouncer",
        /// "shadow" decides and records what it would have refused, and refuses nothing.
        mode: Mode = "enforce",
        /// The share of every class that is let in against the estimate, in 0..1, so that no class starves. 0 keeps
        /// the objectives strictly.
        allowance: Option<f64> [0.0..=1.0] where policy = "bouncer",
        /// Instead of an allowance: how much a class below the mean acceptance is helped, in 0..1.
        underserved: Option<f64> [0.0..=1.0] where policy = "bouncer",
        /// maxql: waiting requests. maxqwt: expected wait, one duration or a table with one a class, where
        /// `default` counts for the classes that it leaves out.
        limit: Option<LimitValue> where policy = "maxql" | "maxqwt",
        /// The utilisation to stay below, in 0..1. Some headroom absorbs the noise of the demand's average.
        max_util: f64 [0.01..=1.0] = 0.95 where policy = "accept-fraction",
    }
}

/// The admission policy of a pool and whether it acts.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// What decides.
    pub policy: Policy,
    /// Whether it acts.
    pub mode: Mode,
}

/// An admission policy and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Percentile estimates against objectives.
    Bouncer(Override),
    /// Admits while fewer than `limit` requests wait.
    MaxQl {
        /// Waiting requests, at least one.
        limit: u32,
    },
    /// Admits while the expected wait is at most the limit.
    MaxQwt {
        /// For all, or one a class.
        limit: WaitLimit,
    },
    /// Admits the share of the demand that keeps utilisation below `max_util`.
    AcceptFraction {
        /// In 0..1, above zero.
        max_util: f64,
    },
    /// Drops what has stood in the queue for too long.
    Codel,
    /// AIMD concurrency limit.
    Aimd,
    /// Vegas concurrency limit.
    Vegas,
    /// Gradient concurrency limit.
    Gradient2,
    /// Admits everything up to `max_queue`.
    None,
}

/// What may let a request in against Bouncer's estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Override {
    /// Nothing.
    Never,
    /// Acceptance allowance: this share of every class, above 0 and at most 1 (Algorithm 2).
    Allowance(f64),
    /// Helping the underserved with this strength, above 0 and at most 1 (Algorithm 3).
    Underserved(f64),
}

/// How long a request may be expected to wait.
#[derive(Clone, Debug, PartialEq)]
pub enum WaitLimit {
    /// One limit for all.
    All(Nanos),
    /// One a class, by name; `default` counts for those left out, which without it have no limit.
    PerClass(Vec<(String, Nanos)>),
}

/// A limit before it is known which policy it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitValue {
    /// Waiting requests.
    Count(u32),
    /// Expected wait.
    Wait(WaitLimit),
}

/// Highest `limit` of "maxql".
const MAX_LIMIT: u32 = 1_000_000;

impl Value for LimitValue {
    const SHAPE: Shape = Shape::new(
        || "a whole number (maxql), a duration or a table of them (maxqwt)".to_owned(),
        || "400".to_owned(),
        || {
            let count = json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT });
            json!({ "anyOf": [count, (Nanos::SHAPE.schema)(), (Tables::<Nanos>::SHAPE.schema)()] })
        },
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<LimitValue> {
        match node.value.get_ref() {
            DeValue::Integer(_) => u32::read(node, report).map(LimitValue::Count),
            DeValue::String(_) => {
                Nanos::read(node, report).map(|wait| LimitValue::Wait(WaitLimit::All(wait)))
            }
            DeValue::Table(_) => match Tables::read(node, report)?.0 {
                classes if classes.is_empty() => {
                    node.fail(report, "no class has a limit; write for example \"15ms\"")
                }
                classes => Some(LimitValue::Wait(WaitLimit::PerClass(classes))),
            },
            _ => node.mismatch(report),
        }
    }
}

impl Derived for Admission {
    type Written = AdmissionTable;

    fn derive(written: AdmissionTable, node: Node<'_>, report: &mut Report) -> Option<Admission> {
        let AdmissionTable { policy, mode, allowance, underserved, limit, max_util } = written;
        let policy = match (policy, limit) {
            (PolicyKind::Bouncer, _) => {
                Policy::Bouncer(bouncer_override(allowance, underserved, node, report)?)
            }
            (PolicyKind::MaxQl, Some(LimitValue::Count(limit @ 1..=MAX_LIMIT))) => Policy::MaxQl { limit },
            (PolicyKind::MaxQl, wrong) => {
                let wanted = format!("a whole number from 1 to {MAX_LIMIT}; write for example limit = 400");
                return limit_error("maxql", &wanted, wrong.is_some(), node, report);
            }
            (PolicyKind::MaxQwt, Some(LimitValue::Wait(limit))) => Policy::MaxQwt { limit },
            (PolicyKind::MaxQwt, wrong) => {
                let wanted = "a duration or a table of them; write for example limit = \"15ms\"";
                return limit_error("maxqwt", wanted, wrong.is_some(), node, report);
            }
            (PolicyKind::AcceptFraction, _) => Policy::AcceptFraction { max_util },
            (PolicyKind::Codel, _) => Policy::Codel,
            (PolicyKind::Aimd, _) => Policy::Aimd,
            (PolicyKind::Vegas, _) => Policy::Vegas,
            (PolicyKind::Gradient2, _) => Policy::Gradient2,
            (PolicyKind::None, _) => Policy::None,
        };
        Some(Admission { policy, mode })
    }
}

fn bouncer_override(
    allowance: Option<f64>,
    underserved: Option<f64>,
    node: Node<'_>,
    report: &mut Report,
) -> Option<Override> {
    if allowance.is_some() && underserved.is_some() {
        let message = "`allowance` and `underserved` exclude each other; keep one of them";
        report.error(node.at(&["underserved"]), message);
        return None;
    }
    Some(match (allowance, underserved) {
        (Some(share), _) if share > 0.0 => Override::Allowance(share),
        (_, Some(alpha)) if alpha > 0.0 => Override::Underserved(alpha),
        _ => Override::Never,
    })
}

fn limit_error(
    policy: &str,
    wanted: &str,
    written: bool,
    node: Node<'_>,
    report: &mut Report,
) -> Option<Admission> {
    let lacks = if written { "must be" } else { "is missing; it is" };
    report.error(node.at(&["limit"]), format!("the `limit` of policy \"{policy}\" {lacks} {wanted}"));
    None
}

impl PolicyKind {
    /// The names of all policies, for messages and help.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PolicyKind::ALL.iter().map(|kind| kind.as_str())
    }
}

impl Policy {
    /// Which policy it is.
    pub fn kind(&self) -> PolicyKind {
        match self {
            Policy::Bouncer(_) => PolicyKind::Bouncer,
            Policy::MaxQl { .. } => PolicyKind::MaxQl,
            Policy::MaxQwt { .. } => PolicyKind::MaxQwt,
            Policy::AcceptFraction { .. } => PolicyKind::AcceptFraction,
            Policy::Codel => PolicyKind::Codel,
            Policy::Aimd => PolicyKind::Aimd,
            Policy::Vegas => PolicyKind::Vegas,
            Policy::Gradient2 => PolicyKind::Gradient2,
            Policy::None => PolicyKind::None,
        }
    }
}
