//! How many spans a second the receiver takes over a socket, on one thread, and in how much memory. It sends as fast as they are taken, over
//! gRPC, and prints a line of JSON.
//!
//! `cargo run --release -p plimsoll-controller --example flood [SECONDS] [distinct]`: of twenty APIs; or each request of one that nobody has ever seen
#![allow(clippy::disallowed_methods)] // It measures.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_controller::telemetry;
use plimsoll_core::config::{Config, parse};
use tokio::net::TcpStream;

mod message;

fn main() {
    let seconds: u64 = std::env::args().nth(1).map_or(20, |text| text.parse().expect("a number of seconds"));
    let distinct = std::env::args().nth(2).is_some_and(|word| word == "distinct");
    let text = "[controller.telemetry]\nlisten = \"127.0.0.1:0\"\n[pool.p]\nservers = [\"a:1\"]";
    let config = parse::<Config>(text, "").unwrap_or_else(|errors| panic!("{errors}")).0;
    let settings = config.controller.telemetry.expect("it is written above");
    let telemetry = telemetry::start(&settings, &[]).expect("a loopback address is free");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let began = Instant::now();
    let sent = runtime.block_on(send(telemetry.listening[0], Duration::from_secs(seconds), distinct));
    let took = began.elapsed().as_secs_f64();
    let cpu_s = cpu_of("telemetry");
    let learnt = telemetry.learnt.borrow();
    println!(
        "{{\"spans\":{sent},\"seconds\":{took:.2},\"receiver_cpu_s\":{cpu_s:.2},\"spans_per_cpu_s\":{:.0},\"peak_rss_mib\":{},\"apis\":{},\"taken_share\":{},\"open_spans\":{}}}",
        sent as f64 / cpu_s,
        peak_rss_mib(),
        learnt.paths.apis.len(),
        learnt.paths.figures.taken_share,
        learnt.paths.figures.open_spans,
    );
}

/// Sends for so long; returns the number of spans.
async fn send(to: SocketAddr, until: Duration, distinct: bool) -> usize {
    let stream = TcpStream::connect(to).await.expect("it listens");
    stream.set_nodelay(true).expect("it is a socket");
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    let (began, mut sent, mut message) = (Instant::now(), 0, message::Numbered::new(8_192, distinct));
    let uri = format!("http://{to}/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    while began.elapsed() < until {
        message.renumber();
        let mut frame = BytesMut::with_capacity(5 + message.bytes().len());
        frame.put_u8(0);
        frame.put_u32(message.bytes().len() as u32);
        frame.put_slice(message.bytes());
        let request = Request::post(&uri).header("content-type", "application/grpc").header("te", "trailers");
        let request = request.body(Full::<Bytes>::new(frame.freeze())).expect("it is a request");
        let answer = sender.clone().send_request(request).await.expect("it answers");
        let answer = answer.into_body().collect().await.expect("it answers to the end");
        assert_eq!(
            answer.trailers().and_then(|trailers| trailers.get("grpc-status")).expect("it has a status"),
            "0"
        );
        sent += message.spans();
    }
    sent
}

/// CPU time of the thread of that name, in seconds.
fn cpu_of(name: &str) -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("it is Linux").filter_map(Result::ok);
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let named = tasks.map(|task| task.path()).find(|task| read(task.join("comm")).trim() == name);
    let schedstat = named.map(|task| read(task.join("schedstat"))).unwrap_or_default();
    schedstat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

/// The most memory that it ever had, sender included.
fn peak_rss_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}
