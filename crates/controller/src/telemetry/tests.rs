//! The receiver over sockets, as senders see it; and sources of metrics, good and bad.

use std::time::Duration;

use bytes::{BufMut, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use plimsoll_core::config::{Config, parse};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

const GRPC: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Whoever waits longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

fn begin(keys: &str) -> Telemetry {
    let text = format!(
        "[controller.telemetry]\nlisten = \"127.0.0.1:0\"\nwait = \"100ms\"\n{keys}\n[pool.p]\nservers = [\"a:1\"]"
    );
    let config = parse::<Config>(&text, "").unwrap_or_else(|errors| panic!("{errors}")).0;
    start(&config.controller.telemetry.unwrap(), &config.classes).unwrap()
}

fn word(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Any::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn of_service(service: &str, spans: Vec<Span>) -> ResourceSpans {
    let resource = Some(Resource { attributes: vec![word("service.name", service)], ..Resource::default() });
    ResourceSpans {
        resource,
        scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    }
}

/// A request for the cart, of this trace: the frontend calls the cart.
fn request(trace: u8) -> ExportTraceServiceRequest {
    let span = |id: u8, parent: u8, kind| Span {
        trace_id: vec![trace; 16],
        span_id: vec![id; 8],
        parent_span_id: if parent == 0 { Vec::new() } else { vec![parent; 8] },
        kind,
        attributes: vec![word("http.request.method", "GET"), word("http.route", "/cart")],
        ..Span::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![
            of_service("frontend", vec![span(1, 0, 2), span(2, 1, 3)]),
            of_service("cart", vec![span(3, 2, 2)]),
        ],
    }
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

/// Behind its five bytes.
fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![flag];
    frame.put_u32(message.len() as u32);
    frame.extend(message);
    frame
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

async fn send(
    telemetry: &Telemetry,
    is_http2: bool,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Answer {
    let address = telemetry.listening[0];
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let mut request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.header("host", address.to_string()).body(Full::new(Bytes::from(body))).unwrap();
    let response = if is_http2 {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    } else {
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    };
    let (head, body) = response.into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned();
    Answer { status: head.status, headers: head.headers, body: collected.to_bytes(), trailers }
}

async fn post(telemetry: &Telemetry, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
    send(telemetry, false, "POST", "/v1/traces", headers, body).await
}

async fn grpc(telemetry: &Telemetry, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> (String, Bytes) {
    let headers = [&[("content-type", "application/grpc"), ("te", "trailers")], headers].concat();
    let answer = send(telemetry, true, "POST", path, &headers, body).await;
    assert_eq!(answer.status, StatusCode::OK);
    let status =
        answer.trailers.as_ref().and_then(|t| t.get("grpc-status")).or(answer.headers.get("grpc-status"));
    (status.unwrap().to_str().unwrap().to_owned(), answer.body)
}

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const JSON: (&str, &str) = ("content-type", "application/json");
const GZIP: (&str, &str) = ("content-encoding", "gzip");

#[tokio::test]
async fn spans_are_taken_by_every_way_there_is() {
    let mut telemetry = begin("");
    let of = |trace| request(trace).encode_to_vec();
    for answer in [
        post(&telemetry, &[PROTOBUF], of(1)).await,
        post(&telemetry, &[PROTOBUF, GZIP], packed(&of(2))).await,
        send(&telemetry, true, "POST", "/v1/traces", &[PROTOBUF], of(3)).await,
    ] {
        assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 0));
        assert_eq!(answer.headers["content-type"], "application/x-protobuf");
    }
    let json = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"frontend"}}]},"scopeSpans":[{"spans":[
        {"traceId":"0000000000000000000000000000000f","spanId":"000000000000000f","kind":2,"name":"GET /json"}]}]}]}"#;
    let answer = post(&telemetry, &[JSON], json.as_bytes().to_vec()).await;
    assert_eq!((answer.status, &*answer.body), (StatusCode::OK, &b"{}"[..]));
    let empty = framed(0, &[]);
    assert_eq!(
        grpc(&telemetry, GRPC, &[], framed(0, &of(4))).await,
        ("0".to_owned(), Bytes::from(empty.clone()))
    );
    let zipped = grpc(&telemetry, GRPC, &[("grpc-encoding", "gzip")], framed(1, &packed(&of(5)))).await;
    assert_eq!(zipped, ("0".to_owned(), Bytes::from(empty)));

    let known = telemetry.learnt.wait_for(|learnt| learnt.paths.figures.requests == 6);
    let known = Arc::clone(&*tokio::time::timeout(PATIENCE, known).await.expect("it is learnt").unwrap());
    let names: Vec<&str> = known.paths.apis.iter().map(|api| &*api.operation).collect();
    assert_eq!(names, ["GET /cart", "GET /json"]);
    let calls: Vec<(&str, f64)> =
        known.paths.apis[0].visits().into_iter().map(|(name, calls)| (name, calls.round())).collect();
    assert_eq!(calls, [("cart", 1.0), ("frontend", 1.0)]);
    assert_eq!((known.counts.messages, known.counts.refused, known.counts.rejected), (6, 0, 0));
    let page = page::render(&telemetry, &[], clock::now());
    assert_eq!(
        (&page["apis"][0]["operation"], &page["apis"][0]["branches"][0]["services"]["cart"]),
        (&"GET /cart".into(), &1.0.into())
    );
    assert_eq!(page["spans"]["taken"], 16);
}

