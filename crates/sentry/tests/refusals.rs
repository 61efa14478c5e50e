//! Who is turned away, and what they are told.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::client;
use common::server::{Held, Server, full, mirror};
use common::{Sentry, config, eventually, soon};
use http::{Request, Response};
use http_body_util::BodyExt;
use plimsoll_core::Nanos;
use plimsoll_sentry::clock;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// One worker and one place in the queue, both taken: the next request is refused.
async fn full_house(pool: &str) -> (Held, Sentry, Vec<JoinHandle<(u16, String)>>) {
    let held = Held::start().await;
    let pool = format!("workers = 1\nmax_queue = 1\nadmission = {{ policy = \"none\" }}\n{pool}");
    let sentry = Sentry::before(&[held.server.address], &pool);
    let mut waiting = vec![tokio::spawn(get(sentry.address))];
    eventually(|| held.arrived() == 1, || "the first in service".to_owned()).await;
    waiting.push(tokio::spawn(get(sentry.address)));
    eventually(|| sentry.pool().slots.waiting() == 1, || "the second in the queue".to_owned()).await;
    (held, sentry, waiting)
}

async fn get(address: SocketAddr) -> (u16, String) {
    client::get(address, "/").await
}

async fn served(held: &Held, waiting: Vec<JoinHandle<(u16, String)>>) {
    held.permits.add_permits(waiting.len());
    for request in waiting {
        assert_eq!(soon(request).await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn an_http_client_learns_why_and_for_how_long() {
    let (held, sentry, waiting) = full_house("").await;
    let mut client = client::http1(sentry.address).await;
    // More than once on one connection: a refusal costs neither side the connection.
    for _ in 0..3 {
        let response = soon(client.send_request(client::request("GET", "/", ""))).await.unwrap();
        assert_eq!(response.status(), 503);
        let headers = response.headers().clone();
        assert_eq!(headers["plimsoll-reason"], "max-queue; limit=queue-length; estimate=2; objective=1");
        assert!((1..=2).contains(&headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap()));
        assert_eq!(headers["content-type"], "application/json");
        let body = client::text(response).await;
        let retry = headers["retry-after"].to_str().unwrap();
        assert_eq!(
            body,
            format!(
                "{{\"error\":\"overloaded\",\"reason\":\"max-queue; limit=queue-length; estimate=2; objective=1\",\"retry_after_s\":{retry}}}"
            )
        );
        soon(client.ready()).await.unwrap();
    }
    assert_eq!(sentry.shared.connections(), 3);
    served(&held, waiting).await;
    sentry.settled().await;
    let counted = sentry.default_class();
    assert_eq!((counted.offered, counted.served, counted.refused.iter().sum::<u64>()), (5, 2, 3));
    assert_eq!(held.arrived(), 2, "what is refused costs the server nothing");
}

#[tokio::test]
async fn a_grpc_client_gets_a_status_with_retry_info() {
    let (held, sentry, waiting) = full_house("").await;
    let mut client = client::http2(sentry.address).await;
    let request = Request::post("http://a/shop.Cart/Add")
        .header("content-type", "application/grpc")
        .body(full("x"))
        .unwrap();
    let response = soon(client.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 200);
    let headers = response.headers();
    assert_eq!(
        (headers["grpc-status"].to_str().unwrap(), &headers["content-type"]),
        ("14", &"application/grpc".parse().unwrap())
    );
    assert_eq!(headers["grpc-message"], headers["plimsoll-reason"]);
    assert!(headers.contains_key("grpc-status-details-bin") && headers.contains_key("retry-after"));
    let body = soon(response.into_body().collect()).await.unwrap();
    assert!(body.trailers().is_none() && body.to_bytes().is_empty(), "the head is all of it");
    served(&held, waiting).await;
}

#[tokio::test]
async fn a_client_that_is_still_sending_gets_to_read_its_refusal() {
    let (held, sentry, waiting) = full_house("").await;
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    // A client like most: it writes all it has, and only then reads. Some of it is never taken.
    let mut sent = 0;
    while sent < 200_000 {
        stream.write_all(&[b'x'; 10_000]).await.unwrap();
        sent += 10_000;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let answer = client::read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("plimsoll-reason: max-queue"), "{answer}");
    drop(stream);
    served(&held, waiting).await;
    sentry.settled().await;
}

#[tokio::test]
async fn the_queue_is_first_in_first_out_across_threads() {
    let held = Held::start().await;
    let sentry = Sentry::before(&[held.server.address], "workers = 1\nadmission = { policy = \"none\" }");
    let order = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut requests = Vec::new();
    for i in 0..20_usize {
        let (address, order) = (sentry.address, std::sync::Arc::clone(&order));
        requests.push(tokio::spawn(async move {
            assert_eq!(client::get(address, "/").await.0, 200);
            order.lock().push(i);
        }));
        let so_far = i as u32;
        eventually(
            || sentry.pool().slots.taken() == 1 && sentry.pool().slots.waiting() == so_far,
            || format!("{i} waits"),
        )
        .await;
    }
    for i in 0..20 {
        held.permits.add_permits(1);
        eventually(|| order.lock().len() == i + 1, || format!("{i} served")).await;
    }
    for request in requests {
        request.await.unwrap();
    }
    assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
    sentry.settled().await;
}

#[tokio::test]
async fn a_deadline_that_passes_in_the_queue_is_a_refusal() {
    let (held, sentry, waiting) = {
        let held = Held::start().await;
        let sentry = Sentry::before(&[held.server.address], "workers = 1\nadmission = { policy = \"none\" }");
        let waiting = vec![tokio::spawn(get(sentry.address))];
        eventually(|| held.arrived() == 1, || "the first in service".to_owned()).await;
        (held, sentry, waiting)
    };
    let mut request = client::request("GET", "/", "");
    request.headers_mut().insert("x-request-deadline-ms", "150".parse().unwrap());
    let began = clock::now();
    let response = soon(client::http1(sentry.address).await.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 503);
    let reason = response.headers()["plimsoll-reason"].to_str().unwrap().to_owned();
    assert!(
        reason.starts_with("deadline; limit=deadline; estimate=") && reason.ends_with("; objective=150ms"),
        "{reason}"
    );
    assert!(clock::now() - began >= Nanos::from_millis(150));

    let mut client = client::http2(sentry.address).await;
    let grpc = Request::post("http://a/S/M")
        .header("content-type", "application/grpc")
        .header("grpc-timeout", "100m");
    let response = soon(client.send_request(grpc.body(full("")).unwrap())).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "14");
    assert_eq!(sentry.pool().slots.waiting(), 0);
    assert_eq!(held.arrived(), 1, "neither went to the server");
    served(&held, waiting).await;
    sentry.settled().await;
}

#[tokio::test]
async fn what_is_left_of_a_deadline_goes_on_and_binds_the_server() {
    let held = Held::start().await;
    let sentry = Sentry::before(&[held.server.address], "workers = 1\nadmission = { policy = \"none\" }");
    let first = tokio::spawn(get(sentry.address));
    eventually(|| held.arrived() == 1, || "the first in service".to_owned()).await;
    let mut request = client::request("GET", "/", "");
    request.headers_mut().insert("x-request-deadline-ms", "10000".parse().unwrap());
    let mut client = client::http1(sentry.address).await;
    let second = tokio::spawn(async move { client::text(client.send_request(request).await.unwrap()).await });
    eventually(|| sentry.pool().slots.waiting() == 1, || "the second in the queue".to_owned()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    held.permits.add_permits(2);
    assert_eq!(soon(first).await.unwrap().0, 200);
    let answer = soon(second).await.unwrap();
    let left = answer.lines().find_map(|l| l.strip_prefix("x-request-deadline-ms: ")).unwrap();
    assert!((1..=9_700).contains(&left.parse::<u32>().unwrap()), "{left}");

    // The server takes longer than there is.
    let mut request = client::request("GET", "/", "");
    request.headers_mut().insert("x-request-deadline-ms", "200".parse().unwrap());
    let response = soon(client::http1(sentry.address).await.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 504);
    eventually(|| held.dropped() == 1, || "the server is told to stop".to_owned()).await;
    sentry.settled().await;
}

#[tokio::test]
async fn one_client_may_not_take_the_whole_class() {
    let server = Server::http(|request| async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        mirror(request).await
    })
    .await;
    let text = format!(
        "[sentry]\ndrain_timeout = \"200ms\"\n[pool.p]\nservers = [\"{}\"]\nworkers = 2\nmax_queue = 50\n\
         [class.default]\nfair_share = {{ header = \"x-tenant\" }}\n",
        server.address
    );
    let sentry = Sentry::start(&text);
    let ask = |tenant: &'static str| {
        let address = sentry.address;
        async move {
            let mut request = client::request("GET", "/", "");
            request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
            let response = soon(client::http1(address).await.send_request(request)).await.unwrap();
            let reason = response.headers().get("plimsoll-reason").map(|r| r.to_str().unwrap().to_owned());
            (response.status().as_u16(), reason)
        }
    };
    // A greedy tenant floods; the modest one asks now and then. What the greedy one is told once it is over its share
    // is that it is alone with its trouble.
    let mut told = Vec::new();
    let mut modest_refused = 0;
    let end = clock::now() + common::PATIENCE.into();
    while !told.iter().any(|t: &(u16, Option<String>)| t.0 == 429) {
        assert!(clock::now() < end, "never over its share: {told:?}");
        let greedy: Vec<_> = (0..60).map(|_| tokio::spawn(ask("greedy"))).collect();
        let (status, reason) = ask("modest").await;
        modest_refused += u32::from(reason.is_some_and(|r| r.starts_with("fair-share")));
        assert_ne!(status, 429);
        for answer in greedy {
            told.push(answer.await.unwrap());
        }
    }
    let over = told.iter().find(|t| t.0 == 429).unwrap();
    assert!(over.1.as_ref().unwrap().starts_with("fair-share; limit=client-share"), "{over:?}");
    assert_eq!(modest_refused, 0);
    sentry.settled().await;
}

#[tokio::test]
async fn connections_above_the_limit_are_refused_with_the_reason() {
    let server = Server::http(mirror).await;
    let sentry =
        Sentry::start(&config("max_connections = 3\nmax_connections_per_client = 2", &[server.address], ""));
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut client = client::http1(sentry.address).await;
        assert_eq!(soon(client.send_request(client::request("GET", "/", ""))).await.unwrap().status(), 200);
        kept.push(client);
    }
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    let answer = client::read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(
        answer.contains("plimsoll-reason: connections; limit=connections; estimate=3; objective=2\r\n"),
        "{answer}"
    );
    assert_eq!(sentry.count("connections_refused"), 1);
    let mut waits = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let answer = client::read_all(&mut TcpStream::connect(sentry.address).await.unwrap()).await;
        let wait = answer.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
        waits.insert(wait.to_owned());
    }
    assert!(waits.iter().eq(["1", "2", "3"]), "they come back apart: {waits:?}");
    kept.pop();
    eventually(|| sentry.shared.connections() == 1, || "one has left".to_owned()).await;
    assert_eq!(client::get(sentry.address, "/").await.0, 200);
}

