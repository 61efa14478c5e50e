//! A message as SDKs and collectors send it, whose traces can be numbered anew, and their APIs named anew, without writing it again.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

/// The first half of every trace's number.
const MARK: u64 = 0x005e_ed0f_a11a_cee5;
/// What begins the name of every API that is to have another name in every trace; letters follow, four bits each, none of which is a digit.
const NAME: &str = "zzzz";
const LETTERS: &[u8; 16] = b"ghijklmnopqrstuv";
const LONG: usize = 12;
/// The services of a request, which call one another in a row: 2 spans each, but 1 for the last.
const SERVICES: [&str; 6] = ["frontend", "checkout", "cart", "catalog", "payment", "database"];
const SPANS_PER_TRACE: usize = 2 * SERVICES.len() - 1;
const APIS: u64 = 20;

/// The message.
pub struct Numbered {
    bytes: Vec<u8>,
    /// Where the second half of a trace's number stands, and which of the traces it is.
    places: Vec<(usize, u64)>,
    /// Where names stand that are another in every trace, likewise.
    names: Vec<(usize, u64)>,
    traces: u64,
    next: u64,
}

impl Numbered {
    /// About so many spans of whole traces; of a few APIs, or each trace of one of its own.
    pub fn new(spans: usize, distinct: bool) -> Numbered {
        let traces = (spans / SPANS_PER_TRACE) as u64;
        let resource_spans =
            (0..SERVICES.len()).map(|service| of_service(service, traces, distinct)).collect();
        let bytes = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let mark = MARK.to_be_bytes();
        let found = bytes.windows(8).enumerate().filter(|(_, window)| *window == mark).map(|(at, _)| at + 8);
        let number =
            |at: usize| bytes[at..at + 8].iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let places = found.map(|at| (at, number(at))).collect();
        let named = bytes.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME.as_bytes());
        let letter = |byte: &u8| LETTERS.iter().position(|letter| letter == byte).unwrap_or(0) as u64;
        let named = named.map(|(at, _)| at + NAME.len());
        let names = named
            .map(|at| (at, bytes[at..at + LONG].iter().fold(0, |number, byte| number << 4 | letter(byte))));
        let names = names.collect();
        Numbered { bytes, places, names, traces, next: 0 }
    }

    /// As it is sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Spans in it.
    pub fn spans(&self) -> usize {
        self.places.len()
    }

    /// Other traces from now on.
    pub fn renumber(&mut self) {
        self.next += self.traces;
        for &(at, trace) in &self.places {
            // Spread, as random numbers are.
            let number = (self.next + trace).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
        }
        for &(at, trace) in &self.names {
            self.bytes[at..at + LONG].copy_from_slice(&letters(self.next + trace));
        }
    }
}

/// A number as a word of the same length whatever it is.
fn letters(number: u64) -> [u8; LONG] {
    std::array::from_fn(|at| LETTERS[(number >> (4 * (LONG - 1 - at)) & 0xf) as usize])
}

fn word(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Any::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn of_service(service: usize, traces: u64, distinct: bool) -> ResourceSpans {
    let name = SERVICES[service];
    let attributes = [
        ("service.name", name),
        ("telemetry.sdk.language", "go"),
        ("telemetry.sdk.name", "opentelemetry"),
        ("service.instance.id", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    ];
    let resource = Some(Resource {
        attributes: attributes.map(|(key, value)| word(key, value)).to_vec(),
        ..Resource::default()
    });
    let serving = (0..traces).map(|trace| span(service, trace, 2, distinct));
    let calling =
        (0..traces).filter(|_| service + 1 < SERVICES.len()).map(|trace| span(service, trace, 3, distinct));
    let spans = serving.chain(calling).collect();
    ResourceSpans {
        resource,
        scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    }
}

/// A span that serves (2) or calls (3); each is the parent of the next.
fn span(service: usize, trace: u64, kind: i32, distinct: bool) -> Span {
    let id = (2 * service) as u64 + kind as u64 - 1;
    let route = match distinct {
        true => format!("/api/{NAME}{}", String::from_utf8_lossy(&letters(trace))),
        false => format!("/api/v1/{}/{{id}}", trace % APIS),
    };
    let attributes = [
        ("http.request.method", "GET"),
        ("url.scheme", "http"),
        ("url.path", "/api/v1/things/4711"),
        ("http.route", &*route),
        ("server.address", "service.namespace.svc.cluster.local"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64)"),
    ];
    let mut attributes = attributes.map(|(key, value)| word(key, value)).to_vec();
    let status = AnyValue { value: Some(Any::IntValue(200)) };
    attributes.push(KeyValue {
        key: "http.response.status_code".to_owned(),
        value: Some(status),
        ..KeyValue::default()
    });
    Span {
        trace_id: [MARK.to_be_bytes(), trace.to_be_bytes()].concat(),
        span_id: (id << 32 | 1).to_be_bytes().to_vec(),
        parent_span_id: if id == 1 { Vec::new() } else { ((id - 1) << 32 | 1).to_be_bytes().to_vec() },
        name: format!("GET {route}"),
        kind,
        start_time_unix_nano: 1_700_000_000_000_000_000,
        end_time_unix_nano: 1_700_000_000_012_345_678,
        attributes,
        flags: 0x101,
        ..Span::default()
    }
}