/// Hosts whose clocks are minutes apart, spans from the future and of the year dot, and such as end before they begin.
#[tokio::test]
async fn whatever_the_spans_times_are_the_same_is_learnt() {
    const NOW: u64 = 1_800_000_000_000_000_000;
    const MINUTES: u64 = 7 * 60 * 1_000_000_000;
    let mut telemetry = begin("");
    let times = [
        [(NOW, 5), (NOW + MINUTES, 5)],
        [(NOW, 5), (NOW - MINUTES, 5)],
        [(0, 0), (u64::MAX, 0)],
        [(1, u64::MAX), (NOW * 8, 3)],
    ];
    for (trace, of_service) in (1..).zip(times) {
        let mut message = request(trace);
        for (resource, (start, lasts)) in message.resource_spans.iter_mut().zip(of_service) {
            for span in resource.scope_spans.iter_mut().flat_map(|scope| &mut scope.spans) {
                (span.start_time_unix_nano, span.end_time_unix_nano) = (start, start.wrapping_add(lasts));
            }
        }
        assert_eq!(
            post(&telemetry, &[PROTOBUF], message.encode_to_vec()).await.body.len(),
            0,
            "all are taken"
        );
    }
    let known = telemetry.learnt.wait_for(|learnt| learnt.paths.figures.requests == times.len() as u64);
    let known = Arc::clone(&*tokio::time::timeout(PATIENCE, known).await.expect("it is learnt").unwrap());
    let [api] = &*known.paths.apis else { panic!("{:?}", known.paths.apis) };
    let [branch] = &*api.branches else { panic!("{:?}", api.branches) };
    assert_eq!((&*api.operation, branch.visits.len()), ("GET /cart", 2));
    assert_eq!((known.paths.figures.late, known.counts.rejected), (0, 0));
}

