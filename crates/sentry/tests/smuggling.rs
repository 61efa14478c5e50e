//! Requests that two readers could understand differently never reach a server as two, or as another one.

mod common;

use std::sync::Arc;

use common::client;
use common::server::{AnyBody, Server, full};
use common::{Sentry, eventually};
use http::{Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use plimsoll_sentry::stats::Failure;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// A server that writes down what it was asked for.
async fn witness() -> (Server, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let of_server = Arc::clone(&seen);
    let server = Server::http(move |request: Request<hyper::body::Incoming>| {
        let seen = Arc::clone(&of_server);
        async move {
            let line = format!("{} {}", request.method(), request.uri());
            let lengths: Vec<String> = request
                .headers()
                .iter()
                .filter(|(n, _)| *n == "content-length" || *n == "transfer-encoding")
                .map(|(n, v)| format!("{n}: {}", v.to_str().unwrap()))
                .collect();
            let body = request.into_body().collect().await.map(|b| b.to_bytes()).unwrap_or_default();
            seen.lock().push(format!("{line} [{}] {}", lengths.join(", "), String::from_utf8_lossy(&body)));
            Response::<AnyBody>::new(full("ok"))
        }
    })
    .await;
    (server, seen)
}

/// What the server saw and what the client got, of these bytes. The client then closes its side.
async fn try_it(bytes: &[u8]) -> (Vec<String>, String) {
    let (server, seen) = witness().await;
    let sentry = Sentry::before(&[server.address], "workers = 8");
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    // Long enough for everything that would be answered; what waits for more never will be.
    let mut all = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut all);
    let closed = tokio::time::timeout(std::time::Duration::from_millis(300), read).await.is_ok();
    drop(stream);
    sentry.settled().await;
    let seen = seen.lock().clone();
    let mut answer = String::from_utf8_lossy(&all).into_owned();
    if closed {
        answer.push_str("<closed>");
    }
    (seen, answer)
}

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test]
async fn what_is_malformed_is_refused_and_nothing_behind_it_is_read() {
    // Lengths.
    let lengths = [
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 5, 6",
        "content-length: +5",
        "content-length: -5",
        "content-length: 5 5",
        "content-length: 0x5",
        "content-length: five",
        "content-length: 99999999999999999999",
        "content-length:",
        "content-length : 5",
        "content-length\t: 5",
        " content-length: 5",
    ];
    // Codings.
    let codings = [
        "transfer-encoding: gzip",
        "transfer-encoding: chunked, gzip",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked, chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding: xchunked",
        "transfer-encoding: \"chunked\"",
        "transfer-encoding: chunked;q=1",
        "transfer-encoding:\u{b}chunked",
        "transfer-encoding : chunked",
        "transfer-encoding: x\r\n chunked",
        "transfer-encoding: chunked\r\n content-length: 5",
        "transfer\u{0}encoding: chunked",
        "transfer-encoding: chunked\r\rcontent-length: 5",
    ];
    // Other headers.
    let others = [
        "x-a: b\r\n folded",
        "x-a: b\rx-b: c",
        "x-a: b\u{0}c",
        "x-a\u{0}: b",
        "x a: b",
        "x-a b",
        ": b",
        "host: b",
        "host: a, b",
        "expect: the unexpected",
    ];
    for header in lengths.into_iter().chain(codings).chain(others) {
        let bytes = format!("POST / HTTP/1.1\r\nhost: a\r\n{header}\r\n\r\nhello{SMUGGLED}");
        let (seen, answer) = try_it(bytes.as_bytes()).await;
        assert!(!seen.iter().any(|s| s.contains("smuggled")), "{header:?}: {seen:?}");
        assert!(seen.is_empty(), "{header:?} was passed on: {seen:?} {answer}");
        let status = answer.get(9..12).unwrap_or("");
        assert!(["400", "417", "501"].contains(&status) || answer == "<closed>", "{header:?}: {answer}");
        assert_eq!(
            answer.matches("HTTP/1.1 ").count(),
            usize::from(answer != "<closed>"),
            "{header:?}: {answer}"
        );
        assert!(answer.ends_with("<closed>"), "{header:?}: {answer}");
    }
}

#[tokio::test]
async fn malformed_first_lines_are_refused() {
    for line in [
        "GET /\r\nhost: a",
        "GET / HTTP/9.9",
        "GET / HTTP/1.1 HTTP/1.1",
        "GET  / HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET / http/1.1",
        "G\u{0}T / HTTP/1.1",
        "GET /\u{1} HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "/ HTTP/1.1",
        "CONNECT a:80 HTTP/1.1",
        "GET a HTTP/1.1",
        "GET //a@b:c/ HTTP/1.1\r\nhost: ",
    ] {
        let (seen, answer) = try_it(format!("{line}\r\nhost: a\r\n\r\n{SMUGGLED}").as_bytes()).await;
        let smuggled = seen.iter().any(|s| s.contains("smuggled"));
        // A request that was understood and refused may be followed by another.
        let refused =
            ["HTTP/1.1 400 ", "HTTP/1.1 405 "].iter().any(|s| answer.starts_with(s)) || answer == "<closed>";
        assert!(refused, "{line:?}: {answer} {seen:?}");
        assert!(!smuggled || line.starts_with("CONNECT"), "{line:?}: {seen:?}");
    }
    let (seen, _) = try_it(b"GET / HTTP/1.1\r\n\r\n").await;
    assert!(seen.is_empty(), "no host");
}

