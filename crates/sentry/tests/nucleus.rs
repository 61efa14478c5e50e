//! What servers say about themselves and their requests is heard, learnt from, and kept from clients.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::client;
use common::server::{AnyBody, Server, full};
use common::{Sentry, eventually, soon};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use plimsoll_core::{Nanos, config};
use plimsoll_sentry::clock;
use plimsoll_sentry::nucleus::kind::kind;

const POOL: &str = "workers = 8";

/// `cpu` 0.003, `data` 0.001, a queue of 250 ms and three requests in service, as a server of gRPC writes it.
const BINARY: &str = "Ig4KA2NwdRH6fmq8dJNoPyIPCgRkYXRhEfyp8dJNYlA/QhkKDnF1ZXVlX2RlbGF5X21zEQAAAAAAQG9AQhUKCmluX3NlcnZpY2URAAAAAAAACEA=";

/// Answers after 20 ms with these headers.
async fn says(headers: &'static [(&'static str, &'static str)]) -> Server {
    Server::http(move |_: Request<Incoming>| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut response = Response::new(full("served"));
        for (name, value) in headers {
            response.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        response
    })
    .await
}

/// Asks over HTTP/1 and returns the head.
async fn ask(sentry: &Sentry, path: &str) -> http::response::Parts {
    let request = client::request("GET", path, "");
    let response = soon(client::http1(sentry.address).await.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 200);
    let (head, body) = response.into_parts();
    assert_eq!(soon(body.collect()).await.unwrap().to_bytes(), "served");
    sentry.settled().await;
    head
}

/// What requests with this method and path are expected to need, in milliseconds.
fn size(sentry: &Sentry, method: &str, path: &str, pattern: Option<&str>) -> Option<f64> {
    let pattern: Option<config::PathPattern> = pattern.map(|pattern| pattern.parse().unwrap());
    let size = sentry.pool().inherent.of(kind(method, path, pattern.as_ref()))?;
    Some((size.as_millis_f64() * 1e3).round() / 1e3)
}

fn counts(sentry: &Sentry) -> [u64; 3] {
    sentry.pool().reports.all().map(|(_, count)| count)
}

#[tokio::test]
async fn what_a_server_reports_is_learnt_and_not_passed_on() {
    let server = says(&[
        (
            "endpoint-load-metrics",
            "TEXT cpu_utilization=0.5, request_cost.cpu=0.003, request_cost.data=0.001, \
             named_metrics.queue_delay_ms=250, named_metrics.in_service=3",
        ),
        ("server-timing", "app;dur=20"),
    ])
    .await;
    let sentry = Sentry::before(&[server.address], POOL);
    let head = ask(&sentry, "/page?of=7").await;
    assert!(!head.headers.contains_key("endpoint-load-metrics"), "{head:?}");
    assert_eq!(head.headers["server-timing"], "app;dur=20");

    assert_eq!(size(&sentry, "GET", "/page", None), Some(4.0), "of CPU and data");
    assert_eq!(size(&sentry, "POST", "/page", None), None);
    assert_eq!(counts(&sentry), [1, 0, 0]);
    let (pool, now) = (sentry.pool(), clock::now());
    let delay = pool.queue_delay_at_servers(now);
    assert!(delay > Nanos::from_millis(1) && delay <= Nanos::from_millis(250), "{delay}");
    let in_service = |now| Some(pool.servers.all()[0].load.in_service.get(now)?.0);
    assert_eq!(in_service(now), Some(3.0));
    let later = now + Nanos::from_secs(11);
    assert_eq!((pool.queue_delay_at_servers(later), in_service(later)), (Nanos::ZERO, None));
}

#[tokio::test]
async fn without_a_report_a_kind_is_what_it_took() {
    let server = says(&[]).await;
    let text = format!(
        "{}[class.product]\nmatch = [{{ path = \"/product/{{id}}\" }}]\n",
        common::config("", &[server.address], POOL)
    );
    let sentry = Sentry::start(&text);
    for path in ["/product/17", "/product/4", "/static"] {
        ask(&sentry, path).await;
    }
    let took = |path, pattern| size(&sentry, "GET", path, pattern);
    assert!(took("/static", None) >= Some(20.0), "{:?}", took("/static", None));
    assert!(took("/product/5", Some("/product/{id}")) >= Some(20.0), "one kind, whichever product");
    assert_eq!(took("/product/17", None), None);
    assert_eq!(counts(&sentry), [0, 0, 0]);
    assert_eq!(sentry.pool().queue_delay_at_servers(clock::now()), Nanos::ZERO);
}

