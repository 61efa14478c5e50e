//! Every answer counts as what it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response};
use hyper::body::Incoming;
use plimsoll_core::Nanos;
use plimsoll_loadgen::{Figures, HttpVersion, Plan, Report};

use crate::server::{Body, mix, plan, planned, report, response, serve, serve_tls, with_trailers};

const GRPC: (&str, &str) = ("content-type", "application/grpc");
const REASON: (&str, &str) = ("plimsoll-reason", "admission; limit=2; estimate=3; objective=2");

async fn answers(request: Request<Incoming>) -> Result<Response<Body>, std::io::Error> {
    Ok(match request.uri().path() {
        "/ok" => response(200, &[]),
        "/moved" => response(302, &[("location", "/ok")]),
        "/rejected" => response(503, &[REASON]),
        "/limited" => response(429, &[REASON]),
        "/refused" => response(503, &[]),
        "/busy" => response(429, &[]),
        "/bad-gateway" => response(502, &[REASON]),
        "/grpc/ok" => with_trailers(200, &[GRPC], Some(&[("grpc-status", "0")])),
        "/grpc/rejected" => with_trailers(200, &[GRPC], Some(&[("grpc-status", "8"), REASON])),
        "/grpc/rejected-at-once" => response(200, &[GRPC, ("grpc-status", "14"), REASON]),
        "/grpc/refused" => with_trailers(200, &[GRPC], Some(&[("grpc-status", "14")])),
        "/grpc/not-found" => with_trailers(200, &[GRPC], Some(&[("grpc-status", "5"), REASON])),
        "/grpc/silent" => response(200, &[GRPC]),
        _ => response(404, &[]),
    })
}

/// What each name came to: its only column that is not zero.
fn columns(report: &Report) -> BTreeMap<&str, String> {
    let column = |figures: &Figures| {
        let kinds = figures.error_kinds.keys().map(|kind| format!("error {kind}"));
        let counts =
            [("ok", figures.ok), ("rejected", figures.rejected), ("refused_other", figures.refused_other)];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name.to_owned());
        counts.chain(kinds).collect::<Vec<_>>().join(" and ")
    };
    report.table.requests.iter().map(|(name, figures)| (name.as_str(), column(figures))).collect()
}

#[tokio::test]
async fn statuses_count_as_what_they_mean() {
    let address = serve(answers).await;
    let expected = [
        ("/ok", "ok"),
        ("/moved", "ok"),
        ("/rejected", "rejected"),
        ("/limited", "rejected"),
        ("/refused", "refused_other"),
        ("/busy", "refused_other"),
        ("/bad-gateway", "error status_502"),
        ("/elsewhere", "error status_404"),
    ];
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let plan = Plan { http, ..plan(address, mix(&expected.map(|(path, _)| path)), "1000", 300) };
        let report = report(&plan).await;
        assert_eq!(report.table.total.sent, planned(&plan));
        assert_eq!(columns(&report), expected.map(|(path, column)| (path, column.to_owned())).into());
        let rejected = &report.table.requests[2].1;
        assert!(rejected.p50_ms.is_none() && rejected.rejected_p99_ms.is_some() && rejected.max_ms.is_some());
        assert!(report.table.total.p50_ms <= report.table.total.p99_ms);
        assert_eq!(rejected.goodput_per_s, 0.0);
    }
}

#[tokio::test]
async fn grpc_counts_by_its_own_status() {
    let address = serve(answers).await;
    let expected = [
        ("/grpc/ok", "ok"),
        ("/grpc/rejected", "rejected"),
        ("/grpc/rejected-at-once", "rejected"),
        ("/grpc/refused", "refused_other"),
        ("/grpc/not-found", "error grpc_status_5"),
        ("/grpc/silent", "error grpc_status_missing"),
        ("/rejected", "rejected"),
    ];
    let mix = mix(&expected.map(|(path, _)| path));
    let plan = Plan { http: HttpVersion::Http2, ..plan(address, mix, "1000", 300) };
    assert_eq!(
        columns(&report(&plan).await),
        expected.map(|(path, column)| (path, column.to_owned())).into()
    );
}

#[tokio::test]
async fn goodput_is_what_came_within_the_deadline() {
    let address = serve(|request: Request<Incoming>| async move {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        answers(request).await
    })
    .await;
    let mut mix = mix(&["/ok", "/ok?patient", "/ok?impatient"]);
    mix.requests[1].deadline = Some(Nanos::from_secs(30));
    mix.requests[2].deadline = Some(Nanos::from_millis(40));
    let report = report(&plan(address, mix, "300", 500)).await;
    let [(_, none), (_, patient), (_, impatient)] = &report.table.requests[..] else { panic!() };
    for row in [none, patient, impatient] {
        assert!(row.ok > 0 && row.ok == row.sent && row.p50_ms >= Some(50.0));
    }
    assert_eq!(none.goodput_per_s, none.ok as f64 / 0.5);
    assert_eq!(patient.goodput_per_s, patient.ok as f64 / 0.5);
    assert_eq!(impatient.goodput_per_s, 0.0);
}

