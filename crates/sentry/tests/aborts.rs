//! Clients that leave: the slot is free again, the server is told, and nobody in the queue waits behind a ghost.

mod common;

use std::time::Duration;

use common::client;
use common::server::{Held, Server, by_hand, full};
use common::{Sentry, eventually, soon};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ONE: &str = "workers = 1\nadmission = { policy = \"none\" }";

/// A request whose body is never finished, and most of it never sent.
const UPLOAD: &[u8] = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nsome of it";
const PLAIN: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
/// A second request right behind the first, which hyper has read and not looked at.
const PIPELINED: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /next HTTP/1.1\r\nhost: a\r\n\r\n";

async fn send(sentry: &Sentry, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_is_forgotten() {
    for bytes in [PLAIN, PIPELINED, UPLOAD] {
        let held = Held::start().await;
        let sentry = Sentry::before(&[held.server.address], ONE);
        let first = send(&sentry, PLAIN).await;
        eventually(|| held.arrived() == 1, || "the first in service".to_owned()).await;
        let second = send(&sentry, bytes).await;
        eventually(|| sentry.pool().slots.waiting() == 1, || "the second in the queue".to_owned()).await;
        drop(second);
        eventually(|| sentry.pool().slots.waiting() == 0, || "out of the queue".to_owned()).await;
        assert_eq!((sentry.pool().gate.queued(), sentry.pool().slots.taken()), (0, 1));
        drop(first);
        sentry.settled().await;
        assert_eq!(held.arrived(), 1, "what nobody waits for costs the server nothing");
        let c = sentry.default_class();
        assert_eq!((c.gone, c.failed.iter().sum::<u64>()), (1, 1), "one from the queue, one from service");
    }
}

#[tokio::test]
async fn an_http2_request_that_is_reset_leaves_the_queue() {
    let held = Held::start().await;
    let sentry = Sentry::before(&[held.server.address], ONE);
    let mut client = client::http2(sentry.address).await;
    let ask = |client: &mut hyper::client::conn::http2::SendRequest<_>| {
        tokio::spawn(client.send_request(Request::get("http://a/").body(full("")).unwrap()))
    };
    let first = ask(&mut client);
    eventually(|| held.arrived() == 1, || "the first in service".to_owned()).await;
    let second = ask(&mut client);
    eventually(|| sentry.pool().slots.waiting() == 1, || "the second in the queue".to_owned()).await;
    second.abort();
    eventually(|| sentry.pool().slots.waiting() == 0, || "out of the queue".to_owned()).await;
    held.permits.add_permits(1);
    assert_eq!(soon(first).await.unwrap().unwrap().status(), 200, "the other one is served");
    sentry.settled().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_the_server_works_resets_it() {
    for protocol in ["http1", "http2"] {
        let held = Held::start().await;
        let sentry = Sentry::before(&[held.server.address], &format!("{ONE}\nprotocol = \"{protocol}\""));
        for (n, bytes) in [PLAIN, UPLOAD].into_iter().enumerate() {
            let stream = send(&sentry, bytes).await;
            eventually(|| held.arrived() == n + 1, || "in service".to_owned()).await;
            drop(stream);
            eventually(|| held.dropped() == n + 1, || format!("{protocol}: the server is told")).await;
            sentry.settled().await;
        }
        let mut client = client::http2(sentry.address).await;
        let request = tokio::spawn(client.send_request(Request::get("http://a/").body(full("")).unwrap()));
        eventually(|| held.arrived() == 3, || "in service".to_owned()).await;
        request.abort();
        eventually(|| held.dropped() == 3, || format!("{protocol}: the server is told of the reset")).await;
        sentry.settled().await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_read_the_body_does_not_hide_that_the_client_has_left() {
    // The server takes the connection and never reads: the body stops half-way, and hyper with it.
    let server = Server::raw(|stream: TcpStream| async move {
        let _stream = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let sentry = Sentry::before(&[server.address], ONE);
    let mut stream = send(&sentry, b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\n").await;
    let fill = async { while stream.write_all(&[0; 65536]).await.is_ok() {} };
    let _ = tokio::time::timeout(Duration::from_millis(500), fill).await;
    assert_eq!(sentry.pool().slots.taken(), 1);
    // An orderly close would have to wait in line behind the body.
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    sentry.settled().await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_response_ends_it_at_the_server() {
    for protocol in ["http1", "http2"] {
        let (parts, body) = by_hand();
        let body = std::sync::Arc::new(parking_lot::Mutex::new(Some(body)));
        let server = Server::http(move |_| {
            let body = body.lock().take().unwrap_or_else(|| full(""));
            async { Response::new(body) }
        })
        .await;
        let sentry = Sentry::before(&[server.address], &format!("{ONE}\nprotocol = \"{protocol}\""));
        let mut stream = send(&sentry, PLAIN).await;
        parts.send(Ok(Frame::data("first".into()))).await.unwrap();
        let mut seen = String::new();
        while !seen.contains("first") {
            let mut part = [0; 1024];
            let n = soon(stream.read(&mut part)).await.unwrap();
            seen.push_str(&String::from_utf8_lossy(&part[..n]));
        }
        assert_eq!(sentry.pool().slots.taken(), 1);
        drop(stream);
        sentry.settled().await;
        // The server notices when it wants to go on.
        soon(parts.closed()).await;
    }
}

#[tokio::test]
async fn a_request_that_breaks_off_is_not_passed_off_as_whole() {
    for protocol in ["http1", "http2"] {
        let outcomes = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let of_server = std::sync::Arc::clone(&outcomes);
        let server = Server::http(move |request| {
            let outcomes = std::sync::Arc::clone(&of_server);
            async move {
                let whole = request.into_body().collect().await.is_ok();
                outcomes.lock().push(whole);
                Response::new(full(""))
            }
        })
        .await;
        let sentry = Sentry::before(&[server.address], &format!("{ONE}\nprotocol = \"{protocol}\""));
        for bytes in [
            UPLOAD,
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nnonsense\r\n",
        ] {
            let stream = send(&sentry, bytes).await;
            eventually(|| sentry.default_class().offered > 0, || "arrived".to_owned()).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(stream);
            sentry.settled().await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(outcomes.lock().iter().all(|whole| !whole), "{protocol}");
    }
}

#[tokio::test]
async fn a_storm_of_clients_that_come_and_go_leaves_nothing_behind() {
    let server = Server::http(|request| async move {
        tokio::time::sleep(Duration::from_millis(u64::from(request.uri().path().len() as u32) * 3)).await;
        let body =
            request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Response::new(full(body))
    })
    .await;
    for pool in [
        "workers = 8\nmax_queue = 20\nadmission = { policy = \"none\" }",
        "workers = 8\nmax_queue = 20\nadmission = { policy = \"codel\" }\nprotocol = \"http2\"",
        "workers = 4\nadmission = { mode = \"shadow\" }",
    ] {
        let sentry = Sentry::before(&[server.address], pool);
        let clients: Vec<_> = (0..150_u64)
            .map(|i| {
                let address = sentry.address;
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(i * 5)).await;
                    let path = "/".repeat(1 + (i as usize * 5) % 9);
                    // Those whose body never ends hold a slot until they give up.
                    let patience = Duration::from_millis(if i % 3 == 2 { 10 } else { 1 + i * 13 % 150 });
                    if i % 3 == 0 {
                        let mut client = client::http2(address).await;
                        let request =
                            Request::post(format!("http://a{path}")).body(full(vec![b'x'; i as usize * 50]));
                        let _ = tokio::time::timeout(patience, client.send_request(request.unwrap())).await;
                    } else {
                        let mut stream = TcpStream::connect(address).await.unwrap();
                        let length = i * 20;
                        let head =
                            format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
                        stream.write_all(head.as_bytes()).await.unwrap();
                        let sent = if i % 3 == 1 { length } else { length / 2 };
                        let _ = stream.write_all(&vec![b'x'; sent as usize]).await;
                        let mut part = [0; 512];
                        let _ = tokio::time::timeout(patience, stream.read(&mut part)).await;
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        sentry.settled().await;
        let c = sentry.default_class();
        let counted = format!("{pool}: {} served, {:?} failed, {:?} refused", c.served, c.failed, c.refused);
        assert_eq!(c.offered, c.admitted() + c.refused.iter().sum::<u64>() + c.gone, "{counted}");
        assert_eq!(c.admitted(), c.served + c.failed.iter().sum::<u64>(), "{counted}");
        assert!(c.served > 0 && c.failed.iter().sum::<u64>() > 0, "{counted}");
    }
}
