//! gRPC calls and event streams: silence is part of them, up to a limit.

mod common;

use std::time::Duration;

use common::client;
use common::server::{AnyBody, Server, by_hand};
use common::{Sentry, soon};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use plimsoll_sentry::clock;
use plimsoll_sentry::stats::Failure;

const POOL: &str = "workers = 1\nresponse_timeout = \"100ms\"\nstream_timeout = \"500ms\"\neject = { failures = 1, for = \"1h\" }";

fn call(body: AnyBody) -> Request<AnyBody> {
    Request::post("http://a/S/M").header("content-type", "application/grpc").body(body).unwrap()
}

/// Answers at once, and sends back what it gets as it gets it.
async fn echo() -> Server {
    Server::http(|request: Request<Incoming>| async {
        let body = request.into_body().map_err(std::io::Error::other);
        Response::new(body.boxed_unsync())
    })
    .await
}

#[tokio::test]
async fn a_call_that_says_nothing_gives_its_slot_back_and_nobody_is_blamed() {
    let reads_all = Server::http(common::server::mirror).await;
    for (server, answers) in [(reads_all, false), (echo().await, true)] {
        let sentry = Sentry::before(&[server.address], POOL);
        let mut client = client::http2(sentry.address).await;
        let (parts, body) = by_hand();
        parts.send(Ok(Frame::data("begun".into()))).await.unwrap();
        let response = soon(client.send_request(call(body))).await.unwrap();
        assert_eq!(response.headers().contains_key("grpc-status"), !answers);
        assert_eq!(soon(response.into_body().collect()).await.is_err(), answers);
        sentry.settled().await;
        assert!(sentry.pool().servers.all()[0].is_up(clock::now()), "left out");
        drop(parts);
    }
}

#[tokio::test]
async fn a_call_whose_deadline_has_passed_gives_its_slot_back_however_much_is_said() {
    let talks = Server::http(|_: Request<Incoming>| async {
        let (parts, body) = by_hand();
        tokio::spawn(async move {
            while parts.send(Ok(Frame::data("x".into()))).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Response::new(body)
    })
    .await;
    let sentry = Sentry::before(&[talks.address], POOL);
    let mut client = client::http2(sentry.address).await;
    let mut request = call(common::server::full("begun"));
    request.headers_mut().insert("grpc-timeout", "200m".parse().unwrap());
    let response = soon(client.send_request(request)).await.unwrap();
    assert!(soon(response.into_body().collect()).await.is_err(), "it never ends");
    sentry.settled().await;
    assert_eq!(sentry.default_class().failed[Failure::Deadline as usize], 1);
    assert!(sentry.pool().servers.all()[0].is_up(clock::now()), "left out for a deadline");
}

#[tokio::test]
async fn either_side_keeps_a_call_alive() {
    // The client goes on, and the server says nothing but at the end.
    let listens = Server::http(|request: Request<Incoming>| async {
        let (parts, body) = by_hand();
        tokio::spawn(async move {
            let Ok(all) = request.into_body().collect().await else { return };
            let _ = parts.send(Ok(Frame::data(all.to_bytes()))).await;
        });
        Response::new(body)
    })
    .await;
    // The server goes on, and the client has said all that it will without ending its side.
    let talks = Server::http(|request: Request<Incoming>| async {
        let (parts, body) = by_hand();
        tokio::spawn(async move {
            let _open = request;
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_millis(150)).await;
                let _ = parts.send(Ok(Frame::data("x".into()))).await;
            }
        });
        Response::new(body)
    })
    .await;
    for (server, client_talks) in [(listens, true), (talks, false)] {
        let sentry = Sentry::before(&[server.address], POOL);
        let mut client = client::http2(sentry.address).await;
        let (parts, body) = by_hand();
        let response = soon(client.send_request(call(body))).await.unwrap();
        let talk = async move {
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_millis(150)).await;
                if client_talks {
                    parts.send(Ok(Frame::data("x".into()))).await.unwrap();
                }
            }
            // The one that only listens keeps its side open until the server has ended.
            (!client_talks).then_some(parts)
        };
        let (_open, text) = tokio::join!(talk, client::text(response));
        assert_eq!(text, "xxxxxxxx");
        sentry.settled().await;
    }
}
