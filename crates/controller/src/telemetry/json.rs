//! The same request in OTLP's JSON: numbers of spans in hexadecimal digits, names in camelCase, unknown keys of no consequence.

use std::borrow::Cow;

use serde::Deserialize;

use super::otlp::{Asked, RawSpan, Sink};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(borrow, default)]
    resource_spans: Vec<ResourceSpans<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    #[serde(borrow)]
    resource: Option<Resource<'a>>,
    #[serde(borrow, default)]
    scope_spans: Vec<ScopeSpans<'a>>,
}

#[derive(Deserialize)]
struct Resource<'a> {
    #[serde(borrow, default)]
    attributes: Vec<Attribute<'a>>,
}

#[derive(Deserialize)]
struct ScopeSpans<'a> {
    #[serde(borrow, default)]
    spans: Vec<Span<'a>>,
}

#[derive(Deserialize)]
struct Attribute<'a> {
    #[serde(borrow, default)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    value: Option<Any<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Any<'a> {
    #[serde(borrow)]
    string_value: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    #[serde(borrow, default)]
    trace_id: Cow<'a, str>,
    #[serde(borrow, default)]
    span_id: Cow<'a, str>,
    #[serde(borrow, default)]
    parent_span_id: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(default)]
    kind: i32,
    #[serde(borrow, default)]
    attributes: Vec<Attribute<'a>>,
    status: Option<Status>,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: i32,
}

/// Reads a request.
///
/// # Errors
/// Where it is not one; then nothing of it has been taken.
pub fn decode(request: &[u8], sink: &mut impl Sink) -> Result<(), String> {
    let request: Request<'_> = serde_json::from_slice(request).map_err(|error| error.to_string())?;
    for of_resource in &request.resource_spans {
        let attributes = of_resource.resource.iter().flat_map(|resource| &resource.attributes);
        let name = attributes.filter(|attribute| attribute.key == "service.name").find_map(Attribute::text);
        sink.service(name.unwrap_or_default());
        for span in of_resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
            take(span, sink);
        }
    }
    Ok(())
}

impl Attribute<'_> {
    fn text(&self) -> Option<&str> {
        self.value.as_ref()?.string_value.as_deref()
    }
}

fn take(span: &Span<'_>, sink: &mut impl Sink) {
    let mut asked = Asked::default();
    for attribute in &span.attributes {
        if let (Some(place), Some(value)) = (asked.place(&attribute.key), attribute.text()) {
            *place = place.or(Some(value));
        }
    }
    // A number that is none has no bytes, and so is refused as one of the wrong length.
    let (trace, id, parent) =
        (bytes::<16>(&span.trace_id), bytes::<8>(&span.span_id), bytes::<8>(&span.parent_span_id));
    sink.span(&RawSpan {
        trace: trace.as_ref().map_or(&[][..], |bytes| bytes),
        id: id.as_ref().map_or(&[][..], |bytes| bytes),
        parent: match &parent {
            Some(bytes) => bytes,
            None if span.parent_span_id.is_empty() => &[],
            None => &[0xff],
        },
        name: &span.name,
        kind: span.kind,
        status: span.status.as_ref().map_or(0, |status| status.code),
        asked,
    });
}

/// Exactly so many bytes in hexadecimal digits.
fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Read(Vec<String>);

    impl Sink for Read {
        fn service(&mut self, name: &str) {
            self.0.push(name.to_owned());
        }
        fn span(&mut self, span: &RawSpan<'_>) {
            let RawSpan { trace, id, parent, name, kind, status, asked } = span;
            let route = asked.http_route.unwrap_or("-");
            self.0.push(format!(
                "{} {} {} {name} {kind} {status} {route}",
                trace.len(),
                id.len(),
                parent.len()
            ));
        }
    }

    #[test]
    fn a_request_is_read_and_what_is_unknown_passed_over() {
        let text = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"my.s\u0065rvice"}},
            {"key":"n","value":{"intValue":"7"}}]},"schemaUrl":"x","scopeSpans":[{"scope":{"name":"lib"},"spans":[
            {"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","parentSpanId":"EEE19B7EC3C1B173","name":"span",
             "startTimeUnixNano":"1544712660000000000","kind":2,"attributes":[{"key":"http.route","value":{"stringValue":"/a"}}],
             "status":{"code":2},"events":[{"name":"e"}]},
            {"traceId":"5B8E","spanId":"EEE19B7EC3C1B1zz","parentSpanId":"short"}]}]},{}]}"#;
        let mut read = Read::default();
        decode(text.as_bytes(), &mut read).unwrap();
        assert_eq!(read.0, ["my.service", "16 8 8 span 2 2 /a", "0 0 1  0 0 -", ""]);
        for bad in [
            "",
            "[]x",
            "{\"resourceSpans\":7}",
            "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"kind\":\"x\"}]}]}]}",
        ] {
            assert!(decode(bad.as_bytes(), &mut Read::default()).is_err(), "{bad}");
        }
    }
}