/// Names that would end a line, a label, a string of JSON or a page; such as turn text round, have no end, or are none.
#[tokio::test]
async fn hostile_names_are_names_and_nothing_else() {
    let long = "x".repeat(10_000);
    let names = [
        "a\nplimsoll_evil 1",
        "a\"}{\\",
        "</script><b>",
        "\u{202e}evil\u{0}\u{7f}",
        "../../etc",
        "",
        &long,
        "\u{1f6a2}",
    ];
    let mut telemetry = begin("");
    for (trace, name) in (1..).zip(names) {
        let mut message = request(trace);
        for resource in &mut message.resource_spans {
            resource.resource.as_mut().unwrap().attributes = vec![word("service.name", name)];
            for span in resource.scope_spans.iter_mut().flat_map(|scope| &mut scope.spans) {
                span.name = name.to_owned();
                span.attributes = vec![word("http.request.method", name), word("http.route", name)];
            }
        }
        assert_eq!(post(&telemetry, &[PROTOBUF], message.encode_to_vec()).await.status, StatusCode::OK);
    }
    let sent = names.len() as u64;
    let known = telemetry.learnt.wait_for(|learnt| {
        let figures = learnt.paths.figures;
        figures.requests + figures.unplaced == sent
    });
    drop(tokio::time::timeout(PATIENCE, known).await.expect("they are learnt").unwrap());
    let page = page::render(&telemetry, &[], clock::now()).to_string();
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let apis = page["apis"].as_array().unwrap();
    assert!(!apis.is_empty() && apis.iter().all(|api| api["service"].as_str().unwrap().len() <= 256));
    let metrics = plimsoll_sentry::admin::scrape::render(metrics::families(
        &telemetry.learnt.borrow(),
        &telemetry.usage.borrow(),
    ));
    assert!(metrics.lines().all(|line| line.starts_with("plimsoll_") || line.starts_with('#')), "{metrics}");
    assert!(!metrics.contains("evil"), "{metrics}");
}

#[tokio::test]
async fn what_is_wrong_with_spans_is_said_and_the_others_are_taken() {
    let telemetry = begin("");
    let mut spoilt = request(1);
    spoilt.resource_spans[1].scope_spans[0].spans[0].trace_id.pop();
    let answer = post(&telemetry, &[PROTOBUF], spoilt.encode_to_vec()).await;
    assert_eq!(answer.status, StatusCode::OK);
    let partial = ExportTraceServiceResponse::decode(answer.body).unwrap().partial_success.unwrap();
    assert_eq!(partial.rejected_spans, 1);
    assert!(partial.error_message.starts_with("1 of 3 spans"), "{}", partial.error_message);

    let (status, body) = grpc(&telemetry, GRPC, &[], framed(0, &spoilt.encode_to_vec())).await;
    assert_eq!(
        (&*status, ExportTraceServiceResponse::decode(&body[5..]).unwrap().partial_success),
        ("0", Some(partial))
    );
    let json = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x"}]}]}]}"#;
    let answer = post(&telemetry, &[JSON], json.as_bytes().to_vec()).await;
    let said: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(said["partialSuccess"]["rejectedSpans"], "1");
}

#[tokio::test]
async fn what_is_no_message_is_refused_in_the_words_of_its_protocol() {
    let telemetry = begin("max_message = \"64KiB\"");
    let sound = request(1).encode_to_vec();
    let long = vec![b' '; 70_000];
    for (method, path, headers, body, status, code) in [
        ("POST", "/v1/traces", &[PROTOBUF][..], vec![0xff; 9], 400, 3),
        ("POST", "/v1/traces", &[PROTOBUF, GZIP], sound.clone(), 400, 3),
        ("POST", "/v1/traces", &[PROTOBUF, ("content-encoding", "br")], sound.clone(), 415, 12),
        ("POST", "/v1/traces", &[("content-type", "text/plain")], sound.clone(), 415, 3),
        ("POST", "/v1/traces", &[], sound.clone(), 415, 3),
        ("POST", "/v1/traces", &[PROTOBUF], long.clone(), 413, 8),
        ("POST", "/v1/traces", &[PROTOBUF, GZIP], packed(&vec![0; 10_000_000]), 413, 8),
        ("GET", "/v1/traces", &[PROTOBUF], Vec::new(), 405, 12),
        ("POST", "/v1/metrics", &[PROTOBUF], sound.clone(), 404, 12),
    ] {
        for is_http2 in [false, true] {
            let answer = send(&telemetry, is_http2, method, path, headers, body.clone()).await;
            assert_eq!(answer.status, status, "{method} {path} {headers:?}");
            // A google.rpc.Status: the code, then words.
            assert_eq!(answer.body[..3], [0x08, code, 0x12], "{method} {path} {headers:?}");
        }
    }
    let answer = post(&telemetry, &[JSON], b"{".to_vec()).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap()["code"], 3);

    let other = GRPC.replace("trace.v1.Trace", "metrics.v1.Metrics");
    for (path, headers, body, code) in [
        (GRPC, &[][..], framed(0, &[0xff; 9]), "3"),
        (GRPC, &[], framed(1, &packed(&sound)), "3"),
        (GRPC, &[], framed(0, &sound)[..20].to_vec(), "3"),
        (GRPC, &[], Vec::new(), "3"),
        (GRPC, &[], framed(0, &long), "8"),
        (GRPC, &[("grpc-encoding", "gzip")], framed(1, &packed(&vec![0; 10_000_000])), "8"),
        (GRPC, &[("grpc-encoding", "snappy")], framed(1, &sound), "12"),
        (&other, &[], framed(0, &sound), "12"),
    ] {
        assert_eq!(grpc(&telemetry, path, headers, body).await.0, code, "{path} {headers:?}");
    }
    assert_eq!(post(&telemetry, &[PROTOBUF], sound).await.status, StatusCode::OK);
}

