//! An `ExportTraceServiceRequest` of OTLP, as far as paths go: of each span its numbers, its kind, and the attributes that say what was
//! asked. Held to `opentelemetry-proto` by a property test.

use super::wire::{Fields, Malformed};

/// The attributes of a span that say what was asked, and of whom; the names are those of the semantic conventions, new and old.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked<'a> {
    /// `http.request.method`, or `http.method`.
    pub http_method: Option<&'a str>,
    /// `http.route`.
    pub http_route: Option<&'a str>,
    /// `url.path`, or `http.target`.
    pub url_path: Option<&'a str>,
    /// `url.full`, or `http.url`.
    pub url_full: Option<&'a str>,
    /// `server.address`, `http.host` or `net.host.name`.
    pub host: Option<&'a str>,
    /// `rpc.method`.
    pub rpc_method: Option<&'a str>,
    /// `rpc.service`.
    pub rpc_service: Option<&'a str>,
    /// `service.peer.name`, or `peer.service`.
    pub peer: Option<&'a str>,
}

impl<'a> Asked<'a> {
    /// Where an attribute of this name belongs.
    pub fn place(&mut self, name: &str) -> Option<&mut Option<&'a str>> {
        Some(match name {
            "http.request.method" | "http.method" => &mut self.http_method,
            "http.route" => &mut self.http_route,
            "url.path" | "http.target" => &mut self.url_path,
            "url.full" | "http.url" => &mut self.url_full,
            "server.address" | "http.host" | "net.host.name" => &mut self.host,
            "rpc.method" => &mut self.rpc_method,
            "rpc.service" => &mut self.rpc_service,
            "service.peer.name" | "peer.service" => &mut self.peer,
            _ => return None,
        })
    }
}

/// A span as it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RawSpan<'a> {
    /// 16 bytes, unless the sender is wrong.
    pub trace: &'a [u8],
    /// 8 bytes, unless the sender is wrong.
    pub id: &'a [u8],
    /// 8 bytes, or none.
    pub parent: &'a [u8],
    /// What its sender calls it.
    pub name: &'a str,
    /// The number of its kind.
    pub kind: i32,
    /// The number of its status.
    pub status: i32,
    /// When it began, in nanoseconds since 1970 by its sender's clock,
    pub began_ns: u64,
    /// and when it ended.
    pub ended_ns: u64,
    /// What was asked.
    pub asked: Asked<'a>,
}

