//! `[class.NAME]`: what an objective holds for, and how a request is recognised.

use http::{HeaderName, Method};
use serde_json::json;

use super::objective::SloRef;
use super::pattern::{GrpcPattern, HostPattern, PathPattern, ValuePattern};
use super::report::Report;
use super::table::table;
use super::units::Rate;
use super::value::{Node, Shape, Value};
use crate::{Nanos, Slo};

table! {
    /// A class of requests.
    pub struct ClassTable {
        /// How its requests are recognised, by any of these. Classes are tried in the order of the file, and the first
        /// that fits wins. `[class.default]` has none and takes what is left, wherever it stands.
        matches: Vec<Match> as "match" = [],
        /// Its objective, or the name of one. Without, only `max_queue` and deadlines bound it.
        slo: Option<SloRef>,
        /// From 1, the most important, to 100. Under overload lesser classes give way. The servers are told, in
        /// `priority_header`.
        priority: u32 [1..=100] = 5,
        /// What one served request is worth, in any unit that all classes share. Among classes of one priority those that
        /// are worth less give way.
        revenue: f64 [1e-9..=1e12] = 1.0,
        /// The rate up to which requests pass untested: only `max_queue`, deadlines and connection limits refuse them.
        min_rate: Option<Rate>,
        /// The most that may enter through all sentries together, with `[controller.rates]`. Left out, as much as comes.
        max_rate: Option<Rate>,
        /// How long a request takes on a server that has nothing else to do, where that is known. It is measured anyway;
        /// written down, promises that cannot be kept are found before they are made.
        service_time: Option<Nanos> ["1us"..="1h"],
        /// Who serves it; only needed where there are several pools.
        pool: Option<String>,
        /// By what its clients are told apart, so that none takes the whole class's share: "address", or
        /// `{ header = "x-api-key" }`. Left out, they are not told apart.
        fair_share: Option<FairShare>,
    }
}

table! {
    /// One way to recognise a class. All that is written must fit.
    pub struct Match {
        /// The method, in upper case.
        method: Option<Method>,
        /// The path without its query, as the client sent it. `{name}` stands for one segment that is not empty, `*` or
        /// `{name...}` at the end for all the rest: `/static/*` takes `/static/` and all below it.
        path: Option<PathPattern>,
        /// The host without its port, in any case; `*.example.com` takes all names below it.
        host: Option<HostPattern>,
        /// A header.
        header: Option<HeaderMatch>,
        /// A gRPC method, `package.Service/Method`, or all of a service, `package.Service/*`. Instead of `method` and
        /// `path`.
        grpc: Option<GrpcPattern>,
    }
}

table! {
    /// A header and what it must hold.
    pub struct HeaderMatch {
        /// Its name.
        name: HeaderName,
        /// Its value: all of it, or its beginning and `*`. Left out, the header must only be there.
        value: ValuePattern = "*",
    }
}

impl Match {
    /// Whether every request that fits `other` fits this. May say no where it is so, never yes where it is not.
    pub fn covers(&self, other: &Match) -> bool {
        fn covers<T>(ours: &Option<T>, theirs: &Option<T>, covers: impl Fn(&T, &T) -> bool) -> bool {
            ours.as_ref().is_none_or(|ours| theirs.as_ref().is_some_and(|theirs| covers(ours, theirs)))
        }
        covers(&self.method, &other.method, Method::eq)
            && covers(&self.path, &other.path, PathPattern::covers)
            && covers(&self.host, &other.host, HostPattern::covers)
            && covers(&self.header, &other.header, |a, b| a.name == b.name && a.value.covers(&b.value))
            && covers(&self.grpc, &other.grpc, |a, b| a.path().covers(&b.path()))
    }
}

/// By what the clients of a class are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FairShare {
    /// The client's address.
    Address,
    /// The value of a header.
    Header(HeaderName),
}

table! {
    /// The long form of `fair_share`.
    pub struct FairShareTable {
        /// The header whose value tells clients apart.
        header: HeaderName,
    }
}

impl Value for FairShare {
    const SHAPE: Shape = Shape::new(
        || "\"address\" or a table with a header".to_owned(),
        || "{ header = \"x-api-key\" }".to_owned(),
        || json!({ "anyOf": [{ "const": "address" }, (FairShareTable::SHAPE.schema)()] }),
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<FairShare> {
        if node.text() == Some("address") {
            Some(FairShare::Address)
        } else if node.value.get_ref().is_table() {
            FairShareTable::read(node, report).map(|table| FairShare::Header(table.header))
        } else {
            node.mismatch(report)
        }
    }
}

/// A class of requests, with all names resolved. Its index in [`Config::classes`](super::Config) is its
/// [`ClassId`](crate::ClassId).
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The NAME in its header.
    pub name: String,
    /// How it is recognised, by any of these. Empty for `default`, which takes the rest.
    pub matches: Vec<Match>,
    /// Its objective; empty where none was set.
    pub slo: Slo,
    /// From 1, the most important, to 100.
    pub priority: u32,
    /// What one served request is worth, in any unit.
    pub revenue: f64,
    /// The rate up to which requests pass untested.
    pub min_rate: Option<Rate>,
    /// The most that may enter through all sentries together.
    pub max_rate: Option<Rate>,
    /// How long one takes on an idle server, where the user knows.
    pub service_time: Option<Nanos>,
    /// Index into [`Config::pools`](super::Config).
    pub pool: usize,
    /// By what its clients are told apart so that none takes the whole class's share.
    pub fair_share: Option<FairShare>,
}
