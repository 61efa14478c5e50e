//! `[class.NAME]`: what an objective holds for, and how a request is recognised.

use http::{HeaderName, Method};

use super::units::Rate;
use crate::Slo;

/// A class of requests, with all names resolved. Its index in [`Config::classes`](super::Config) is its
/// [`ClassId`](crate::ClassId).
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The NAME in its header.
    pub name: String,
    /// What is recognised as this class: any of them. Empty for `default`, which takes the rest.
    pub matches: Vec<Match>,
    /// Its objective; empty where none was set.
    pub slo: Slo,
    /// From 1, the most important, to 100.
    pub priority: u32,
    /// What one served request is worth, in any unit.
    pub revenue: f64,
    /// Requests that are guaranteed to pass.
    pub min_rate: Option<Rate>,
    /// Index into [`Config::pools`](super::Config).
    pub pool: usize,
    /// By what its clients are told apart so that none takes the whole class's share.
    pub fair_share: Option<FairShare>,
}

/// By what the clients of a class are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FairShare {
    /// The client's address.
    Address,
    /// The value of a header.
    Header(HeaderName),
}

/// One way to recognise a class; all that is set must fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// The method.
    pub method: Option<Method>,
    /// The path.
    pub path: Option<PathPattern>,
    /// The host.
    pub host: Option<HostPattern>,
    /// A header.
    pub header: Option<HeaderMatch>,
    /// A gRPC method; never together with `method` or `path`.
    pub grpc: Option<GrpcPattern>,
}

/// A path template, split at its slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    /// What must stand between the slashes.
    pub segments: Vec<Segment>,
    /// Whether anything may follow the last segment and a slash.
    pub open: bool,
}

/// What one segment of a path must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Exactly this.
    Literal(String),
    /// Anything that is not empty.
    Param,
}

/// The host of a request without its port, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this.
    Exact(String),
    /// Anything before this, which begins with a dot: `*.example.com`.
    Suffix(String),
}

/// A header and what it must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// Its name.
    pub name: HeaderName,
    /// Its value.
    pub value: ValuePattern,
}

/// What the value of a header must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePattern {
    /// Anything, even nothing.
    Present,
    /// Exactly this.
    Exact(String),
    /// Anything that begins with this.
    Prefix(String),
}

/// A gRPC service and perhaps its method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcPattern {
    /// With its package: `shop.Cart`.
    pub service: String,
    /// All of the service's methods where there is none.
    pub method: Option<String>,
}