/// Who takes in what is read.
pub trait Sink {
    /// What follows is from this service; empty where its sender does not say.
    fn service(&mut self, name: &str);
    /// One span of it.
    fn span(&mut self, span: &RawSpan<'_>);
}

/// Reads a request.
///
/// # Errors
/// Where it is not one; the spans before the place that shows it have been taken.
pub fn decode(request: &[u8], sink: &mut impl Sink) -> Result<(), Malformed> {
    for field in Fields::new(request) {
        if let (1, value) = field? {
            resource_spans(value.bytes()?, sink)?;
        }
    }
    Ok(())
}

fn resource_spans(message: &[u8], sink: &mut impl Sink) -> Result<(), Malformed> {
    // The resource may stand behind its spans, and be in pieces.
    let mut service = None;
    for field in Fields::new(message) {
        if let (1, value) = field? {
            for field in Fields::new(value.bytes()?) {
                if let (1, value) = field?
                    && let Some((b"service.name", name)) = attribute(value.bytes()?)?
                {
                    service = service.or(Some(name));
                }
            }
        }
    }
    sink.service(service.unwrap_or_default());
    for field in Fields::new(message) {
        if let (2, value) = field? {
            for field in Fields::new(value.bytes()?) {
                if let (2, value) = field? {
                    sink.span(&span(value.bytes()?)?);
                }
            }
        }
    }
    Ok(())
}

fn span(message: &[u8]) -> Result<RawSpan<'_>, Malformed> {
    let mut span = RawSpan::default();
    for field in Fields::new(message) {
        match field? {
            (1, value) => span.trace = value.bytes()?,
            (2, value) => span.id = value.bytes()?,
            (4, value) => span.parent = value.bytes()?,
            (5, value) => span.name = text(value.bytes()?),
            (6, value) => span.kind = value.varint()? as i32,
            (7, value) => span.began_ns = value.fixed()?,
            (8, value) => span.ended_ns = value.fixed()?,
            (9, value) => {
                if let Some((name, value)) = attribute(value.bytes()?)?
                    && let Ok(name) = std::str::from_utf8(name)
                    && let Some(place) = span.asked.place(name)
                {
                    *place = place.or(Some(value));
                }
            }
            (15, value) => {
                for field in Fields::new(value.bytes()?) {
                    if let (3, value) = field? {
                        span.status = value.varint()? as i32;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(span)
}

/// Name and text of an attribute; nothing where its value is no text.
fn attribute(message: &[u8]) -> Result<Option<(&[u8], &str)>, Malformed> {
    let (mut name, mut value) = (&[][..], None);
    for field in Fields::new(message) {
        match field? {
            (1, field) => name = field.bytes()?,
            (2, field) => {
                for field in Fields::new(field.bytes()?) {
                    match field? {
                        (1, field) => value = Some(text(field.bytes()?)),
                        // One of: the last one is what there is.
                        (2..=8, _) => value = None,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(value.map(|value| (name, value)))
}

/// What is no text is left out, and the rest of the message is not lost for it.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    /// What was read, in words.
    #[derive(Debug, Default, PartialEq)]
    pub struct Read(Vec<String>);

    impl Sink for Read {
        fn service(&mut self, name: &str) {
            self.0.push(format!("service {name:?}"));
        }
        fn span(&mut self, span: &RawSpan<'_>) {
            self.0.push(format!("{span:?}"));
        }
    }

    /// The same by the generated types.
    fn by_generated_types(request: &ExportTraceServiceRequest) -> Read {
        let mut read = Read::default();
        for of_resource in &request.resource_spans {
            let attributes = of_resource.resource.iter().flat_map(|resource| &resource.attributes);
            let name = attributes.filter(|a| a.key == "service.name").find_map(word);
            read.service(name.unwrap_or_default());
            for span in of_resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
                let mut asked = Asked::default();
                for attribute in &span.attributes {
                    if let (Some(place), Some(value)) = (asked.place(&attribute.key), word(attribute)) {
                        *place = place.or(Some(value));
                    }
                }
                read.span(&RawSpan {
                    trace: &span.trace_id,
                    id: &span.span_id,
                    parent: &span.parent_span_id,
                    name: &span.name,
                    kind: span.kind,
                    status: span.status.as_ref().map_or(0, |status| status.code),
                    began_ns: span.start_time_unix_nano,
                    ended_ns: span.end_time_unix_nano,
                    asked,
                });
            }
        }
        read
    }

    fn word(attribute: &KeyValue) -> Option<&str> {
        match attribute.value.as_ref()?.value.as_ref()? {
            Any::StringValue(text) => Some(text),
            _ => None,
        }
    }

    fn values() -> impl Strategy<Value = Option<AnyValue>> {
        let value = prop_oneof![
            6 => ".{0,12}".prop_map(|text| Some(Any::StringValue(text))),
            1 => any::<i64>().prop_map(|n| Some(Any::IntValue(n))),
            1 => any::<f64>().prop_map(|n| Some(Any::DoubleValue(n))),
            1 => vec(any::<u8>(), 0..9).prop_map(|bytes| Some(Any::BytesValue(bytes))),
            1 => Just(Some(Any::ArrayValue(ArrayValue { values: vec![AnyValue { value: Some(Any::BoolValue(true)) }] }))),
            1 => Just(None),
        ];
        proptest::option::weighted(0.9, value.prop_map(|value| AnyValue { value }))
    }

    fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
        let key = prop_oneof![
            Just("service.name".to_owned()),
            Just("http.route".to_owned()),
            Just("http.method".to_owned()),
            Just("http.request.method".to_owned()),
            Just("url.path".to_owned()),
            Just("http.url".to_owned()),
            Just("rpc.service".to_owned()),
            Just("rpc.method".to_owned()),
            Just("peer.service".to_owned()),
            ".{0,9}",
        ];
        let of = |(key, value)| KeyValue { key, value, ..KeyValue::default() };
        vec((key, values()).prop_map(of), 0..6)
    }

    fn spans() -> impl Strategy<Value = Span> {
        let ids = (vec(any::<u8>(), 0..20), vec(any::<u8>(), 0..10), vec(any::<u8>(), 0..10));
        let status = proptest::option::of(
            (any::<i32>(), ".{0,4}").prop_map(|(code, message)| Status { code, message }),
        );
        (ids, ".{0,12}", any::<i32>(), any::<(u64, u64)>(), attributes(), status).prop_map(
            |(ids, name, kind, (began, ended), attributes, status)| Span {
                trace_id: ids.0,
                span_id: ids.1,
                parent_span_id: ids.2,
                trace_state: "ot=th:0".to_owned(),
                name,
                kind,
                start_time_unix_nano: began,
                end_time_unix_nano: ended,
                attributes,
                status,
                flags: 0x101,
                ..Span::default()
            },
        )
    }

    fn requests() -> impl Strategy<Value = ExportTraceServiceRequest> {
        let resource = proptest::option::weighted(
            0.9,
            attributes().prop_map(|attributes| Resource { attributes, ..Resource::default() }),
        );
        let scopes =
            vec(vec(spans(), 0..4).prop_map(|spans| ScopeSpans { spans, ..ScopeSpans::default() }), 0..3);
        let of_resource = (resource, scopes).prop_map(|(resource, scope_spans)| ResourceSpans {
            resource,
            scope_spans,
            ..ResourceSpans::default()
        });
        vec(of_resource, 0..4).prop_map(|resource_spans| ExportTraceServiceRequest { resource_spans })
    }

    proptest! {
        #[test]
        fn what_the_generated_types_read_is_read(request in requests()) {
            let mut read = Read::default();
            prop_assert_eq!(decode(&request.encode_to_vec(), &mut read), Ok(()));
            prop_assert_eq!(read, by_generated_types(&request));
        }

        /// Bytes that were changed, cut, put together or made up: whatever the generated types take is taken, and means the same.
        #[test]
        fn what_is_spoilt_is_read_as_the_generated_types_do(
            a in requests(), b in requests(), spoilt in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in 0usize..9,
        ) {
            let mut bytes = [a.encode_to_vec(), b.encode_to_vec()].concat();
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            for (at, byte) in spoilt {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            if let Ok(request) = ExportTraceServiceRequest::decode(bytes.as_slice()) {
                let mut read = Read::default();
                prop_assert_eq!(decode(&bytes, &mut read), Ok(()));
                prop_assert_eq!(read, by_generated_types(&request));
            }
        }
    }

    #[test]
    fn a_resource_behind_its_spans_counts() {
        let request = |resource: bool| {
            let attributes = vec![KeyValue {
                key: "service.name".to_owned(),
                value: Some(AnyValue { value: Some(Any::StringValue("cart".to_owned())) }),
                ..KeyValue::default()
            }];
            let resource = resource.then_some(Resource { attributes, ..Resource::default() });
            let spans = if resource.is_some() {
                Vec::new()
            } else {
                vec![ScopeSpans { spans: vec![Span::default()], ..ScopeSpans::default() }]
            };
            ResourceSpans { resource, scope_spans: spans, ..ResourceSpans::default() }.encode_to_vec()
        };
        let both = [request(false), request(true)].concat();
        let mut bytes = vec![0x0a, both.len() as u8];
        bytes.extend(both);
        let mut read = Read::default();
        decode(&bytes, &mut read).unwrap();
        assert_eq!((read.0.len(), read.0[0].as_str()), (2, "service \"cart\""));
    }
}