#[tokio::test]
async fn only_who_shows_the_token_is_let_in() {
    let telemetry = begin("token = \"correct-horse\"");
    let sound = request(1).encode_to_vec();
    let wrong = ("authorization", "Bearer wrong-horse");
    let right = ("authorization", "Bearer correct-horse");
    assert_eq!(post(&telemetry, &[PROTOBUF], sound.clone()).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(post(&telemetry, &[PROTOBUF, wrong], sound.clone()).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(post(&telemetry, &[PROTOBUF, right], sound.clone()).await.status, StatusCode::OK);
    assert_eq!(grpc(&telemetry, GRPC, &[wrong], framed(0, &sound)).await.0, "16");
    assert_eq!(grpc(&telemetry, GRPC, &[right], framed(0, &sound)).await.0, "0");
}

/// Answers each request with the next of these, the last for ever; returns its address.
async fn exporter(pages: &[&'static str]) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pages = pages.to_vec();
    tokio::spawn(async move {
        for at in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let page = pages[pages.len().min(at + 1) - 1];
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(page.as_bytes()).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn how_busy_services_are_is_asked_of_all_who_know() {
    let gauge = exporter(&["HTTP/1.1 200 OK\r\ncontent-length: 60\r\n\r\nbusy{service=\"cart\"} 0.5\nbusy{service=\"none\"} NaN\n             "]).await;
    let vector = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[{\"metric\":{\"container\":\"catalog\"},\"value\":[1,\"0.25\"]}]}}";
    let prometheus = exporter(&[vector]).await;
    let broken = exporter(&["HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\nnope"]).await;
    let keys = format!(
        "interval = \"100ms\"\nprometheus = {{ server = \"{prometheus}\" }}\nscrape = [{{ server = \"{gauge}\", kind = \"gauge\", metric = \"busy\" }}, {{ server = \"{broken}\" }}]"
    );
    let mut telemetry = begin(&keys);
    let known = telemetry.usage.wait_for(|usage| {
        let known = usage.services.iter();
        let known: Vec<(&str, f64)> =
            known.filter_map(|known| Some((&*known.service, known.utilization?.value))).collect();
        known == [("cart", 0.5), ("catalog", 0.25)] && usage.sources[2].failures > 0
    });
    let known = Arc::clone(&*tokio::time::timeout(PATIENCE, known).await.expect("it is told").unwrap());
    assert!(known.sources[1].nonsense > 0 && known.sources[1].answers, "{:?}", known.sources);
    assert_eq!(known.sources[2].trouble.as_deref(), Some("500 Internal Server Error nope"));
    let page = page::render(&telemetry, &[], clock::now());
    assert_eq!(page["utilization"]["cart"]["utilization"], 0.5);
}
