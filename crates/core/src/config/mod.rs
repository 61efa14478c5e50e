//! The configuration: every key is defined once, and that definition gives the struct, the reader, the errors
//! with line and caret, the reference docs and the JSON Schema. The files of the simulator, of the load
//! generator and of the cases are read by the same machinery.

pub mod case;
pub mod fleet;
pub mod mix;
pub mod workload;

mod address;
mod admission;
mod agent;
mod call;
mod class;
mod controller;
mod docs;
mod dsn;
mod etcd;
mod herald;
mod ladder;
mod objective;
mod parse;
mod pattern;
mod policy_args;
mod pool;
mod provision;
mod report;
mod resolve;
mod scalar;
mod sentry;
mod suggest;
mod table;
mod telemetry;
#[cfg(test)]
mod tests;
mod units;
mod value;

pub use address::{Listen, Scheme, Server};
pub use admission::{Admission, Mode, Override, Policy, PolicyKind, WaitLimit};
pub use agent::{Agent, App, CancelBudget, Database, DatabaseKind, Escalate};
pub use call::{HttpCall, filled};
pub use class::{Class, FairShare, HeaderMatch, Match};
pub use controller::{Controller, ControllerRates, RateDecider};
pub use docs::{json_schema, reference};
pub use dsn::Dsn;
pub use etcd::{Etcd, EtcdGuard};
pub use herald::{Herald, HeraldReader};
pub use parse::{MAX_FILE, error_at, parse};
pub use pattern::{GrpcPattern, HostPattern, PathPattern, Segment, ValuePattern};
pub use pool::{Eject, Health, Policing, PolicingPolicy, Pool, Protocol, Retries, Solr, Workers};
pub use provision::{Ports, ProviderKind, Provision};
pub use report::{Diagnostic, Errors, Warning};
pub use resolve::Config;
pub use scalar::Secret;
pub use sentry::{Decisions, Sentry, SentryRates, Tls};
pub use telemetry::{Prometheus, Scrape, ScrapeKind, Telemetry};
pub use units::{Rate, Size};
pub use value::Value;
