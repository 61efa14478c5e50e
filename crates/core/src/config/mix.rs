//! MIX.toml: what the load generator sends.

use http::{HeaderName, HeaderValue, Method};

use crate::Nanos;

/// What the load generator sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// In the order of the file; never empty, the shares sum to 1.
    pub requests: Vec<Request>,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The NAME in its header.
    pub name: String,
    /// The method.
    pub method: Method,
    /// The path with its query, from the first slash on.
    pub path: String,
    /// Of all requests, above 0 and at most 1.
    pub share: f64,
    /// The body; empty for none.
    pub body: String,
    /// Headers to send, in the order of the file.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long the client waits: what comes later is no goodput.
    pub deadline: Option<Nanos>,
}
