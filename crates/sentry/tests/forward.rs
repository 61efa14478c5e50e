//! What goes through the sentry comes out as it went in, whatever is spoken on either side.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::client::{self, Identity};
use common::server::{Server, by_hand, full, mirror};
use common::{Sentry, config, soon};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const POOL: &str = "workers = 8";

#[tokio::test]
async fn http1_to_http1_says_who_asked() {
    let server = Server::http(mirror).await;
    let sentry = Sentry::before(&[server.address], POOL);
    let mut client = client::http1(sentry.address).await;
    let mut request = client::request("POST", "/cart?item=7", "two pairs");
    for (name, value) in
        [("connection", "x-private, close-not"), ("x-private", "1"), ("te", "trailers"), ("x-kept", "é")]
    {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let response = soon(client.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 200);
    let text = client::text(response).await;
    let expected = "POST /cart?item=7 HTTP/1.1\n\
        content-length: 9\n\
        forwarded: for=127.0.0.1;proto=http;host=\"shop.example\"\n\
        host: shop.example\n\
        te: trailers\n\
        via: 1.1 plimsoll\n\
        x-forwarded-for: 127.0.0.1\n\
        x-forwarded-host: shop.example\n\
        x-forwarded-proto: http\n\
        x-kept: é\n\
        x-plimsoll-priority: 5\n\
        \ntwo pairs";
    assert_eq!(text, expected);
    sentry.settled().await;
}

#[tokio::test]
async fn every_protocol_to_every_protocol() {
    let server = Server::http(mirror).await;
    for (protocol, outgoing) in [("http1", "HTTP/1.1"), ("http2", "HTTP/2.0")] {
        let sentry = Sentry::before(&[server.address], &format!("{POOL}\nprotocol = \"{protocol}\""));
        let mut http1 = client::http1(sentry.address).await;
        let answer =
            client::text(soon(http1.send_request(client::request("PUT", "/a", "one"))).await.unwrap()).await;
        let mut http2 = client::http2(sentry.address).await;
        let request = Request::put("http://shop.example/a").body(full("two")).unwrap();
        let answer2 = client::text(soon(http2.send_request(request)).await.unwrap()).await;
        for (answer, body) in [(answer, "one"), (answer2, "two")] {
            let uri = if outgoing == "HTTP/2.0" { "http://shop.example/a" } else { "/a" };
            assert!(answer.starts_with(&format!("PUT {uri} {outgoing}\n")), "{answer}");
            assert!(answer.contains("x-forwarded-host: shop.example\n"), "{answer}");
            assert_eq!(answer.contains("\nhost: shop.example\n"), outgoing == "HTTP/1.1", "{answer}");
            assert!(answer.ends_with(&format!("\n\n{body}")), "{answer}");
        }
        sentry.settled().await;
    }
}

#[tokio::test]
async fn connections_to_the_server_are_used_again() {
    let server = Server::http(mirror).await;
    let sentry = Sentry::before(&[server.address], POOL);
    let mut client = client::http1(sentry.address).await;
    for i in 0..50 {
        let body = "x".repeat(i * 1000);
        let answer = soon(client.send_request(client::request("POST", "/", body.clone()))).await.unwrap();
        assert!(client::text(answer).await.ends_with(&format!("\n\n{body}")));
        soon(client.ready()).await.unwrap();
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn grpc_goes_by_http2_with_its_trailers() {
    let server = Server::http(|request| async move {
        assert_eq!(request.version(), Version::HTTP_2);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let frames = [Ok(Frame::data(body)), Ok(Frame::trailers(trailers))];
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        Response::builder().header("content-type", "application/grpc").body(body).unwrap()
    })
    .await;
    let sentry = Sentry::before(&[server.address], POOL);
    let mut client = client::http2(sentry.address).await;
    for message in ["one", "two"] {
        let request = Request::post("http://shop.example/shop.Cart/Add")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(full(message))
            .unwrap();
        let response = soon(client.send_request(request)).await.unwrap();
        let body = soon(response.into_body().collect()).await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes(), message);
    }
    sentry.settled().await;
    let counted = sentry.default_class();
    assert_eq!((counted.served, counted.response.count()), (2, 2), "short calls are measured");
}

#[tokio::test]
async fn http1_trailers_pass_in_both_directions() {
    let server = Server::raw(|mut stream: TcpStream| async move {
        let mut request = String::new();
        let mut part = [0; 1024];
        while !request.ends_with("x-sum: 3\r\n\r\n") {
            let n = stream.read(&mut part).await.unwrap();
            request.push_str(&String::from_utf8_lossy(&part[..n]));
        }
        assert!(request.contains("trailer: x-sum\r\n"), "{request}");
        let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-took\r\n\r\n2\r\nok\r\n0\r\nx-took: 5\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
        let _ = stream.read(&mut part).await;
    })
    .await;
    let sentry = Sentry::before(&[server.address], POOL);
    let request = "POST / HTTP/1.1\r\nhost: a\r\nconnection: te, close\r\nte: trailers\r\ntrailer: x-sum\r\n\
        transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 3\r\n\r\n";
    let answer = client::raw(sentry.address, request.as_bytes()).await;
    assert!(answer.ends_with("\r\n\r\n2\r\nok\r\n0\r\nx-took: 5\r\n\r\n"), "{answer}");
    sentry.settled().await;
}

#[tokio::test]
async fn large_bodies_pass_whole_in_both_directions() {
    let server = Server::http(|request| async move {
        Response::new(request.into_body().map_err(std::io::Error::other).boxed_unsync())
    })
    .await;
    let large: Bytes = (0..6_000_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into();
    for protocol in ["http1", "http2"] {
        let sentry = Sentry::before(&[server.address], &format!("{POOL}\nprotocol = \"{protocol}\""));
        let mut http1 = client::http1(sentry.address).await;
        let response = soon(http1.send_request(client::request("POST", "/", large.clone()))).await.unwrap();
        assert!(soon(response.into_body().collect()).await.unwrap().to_bytes() == large);
        let mut http2 = client::http2(sentry.address).await;
        let request = Request::post("http://shop.example/").body(full(large.clone())).unwrap();
        let response = soon(http2.send_request(request)).await.unwrap();
        assert!(soon(response.into_body().collect()).await.unwrap().to_bytes() == large);
        sentry.settled().await;
    }
}

#[tokio::test]
async fn a_client_that_only_reads_when_it_has_sent_everything_is_served() {
    // More, both ways, than all the buffers on the way hold.
    const SIZE: usize = 20_000_000;
    let server = Server::raw(|stream: TcpStream| async move {
        let (mut reader, mut writer) = stream.into_split();
        let answer = tokio::spawn(async move {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n");
            writer.write_all(head.as_bytes()).await.unwrap();
            writer.write_all(&vec![b'y'; SIZE]).await.unwrap();
            writer
        });
        let mut part = vec![0; 65536];
        let mut uploaded = 0;
        while uploaded < SIZE {
            let n = reader.read(&mut part).await.unwrap();
            uploaded += part[..n].iter().filter(|&&b| b == b'x').count();
        }
        answer.await.unwrap();
    })
    .await;
    let sentry = Sentry::before(&[server.address], POOL);
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    let head = format!("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {SIZE}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    soon(stream.write_all(&vec![b'x'; SIZE])).await.unwrap();
    let answer = client::read_all(&mut stream).await;
    assert_eq!(answer.bytes().filter(|&b| b == b'y').count(), SIZE);
    sentry.settled().await;
}

#[tokio::test]
async fn events_arrive_as_they_are_sent_and_are_not_measured() {
    let (events, body) = by_hand();
    let body = std::sync::Arc::new(parking_lot::Mutex::new(Some(body)));
    let server = Server::http(move |_| {
        let body = body.lock().take().unwrap();
        async { Response::builder().header("content-type", "text/event-stream").body(body).unwrap() }
    })
    .await;
    let sentry = Sentry::before(&[server.address], POOL);
    let response = soon(client::http1(sentry.address).await.send_request(client::request("GET", "/", "")))
        .await
        .unwrap();
    let mut body = response.into_body();
    for i in 0..3 {
        events.send(Ok(Frame::data(format!("data: {i}\n\n").into()))).await.unwrap();
        let frame = soon(body.frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), format!("data: {i}\n\n"));
        assert_eq!(sentry.pool().slots.taken(), 1, "a stream holds its slot");
    }
    drop(events);
    assert!(soon(body.frame()).await.is_none());
    sentry.settled().await;
    let counted = sentry.default_class();
    assert_eq!((counted.served, counted.response.count()), (1, 0));
}

#[tokio::test]
async fn responses_without_a_body_are_whole() {
    let server = Server::http(|request| async move {
        let status = request.uri().path()[1..].parse::<u16>().unwrap();
        let response = Response::builder().status(status).header("etag", "x");
        let head = request.method() == "HEAD";
        let response = if head || status == 304 { response.header("content-length", "5") } else { response };
        response.body(full("")).unwrap()
    })
    .await;
    let sentry = Sentry::before(&[server.address], POOL);
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    for (method, status, length) in [
        ("HEAD", 200, Some("5")),
        ("GET", 204, None),
        ("GET", 304, None),
        ("GET", 200, Some("0")),
        ("GET", 404, Some("0")),
    ] {
        let request = format!("{method} /{status} HTTP/1.1\r\nhost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head.push(char::from(soon(stream.read_u8()).await.unwrap()));
        }
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {status}: {head}");
        let found = head.lines().find_map(|l| l.strip_prefix("content-length: "));
        assert_eq!(found, length, "{method} {status}: {head}");
    }
    sentry.settled().await;
    assert_eq!(server.accepted(), 1, "none of them spoils the connection");
}

#[tokio::test]
async fn old_clients_and_absolute_addresses_are_understood() {
    let server = Server::http(mirror).await;
    let sentry = Sentry::before(&[server.address], POOL);
    let answer = client::raw(sentry.address, b"GET /old HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\n\r\nGET /old HTTP/1.1\n"), "{answer}");
    assert!(
        answer.contains(&format!("\nhost: {}\n", server.address)),
        "it has to be called something: {answer}"
    );
    let request = b"GET http://other.example/x?y HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n";
    let answer = client::raw(sentry.address, request).await;
    assert!(answer.contains("\r\n\r\nGET /x?y HTTP/1.1\n"), "{answer}");
    assert!(answer.contains("\nhost: other.example\n"), "what is asked for is in the first line: {answer}");
}

#[tokio::test]
async fn waiting_clients_are_told_to_go_on() {
    let server = Server::http(mirror).await;
    let sentry = Sentry::before(&[server.address], POOL);
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream
        .write_all(b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        .await
        .unwrap();
    let mut go_on = [0; 25];
    soon(stream.read_exact(&mut go_on)).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hi").await.unwrap();
    let (_, body) = client::read_response(&mut stream).await;
    assert!(body.ends_with("\n\nhi") && !body.contains("expect"), "{body}");
}

#[tokio::test]
async fn tls_on_both_sides_with_what_was_agreed() {
    let identity = Identity::new();
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&cert, &identity.cert_pem).unwrap();
    std::fs::write(&key, &identity.key_pem).unwrap();
    for (server_alpn, outgoing) in
        [(&["h2", "http/1.1"][..], "HTTP/2.0"), (&["http/1.1"], "HTTP/1.1"), (&[], "HTTP/1.1")]
    {
        let server = Server::https(identity.server(server_alpn), mirror).await;
        let text = format!(
            "[sentry]\ndrain_timeout = \"200ms\"\ntls = {{ cert = {cert:?}, key = {key:?} }}\n\
             [pool.p]\nservers = [\"https://127.0.0.1:{}\"]\ntls_ca = {cert:?}\n{POOL}\n[class.default]\n",
            server.address.port()
        );
        let sentry = Sentry::start(&text);
        let stream = identity.connect(sentry.address, &["h2"]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut http2, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("https://shop.example/a").body(full("")).unwrap();
        let answer = client::text(soon(http2.send_request(request)).await.unwrap()).await;
        assert!(answer.contains(outgoing) && answer.contains("x-forwarded-proto: https\n"), "{answer}");

        let stream = identity.connect(sentry.address, &["http/1.1"]).await;
        let (mut http1, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let answer = soon(http1.send_request(client::request("GET", "/", ""))).await.unwrap();
        assert_eq!(answer.version(), Version::HTTP_11);
        assert!(client::text(answer).await.contains(outgoing));
        sentry.settled().await;
    }
}

#[tokio::test]
async fn a_server_whose_certificate_is_not_trusted_is_not_spoken_to() {
    let (theirs, ours) = (Identity::new(), Identity::new());
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, &ours.cert_pem).unwrap();
    let server = Server::https(theirs.server(&[]), mirror).await;
    let sentry = Sentry::start(&format!(
        "[sentry]\n[pool.p]\nservers = [\"https://127.0.0.1:{}\"]\ntls_ca = {ca:?}\n{POOL}\n[class.default]\n",
        server.address.port()
    ));
    assert_eq!(client::get(sentry.address, "/").await.0, 502);
    sentry.settled().await;
}

#[tokio::test]
async fn websockets_converse_and_hold_their_slot() {
    let server = Server::http(|mut request| async move {
        if request.headers().get("upgrade").is_none() {
            return mirror(request).await;
        }
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgraded.await.unwrap());
            let mut part = [0; 64];
            while let Ok(n @ 1..) = stream.read(&mut part).await {
                stream.write_all(&part[..n]).await.unwrap();
            }
        });
        let key = request.headers()["sec-websocket-key"].clone();
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", key)
            .body(full(""))
            .unwrap()
    })
    .await;
    let sentry = Sentry::before(&[server.address], POOL);
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    let ask = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\nsec-websocket-key: k\r\n\r\n";
    // What follows the request at once belongs to the conversation.
    stream.write_all(format!("{ask}early").as_bytes()).await.unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(soon(stream.read_u8()).await.unwrap()));
    }
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("sec-websocket-accept: k\r\n"), "{head}");
    let mut echo = [0; 5];
    soon(stream.read_exact(&mut echo)).await.unwrap();
    assert_eq!(&echo, b"early");
    for _ in 0..3 {
        stream.write_all(b"hello").await.unwrap();
        soon(stream.read_exact(&mut echo)).await.unwrap();
        assert_eq!(&echo, b"hello");
    }
    assert_eq!((sentry.pool().slots.taken(), sentry.shared.connections()), (1, 1));
    drop(stream);
    sentry.settled().await;
    let counted = sentry.default_class();
    assert_eq!((counted.served, counted.response.count()), (1, 0), "served, and not measured");

    // A server that does not want to is free to say so, and other upgrades are not even asked for.
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings, close\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n";
    let answer = client::raw(sentry.address, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(!answer.contains("h2c") && !answer.to_lowercase().contains("http2-settings"), "{answer}");
    sentry.settled().await;
}

