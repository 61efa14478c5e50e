//! How much may enter, decided and told: a controller that is sent spans and asked metrics of a service which does not exist, and a
//! real sentry before a real server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::harness::{PATIENCE, PLIMSOLL, Place, get, ports, until};

/// What the service behind can do, in requests a second, and what is sent.
const CAPACITY: f64 = 40.0;
const SENT: &str = "160";

fn here(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The requests that a sentry has let in so far.
fn admitted(admin: SocketAddr) -> Option<f64> {
    let pools: Value = serde_json::from_str(&get(admin, "/pools")?).ok()?;
    let classes = pools["pools"][0]["classes"].as_array()?;
    let count = |class: &Value| Some(class["offered"].as_f64()? - class["refused"].as_f64()?);
    classes.iter().map(count).sum()
}

/// An exporter that tells how busy the catalog would be with what the sentry at `admin` lets in.
fn exporter(admin: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let is_big = Arc::new(AtomicBool::new(false));
    let grown = Arc::clone(&is_big);
    let utilization = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&utilization);
    std::thread::spawn(move || {
        let mut last = (std::time::Instant::now(), 0.0);
        loop {
            std::thread::sleep(std::time::Duration::from_millis(500));
            let Some(count) = admitted(admin) else { continue };
            let now = std::time::Instant::now();
            let per_s = (count - last.1) / (now - last.0).as_secs_f64();
            last = (now, count);
            let capacity = if grown.load(Ordering::Relaxed) { 100.0 * CAPACITY } else { CAPACITY };
            utilization.store((per_s / capacity).clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
        }
    });
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let body =
                format!("busy{{service=\"catalog\"}} {}\n", f64::from_bits(told.load(Ordering::Relaxed)));
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    (address, is_big)
}

/// One request for a product: the frontend calls the catalog.
fn spans(trace: u32) -> Value {
    let span = |service: &str, id: u32, parent: u32, kind: u32| {
        json!({ "resource": { "attributes": [{ "key": "service.name", "value": { "stringValue": service } }] },
            "scopeSpans": [{ "spans": [{
                "traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"),
                "parentSpanId": if parent == 0 { String::new() } else { format!("{parent:016x}") }, "kind": kind,
                "name": "product", "startTimeUnixNano": "1", "endTimeUnixNano": "2",
                "attributes": [{ "key": "http.request.method", "value": { "stringValue": "GET" } },
                               { "key": "http.route", "value": { "stringValue": "/cheap" } }] }] }] })
    };
    json!({ "resourceSpans": [span("frontend", 1, 0, 2), span("catalog", 2, 1, 2)] })
}

fn post(address: SocketAddr, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let length = body.len();
    write!(stream, "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(arguments: &[&str]) -> Killed {
    let mut command = Command::new(PLIMSOLL);
    Killed(command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[test]
fn what_the_services_behind_cannot_do_does_not_enter_and_what_they_can_again_does() {
    let (listen, _) = ports(5);
    let [listen, admin, rates, telemetry, server] = [0, 1, 2, 3, 4].map(|port| here(listen + port));
    let (exporter, is_big) = exporter(admin);
    let settings = format!(
        "sentries = [\"{admin}\"]\nrates = {{ listen = \"{rates}\" }}\n\
         telemetry = {{ listen = \"{telemetry}\", wait = \"100ms\", interval = \"250ms\", \
         scrape = [{{ server = \"{exporter}\", kind = \"gauge\", metric = \"busy\" }}] }}\n"
    );
    let config = format!(
        "[sentry]\nlisten = \"{listen}\"\nadmin = \"{admin}\"\nrates = {{ controllers = [\"{rates}\"] }}\n\
         [pool.shop]\nservers = [\"{server}\"]\nworkers = 64\n\
         [class.product]\nmatch = [{{ path = \"/cheap\" }}]\nslo = {{ p95 = \"2s\" }}\n"
    );
    let place = Place::new(&settings, &config);
    let _server =
        command(&["testbed", "pages", "--work", "wait", "--workers", "64", "--listen", &server.to_string()]);
    let _sentry = place.start_role("sentry", "sentry", &[]);
    let _controller = place.start("controller", &[]);
    until(PATIENCE, "spans are taken", || post(telemetry, "{}").is_some());
    for trace in 1..=50 {
        let answer = post(telemetry, &spans(trace).to_string()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    until(PATIENCE, "the path is known", || {
        place.get("/paths").is_some_and(|paths| paths.contains("catalog") && paths.contains("\"product\""))
    });
    let plan = || serde_json::from_str::<Value>(&place.get("/plan").unwrap_or_default()).unwrap_or_default();
    until(PATIENCE, "the sentry reports", || plan()["rates"]["streams"].as_u64() > Some(0));
    assert_eq!(plan()["rates"]["classes"][0]["may_enter_per_s"], Value::Null, "nobody is limited");

    let target = format!("http://{listen}/");
    let mix = place.directory.path().join("mix.toml");
    std::fs::write(&mix, "[request.product]\nmethod = \"GET\"\npath = \"/cheap\"\n").unwrap();
    let _load = command(&[
        "load",
        "--rate",
        SENT,
        "--duration",
        "10m",
        "--target",
        &target,
        "--mix",
        mix.to_str().unwrap(),
    ]);
    until(PATIENCE, "as much enters as the catalog can do", || {
        let product = &plan()["rates"]["classes"][0];
        let is_near = |limit: f64| (0.5 * CAPACITY..1.3 * CAPACITY).contains(&limit);
        product["may_enter_per_s"].as_f64().is_some_and(is_near)
    });
    assert!(plan()["rates"]["classes"][0]["why"].as_str().unwrap().contains("catalog"), "{}", plan());
    until(PATIENCE, "the rest is refused where it enters, for that reason", || {
        let metrics = get(admin, "/metrics").unwrap_or_default();
        let refused = metrics.lines().find(|line| {
            line.starts_with("plimsoll_requests_refused_total")
                && line.contains("\"product\"")
                && line.contains("\"rate\"")
        });
        refused.is_some_and(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() > 100.0)
    });

    is_big.store(true, Ordering::Relaxed);
    until(PATIENCE, "all of it enters again", || {
        let limit = plan()["rates"]["classes"][0]["may_enter_per_s"].as_f64();
        limit.is_none_or(|limit| limit > SENT.parse().unwrap())
    });
}
