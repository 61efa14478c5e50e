//! The same request in OTLP's JSON: numbers of spans in hexadecimal digits, names in camelCase, unknown keys of no consequence.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::otlp::{Asked, RawSpan, Sink};

/// Reads a value and keeps no more of it than is needed: a small text may be a large list.
trait Read<'de> {
    fn read<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error>;
}

/// What reads a value, to serde.
struct Seed<'s, T>(&'s mut T);

impl<'de, T: Read<'de>> DeserializeSeed<'de> for Seed<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.0.read(from)
    }
}

/// The items of a list, one after the other.
struct Each<T>(T);

impl<'de, T: Read<'de>> Read<'de> for Each<T> {
    fn read<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(Items(&mut self.0))
    }
}

struct Items<'s, T>(&'s mut T);

impl<'de, T: Read<'de>> Visitor<'de> for Items<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Seed(self.0))?.is_some() {}
        Ok(())
    }
}

/// The value of one key; all others are passed over.
struct Under<T>(&'static str, T);

impl<'de, T: Read<'de>> Read<'de> for Under<T> {
    fn read<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(Keys(self.0, &mut self.1))
    }
}

struct Keys<'s, T>(&'static str, &'s mut T);

impl<'de, T: Read<'de>> Visitor<'de> for Keys<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object that may have `{}`", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Word(key)) = map.next_key::<Word<'_>>()? {
            if key == self.0 {
                map.next_value_seed(Seed(self.1))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// A text that is not copied unless it has to be.
#[derive(Deserialize)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

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
    string_value: Option<Word<'a>>,
}

impl<'a> Attribute<'a> {
    fn text(self) -> Option<Cow<'a, str>> {
        Some(self.value?.string_value?.0)
    }
}

/// The name of a service among the attributes of its resource.
#[derive(Default)]
struct Named<'a>(Option<Cow<'a, str>>);

impl<'de> Read<'de> for Named<'de> {
    fn read<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        let attribute = Attribute::deserialize(from)?;
        if self.0.is_none() && attribute.key == "service.name" {
            self.0 = attribute.text();
        }
        Ok(())
    }
}

/// The names of the services, by place among the resources: in an object a resource may stand behind its spans. Those without a name are
/// left out.
#[derive(Default)]
struct Names<'a> {
    next: usize,
    named: Vec<(usize, Cow<'a, str>)>,
}

impl<'de> Read<'de> for Names<'de> {
    fn read<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        let mut resource = Under("resource", Maybe(Under("attributes", Each(Named::default()))));
        resource.read(from)?;
        let Each(Named(name)) = resource.1.0.1;
        self.named.extend(name.map(|name| (self.next, name)));
        self.next += 1;
        Ok(())
    }
}

/// A value that may be null.
struct Maybe<T>(T);

impl<'de, T: Read<'de>> Read<'de> for Maybe<T> {
    fn read<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        from.deserialize_option(Present(&mut self.0))
    }
}

struct Present<'s, T>(&'s mut T);

impl<'de, T: Read<'de>> Visitor<'de> for Present<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or null")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.0.read(from)
    }
}

/// The spans of all resources, to whoever takes them.
struct Resources<'s, 'a, S> {
    next: usize,
    named: std::iter::Peekable<std::slice::Iter<'a, (usize, Cow<'a, str>)>>,
    sink: &'s mut S,
}

impl<'de, S: Sink> Read<'de> for Resources<'_, '_, S> {
    fn read<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        let name = self.named.next_if(|(place, _)| *place == self.next).map_or("", |(_, name)| name);
        self.next += 1;
        self.sink.service(name);
        Under("scopeSpans", Each(Under("spans", Each(Spans(&mut *self.sink))))).read(from)
    }
}

struct Spans<'s, S>(&'s mut S);

impl<'de, S: Sink> Read<'de> for Spans<'_, S> {
    fn read<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        take(&Span::deserialize(from)?, self.0);
        Ok(())
    }
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
    start_time_unix_nano: Number<'a>,
    #[serde(borrow, default)]
    end_time_unix_nano: Number<'a>,
    #[serde(borrow, default)]
    attributes: Attributes<'a>,
    status: Option<Status>,
}

/// A number of 64 bits: in digits, since many read numbers as floating-point ones; or as it is.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number<'a> {
    Plain(u64),
    #[serde(borrow)]
    Digits(Cow<'a, str>),
    Neither(IgnoredAny),
}

impl Default for Number<'_> {
    fn default() -> Self {
        Number::Plain(0)
    }
}

impl Number<'_> {
    /// Zero where it is none.
    fn get(&self) -> u64 {
        match self {
            Number::Plain(number) => *number,
            Number::Digits(digits) => digits.parse().unwrap_or(0),
            Number::Neither(_) => 0,
        }
    }
}

/// Those attributes of a span that say what was asked; of one that is there twice the first.
#[derive(Default)]
struct Attributes<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Attributes<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut each = Each(Attributes::default());
        each.read(from)?;
        Ok(each.0)
    }
}

impl<'de: 'a, 'a> Read<'de> for Attributes<'a> {
    fn read<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        let attribute: Attribute<'a> = Attribute::deserialize(from)?;
        let is_asked = Asked::default().place(&attribute.key).is_some();
        if is_asked && self.0.iter().all(|(key, _)| *key != attribute.key) {
            let key = attribute.key.clone();
            self.0.extend(attribute.text().map(|text| (key, text)));
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: i32,
}

