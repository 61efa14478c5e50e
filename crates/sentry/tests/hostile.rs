//! Clients that are slow on purpose, that take and do not read, that ask and take back: each costs what it may cost
//! and no more.

mod common;

use std::time::Duration;

use common::client::{self, Identity};
use common::server::{Held, Server, full, mirror};
use common::{Sentry, config, eventually, soon};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_core::Nanos;
use plimsoll_sentry::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn hold(limits: &str) -> (Server, Sentry) {
    let server = Server::http(mirror).await;
    let sentry = Sentry::start(&config(limits, &[server.address], "workers = 2"));
    (server, sentry)
}

#[tokio::test]
async fn a_head_that_takes_too_long_ends_the_connection() {
    let (_server, sentry) = hold("header_timeout = \"300ms\"").await;
    for start in ["", "G", "PRI * HT", "GET / HTTP/1.1\r\nhost: a\r\nx-slow: "] {
        let mut stream = TcpStream::connect(sentry.address).await.unwrap();
        let began = clock::now();
        stream.write_all(start.as_bytes()).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        // A byte now and then does not help.
        let drip = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(60)).await;
                if !start.is_empty() && writer.write_all(b"x").await.is_err() {
                    return writer;
                }
            }
        });
        let mut answer = String::new();
        let _ = soon(reader.read_to_string(&mut answer)).await;
        drip.abort();
        if !start.starts_with("PRI") {
            assert!(clock::now() - began >= Nanos::from_millis(300), "{start:?}");
            assert!(answer.starts_with("HTTP/1.1 408 "), "{start:?}: {answer}");
        }
    }
    eventually(|| sentry.shared.connections() == 0, || "all closed".to_owned()).await;
    assert!(sentry.count("slow_heads") >= 3);
    assert_eq!(sentry.default_class().offered, 0);
}

#[tokio::test]
async fn the_second_head_of_a_connection_may_take_no_longer_than_the_first() {
    let (_server, sentry) = hold("header_timeout = \"300ms\"").await;
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    client::read_response(&mut stream).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let answer = client::read_all(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 408 "),
        "idle for longer than a head may take is fine, then: {answer}"
    );
}

#[tokio::test]
async fn a_handshake_that_is_never_finished_ends_too() {
    let identity = Identity::new();
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&cert, &identity.cert_pem).unwrap();
    std::fs::write(&key, &identity.key_pem).unwrap();
    let (_server, sentry) =
        hold(&format!("header_timeout = \"200ms\"\ntls = {{ cert = {cert:?}, key = {key:?} }}")).await;
    for start in [&b""[..], b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"] {
        let mut stream = TcpStream::connect(sentry.address).await.unwrap();
        stream.write_all(start).await.unwrap();
        client::read_all(&mut stream).await;
    }
    assert_eq!(sentry.count("tls_failures"), 3);
    eventually(|| sentry.shared.connections() == 0, || "all closed".to_owned()).await;
}

#[tokio::test]
async fn idle_connections_are_closed_without_a_word() {
    let (_server, sentry) = hold("idle_timeout = \"200ms\"").await;
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    client::read_response(&mut stream).await;
    assert_eq!(client::read_all(&mut stream).await, "");
    let mut http2 = client::http2(sentry.address).await;
    let request = Request::get("http://a/").body(full("")).unwrap();
    assert_eq!(soon(http2.send_request(request)).await.unwrap().status(), 200);
    eventually(|| http2.is_closed(), || "the HTTP/2 connection too".to_owned()).await;
    eventually(|| sentry.shared.connections() == 0, || "all closed".to_owned()).await;
}

#[tokio::test]
async fn a_body_that_stalls_gives_its_slot_back() {
    let (_server, sentry) = hold("body_timeout = \"300ms\"").await;
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
    let answer = client::read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    sentry.settled().await;
    assert_eq!(sentry.count("stalled_clients"), 1);

    // A stream of an HTTP/2 connection stalls; the others go on.
    let mut http2 = client::http2(sentry.address).await;
    let (parts, body) = common::server::by_hand();
    let stalled = tokio::spawn(http2.send_request(Request::post("http://a/").body(body).unwrap()));
    let request = Request::get("http://a/").body(full("")).unwrap();
    assert_eq!(soon(http2.send_request(request)).await.unwrap().status(), 200);
    assert_eq!(soon(stalled).await.unwrap().unwrap().status(), 408);
    drop(parts);
    let request = Request::get("http://a/").body(full("")).unwrap();
    assert_eq!(soon(http2.send_request(request)).await.unwrap().status(), 200);
    sentry.settled().await;
}

