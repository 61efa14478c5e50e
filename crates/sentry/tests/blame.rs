//! Who is to blame for how an exchange ends, and what is counted for it.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::client;
use common::server::{Server, by_hand};
use common::{Sentry, soon};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use plimsoll_sentry::clock;
use plimsoll_sentry::stats::Failure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Answers at once, and sends back what it gets as it gets it.
async fn echo() -> Server {
    Server::http(|request: Request<Incoming>| async {
        let body = request.into_body().map_err(std::io::Error::other);
        Response::new(body.boxed_unsync())
    })
    .await
}

/// An HTTP/2 server that says that a response has ended a little after the last of it: with an empty frame.
async fn ends_late() -> Server {
    Server::raw(|stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            tokio::spawn(async move {
                let head = Response::builder().header("content-length", "5").body(()).unwrap();
                let mut send = respond.send_response(head, false).unwrap();
                if request.method() != http::Method::HEAD {
                    send.send_data("hello".into(), false).unwrap();
                }
                tokio::time::sleep(Duration::from_millis(30)).await;
                let _ = send.send_data(Bytes::new(), true);
            });
        }
    })
    .await
}

#[tokio::test]
async fn a_response_whose_end_is_said_late_is_whole() {
    let server = ends_late().await;
    let sentry = Sentry::before(&[server.address], "workers = 2\nprotocol = \"http2\"");
    let mut client = client::http1(sentry.address).await;
    for (method, body) in [("GET", "hello"), ("HEAD", ""), ("GET", "hello"), ("HEAD", "")] {
        let response = soon(client.send_request(client::request(method, "/", ""))).await.unwrap();
        assert_eq!(response.headers()["content-length"], "5");
        assert_eq!(client::text(response).await, body);
        soon(client.ready()).await.unwrap();
    }
    sentry.settled().await;
    let counted = sentry.default_class();
    assert_eq!((counted.served, counted.failed.iter().sum::<u64>()), (4, 0), "{:?}", counted.failed);
    assert_eq!(counted.response.count(), 4, "and is measured");
}

#[tokio::test]
async fn a_server_that_closes_at_once_is_asked_within_the_budget() {
    let server = Server::raw(|_| async {}).await;
    for budget in ["0.0", "1.0"] {
        let pool = format!(
            "workers = 2\nprotocol = \"http2\"\nretries = {{ budget = {budget} }}\neject = {{ failures = 20, for = \"1h\" }}"
        );
        let sentry = Sentry::before(&[server.address], &pool);
        let before = server.accepted();
        for _ in 0..20 {
            assert_eq!(client::get(sentry.address, "/").await.0, 502);
        }
        let tries = (server.accepted() - before) as u64;
        assert_eq!(tries, 20 + sentry.count("retries"), "with a budget of {budget}");
        assert!(!sentry.pool().servers.all()[0].is_up(clock::now()), "it stays");
        sentry.settled().await;
    }
}

#[tokio::test]
async fn an_upload_that_fails_in_the_response_is_not_the_servers_fault() {
    const HEAD: &str = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    for protocol in ["http1", "http2"] {
        for fault in ["stalls", "breaks the protocol", "leaves"] {
            let server = echo().await;
            let pool = format!("workers = 8\nprotocol = \"{protocol}\"\neject = {{ for = \"1h\" }}");
            let patience = if fault == "stalls" { "300ms" } else { "30s" };
            let server_keys = format!("body_timeout = \"{patience}\"");
            let sentry = Sentry::start(&common::config(&server_keys, &[server.address], &pool));
            for _ in 0..6 {
                let mut stream = TcpStream::connect(sentry.address).await.unwrap();
                stream.write_all(HEAD.as_bytes()).await.unwrap();
                let mut seen = String::new();
                while !seen.contains("hello") {
                    let mut part = [0; 1024];
                    let n = soon(stream.read(&mut part)).await.unwrap();
                    assert!(n > 0, "closed after {seen:?}");
                    seen.push_str(&String::from_utf8_lossy(&part[..n]));
                }
                match fault {
                    "stalls" => {}
                    "leaves" => continue,
                    _ => stream.write_all(b"nonsense\r\n").await.unwrap(),
                }
                let rest = client::read_all(&mut stream).await;
                assert!(!rest.ends_with("0\r\n\r\n"), "it is not passed off as whole: {rest:?}");
            }
            sentry.settled().await;
            let failed = sentry.default_class().failed;
            let expected =
                if fault == "breaks the protocol" { Failure::Malformed } else { Failure::ClientGone };
            assert_eq!(
                (failed[expected as usize], failed.iter().sum()),
                (6, 6),
                "{protocol}, {fault}: {failed:?}"
            );
            assert!(sentry.pool().servers.all()[0].is_up(clock::now()), "{protocol}, {fault}: left out");
        }
    }
}

#[tokio::test]
async fn an_upload_that_outlasts_the_response_timeout_extends_the_servers_turn() {
    // The head comes first, the rest when all of the request is there.
    let server = Server::http(|request: Request<Incoming>| async {
        let (parts, body) = by_hand();
        tokio::spawn(async move {
            let Ok(all) = request.into_body().collect().await else { return };
            let _ = parts.send(Ok(http_body::Frame::data(all.to_bytes()))).await;
        });
        Response::new(body)
    })
    .await;
    for protocol in ["http1", "http2"] {
        let pool = format!("workers = 1\nprotocol = \"{protocol}\"\nresponse_timeout = \"300ms\"");
        let sentry = Sentry::before(&[server.address], &pool);
        let (parts, body) = by_hand();
        let request = Request::post("/").header("host", "a").body(body).unwrap();
        let mut client = client::http1(sentry.address).await;
        let answer = tokio::spawn(async move { client.send_request(request).await.unwrap() });
        for pause in [100, 100, 100, 100, 700] {
            parts.send(Ok(http_body::Frame::data("x".into()))).await.unwrap();
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        drop(parts);
        assert_eq!(client::text(soon(answer).await.unwrap()).await, "xxxxx", "{protocol}");
        sentry.settled().await;
        assert_eq!(sentry.default_class().served, 1);
    }
}