/// Reads a request, without room for more than one span of it.
///
/// # Errors
/// Where it is not one; where it is no JSON, nothing of it has been taken.
pub fn decode(request: &[u8], sink: &mut impl Sink) -> Result<(), String> {
    let mut names = Under("resourceSpans", Each(Names::default()));
    whole(request, &mut names).map_err(|error| error.to_string())?;
    let Each(Names { named, .. }) = names.1;
    let resources = Resources { next: 0, named: named.iter().peekable(), sink };
    whole(request, &mut Under("resourceSpans", Each(resources))).map_err(|error| error.to_string())
}

fn whole<'de>(request: &'de [u8], read: &mut impl Read<'de>) -> serde_json::Result<()> {
    let mut text = serde_json::Deserializer::from_slice(request);
    read.read(&mut text)?;
    text.end()
}

fn take(span: &Span<'_>, sink: &mut impl Sink) {
    let mut asked = Asked::default();
    for (key, text) in &span.attributes.0 {
        if let Some(place) = asked.place(key) {
            *place = place.or(Some(text));
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
        began_ns: span.start_time_unix_nano.get(),
        ended_ns: span.end_time_unix_nano.get(),
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
    struct Heard(Vec<String>);

    impl Sink for Heard {
        fn service(&mut self, name: &str) {
            self.0.push(name.to_owned());
        }
        fn span(&mut self, span: &RawSpan<'_>) {
            let RawSpan { trace, id, parent, name, kind, status, began_ns, ended_ns, asked } = span;
            let route = asked.http_route.unwrap_or("-");
            self.0.push(format!(
                "{} {} {} {name} {kind} {status} {route} {began_ns} {ended_ns}",
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
             "startTimeUnixNano":"1544712660000000000","endTimeUnixNano":1544712660000000001,"kind":2,"attributes":[{"key":"http.route","value":{"stringValue":"/a"}}],
             "status":{"code":2},"events":[{"name":"e"}]},
            {"startTimeUnixNano":"yesterday","endTimeUnixNano":[1],"traceId":"5B8E","spanId":"EEE19B7EC3C1B1zz","parentSpanId":"short"}]}]},{}]}"#;
        let mut read = Heard::default();
        decode(text.as_bytes(), &mut read).unwrap();
        assert_eq!(
            read.0,
            [
                "my.service",
                "16 8 8 span 2 2 /a 1544712660000000000 1544712660000000001",
                "0 0 1  0 0 - 0 0",
                ""
            ]
        );
        for bad in [
            "",
            "[]x",
            "{\"resourceSpans\":7}",
            "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"kind\":\"x\"}]}]}]}",
        ] {
            assert!(decode(bad.as_bytes(), &mut Heard::default()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_resource_may_stand_behind_its_spans() {
        let text = r#"{"resourceSpans":[{},{"scopeSpans":[{"spans":[{"name":"a"}]}],"resource":{"attributes":[{"key":"service.name"},
            {"key":"service.name","value":{"stringValue":"cart"}},{"key":"service.name","value":{"stringValue":"other"}}]}},
            {"resource":null,"scopeSpans":[{"spans":[{"name":"b","attributes":[{"key":"http.route","value":{"stringValue":"/\u0061"}},
             {"key":"http.route","value":{"stringValue":"/b"}},{"key":"x","value":{"arrayValue":{"values":[{}]}}}]}]}]}]}"#;
        let mut read = Heard::default();
        decode(text.as_bytes(), &mut read).unwrap();
        assert_eq!(read.0, ["", "cart", "0 0 0 a 0 0 - 0 0", "", "0 0 0 b 0 0 /a 0 0"]);
    }

    /// What a process may have in memory at most is not what one message takes to decide.
    #[test]
    fn a_long_list_of_nothing_takes_no_room() {
        struct Count(usize);
        impl Sink for Count {
            fn service(&mut self, _: &str) {
                self.0 += 1;
            }
            fn span(&mut self, _: &RawSpan<'_>) {
                self.0 += 1;
            }
        }
        // Kept as values, they would be 256 MB and more.
        let many = "{},".repeat((24 << 20) / 3) + "{}";
        for (text, items) in [
            (format!("{{\"resourceSpans\":[{many}]}}"), many.len() / 3 + 1),
            (format!("{{\"resourceSpans\":[{{\"resource\":{{\"attributes\":[{many}]}}}}]}}"), 1),
            (format!("{{\"resourceSpans\":[{{\"scopeSpans\":[{many}]}}]}}"), 1),
            (
                format!("{{\"resourceSpans\":[{{\"scopeSpans\":[{{\"spans\":[{many}]}}]}}]}}"),
                many.len() / 3 + 2,
            ),
            (
                format!(
                    "{{\"resourceSpans\":[{{\"scopeSpans\":[{{\"spans\":[{{\"attributes\":[{many}]}}]}}]}}]}}"
                ),
                2,
            ),
        ] {
            let (mut count, before) = (Count(0), resident());
            decode(text.as_bytes(), &mut count).unwrap();
            assert_eq!(count.0, items);
            let grown = resident().saturating_sub(before);
            // Other tests run beside this one.
            assert!(grown < 200 << 20, "{grown} bytes more for a message of {}", text.len());
        }
    }

    /// The most that this process has had in memory so far, in bytes.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        1024 * line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap()
    }
}
