//! HTTP/2 connections carry many streams: one that waits must not keep the others waiting.

mod common;

use bytes::Bytes;
use common::client;
use common::server::{AnyBody, Held, Server, full};
use common::{Sentry, eventually, soon};
use http::Request;
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

const LARGE: usize = 600_000;

fn get(path: &str) -> Request<AnyBody> {
    Request::get(format!("http://a{path}")).body(full("")).unwrap()
}

#[tokio::test]
async fn uploads_in_the_queue_do_not_hold_up_the_one_that_was_let_in() {
    let held = Held::start().await;
    let pool = "workers = 1\nadmission = { policy = \"none\" }";
    let sentry = Sentry::start(&common::config("body_timeout = \"2s\"", &[held.server.address], pool));
    let first = tokio::spawn(client::http2(sentry.address).await.send_request(get("/")));
    eventually(|| held.arrived() == 1, || "the first in service".to_owned()).await;

    let mut client = client::http2(sentry.address).await;
    let uploads: Vec<_> = (0..20)
        .map(|_| {
            let request = Request::post("http://a/").body(full(vec![b'x'; LARGE])).unwrap();
            tokio::spawn(client.send_request(request))
        })
        .collect();
    eventually(|| sentry.pool().slots.waiting() == 20, || "the uploads in the queue".to_owned()).await;
    // What the windows allow is on its way by now, and nobody reads it.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    held.permits.add_permits(21);
    assert_eq!(soon(first).await.unwrap().unwrap().status(), 200);
    for upload in uploads {
        let response = soon(upload).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        assert!(client::text(response).await.len() > LARGE);
    }
    sentry.settled().await;
}

#[tokio::test]
async fn responses_that_nobody_reads_do_not_hold_up_the_others_of_their_server() {
    let server = Server::http(|request| async move {
        let length = if request.uri().path() == "/large" { LARGE } else { 20_000 };
        http::Response::new(full(vec![b'x'; length]))
    })
    .await;
    let pool = "workers = 50\nprotocol = \"http2\"\nadmission = { policy = \"none\" }";
    let sentry = Sentry::before(&[server.address], pool);
    // One connection, and so one thread and one connection to the server. Its streams take a little of what is theirs.
    let stream = TcpStream::connect(sentry.address).await.unwrap();
    let (mut client, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1_000)
        .initial_connection_window_size(10_000_000)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut unread = Vec::new();
    for _ in 0..40 {
        unread.push(soon(client.send_request(get("/large"))).await.unwrap());
    }
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let response = soon(client.send_request(get("/small"))).await.unwrap();
    let body: Bytes = soon(response.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(body.len(), 20_000);
    assert_eq!(server.accepted(), 1);
    for response in unread {
        assert_eq!(soon(response.into_body().collect()).await.unwrap().to_bytes().len(), LARGE);
    }
    sentry.settled().await;
}