#[tokio::test]
async fn a_length_beside_a_coding_is_dropped_and_the_connection_ends() {
    for header in [
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "Transfer-Encoding: Chunked\r\nContent-Length: 0",
    ] {
        let bytes = format!("POST / HTTP/1.1\r\nhost: a\r\n{header}\r\n\r\n3\r\nabc\r\n0\r\n\r\n{SMUGGLED}");
        let (seen, answer) = try_it(bytes.as_bytes()).await;
        assert_eq!(seen, ["POST / [transfer-encoding: chunked] abc"], "{header:?}");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("connection: close\r\n"),
            "{answer}"
        );
        assert!(
            answer.ends_with("ok<closed>") && answer.matches("HTTP/1.1").count() == 1,
            "{header:?}: {answer}"
        );
    }
}

#[tokio::test]
async fn malformed_chunks_never_make_a_whole_request() {
    for chunks in [
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nx: a\r\n folded\r\n\r\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        let bytes =
            format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunks}{SMUGGLED}");
        let (seen, answer) = try_it(bytes.as_bytes()).await;
        assert!(!answer.starts_with("HTTP/1.1 200"), "{chunks:?}: {answer} {seen:?}");
        assert!(!seen.iter().any(|s| s.contains("smuggled")), "{chunks:?}: {seen:?}");
        // The server may have begun to read; what it read was not the end.
        assert!(seen.iter().all(|s| s.ends_with("] ")), "{chunks:?}: {seen:?}");
    }
}

#[tokio::test]
async fn malformed_chunks_are_counted_as_malformed_and_a_client_that_leaves_is_not() {
    let (server, _) = witness().await;
    let sentry = Sentry::before(&[server.address], "workers = 8");
    let ask = async |chunks: &str| {
        let mut stream = TcpStream::connect(sentry.address).await.unwrap();
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}{chunks}").as_bytes()).await.unwrap();
        stream
    };
    let malformed = ["g\r\nhello\r\n0\r\n\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "FFFFFFFFFFFFFFFFF\r\n"];
    for chunks in malformed {
        let answer = client::read_all(&mut ask(chunks).await).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer}");
    }
    let leaves = ask("5\r\nhel").await;
    eventually(|| sentry.default_class().offered == 4, || "the last one is there".to_owned()).await;
    drop(leaves);
    sentry.settled().await;
    let failed = sentry.default_class().failed;
    let of = |failure: Failure| failed[failure as usize];
    assert_eq!((of(Failure::Malformed), of(Failure::ClientGone)), (3, 1), "{failed:?}");
    assert_eq!(sentry.count("malformed"), 3);
}

#[tokio::test]
async fn what_is_well_formed_stays_what_it_is() {
    let (seen, answer) = try_it(
        format!(
            "POST /one HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello\
             POST /two HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5;ext=1\r\nworld\r\n0\r\n\r\n\
             GET /three?GET%20/x%20HTTP/1.1%0d%0a HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n{SMUGGLED}"
        )
        .as_bytes(),
    )
    .await;
    let expected = [
        "POST /one [content-length: 5] hello",
        "POST /two [transfer-encoding: chunked] world",
        "GET /three?GET%20/x%20HTTP/1.1%0d%0a [] ",
    ];
    assert_eq!(seen, expected);
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3);
    assert!(answer.ends_with("<closed>"), "and nothing after the close is read");
}

#[tokio::test]
async fn a_server_cannot_smuggle_a_response_either() {
    // Two readers could see one response here, or one and the beginning of the next.
    let server = Server::raw(|mut stream| async move {
        let mut part = [0; 1024];
        let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut part).await;
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n\
            HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\npoisoned";
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut part).await;
    })
    .await;
    let sentry = Sentry::before(&[server.address], "workers = 1");
    for _ in 0..3 {
        let (status, text) = client::get(sentry.address, "/").await;
        assert_eq!((status, text.as_str()), (200, "ok"));
    }
    sentry.settled().await;
    assert_eq!(server.accepted(), 3, "a connection that says more than it was asked is not used again");
}

#[tokio::test]
async fn headers_that_name_themselves_away_take_nothing_with_them() {
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close, host, x-forwarded-for, x-plimsoll-priority\r\n\
        x-forwarded-for: 1.2.3.4\r\nx-plimsoll-priority: 1\r\n\r\n";
    let mirror = Server::http(common::server::mirror).await;
    let sentry = Sentry::before(&[mirror.address], "workers = 1");
    let answer = client::raw(sentry.address, request.as_bytes()).await;
    for line in ["\nhost: a\n", "\nx-forwarded-for: 127.0.0.1\n", "\nx-plimsoll-priority: 5\n"] {
        assert!(answer.contains(line), "{line:?}: {answer}");
    }
}
