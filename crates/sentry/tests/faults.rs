//! Servers that fail: the client learns of it, the slot is free again, and what is safe is tried elsewhere.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use common::client;
use common::server::{Held, Server, by_hand, full, mirror};
use common::{Sentry, eventually, soon};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use plimsoll_core::Nanos;
use plimsoll_sentry::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Reads the head of a request.
async fn head(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut part = [0; 4096];
    while !text.contains("\r\n\r\n") {
        match stream.read(&mut part).await {
            Ok(n @ 1..) => text.push_str(&String::from_utf8_lossy(&part[..n])),
            _ => return text,
        }
    }
    text
}

/// Answers every connection's first request with these bytes, and closes.
async fn answers(bytes: &'static [u8]) -> Server {
    Server::raw(move |mut stream| async move {
        head(&mut stream).await;
        let _ = stream.write_all(bytes).await;
    })
    .await
}

fn nobody() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_502() {
    let sentry = Sentry::before(&[nobody()], "workers = 2\nretries = { budget = 1.0, max = 2 }");
    assert_eq!(
        client::get(sentry.address, "/").await,
        (502, "{\"error\":\"no server can be reached\"}".to_owned())
    );
    assert_eq!(sentry.count("retries"), 2);
    let mut client = client::http2(sentry.address).await;
    let request =
        Request::post("http://a/S/M").header("content-type", "application/grpc").body(full("")).unwrap();
    let response = soon(client.send_request(request)).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.headers()["grpc-status"].to_str().unwrap()),
        (200, "14")
    );
    assert!(!response.headers().contains_key("plimsoll-reason"), "an error is not a refusal");
    sentry.settled().await;
}

