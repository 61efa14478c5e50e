//! Connections that break, end, run out or never come to be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use plimsoll_core::Nanos;
use plimsoll_loadgen::{HttpVersion, Plan};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::server::{accept, mix, plan, planned, report, response, serve};

/// Reads a request and answers with these bytes, as often as requests come or once.
async fn say(mut stream: TcpStream, answer: &'static [u8]) {
    let mut request = [0; 1024];
    if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
        // A client that has left needs no answer.
        let _ = stream.write_all(answer).await;
    }
}

#[tokio::test]
async fn broken_connections_are_errors_by_kind() {
    let cut: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    for (answer, kind) in [(cut, "closed"), (b"", "closed"), (b"SSH-2.0-OpenSSH\r\n", "protocol")] {
        let address = accept(move |stream| say(stream, answer)).await;
        let plan = plan(address, mix(&["/"]), "100", 200);
        let total = report(&plan).await.table.total;
        assert_eq!(total.error_kinds, [(kind.to_owned(), planned(&plan))].into());
        assert!(total.p50_ms.is_none() && total.max_ms.is_some());
    }
}

#[tokio::test]
async fn a_target_that_is_not_there_is_an_error_of_each_request() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let plan = Plan { http, ..plan(address, mix(&["/"]), "100", 200) };
        let kinds = report(&plan).await.table.total.error_kinds;
        assert_eq!(kinds, [("connect_connection_refused".to_owned(), planned(&plan))].into());
    }
}

#[tokio::test]
async fn reset_streams_leave_their_connection_in_use() {
    let connections = Arc::new(AtomicUsize::new(0));
    let address = serve(|request: Request<Incoming>| async move {
        match request.uri().path() {
            "/ok" => Ok(response(200, &[])),
            _ => Err(std::io::Error::other("the server gives up")),
        }
    })
    .await;
    let front = {
        let connections = connections.clone();
        accept(move |mut stream| {
            connections.fetch_add(1, Ordering::Relaxed);
            async move {
                let mut server = TcpStream::connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
            }
        })
        .await
    };
    let plan = Plan {
        http: HttpVersion::Http2,
        connections: 2,
        streams: 3,
        ..plan(front, mix(&["/ok", "/reset"]), "200", 500)
    };
    let report = report(&plan).await;
    let [(_, ok), (_, reset)] = &report.table.requests[..] else { panic!() };
    assert_eq!(ok.ok, ok.sent);
    assert_eq!(reset.error_kinds, [("h2_internal_error".to_owned(), reset.sent)].into());
    assert_eq!(connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_idle_connection_that_the_server_closed_is_no_error() {
    // The answer does not announce the end, so the client learns of it only by the close.
    let address = accept(|stream| say(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")).await;
    let plan = plan(address, mix(&["/"]), "40", 500);
    assert_eq!(report(&plan).await.table.total.ok, planned(&plan));
}

#[tokio::test]
async fn connections_are_reused() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let address = accept(move |mut stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            let mut request = [0; 1024];
            while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            }
        }
    })
    .await;
    let plan = Plan { connections: 2, ..plan(address, mix(&["/"]), "500", 400) };
    assert_eq!(report(&plan).await.table.total.ok, planned(&plan));
    assert!(connections.load(Ordering::Relaxed) <= 2);
}

#[tokio::test]
async fn a_request_given_up_frees_its_connection() {
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let first = Arc::new(AtomicUsize::new(0));
        let address = serve(move |_: Request<Incoming>| {
            let index = first.fetch_add(1, Ordering::Relaxed);
            async move {
                if index == 0 {
                    tokio::time::sleep(Duration::from_secs(3_600)).await;
                }
                Ok(response(200, &[]))
            }
        })
        .await;
        // Due at 0.25, 0.75, 1.25 and 1.75 s; the first holds the only connection until 1.75 s.
        let plan = Plan {
            http,
            connections: 1,
            streams: 1,
            timeout: Nanos::from_millis(1_500),
            ..plan(address, mix(&["/"]), "2", 2_000)
        };
        let total = report(&plan).await.table.total;
        assert_eq!(total.error_kinds, [("timeout".to_owned(), 1)].into());
        assert_eq!(total.ok, 3);
        // Waiting for a connection is the generator's lag, and no latency leaves it out.
        assert!(total.late_ms_p99 >= Some(900.0), "{total:?}");
        assert!(total.max_ms >= Some(1_500.0), "{total:?}");
    }
}

#[tokio::test]
async fn requests_that_never_got_a_connection_are_counted() {
    let address = accept(|stream| async move {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        drop(stream);
    })
    .await;
    // A burst of 50 within 50 us: when the first gives up its connection, the last are about to.
    let burst = plan(address, mix(&["/"]), "0s:1000000,50us:0", 100);
    let plan = Plan { connections: 1, timeout: Nanos::from_millis(300), ..burst };
    let total = report(&plan).await.table.total;
    assert_eq!((total.sent, total.errors), (planned(&plan), planned(&plan)));
    let kinds = total.error_kinds;
    assert!(kinds["timeout"] >= 1 && kinds["timeout_unsent"] >= 1 && kinds.len() == 2, "{kinds:?}");
    assert!(total.max_ms >= Some(300.0));
}