#[tokio::test]
async fn a_refused_websocket_is_refused_like_the_rest() {
    let (held, sentry, waiting) = full_house("").await;
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    let ask = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.unwrap();
    let (head, _) = client::read_response(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    served(&held, waiting).await;
    sentry.settled().await;
}

#[tokio::test]
async fn bouncer_refuses_what_would_miss_its_objective() {
    let server = Server::http(|_| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Response::new(full("ok"))
    })
    .await;
    let text = format!(
        "[sentry]\ndrain_timeout = \"200ms\"\n[pool.p]\nservers = [\"{}\"]\nworkers = 2\n\
         [class.default]\nslo = {{ p50 = \"150ms\", p90 = \"250ms\" }}\n",
        server.address
    );
    let sentry = Sentry::start(&text);
    // Until something is known of the class, then four times what the server can do.
    let mut reasons = Vec::new();
    let end = clock::now() + common::PATIENCE.into();
    while !reasons.iter().any(|r: &String| r.starts_with("bouncer; limit=p")) {
        assert!(clock::now() < end, "never refused by its estimate: {reasons:?}");
        let crowd: Vec<_> = (0..16)
            .map(|_| {
                let address = sentry.address;
                tokio::spawn(async move {
                    let mut client = client::http1(address).await;
                    let response = client.send_request(client::request("GET", "/", "")).await.unwrap();
                    response.headers().get("plimsoll-reason").map(|r| r.to_str().unwrap().to_owned())
                })
            })
            .collect();
        for one in crowd {
            reasons.extend(soon(one).await.unwrap());
        }
    }
    sentry.settled().await;
    let counted = sentry.default_class();
    assert!(counted.served > 0 && counted.response.count() == counted.served);
}