#[tokio::test]
async fn what_a_server_says_instead_of_a_response_is_a_502() {
    let close = Server::raw(|mut stream| async move {
        head(&mut stream).await;
    })
    .await;
    let resets = Server::raw(|mut stream| async move {
        head(&mut stream).await;
        reset(stream);
    })
    .await;
    let half = answers(b"HTTP/1.1 200 OK\r\ncontent-le").await;
    let nonsense = answers(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").await;
    let folded = answers(b"HTTP/1.1 200 OK\r\nx-a: b\r\n c\r\ncontent-length: 0\r\n\r\n").await;
    let lengths = answers(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab").await;
    let endless = Server::raw(|mut stream| async move {
        head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        while stream.write_all(b"x-more: and more and more and more and more and more\r\n").await.is_ok() {}
    })
    .await;
    for server in [close, resets, half, nonsense, folded, lengths, endless] {
        let sentry = Sentry::before(&[server.address], "workers = 2\neject = { failures = 1000 }");
        for body in ["", "upload"] {
            let request = client::request("POST", "/", body);
            let response = soon(client::http1(sentry.address).await.send_request(request)).await.unwrap();
            assert_eq!(response.status(), 502);
        }
        sentry.settled().await;
        assert_eq!(sentry.count("retries"), 0, "it may have done what was asked");
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_is_seen_to_break_off() {
    let cases: [&'static [u8]; 4] = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nnot quite",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    ];
    for bytes in cases {
        let server = answers(bytes).await;
        let sentry = Sentry::before(&[server.address], "workers = 2\neject = { failures = 1000 }");
        // By HTTP/1 the connection ends in the middle of the message, which a client cannot miss.
        match soon(client::http1(sentry.address).await.send_request(client::request("GET", "/", ""))).await {
            Ok(response) if response.status() == 200 => {
                assert!(soon(response.into_body().collect()).await.is_err())
            }
            Ok(response) => assert_eq!(response.status(), 502, "it broke off before the head was passed on"),
            Err(e) => assert!(e.is_incomplete_message(), "{e}"),
        }
        let mut http2 = client::http2(sentry.address).await;
        // By HTTP/2 the stream is reset, perhaps before its head has gone out.
        if let Ok(response) =
            soon(http2.send_request(Request::get("http://a/").body(full("")).unwrap())).await
        {
            let status = response.status().as_u16();
            let whole = soon(response.into_body().collect()).await.is_ok();
            assert!((status, whole) == (200, false) || (status, whole) == (502, true), "{status} {whole}");
        }
        sentry.settled().await;
        assert_eq!(sentry.default_class().response.count(), 0, "a failure says nothing about its class");
    }
}

/// What a hyper server resets a stream with `CANCEL` for.
#[derive(Debug)]
struct Cancelled(h2::Error);

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cancelled")
    }
}

impl std::error::Error for Cancelled {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn a_stream_is_reset_for_the_servers_own_reason() {
    let server = Server::http(|_| async {
        let (parts, body) = by_hand();
        parts.send(Ok(Frame::data("begun".into()))).await.unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let cancelled = Cancelled(h2::Reason::CANCEL.into());
            parts.send(Err(std::io::Error::other(cancelled))).await.unwrap();
        });
        Response::new(body)
    })
    .await;
    let sentry = Sentry::before(&[server.address], "workers = 2\nprotocol = \"http2\"");
    let mut client = client::http2(sentry.address).await;
    let response =
        soon(client.send_request(Request::get("http://a/").body(full("")).unwrap())).await.unwrap();
    let error = soon(response.into_body().collect()).await.unwrap_err();
    let reason = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<h2::Error>()?.reason());
    assert_eq!(reason, Some(h2::Reason::CANCEL), "{error:?}");
    sentry.settled().await;
}

#[tokio::test]
async fn a_server_that_hangs_is_a_504_and_the_slot_is_free() {
    let server = Server::raw(|mut stream| async move {
        head(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let sentry = Sentry::before(&[server.address], "workers = 1\nresponse_timeout = \"200ms\"");
    for body in ["", "upload"] {
        let began = clock::now();
        let request = client::request("POST", "/", body);
        let response = soon(client::http1(sentry.address).await.send_request(request)).await.unwrap();
        assert_eq!(response.status(), 504);
        assert!(clock::now() - began >= Nanos::from_millis(200));
    }
    sentry.settled().await;
    assert_eq!(server.accepted(), 2, "the connection that hangs is not used again");
}

#[tokio::test]
async fn a_server_that_hangs_in_its_response_is_cut_off() {
    let server = Server::raw(|mut stream| async move {
        head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nso far").await;
        std::future::pending::<()>().await;
    })
    .await;
    let sentry = Sentry::before(&[server.address], "workers = 1\nresponse_timeout = \"200ms\"");
    let response = soon(client::http1(sentry.address).await.send_request(client::request("GET", "/", "")))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert!(soon(response.into_body().collect()).await.is_err());
    sentry.settled().await;
}

#[tokio::test]
async fn servers_that_hang_or_break_off_are_left_out() {
    let hangs = Server::raw(|mut stream| async move {
        head(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let breaks = answers(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nnot quite").await;
    for bad in [hangs, breaks] {
        let good = Server::http(mirror).await;
        let pool = "workers = 2\nresponse_timeout = \"100ms\"\neject = { failures = 2, for = \"1h\" }";
        let sentry = Sentry::before(&[bad.address, good.address], pool);
        let end = clock::now() + common::PATIENCE.into();
        while sentry.pool().slots.size() > 2 {
            assert!(clock::now() < end, "it stays");
            if let Ok(response) =
                client::http1(sentry.address).await.send_request(client::request("GET", "/", "")).await
            {
                let _ = soon(response.into_body().collect()).await;
            }
        }
        for _ in 0..10 {
            assert_eq!(client::get(sentry.address, "/").await.0, 200);
        }
        sentry.settled().await;
    }
}

#[tokio::test]
async fn a_request_that_is_given_up_is_not_sent_on() {
    for protocol in ["http1", "http2"] {
        let held = Held::start().await;
        let pool = format!("workers = 1\nprotocol = \"{protocol}\"\nadmission = {{ policy = \"none\" }}");
        let sentry = Sentry::before(&[held.server.address], &pool);
        let (parts, body) = common::server::by_hand();
        parts.send(Ok(Frame::data("some of it".into()))).await.unwrap();
        let request = Request::post("http://a/").header("x-request-deadline-ms", "200").body(body).unwrap();
        // It stays connected, and its body open.
        let mut client = client::http2(sentry.address).await;
        let response = soon(client.send_request(request)).await.unwrap();
        assert_eq!(response.status(), 504);
        eventually(|| held.dropped() == 1, || format!("{protocol}: the server is told")).await;
        sentry.settled().await;
        drop((parts, client));
    }
}

#[tokio::test]
async fn a_pause_in_an_upload_is_not_the_servers_fault_either() {
    let server = Server::http(mirror).await;
    let sentry = Sentry::before(&[server.address], "workers = 1\nresponse_timeout = \"200ms\"");
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nx").await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    stream.write_all(b"x").await.unwrap();
    let (head, _) = client::read_response(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[tokio::test]
async fn a_slow_upload_is_not_the_servers_fault() {
    let server = Server::http(mirror).await;
    let sentry = Sentry::before(&[server.address], "workers = 1\nresponse_timeout = \"300ms\"");
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 12\r\n\r\n").await.unwrap();
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.write_all(b"x").await.unwrap();
    }
    let (head, _) = client::read_response(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    sentry.settled().await;
    let counted = sentry.default_class();
    assert_eq!(
        (counted.served, counted.response.count()),
        (1, 0),
        "how fast its client is says nothing of the server"
    );
}

#[tokio::test]
async fn what_was_not_sent_is_sent_elsewhere() {
    let server = Server::http(mirror).await;
    let sentry = Sentry::before(
        &[nobody(), nobody(), server.address],
        "workers = 2\nretries = { budget = 1.0, max = 2 }",
    );
    let up = || sentry.pool().servers.up(plimsoll_sentry::clock::now());
    let end = clock::now() + common::PATIENCE.into();
    while up() > 1 {
        assert!(clock::now() < end, "the dead ones are not left out");
        let response =
            soon(client::http1(sentry.address).await.send_request(client::request("POST", "/", "body")))
                .await;
        let response = response.unwrap();
        assert_eq!(response.status(), 200);
        assert!(client::text(response).await.ends_with("body"));
    }
    assert!(sentry.count("retries") >= 10, "five times each");
    assert_eq!(sentry.pool().slots.size(), 2, "and their workers with them");
    let retried = sentry.count("retries");
    for _ in 0..10 {
        assert_eq!(client::get(sentry.address, "/").await.0, 200);
    }
    assert_eq!(sentry.count("retries"), retried, "nobody asks them any more");
}

#[tokio::test]
async fn retries_end_with_their_budget() {
    let sentry = Sentry::before(&[nobody()], "workers = 2\nretries = { budget = 0.0, max = 5 }");
    assert_eq!(client::get(sentry.address, "/").await.0, 502);
    assert_eq!((sentry.count("retries"), sentry.count("retries_denied")), (0, 1));
}

#[tokio::test]
async fn an_idle_connection_that_the_server_closed_costs_nobody_anything() {
    // Each connection serves one request, says nothing of closing, and closes a little later.
    let requests = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&requests);
    let server = Server::raw(move |mut stream| {
        let seen = Arc::clone(&seen);
        async move {
            head(&mut stream).await;
            seen.fetch_add(1, Ordering::SeqCst);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let sentry = Sentry::before(
        &[server.address],
        "workers = 1\nretries = { budget = 0.0 }\neject = { failures = 1 }",
    );
    let mut client = client::http1(sentry.address).await;
    for _ in 0..10 {
        let response = soon(client.send_request(client::request("POST", "/", "x"))).await.unwrap();
        assert_eq!(response.status(), 200);
        client::text(response).await;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    assert_eq!(requests.load(Ordering::SeqCst), 10, "each was sent once");
}

#[tokio::test]
async fn a_request_that_meets_the_close_of_an_old_connection_is_sent_again_if_that_is_safe() {
    // The second request on a connection is read and not answered, as if it had crossed with the close.
    let server = Server::raw(|mut stream| async move {
        head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        head(&mut stream).await;
    })
    .await;
    let sentry = Sentry::before(
        &[server.address],
        "workers = 1\nretries = { budget = 1.0 }\neject = { failures = 1000 }",
    );
    for (method, body, status) in
        [("GET", "", 200), ("POST", "", 502), ("PUT", "x", 502), ("DELETE", "", 200)]
    {
        // On one connection, because each thread has its own connections to the server.
        let mut client = client::http1(sentry.address).await;
        let mut ask = async |request| {
            let response = soon(client.send_request(request)).await.unwrap();
            let status = response.status().as_u16();
            client::text(response).await;
            soon(client.ready()).await.unwrap();
            status
        };
        assert_eq!(ask(client::request("GET", "/", "")).await, 200);
        // Longer than STALE: a connection that has just been used is not about to be closed for being idle.
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(ask(client::request(method, "/", body)).await, status, "{method}");
        if status == 200 {
            // Uses up what the successful retry has left open.
            assert_eq!(ask(client::request("POST", "/", "")).await, 502);
        }
    }
    sentry.settled().await;
}

#[tokio::test]
async fn killing_and_restarting_a_server_under_load_ends_in_no_error() {
    for pool in ["workers = 8", "workers = 8\nprotocol = \"http2\""] {
        let server = Server::http(mirror).await;
        let address = server.address;
        let sentry = Sentry::before(&[address], pool);
        let (stop, after) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let (stop, after, address) = (Arc::clone(&stop), Arc::clone(&after), sentry.address);
                tokio::spawn(async move {
                    let mut client = client::http1(address).await;
                    let (mut errors, mut served_after, mut late_errors) = (0, 0, Vec::new());
                    while !stop.load(Ordering::SeqCst) {
                        // What was sent before the recovery may fail after it.
                        let counts = after.load(Ordering::SeqCst);
                        let response =
                            soon(client.send_request(client::request("GET", "/", ""))).await.unwrap();
                        match response.status().as_u16() {
                            200 => served_after += u32::from(counts),
                            other if counts => late_errors.push(other),
                            _ => errors += 1,
                        }
                        client::text(response).await;
                        soon(client.ready()).await.unwrap();
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    (errors, served_after, late_errors)
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(server);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let _server = Server::http_at(address, mirror).await;
        after.store(true, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop.store(true, Ordering::SeqCst);
        for client in clients {
            let (errors, served_after, late_errors) = client.await.unwrap();
            assert!(errors > 0, "the death was noticed");
            assert!(served_after > 10 && late_errors.is_empty(), "{pool}: {served_after} {late_errors:?}");
        }
        sentry.settled().await;
    }
}

#[tokio::test]
async fn one_of_two_servers_dies_and_comes_back() {
    let (one, two) = (Server::http(mirror).await, Server::http(mirror).await);
    let address = one.address;
    let pool = "workers = 4\neject = { failures = 2, for = \"5s\" }\nretries = { budget = 1.0 }";
    let sentry = Sentry::before(&[address, two.address], pool);
    let ask = || client::get(sentry.address, "/");
    assert_eq!(ask().await.0, 200);
    drop(one);
    // A request that crosses with the death of its server may fail; those that come later may not.
    tokio::time::sleep(Duration::from_millis(100)).await;
    for i in 0..30 {
        assert_eq!(ask().await.0, 200, "request {i} goes elsewhere");
    }
    assert_eq!(sentry.pool().slots.size(), 4);
    let back = Server::http_at(address, mirror).await;
    eventually(|| sentry.pool().slots.size() == 8, || "its time is over".to_owned()).await;
    let end = clock::now() + common::PATIENCE.into();
    while back.accepted() == 0 {
        assert!(clock::now() < end, "nobody asks it");
        assert_eq!(ask().await.0, 200);
    }
    sentry.settled().await;
}

#[tokio::test]
async fn an_ill_server_is_found_and_left_out_until_it_is_well() {
    let well = Arc::new(AtomicBool::new(true));
    let is_well = Arc::clone(&well);
    let asked = Arc::new(AtomicU32::new(0));
    let was_asked = Arc::clone(&asked);
    let one = Server::http(move |request: Request<hyper::body::Incoming>| {
        let (well, asked) = (is_well.load(Ordering::SeqCst), Arc::clone(&was_asked));
        async move {
            if request.uri().path() == "/healthz" {
                let status = if well { 204 } else { 503 };
                return Response::builder().status(status).body(full("")).unwrap();
            }
            asked.fetch_add(1, Ordering::SeqCst);
            Response::new(full("one"))
        }
    })
    .await;
    let two = Server::http(|_| async { Response::new(full("two")) }).await;
    let health = "health = { path = \"/healthz\", interval = \"20ms\", healthy = 2, unhealthy = 2 }";
    let sentry = Sentry::before(&[one.address, two.address], &format!("workers = 3\n{health}"));
    well.store(false, Ordering::SeqCst);
    eventually(|| sentry.pool().slots.size() == 3, || "found ill".to_owned()).await;
    let before = asked.load(Ordering::SeqCst);
    for _ in 0..10 {
        assert_eq!(client::get(sentry.address, "/").await, (200, "two".to_owned()));
    }
    assert_eq!(asked.load(Ordering::SeqCst), before);
    well.store(true, Ordering::SeqCst);
    eventually(|| sentry.pool().slots.size() == 6, || "found well".to_owned()).await;
    sentry.settled().await;
}

#[tokio::test]
async fn an_http2_server_that_goes_away_and_breaks_off_is_handled_like_the_rest() {
    let (parts, body) = common::server::by_hand();
    let body = Arc::new(parking_lot::Mutex::new(Some(body)));
    let server = Server::http(move |_| {
        let body = body.lock().take().unwrap_or_else(|| full("fine"));
        async { Response::new(body) }
    })
    .await;
    let sentry = Sentry::before(&[server.address], "workers = 4\nprotocol = \"http2\"");
    let mut client = client::http2(sentry.address).await;
    let mut ask =
        async || soon(client.send_request(Request::get("http://a/").body(full("")).unwrap())).await.unwrap();
    let response = ask().await;
    parts.send(Ok(Frame::data("some".into()))).await.unwrap();
    parts.send(Err(std::io::Error::other("no more"))).await.unwrap();
    assert!(soon(response.into_body().collect()).await.is_err());
    sentry.settled().await;
    assert_eq!(client::text(ask().await).await, "fine");
    assert_eq!(server.accepted(), 1, "the connection lives on");
}