#[tokio::test]
async fn a_body_that_trickles_gives_its_slot_back_too() {
    let (_server, sentry) = hold("body_timeout = \"500ms\"").await;
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n").await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let trickle = tokio::spawn(async move {
        while writer.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut answer = String::new();
    let _ = soon(reader.read_to_string(&mut answer)).await;
    trickle.abort();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    sentry.settled().await;

    // Slow is not too slow: some hundred bytes at a time.
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4000\r\n\r\n").await.unwrap();
    for _ in 0..20 {
        stream.write_all(&[b'x'; 200]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (head, _) = client::read_response(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[tokio::test]
async fn a_client_that_does_not_read_gives_its_slot_back() {
    let large = Server::http(|_| async { Response::new(full(vec![b'x'; 30_000_000])) }).await;
    let sentry = Sentry::start(&config("body_timeout = \"300ms\"", &[large.address], "workers = 2"));
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    eventually(|| sentry.pool().slots.taken() == 1, || "in service".to_owned()).await;
    sentry.settled().await;
    eventually(|| sentry.shared.connections() == 0, || "closed".to_owned()).await;
    assert!(client::read_all(&mut stream).await.len() < 30_000_000, "and the client sees that it is not all");

    // By HTTP/2: a client that takes the head and opens no window. Its connection lives on for others.
    let stream = TcpStream::connect(sentry.address).await.unwrap();
    let (mut http2, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(10_000)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let ask = |http2: &mut http2::SendRequest<_>| {
        http2.send_request(Request::get("http://a/").body(full("")).unwrap())
    };
    let unread = soon(ask(&mut http2)).await.unwrap();
    assert_eq!((unread.status().as_u16(), sentry.pool().slots.taken()), (200, 1));
    sentry.settled().await;
    assert!(soon(unread.into_body().collect()).await.is_err());
    assert_eq!(soon(ask(&mut http2)).await.unwrap().status(), 200);
}

#[tokio::test]
async fn heads_have_a_size() {
    let (_server, sentry) = hold("max_header_size = \"16KiB\"\nmax_headers = 20").await;
    let many: String = (0..21).map(|i| format!("x-{i}: y\r\n")).collect();
    let cases = [
        (format!("GET / HTTP/1.1\r\nhost: a\r\nx-large: {}\r\n\r\n", "y".repeat(20_000)), "431"),
        (format!("GET / HTTP/1.1\r\nhost: a\r\nx-large: {}", "y".repeat(2_000_000)), "431"),
        (format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n"), "431"),
        (format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(70_000)), "4"),
    ];
    for (request, status) in cases {
        let mut stream = TcpStream::connect(sentry.address).await.unwrap();
        let _ = stream.write_all(request.as_bytes()).await;
        let answer = client::read_all(&mut stream).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{}: {answer}", &request[..40]);
    }
    let fits =
        format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-large: {}\r\n\r\n", "y".repeat(15_000));
    assert!(client::raw(sentry.address, fits.as_bytes()).await.starts_with("HTTP/1.1 200 "));

    let mut http2 = client::http2(sentry.address).await;
    let request = Request::get("http://a/").header("x-large", "y".repeat(20_000)).body(full("")).unwrap();
    assert_eq!(soon(http2.send_request(request)).await.unwrap().status(), 431);
    assert_eq!(sentry.default_class().offered, 1);
    assert!(sentry.count("malformed") >= 3, "counted");
}

/// Frames of HTTP/2, by hand.
mod frames {
    pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    /// `GET / http a` in HPACK's static table.
    pub const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'a'];

    pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }
    pub fn settings() -> Vec<u8> {
        frame(4, 0, 0, &[])
    }
    pub fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
        frame(1, flags, stream, block)
    }
    pub fn continuation(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
        frame(9, flags, stream, block)
    }
    pub fn reset(stream: u32) -> Vec<u8> {
        frame(3, 0, stream, &8_u32.to_be_bytes())
    }
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
}

/// Bytes that this process occupies.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Writes as much as the other end takes, until it closes; what it said is thrown away. How many bytes it took.
async fn flood(stream: TcpStream, mut next: impl FnMut() -> Option<Vec<u8>>) -> usize {
    let (mut reader, mut writer) = stream.into_split();
    let drain = tokio::spawn(async move {
        let mut part = vec![0; 65536];
        while let Ok(1..) = reader.read(&mut part).await {}
    });
    let mut taken = 0;
    while let Some(bytes) = next() {
        match soon(writer.write_all(&bytes)).await {
            Ok(()) => taken += bytes.len(),
            Err(_) => break,
        }
        if drain.is_finished() {
            break;
        }
    }
    soon(drain).await.unwrap();
    taken
}

#[tokio::test]
async fn requests_that_are_taken_back_at_once_end_the_connection() {
    let held = Held::start().await;
    let sentry = Sentry::before(&[held.server.address], "workers = 4");
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(frames::PREFACE).await.unwrap();
    stream.write_all(&frames::settings()).await.unwrap();
    let before = resident();
    let mut id = 1;
    let taken = flood(stream, || {
        let mut batch = Vec::new();
        for _ in 0..100 {
            batch.extend(frames::headers(id, frames::END_HEADERS | frames::END_STREAM, frames::GET));
            batch.extend(frames::reset(id));
            id += 2;
        }
        (id < 20_000_000).then_some(batch)
    })
    .await;
    sentry.settled().await;
    eventually(|| sentry.shared.connections() == 0, || "closed".to_owned()).await;
    assert!(taken < 20_000_000, "it was ended early");
    assert!(resident().saturating_sub(before) < 64 << 20, "{} bytes more", resident() - before);
    assert!(held.arrived() <= 200, "{} requests reached the server", held.arrived());
}

#[tokio::test]
async fn requests_that_are_taken_back_when_the_work_has_begun_end_the_connection_too() {
    let held = Held::start().await;
    let sentry = Sentry::before(&[held.server.address], "workers = 4\nadmission = { policy = \"none\" }");
    let mut client = client::http2(sentry.address).await;
    let mut asked = 0;
    while !client.is_closed() {
        let request = tokio::spawn(client.send_request(Request::get("http://a/").body(full("")).unwrap()));
        asked += 1;
        eventually(|| held.arrived() == asked || client.is_closed(), || "in service".to_owned()).await;
        request.abort();
        assert!(asked < 1_000, "never ended");
    }
    sentry.settled().await;
    assert_eq!(sentry.count("reset_floods"), 1);

    // A client that changes its mind now and then is not one of those.
    held.permits.add_permits(10_000);
    let mut client = client::http2(sentry.address).await;
    for i in 0..300 {
        let request = Request::get("http://a/").body(full("")).unwrap();
        let answer = client.send_request(request);
        if i % 3 == 0 { drop(answer) } else { assert_eq!(soon(answer).await.unwrap().status(), 200) }
    }
    assert_eq!(sentry.count("reset_floods"), 1);
}

#[tokio::test]
async fn a_head_that_never_ends_ends_the_connection() {
    let (_server, sentry) = hold("max_header_size = \"16KiB\"").await;
    let before = resident();
    // Literals that are not indexed, of a kilobyte each; and empty continuations, which cost nothing to send.
    let literal = [&[0x00, 0x01, b'x', 0x7f, 0x81, 0x07][..], &[b'y'; 1_024]].concat();
    for block in [literal.as_slice(), &[]] {
        let mut stream = TcpStream::connect(sentry.address).await.unwrap();
        stream.write_all(frames::PREFACE).await.unwrap();
        stream.write_all(&frames::settings()).await.unwrap();
        stream.write_all(&frames::headers(1, frames::END_STREAM, frames::GET)).await.unwrap();
        let mut left = 200_000;
        let taken = flood(stream, || {
            left -= 1;
            (left > 0).then(|| frames::continuation(1, 0, block))
        })
        .await;
        assert!(taken < 20_000_000, "{taken} bytes taken");
    }
    eventually(|| sentry.shared.connections() == 0, || "closed".to_owned()).await;
    assert!(resident().saturating_sub(before) < 64 << 20);
    assert_eq!(sentry.default_class().offered, 0);
}

#[tokio::test]
async fn what_http2_forbids_is_not_passed_on() {
    let server = Server::http(mirror).await;
    let sentry = Sentry::before(&[server.address], "workers = 1");
    let literal = |name: &str, value: &str| {
        [&[0x00, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
    };
    for extra in [
        literal("transfer-encoding", "chunked"),
        literal("connection", "close"),
        literal("te", "gzip"),
        literal("X-Upper", "1"),
        literal("x-line", "a\r\nx-smuggled: 1"),
        literal("x-nul", "a\0b"),
        literal(":path", "/twice"),
        literal(":scheme", "ftp"),
        literal("content-length", "5"),
    ] {
        let mut stream = TcpStream::connect(sentry.address).await.unwrap();
        let block = [frames::GET, &extra].concat();
        let request = [
            frames::PREFACE,
            &frames::settings(),
            &frames::headers(1, frames::END_HEADERS | frames::END_STREAM, &block),
        ]
        .concat();
        stream.write_all(&request).await.unwrap();
        // Enough to see whether a response comes: HEADERS of stream 1 with :status 200 as their first field.
        let mut said = vec![0; 4096];
        let mut all = Vec::new();
        while let Ok(Ok(n @ 1..)) =
            tokio::time::timeout(Duration::from_millis(200), stream.read(&mut said)).await
        {
            all.extend_from_slice(&said[..n]);
        }
        let ok = all.windows(10).any(|w| w[3] == 1 && w[5..9] == [0, 0, 0, 1] && w[9] == 0x88);
        assert!(!ok, "{:?} was served", String::from_utf8_lossy(&extra));
    }
    sentry.settled().await;
    assert_eq!(sentry.default_class().served, 0);
}
