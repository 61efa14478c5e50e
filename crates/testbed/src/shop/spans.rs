//! Spans: who called whom, told by OTLP over HTTP in JSON, as an SDK would.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use http::HeaderMap;
use plimsoll_core::Nanos;
use plimsoll_core::rng::Rng;
use rand::RngExt;
use serde_json::{Value, json};

use crate::clock::Clock;

/// Spans that wait to be sent; further ones are left out.
const MOST: usize = 16_384;
/// Spans of one message, and how long the first of them waits for the others.
const BATCH: usize = 512;
const DELAY: Nanos = Nanos::from_millis(200);
/// Whoever takes longer to answer does not.
const PATIENCE: Duration = Duration::from_secs(2);

/// A trace, and the span in it that is spoken of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    trace: u128,
    pub span: u64,
}

impl Trace {
    /// A new one, of a caller who tells nobody of itself.
    pub fn new(rng: &mut Rng) -> Trace {
        Trace { trace: rng.random::<u128>() | 1, span: rng.random::<u64>() | 1 }
    }

    /// Another span of it.
    pub fn child(&self, rng: &mut Rng) -> Trace {
        Trace { trace: self.trace, span: rng.random::<u64>() | 1 }
    }

    /// That of `traceparent`, if it is there.
    pub fn read(headers: &HeaderMap) -> Option<Trace> {
        let mut parts = headers.get("traceparent")?.to_str().ok()?.split('-').skip(1);
        let trace = u128::from_str_radix(parts.next()?, 16).ok()?;
        Some(Trace { trace, span: u64::from_str_radix(parts.next()?, 16).ok()? })
    }
}

/// As the header `traceparent` has it.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

/// What a service did for a request.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub trace: Trace,
    pub parent: u64,
    pub service: String,
    pub api: String,
    pub times_ns: (u64, u64),
    pub failed: bool,
}

impl Span {
    fn json(&self) -> Value {
        let word = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
        json!({
            "resource": { "attributes": [word("service.name", &self.service)] },
            "scopeSpans": [{ "spans": [{
                "traceId": format!("{:032x}", self.trace.trace),
                "spanId": format!("{:016x}", self.trace.span),
                "parentSpanId": format!("{:016x}", self.parent),
                "kind": 2,
                "name": format!("GET /{}", self.api),
                "startTimeUnixNano": self.times_ns.0.to_string(),
                "endTimeUnixNano": self.times_ns.1.to_string(),
                "attributes": [word("http.request.method", "GET"), word("http.route", &format!("/{}", self.api))],
                "status": { "code": if self.failed { 2 } else { 0 } },
            }] }],
        })
    }
}

/// Sends spans from a thread of its own. Nobody waits for it, and what is not taken is lost.
pub(super) struct Exporter(SyncSender<Span>);

impl Exporter {
    /// To whoever listens there, now or later.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn start(to: SocketAddr) -> io::Result<Exporter> {
        let (sender, spans) = sync_channel(MOST);
        thread::Builder::new().name("spans".to_owned()).spawn(move || run(to, &spans))?;
        Ok(Exporter(sender))
    }

    /// Sends one, some time.
    pub fn send(&self, span: Span) {
        let _ = self.0.try_send(span);
    }
}

fn run(to: SocketAddr, spans: &Receiver<Span>) {
    let clock = Clock::start();
    while let Ok(first) = spans.recv() {
        let (mut batch, end) = (vec![first.json()], clock.now() + DELAY);
        while batch.len() < BATCH {
            match spans.recv_timeout(end.since(clock.now()).into()) {
                Ok(span) => batch.push(span.json()),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        // Whoever is not there yet may be at the next.
        let _ = post(to, &json!({ "resourceSpans": batch }).to_string());
    }
}

fn post(to: SocketAddr, body: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "POST /v1/traces HTTP/1.1\r\nhost: {to}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    io::copy(&mut stream.take(1 << 16), &mut io::sink()).map(drop)
}