#[tokio::test]
async fn clients_try_again_what_may_pass_until_their_time_is_over() {
    let address = serve(answers).await;
    let paths = ["/ok", "/refused", "/rejected", "/bad-gateway"];
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let keen = Plan {
            http,
            retries: 2,
            backoff: Nanos::from_millis(1),
            ..plan(address, mix(&paths), "200", 300)
        };
        let tried = report(&keen).await;
        let expected = ["ok", "refused_other", "rejected", "error status_502"];
        let expected = paths.into_iter().zip(expected.map(str::to_owned)).collect();
        assert_eq!(columns(&tried), expected);
        for ((path, row), times) in tried.table.requests.iter().zip([0, 2, 2, 0]) {
            assert_eq!(row.retries, times * row.sent, "{path}");
        }
        assert_eq!(tried.table.total.sent, planned(&keen));
        let hurried = Plan { timeout: Nanos::from_secs(1), backoff: Nanos::from_secs(3), ..keen };
        assert_eq!(report(&hurried).await.table.total.retries, 0);
    }
}

#[tokio::test]
async fn what_passes_at_last_took_as_long_as_all_its_tries() {
    let calls = Arc::new(AtomicU64::new(0));
    let address = serve(move |_| {
        let refuse = calls.fetch_add(1, Ordering::Relaxed) < 3;
        async move { Ok(response(if refuse { 503 } else { 200 }, &[])) }
    })
    .await;
    let once = Plan {
        retries: 3,
        backoff: Nanos::from_millis(10),
        tells_each: true,
        ..plan(address, mix(&["/"]), "10", 100)
    };
    let mut entries = Vec::new();
    let report = plimsoll_loadgen::run(&once, |progress| {
        entries.extend(progress.ended().map(|(_, entry)| *entry));
        std::ops::ControlFlow::Continue(())
    })
    .await
    .unwrap();
    let total = &report.table.total;
    assert_eq!((total.sent, total.ok, total.retries, total.refused_other), (1, 1, 3, 0));
    // At least half of 10, 20 and 40 ms; told once.
    assert!(total.p50_ms >= Some(35.0), "{:?}", total.p50_ms);
    assert_eq!(entries.len(), 1);
    assert!(report.to_string().contains("3 times tried again"));
}

#[tokio::test]
async fn encrypted_targets_need_a_certificate_or_leniency() {
    let address = serve_tls(answers).await;
    let target: http::Uri = format!("https://localhost:{}", address.port()).parse().unwrap();
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let lenient =
            Plan { http, target: target.clone(), insecure: true, ..plan(address, mix(&["/ok"]), "200", 200) };
        assert_eq!(report(&lenient).await.table.total.ok, planned(&lenient));
        let strict = Plan { insecure: false, ..lenient };
        match plimsoll_loadgen::run(&strict, |_| std::ops::ControlFlow::Continue(())).await {
            Ok(report) => {
                assert_eq!(report.table.total.error_kinds, [("tls".into(), planned(&strict))].into())
            }
            Err(no_roots) => assert!(no_roots.contains("root certificates"), "{no_roots}"),
        }
    }
}

#[tokio::test]
async fn requests_are_sent_as_the_mix_says() {
    let address = serve(|request: Request<Incoming>| async move {
        use http_body_util::BodyExt;
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let left = header("x-left-ms").and_then(|text| text.parse::<u64>().ok());
        let timeout = header("grpc-timeout").and_then(|text| text.strip_suffix('m')?.parse::<u64>().ok());
        let as_asked = head.method == http::Method::POST
            && head.uri.path_and_query().unwrap() == "/shop/orders?x=1"
            && header("x-tier").as_deref() == Some("gold")
            && header("content-length").as_deref() == Some("13")
            && body == "{\"item\": \"7\"}"
            && left.or(timeout).is_some_and(|ms| (1..=800).contains(&ms));
        Ok(response(if as_asked { 200 } else { 400 }, &[]))
    })
    .await;
    let mut mix = mix(&["/orders?x=1"]);
    let request = &mut mix.requests[0];
    request.method = http::Method::POST;
    request.body = "{\"item\": \"7\"}".into();
    request.headers = vec![("x-tier".parse().unwrap(), "gold".parse().unwrap())];
    request.deadline = Some(Nanos::from_millis(800));
    for (http, header) in [(HttpVersion::Http1, "x-left-ms"), (HttpVersion::Http2, "grpc-timeout")] {
        let plan = Plan {
            http,
            target: format!("http://{address}/shop/").parse().unwrap(),
            deadline_header: Some(header.parse().unwrap()),
            ..plan(address, mix.clone(), "100", 100)
        };
        assert_eq!(report(&plan).await.table.total.ok, planned(&plan));
    }
}
