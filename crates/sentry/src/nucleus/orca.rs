//! ORCA load reports, in the three ways in which Envoy and gRPC write them (gRFC A51, and Envoy's client-side weighted round robin):
//!
//! - `endpoint-load-metrics: TEXT cpu_utilization=0.3, request_cost.cpu=0.012, named_metrics.in_service=4`,
//! - `endpoint-load-metrics: JSON {"cpu_utilization": 0.3, "request_cost": {"cpu": 0.012}}`, the message as protobuf's JSON,
//! - `endpoint-load-metrics-bin`, or `BIN ` in the former: the message itself in base64, with padding or without.
//!
//! Where a response has both headers, Envoy takes the second; so does this.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_PAD_INDIFFERENT as BASE64;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use prost::Message;
use serde::Deserialize;

use super::{MAX_REPORT, Nonsense, REQUESTS, Report, UTILISATION, time, within};

/// Text, JSON or base64, as its first word says.
pub const LOAD: HeaderName = HeaderName::from_static("endpoint-load-metrics");
/// Base64.
pub const LOAD_BIN: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");

/// What is read of `xds.data.orca.v3.OrcaLoadReport`. The numbers are the fields'.
#[derive(Clone, PartialEq, Message, Deserialize)]
pub struct LoadReport {
    /// A share of the CPUs.
    #[prost(double, optional, tag = "1")]
    #[serde(default, alias = "cpuUtilization")]
    pub cpu_utilization: Option<f64>,
    /// What this request cost: `cpu` and `data`, in seconds.
    #[prost(btree_map = "string, double", tag = "4")]
    #[serde(default, alias = "requestCost")]
    pub request_cost: BTreeMap<String, f64>,
    /// `queue_delay_ms` and `in_service`.
    #[prost(btree_map = "string, double", tag = "8")]
    #[serde(default, alias = "namedMetrics")]
    pub named_metrics: BTreeMap<String, f64>,
}

/// Removes the load report, if there is one, and reads it.
#[inline]
pub fn take(headers: &mut HeaderMap) -> Option<Result<Report, Nonsense>> {
    let is_there = headers.contains_key(&LOAD) | headers.contains_key(&LOAD_BIN);
    is_there.then(|| {
        let report = match only(headers, &LOAD_BIN) {
            Some(value) => value.and_then(|value| binary(value.as_bytes())),
            None => only(headers, &LOAD).unwrap_or(Err(Nonsense)).and_then(worded),
        };
        headers.remove(&LOAD);
        headers.remove(&LOAD_BIN);
        report
    })
}

/// The value of a header that must not be there twice, nor be too long.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Result<&'a HeaderValue, Nonsense>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    let fits = values.next().is_none() && first.len() <= MAX_REPORT;
    Some(if fits { Ok(first) } else { Err(Nonsense) })
}

fn worded(value: &HeaderValue) -> Result<Report, Nonsense> {
    let value = value.to_str().map_err(|_| Nonsense)?;
    match value.split_once(' ').ok_or(Nonsense)? {
        ("TEXT", list) => text(list),
        ("JSON", message) => serde_json::from_str(message).map_or(Err(Nonsense), |m: LoadReport| m.read()),
        ("BIN", message) => binary(message.trim().as_bytes()),
        _ => Err(Nonsense),
    }
}

fn binary(base64: &[u8]) -> Result<Report, Nonsense> {
    let mut room = [0; MAX_REPORT];
    let length = BASE64.decode_slice(base64, &mut room).map_err(|_| Nonsense)?;
    LoadReport::decode(&room[..length]).map_or(Err(Nonsense), |message| message.read())
}

impl LoadReport {
    fn read(&self) -> Result<Report, Nonsense> {
        let cost = |name| self.request_cost.get(name).map(|&s| time(s)).transpose();
        let named = |name| self.named_metrics.get(name).copied();
        Ok(Report {
            cpu: cost("cpu")?,
            data: cost("data")?,
            queue_delay: named("queue_delay_ms").map(|ms| time(ms / 1e3)).transpose()?,
            in_service: number(named("in_service"), &REQUESTS)?,
            cpu_utilization: number(self.cpu_utilization, &UTILISATION)?,
        })
    }
}

fn number(said: Option<f64>, range: &std::ops::RangeInclusive<f64>) -> Result<Option<f32>, Nonsense> {
    said.map(|number| within(number, range)).transpose().map(|number| number.map(|n| n as f32))
}

/// Pairs of a name and a number, between them `=` or, as Envoy first had it, `:`. The name of a map's entry begins with the map's.
fn text(list: &str) -> Result<Report, Nonsense> {
    let mut message = LoadReport::default();
    for item in list.split(',') {
        let (name, value) = item.split_once(['=', ':']).ok_or(Nonsense)?;
        let (name, value) = (name.trim(), value.trim().parse::<f64>().map_err(|_| Nonsense)?);
        let before = match name.split_once('.') {
            Some(("request_cost", entry)) => message.request_cost.insert(entry.to_owned(), value),
            Some(("named_metrics", entry)) => message.named_metrics.insert(entry.to_owned(), value),
            None if name == "cpu_utilization" => message.cpu_utilization.replace(value),
            _ => None,
        };
        if name.is_empty() || before.is_some() {
            return Err(Nonsense);
        }
    }
    message.read()
}
