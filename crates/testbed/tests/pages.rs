//! The pages service over real sockets.

mod common;

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::{ask, get, reported, send};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use plimsoll_core::Nanos;
use plimsoll_testbed::clock::Clock;
use plimsoll_testbed::orca::Form;
use plimsoll_testbed::pages::{self, Options, Route};
use plimsoll_testbed::server::Server;
use plimsoll_testbed::work::WorkKind;

fn options(cost: Nanos) -> Options {
    Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        workers: 1,
        work: WorkKind::Wait,
        cost: Route::ALL.map(|route| (route, cost)).to_vec(),
        sigma: 0.0,
        ..Options::default()
    }
}

fn start(options: Options) -> Server {
    pages::start(options).unwrap()
}

#[test]
fn a_page_says_how_long_it_took() {
    let server = start(options(Nanos::from_millis(30)));
    let answer = get(server.addr(), "/heavy/42");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (_, timing) = answer.split_once("server-timing: app;dur=").expect("a server-timing header");
    let app_ms: f64 = timing.split("\r\n").next().unwrap().parse().unwrap();
    assert!(app_ms >= 30.0, "{app_ms}");
    assert!(get(server.addr(), "/nothing").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_page_reports_what_it_cost_and_how_busy_the_server_is() {
    let server = start(options(Nanos::from_millis(50)));
    let addr = server.addr();
    let [cpu, data, _, in_service] = reported(&get(addr, "/cheap"));
    assert!(cpu < 0.045 && cpu + data >= 0.05, "it waited: {cpu} {data}");
    assert_eq!(in_service, 1.0);
    let asked: Vec<_> = (0..3).map(|_| thread::spawn(move || get(addr, "/cheap"))).collect();
    let delays = asked.into_iter().map(|answer| reported(&answer.join().unwrap())[2]);
    assert!(delays.fold(0.0, f64::max) >= 50.0, "one of them waited for another");

    let server = start(Options { work: WorkKind::Cpu, ..options(Nanos::from_millis(20)) });
    let [cpu, data, ..] = reported(&get(server.addr(), "/cheap"));
    assert!(cpu > 0.005 && data == 0.0, "it computed: {cpu} {data}");
}

#[test]
fn a_report_has_the_form_that_was_asked_for() {
    let has = |orca: Form, text: &str| {
        let server = start(Options { orca, ..options(Nanos::from_millis(1)) });
        get(server.addr(), "/cheap").contains(text)
    };
    assert!(has(Form::Json, "endpoint-load-metrics: JSON {\"request_cost\":{\"cpu\":"));
    assert!(has(Form::Bin, "endpoint-load-metrics-bin: I"));
    assert!(!has(Form::Off, "endpoint-load-metrics"));
}

#[test]
fn overload_shows_as_a_queue() {
    let server = start(options(Nanos::from_millis(50)));
    let (addr, clock) = (server.addr(), Clock::start());
    let asked: Vec<_> = (0..4).map(|_| thread::spawn(move || get(addr, "/cheap"))).collect();
    // What does not pass through the workers is not held up by them.
    assert!(get(addr, "/healthz").starts_with("HTTP/1.1 200"));
    for answer in asked {
        assert!(answer.join().unwrap().starts_with("HTTP/1.1 200"));
    }
    assert!(clock.now() >= Nanos::from_millis(200), "one worker served 4 x 50 ms in {}", clock.now());
}

#[test]
fn a_bounded_queue_refuses() {
    let server = start(Options { queue: Some(1), ..options(Nanos::from_millis(300)) });
    let addr = server.addr();
    let asked: Vec<_> = (0..6).map(|_| thread::spawn(move || get(addr, "/cheap"))).collect();
    let answers: Vec<String> = asked.into_iter().map(|answer| answer.join().unwrap()).collect();
    let refused = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 503")).count();
    assert!((1..6).contains(&refused), "{answers:?}");
    // In its own words: nothing here is a refusal of Plimsoll's.
    assert!(answers.iter().all(|answer| !answer.contains("plimsoll-reason")), "{answers:?}");
}

#[test]
fn a_stall_holds_every_worker() {
    let server = start(options(Nanos::from_millis(1)));
    let clock = Clock::start();
    let answer = ask(server.addr(), "POST", "/_fault?stall=200ms").unwrap();
    assert!(answer.ends_with("standing still for 200ms\n"), "{answer}");
    assert!(get(server.addr(), "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(server.addr(), "/cheap").starts_with("HTTP/1.1 200"));
    assert!(clock.now() >= Nanos::from_millis(200), "{}", clock.now());
    assert!(ask(server.addr(), "POST", "/_fault?stall=soon").unwrap().starts_with("HTTP/1.1 400"));
    assert!(get(server.addr(), "/_fault?die").starts_with("HTTP/1.1 404"), "only POST may break it");
}

#[tokio::test]
async fn a_death_cuts_every_connection() {
    let mut server = start(options(Nanos::from_secs(5)));
    let addr = server.addr();
    let mut in_service = send(addr, "GET", "/heavy").unwrap();
    let _ = ask(addr, "POST", "/_fault?die");
    tokio::time::timeout(Duration::from_secs(10), server.ended()).await.expect("it ends at once");
    let mut answer = Vec::new();
    let _ = in_service.read_to_end(&mut answer);
    assert!(answer.is_empty(), "no answer comes from the dead: {answer:?}");
    assert!(TcpStream::connect(addr).is_err());
}

#[tokio::test]
async fn speaks_h2c() {
    let server = start(options(Nanos::from_millis(1)));
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Empty<Bytes>>();
    let uri = format!("http://{}/middling", server.addr()).parse().unwrap();
    let answer = client.get(uri).await.unwrap();
    assert_eq!((answer.status(), answer.version()), (http::StatusCode::OK, http::Version::HTTP_2));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "a middling page\n");
}

#[test]
fn a_taken_address_is_an_error() {
    let server = start(options(Nanos::from_millis(1)));
    let error = pages::start(Options { listen: server.addr(), ..options(Nanos::from_millis(1)) }).err();
    assert_eq!(error.map(|error| error.kind()), Some(std::io::ErrorKind::AddrInUse));
}
