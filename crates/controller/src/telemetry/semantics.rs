//! What a span says in the words of OpenTelemetry's semantic conventions, new and old: which operation was asked of whom.

use plimsoll_core::config::HostPattern;
use plimsoll_ratecontrol::paths::{Kind, Span};

use super::otlp::{Asked, RawSpan};

/// Numbers of kinds.
const SERVER: i32 = 2;
const CLIENT: i32 = 3;
const PRODUCER: i32 = 4;
const CONSUMER: i32 = 5;
/// The number of a status.
const ERROR: i32 = 2;
/// Segments of a path that are kept where there is no route.
const MOST_SEGMENTS: usize = 8;
/// A segment that is longer, and has a digit, is taken for the name of a thing rather than of a kind of things.
const LONGEST_WORD: usize = 24;
/// A hexadecimal number that is shorter, and not a decimal one, is taken for a word: `b2b`.
const SHORTEST_HEX: usize = 6;

/// The span, as the learner takes it; nothing where its numbers are none. Which of these `hosts`, the first that fits, was asked is part of
/// the operation. `words` is room for that.
pub fn read<'a>(span: &RawSpan<'a>, hosts: &[HostPattern], words: &'a mut String) -> Option<Span<'a>> {
    let trace = u128::from_be_bytes(span.trace.try_into().ok()?);
    let id = u64::from_be_bytes(span.id.try_into().ok()?);
    let parent = match span.parent {
        [] => 0,
        bytes => u64::from_be_bytes(bytes.try_into().ok()?),
    };
    if trace == 0 || id == 0 {
        return None;
    }
    let kind = match span.kind {
        SERVER | CONSUMER => Kind::Serves,
        CLIENT | PRODUCER => Kind::Calls,
        _ => Kind::Internal,
    };
    let serves = kind == Kind::Serves;
    if serves {
        words.clear();
        operation(&span.asked, hosts, span.name, words);
    }
    Some(Span {
        trace,
        id,
        parent,
        kind,
        operation: serves.then_some(&**words),
        peer: span.asked.peer.filter(|peer| kind == Kind::Calls && !peer.is_empty()),
        failed: span.status == ERROR,
        began_ns: span.began_ns,
        ended_ns: span.ended_ns,
    })
}

/// What was asked: `GET /cart/{id}`, `GET shop.example/cart/{id}`, `shop.Cart/Add`, or what the sender calls it.
fn operation(asked: &Asked<'_>, hosts: &[HostPattern], name: &str, words: &mut String) {
    let url = asked.url_full.and_then(|url| url.split_once("://")).map(|(_, rest)| rest);
    let path = asked.url_path.or(url.map(|rest| rest.find('/').map_or("/", |at| &rest[at..])));
    match (asked.rpc_service, asked.rpc_method) {
        // The newer conventions write both in one.
        (_, Some(method)) if method.contains('/') => words.push_str(method.trim_start_matches('/')),
        (Some(service), Some(method)) => words.extend([service, "/", method]),
        _ => match (asked.http_route.filter(|route| !route.is_empty()), path) {
            (None, None) => words.push_str(name),
            (route, path) => {
                if let Some(method) = asked.http_method {
                    words.extend([method, " "]);
                    let host = asked.host.or(url.and_then(|url| url.split('/').next()));
                    // Whoever sends requests makes up hosts as they like; these are the operator's.
                    match host.and_then(|host| hosts.iter().find(|pattern| pattern.fits(host))) {
                        Some(HostPattern::Exact(name)) => words.push_str(name),
                        Some(HostPattern::Suffix(suffix)) => words.extend(["*", suffix]),
                        None => {}
                    }
                }
                match (route, path) {
                    // Some frameworks leave the slash out.
                    (Some(route), _) if route.starts_with('/') => words.push_str(route),
                    (Some(route), _) => words.extend(["/", route]),
                    (None, path) => template(path.unwrap_or("/"), words),
                }
            }
        },
    }
    if words.is_empty() {
        words.push('-');
    }
}

/// A path with `{id}` for each segment that looks like the name of one thing, where nobody said what the route is.
fn template(path: &str, words: &mut String) {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    for segment in segments.by_ref().take(MOST_SEGMENTS) {
        words.push('/');
        words.push_str(if is_id(segment) { "{id}" } else { segment });
    }
    if segments.next().is_some() {
        words.push_str("/...");
    }
    if path.trim_start_matches('/').is_empty() {
        words.push('/');
    }
}

