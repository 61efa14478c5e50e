//! MIX.toml: what the load generator sends.

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method};
use serde_json::json;

use super::report::Report;
use super::table::table;
use super::value::{Derived, MAX_LIST, Node, Shape, Tables, Value};
use crate::Nanos;

table! {
    /// The file of a mix.
    pub struct MixFile {
        /// Kinds of requests.
        request: Tables<RequestTable>,
    }
}

table! {
    /// One kind of request.
    pub struct RequestTable {
        /// The method.
        method: Method = "GET",
        /// The path, with a query or without.
        path: PathAndQuery,
        /// How often, relative to the others: `1` and `3`, `25` and `75` or `0.25` and `0.75` mean the same. For all
        /// requests or for none; without, all come as often.
        share: Option<f64> [0.000001..=1000000.0],
        /// The body.
        body: String = "",
        /// Headers to send.
        headers: Headers = {},
        /// How long the client waits: what comes later is no goodput.
        deadline: Option<Nanos> ["1ms"..="24h"],
    }
}

/// Headers to send, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Headers(pub Vec<(HeaderName, HeaderValue)>);

impl Value for Headers {
    const SHAPE: Shape = Shape::new(
        || "a table of header names and values".to_owned(),
        || "{ content-type = \"application/json\" }".to_owned(),
        || {
            json!({
                "type": "object",
                "propertyNames": (HeaderName::SHAPE.schema)(),
                "additionalProperties": (HeaderValue::SHAPE.schema)(),
                "maxProperties": MAX_LIST,
            })
        },
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<Headers> {
        let entries = node.entries::<Self>(report)?;
        if entries.len() > MAX_LIST {
            return node
                .fail(report, format!("{} headers are too many; write at most {MAX_LIST}", entries.len()));
        }
        let mut headers = Vec::new();
        for (key, entry) in &entries {
            let name = key.get_ref().parse::<HeaderName>();
            if name.is_err() {
                let message =
                    format!("`{}` is not a header name; write for example x-api-key", key.get_ref());
                report.error(key.span(), message);
            }
            headers.extend(name.ok().zip(HeaderValue::read(*entry, report)));
        }
        (headers.len() == entries.len()).then_some(Headers(headers))
    }
}

/// What the load generator sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// In the order of the file; never empty, and the shares sum to 1.
    pub requests: Vec<Request>,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The NAME in its header.
    pub name: String,
    /// The method.
    pub method: Method,
    /// The path, with a query or without.
    pub path: PathAndQuery,
    /// Of all requests, above 0 and at most 1.
    pub share: f64,
    /// The body; empty for none.
    pub body: String,
    /// Headers to send, in the order of the file.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long the client waits.
    pub deadline: Option<Nanos>,
}

impl Derived for Mix {
    type Written = MixFile;

    fn derive(written: MixFile, root: Node<'_>, report: &mut Report) -> Option<Mix> {
        let tables = written.request.0;
        if tables.is_empty() {
            report.error(root.span(), "there is no request; add [request.NAME] with path = \"/\"");
            return None;
        }
        let written: f64 = tables.iter().filter_map(|(_, table)| table.share).sum();
        let (with, without): (Vec<_>, Vec<_>) = tables.iter().partition(|(_, table)| table.share.is_some());
        if let ([_, ..], [(name, _), ..]) = (with.as_slice(), without.as_slice()) {
            let message =
                format!("[request.{name}] has no `share` and others have one; give all of them one, or none");
            report.error(root.at(&["request", name]), message);
            return None;
        }
        let sum = if with.is_empty() { tables.len() as f64 } else { written };
        let request = |(name, table)| {
            let RequestTable { method, path, share, body, headers, deadline } = table;
            Request {
                name,
                method,
                path,
                share: share.unwrap_or(1.0) / sum,
                body,
                headers: headers.0,
                deadline,
            }
        };
        Some(Mix { requests: tables.into_iter().map(request).collect() })
    }
}