#[tokio::test]
async fn nonsense_is_ignored_and_counted_and_requests_are_fine() {
    let nonsense: &[&[(&str, &str)]] = &[
        &[("endpoint-load-metrics", "TEXT request_cost.cpu=-1"), ("server-timing", "cpu;dur=NaN")],
        &[("endpoint-load-metrics-bin", "no base64")],
        &[("endpoint-load-metrics", "JSON {\"request_cost\": {\"cpu\": 1e300}}")],
    ];
    for headers in nonsense {
        let server = says(headers).await;
        let sentry = Sentry::before(&[server.address], POOL);
        let head = ask(&sentry, "/").await;
        assert!(head.headers.keys().all(|name| !name.as_str().starts_with("endpoint-")), "{head:?}");
        assert_eq!(counts(&sentry), [0, headers.len() as u64, 0], "{headers:?}");
        assert!(size(&sentry, "GET", "/", None) >= Some(20.0), "as if nothing had been said");
        assert_eq!(sentry.default_class().served, 1);
        assert!(sentry.pool().servers.all()[0].is_up(clock::now()), "a server that errs still serves");
    }
    // Milliseconds where seconds are asked for.
    let server = says(&[("endpoint-load-metrics", "TEXT request_cost.cpu=300")]).await;
    let sentry = Sentry::before(&[server.address], POOL);
    ask(&sentry, "/").await;
    assert_eq!(counts(&sentry), [1, 0, 1]);
    assert!(size(&sentry, "GET", "/", None).is_some_and(|ms| (20.0..20_000.0).contains(&ms)));
}

/// Answers a gRPC call with its status and a report in its trailers, or in its head where there is nothing else.
async fn grpc(only_trailers: bool) -> Server {
    Server::http(move |request: Request<Incoming>| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        trailers.insert("endpoint-load-metrics-bin", HeaderValue::from_static(BINARY));
        let mut response = if only_trailers {
            let mut response = Response::new(full(""));
            *response.headers_mut() = trailers;
            response
        } else {
            let frames = [Ok(Frame::data(body)), Ok(Frame::trailers(trailers))];
            Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
        };
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        response
    })
    .await
}

#[tokio::test]
async fn grpc_reports_in_its_trailers() {
    for only_trailers in [false, true] {
        let server = grpc(only_trailers).await;
        let sentry = Sentry::before(&[server.address], POOL);
        let request: Request<AnyBody> = Request::post("http://shop.example/shop.Cart/Add")
            .header("content-type", "application/grpc")
            .body(full("one"))
            .unwrap();
        let response = soon(client::http2(sentry.address).await.send_request(request)).await.unwrap();
        let (head, body) = response.into_parts();
        let body = soon(body.collect()).await.unwrap();
        let end = body.trailers().unwrap_or(&head.headers);
        assert_eq!(end["grpc-status"], "0");
        assert!(!end.contains_key("endpoint-load-metrics-bin"), "{end:?}");
        sentry.settled().await;
        assert_eq!(counts(&sentry), [1, 0, 0], "{only_trailers}");
        assert!(sentry.pool().queue_delay_at_servers(clock::now()) > Nanos::ZERO);
        assert_eq!(size(&sentry, "POST", "/shop.Cart/Add", None), Some(4.0));
    }
}

#[tokio::test]
async fn a_report_may_be_all_that_the_trailers_hold() {
    let server = Server::http(|_: Request<Incoming>| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("endpoint-load-metrics", HeaderValue::from_static("TEXT request_cost.cpu=0.001"));
        let frames = [Ok(Frame::data("served".into())), Ok(Frame::trailers(trailers))];
        Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
    })
    .await;
    let sentry = Sentry::before(&[server.address], &format!("{POOL}\nprotocol = \"http2\""));
    for http2 in [true, false] {
        let response = if http2 {
            let request = Request::get("http://shop.example/").body(full("")).unwrap();
            soon(client::http2(sentry.address).await.send_request(request)).await.unwrap()
        } else {
            let request = client::request("GET", "/", "");
            soon(client::http1(sentry.address).await.send_request(request)).await.unwrap()
        };
        let body = soon(response.into_body().collect()).await.unwrap();
        assert!(body.trailers().is_none_or(HeaderMap::is_empty), "{:?}", body.trailers());
        assert_eq!(body.to_bytes(), "served");
        sentry.settled().await;
    }
    assert_eq!(counts(&sentry)[..2], [2, 0]);
}

#[tokio::test]
async fn what_fails_or_streams_teaches_nothing() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = Server::http(move |request: Request<Incoming>| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut response = Response::new(full("served"));
            let headers = response.headers_mut();
            headers.insert("endpoint-load-metrics", HeaderValue::from_static("TEXT request_cost.cpu=0.001"));
            match request.uri().path() {
                "/events" => {
                    drop(headers.insert("content-type", HeaderValue::from_static("text/event-stream")))
                }
                _ => *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR,
            }
            response
        }
    })
    .await;
    let sentry = Sentry::before(&[server.address], POOL);
    for path in ["/events", "/broken"] {
        client::get(sentry.address, path).await;
        sentry.settled().await;
        assert_eq!(size(&sentry, "GET", path, None), None, "{path}");
    }
    eventually(|| asked.load(Ordering::SeqCst) == 2, || "both requests".to_owned()).await;
    assert_eq!(counts(&sentry), [2, 0, 0], "what the server says about itself is heard all the same");
}