/// Numbers, hexadecimal numbers that are not too short, UUIDs, and long words with digits.
fn is_id(segment: &str) -> bool {
    let all = |is: fn(&u8) -> bool| segment.bytes().all(|byte| byte == b'-' || is(&byte));
    let is_number = all(u8::is_ascii_digit) || segment.len() >= SHORTEST_HEX && all(u8::is_ascii_hexdigit);
    let has_digit = segment.bytes().any(|byte| byte.is_ascii_digit());
    has_digit && (is_number || segment.len() > LONGEST_WORD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(attributes: &[(&str, &'static str)]) -> String {
        asked_of(&[], attributes)
    }

    fn asked_of(hosts: &[&str], attributes: &[(&str, &'static str)]) -> String {
        let hosts: Vec<HostPattern> = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let mut asked = Asked::default();
        for (name, value) in attributes {
            *asked.place(name).unwrap() = Some(value);
        }
        let mut words = String::new();
        operation(&asked, &hosts, "its name", &mut words);
        words
    }

    #[test]
    fn operations_are_told_by_new_and_old_conventions() {
        for (attributes, expected) in [
            (
                &[("http.request.method", "GET"), ("http.route", "/cart/{id}"), ("url.path", "/cart/7")][..],
                "GET /cart/{id}",
            ),
            (&[("http.method", "GET"), ("http.route", "cart/:id")], "GET /cart/:id"),
            (&[("rpc.method", "shop.Cart/Add")], "shop.Cart/Add"),
            (&[("rpc.method", "/shop.Cart/Add"), ("rpc.service", "shop.Cart")], "shop.Cart/Add"),
            (&[("rpc.service", "shop.Cart"), ("rpc.method", "Add")], "shop.Cart/Add"),
            (&[("http.method", "POST"), ("http.target", "/cart/7?x=1")], "POST /cart/{id}"),
            (
                &[("http.method", "GET"), ("http.url", "http://shop:80/product/0a1b2c3d?x=/1")],
                "GET /product/{id}",
            ),
            (&[("http.method", "GET"), ("http.url", "http://shop")], "GET /"),
            (&[("url.path", "/")], "/"),
            (&[("http.request.method", "GET")], "its name"),
            (&[("http.request.method", "GET"), ("http.route", ""), ("url.path", "/v1/x")], "GET /v1/x"),
            (&[("url.path", "/1/2/3/4/5/6/7/8/9")], "/{id}/{id}/{id}/{id}/{id}/{id}/{id}/{id}/..."),
            (
                &[("url.path", "/api/v2/f81d4fae-7dec-11d0-a765-00a0c91e6bf6/face/feed01")],
                "/api/v2/{id}/face/{id}",
            ),
            (&[("url.path", "/b2b/e2e/a1/2024-11-05/42/-/feed1")], "/b2b/e2e/a1/{id}/{id}/-/feed1"),
        ] {
            assert_eq!(asked(attributes), expected, "{attributes:?}");
        }
    }

    #[test]
    fn hosts_are_told_apart_where_the_operator_does() {
        let hosts = ["shop.example", "*.blog.example"];
        for (attributes, expected) in [
            (
                &[("server.address", "Shop.example"), ("http.request.method", "GET"), ("http.route", "/a")][..],
                "GET shop.example/a",
            ),
            (
                &[("server.address", "10.0.0.7"), ("http.request.method", "GET"), ("http.route", "/a")],
                "GET /a",
            ),
            (
                &[("http.host", "my.blog.example:80"), ("http.method", "GET"), ("http.target", "/a/7")],
                "GET *.blog.example/a/{id}",
            ),
            (&[("http.method", "GET"), ("http.url", "https://shop.example/b?c")], "GET shop.example/b"),
            (&[("http.host", "shop.example"), ("rpc.method", "shop.Cart/Add")], "shop.Cart/Add"),
        ] {
            assert_eq!(asked_of(&hosts, attributes), expected, "{attributes:?}");
        }
    }

    #[test]
    fn spans_without_numbers_are_none() {
        let sound = RawSpan {
            trace: &[1; 16],
            id: &[2; 8],
            kind: SERVER,
            name: "x",
            status: ERROR,
            ..RawSpan::default()
        };
        let mut words = String::new();
        let span = read(&sound, &[], &mut words).unwrap();
        assert_eq!((span.parent, span.kind, span.operation, span.failed), (0, Kind::Serves, Some("x"), true));
        for bad in [
            RawSpan { trace: &[0; 16], ..sound },
            RawSpan { trace: &[1; 15], ..sound },
            RawSpan { id: &[0; 8], ..sound },
            RawSpan { id: &[], ..sound },
            RawSpan { parent: &[1; 7], ..sound },
        ] {
            assert_eq!(read(&bad, &[], &mut String::new()), None, "{bad:?}");
        }
        let call = RawSpan { kind: CLIENT, asked: Asked { peer: Some("db"), ..Asked::default() }, ..sound };
        let mut words = String::new();
        let span = read(&call, &[], &mut words).unwrap();
        assert_eq!((span.kind, span.operation, span.peer), (Kind::Calls, None, Some("db")));
    }
}