#[tokio::test]
async fn a_websocket_that_the_server_declines_is_an_ordinary_response() {
    let server = Server::http(|_| async { Response::builder().status(403).body(full("no")).unwrap() }).await;
    let sentry = Sentry::before(&[server.address], POOL);
    let ask = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let mut stream = TcpStream::connect(sentry.address).await.unwrap();
    stream.write_all(ask.as_bytes()).await.unwrap();
    let (head, body) = client::read_response(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 403 ") && body == "no", "{head}");
    sentry.settled().await;
}

#[tokio::test]
async fn classes_go_to_their_pools() {
    let (one, two) = (
        Server::http(|_| async { Response::new(full("one")) }).await,
        Server::http(|_| async { Response::new(full("two")) }).await,
    );
    let text = format!(
        "[sentry]\n[pool.one]\nservers = [\"{}\"]\n[pool.two]\nservers = [\"{}\"]\n\
         [class.special]\nmatch = [{{ path = \"/special/{{id}}\" }}]\npool = \"two\"\npriority = 7\n[class.default]\npool = \"one\"\n",
        one.address, two.address
    );
    let sentry = Sentry::start(&text);
    assert_eq!(client::get(sentry.address, "/").await, (200, "one".to_owned()));
    assert_eq!(client::get(sentry.address, "/special/9?x=1").await, (200, "two".to_owned()));
    let routing = sentry.shared.routing().load();
    let offered: Vec<u64> = routing.classes.iter().map(|c| c.stats.snapshot().offered).collect();
    assert_eq!(offered, [1, 1]);
}

#[tokio::test]
async fn two_servers_share_the_load() {
    // None is answered before all six are in service.
    let all = Arc::new(tokio::sync::Semaphore::new(0));
    let when_told = || {
        let all = Arc::clone(&all);
        move |_| {
            let all = Arc::clone(&all);
            async move {
                all.acquire().await.unwrap().forget();
                Response::new(full("ok"))
            }
        }
    };
    let (one, two) = (Server::http(when_told()).await, Server::http(when_told()).await);
    let sentry = Sentry::before(&[one.address, two.address], "workers = 3");
    let requests: Vec<_> = (0..6)
        .map(|_| {
            tokio::spawn({
                let a = sentry.address;
                async move { client::get(a, "/").await }
            })
        })
        .collect();
    common::eventually(|| sentry.pool().slots.taken() == 6, || "all in service".to_owned()).await;
    let loads: Vec<u32> = sentry.pool().servers.all().iter().map(|s| s.in_flight()).collect();
    assert_eq!(loads, [3, 3]);
    all.add_permits(6);
    for request in requests {
        assert_eq!(request.await.unwrap().0, 200);
    }
    sentry.settled().await;
}

#[tokio::test]
async fn http2_cookies_reach_an_http1_server_in_one_line() {
    let server = Server::http(mirror).await;
    let sentry = Sentry::start(&config("", &[server.address], POOL));
    let mut client = client::http2(sentry.address).await;
    let request =
        Request::get("http://a/").header("cookie", "a=1").header("cookie", "b=2").body(full("")).unwrap();
    let answer = client::text(soon(client.send_request(request)).await.unwrap()).await;
    assert!(answer.contains("cookie: a=1; b=2\n"), "{answer}");
}
