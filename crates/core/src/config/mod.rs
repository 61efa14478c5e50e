//! The configuration: every key is defined once, and that definition gives the struct, the reader, the errors
//! with line and caret, the reference docs and the JSON Schema. The files of the simulator and of the load
//! generator are read by the same machinery.

pub mod mix;
pub mod workload;

mod address;
mod admission;
mod class;
mod parse;
mod pool;
mod report;
mod scalar;
mod sentry;
mod suggest;
mod table;
mod units;
mod value;

pub use address::{Listen, Scheme, Server};
pub use admission::{Admission, Mode, Override, Policy, PolicyKind, WaitLimit};
pub use class::{
    Class, FairShare, GrpcPattern, HeaderMatch, HostPattern, Match, PathPattern, Segment, ValuePattern,
};
pub use parse::{MAX_FILE, parse};
pub use pool::{Eject, Health, Policing, PolicingPolicy, Pool, Protocol, Retries, Workers};
pub use report::{Diagnostic, Errors, Warning};
pub use scalar::Secret;
pub use sentry::{Decisions, Sentry, Tls};
pub use units::{Rate, Size};
pub use value::Value;

/// The file of all roles, with every name resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The gateway.
    pub sentry: Sentry,
    /// In the order of the file; at least one.
    pub pools: Vec<Pool>,
    /// In the order of the file, `default` last; the index is the [`ClassId`](crate::ClassId).
    pub classes: Vec<Class>,
}
