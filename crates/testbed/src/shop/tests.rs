//! A small shop, over sockets.
#![allow(clippy::disallowed_methods)] // A test waits.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::*;

const SCENARIO: &str = "[service.frontend]\nworkers = 8\nservice = { dist = \"constant\", mean = \"1ms\" }\n\
    [service.cart]\nworkers = 1\nservice = { dist = \"constant\", mean = \"20ms\" }\nmax_queue = 2\ninstances = 2\n\
    [service.ad]\nworkers = 4\nservice = { dist = \"constant\", mean = \"1ms\" }\n\
    [api.buy]\npath = [\"frontend\", [\"cart\", \"ad\"]]\noffered = \"10/s\"\n\
    [api.look]\nbranches = [{ share = 0.5, path = [\"frontend\"] }, { share = 0.5, path = [\"frontend\", \"ad\"] }]\noffered = \"10/s\"\n";

fn shop(spans: Option<SocketAddr>) -> Shop {
    shop_of(SCENARIO, spans)
}

fn shop_of(text: &str, spans: Option<SocketAddr>) -> Shop {
    let directory = tempfile::tempdir().unwrap();
    let scenario = directory.path().join("shop.toml");
    std::fs::write(&scenario, text).unwrap();
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    start(&Options { scenario, listen: free, admin: free, spans, sample: 1.0, seed: 1 }).unwrap()
}

fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn metric(shop: &Shop, name: &str, service: &str) -> f64 {
    let page = ask(shop.admin(), "GET", "/metrics").1;
    let row = format!("{name}{{service=\"{service}\"}} ");
    page.lines()
        .find_map(|line| line.strip_prefix(&row))
        .unwrap_or_else(|| panic!("{row} in {page}"))
        .parse()
        .unwrap()
}

#[test]
fn a_request_visits_all_services_of_its_path_and_fails_with_any_of_them() {
    let shop = shop(None);
    assert_eq!(ask(shop.entry(), "GET", "/buy"), (200, "done\n".to_owned()));
    for service in ["frontend", "cart", "ad"] {
        assert_eq!(metric(&shop, "shop_served_total", service), 1.0, "{service}");
    }
    for _ in 0..20 {
        assert_eq!(ask(shop.entry(), "POST", "/look").0, 200);
    }
    let looked = metric(&shop, "shop_served_total", "ad") - 1.0;
    assert!((3.0..=17.0).contains(&looked), "one of two ways leads there: {looked} of 20");
    assert_eq!(ask(shop.entry(), "GET", "/steal").0, 404);

    // Two instances hold three requests each.
    let entry = shop.entry();
    let many: Vec<_> = (0..24).map(|_| std::thread::spawn(move || ask(entry, "GET", "/buy").0)).collect();
    let statuses: Vec<u16> = many.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(statuses.contains(&200) && statuses.contains(&503), "{statuses:?}");
    assert!(metric(&shop, "shop_failed_total", "cart") > 0.0);
    assert_eq!(
        metric(&shop, "shop_failed_total", "frontend"),
        statuses.iter().filter(|&&status| status != 200).count() as f64
    );
}

#[test]
fn instances_come_and_go() {
    let shop = shop(None);
    assert_eq!(metric(&shop, "shop_instances", "cart"), 2.0);
    assert_eq!(ask(shop.admin(), "POST", "/services/cart?instances=0").0, 200);
    assert_eq!((metric(&shop, "shop_instances", "cart"), ask(shop.entry(), "GET", "/buy").0), (0.0, 502));
    assert_eq!(ask(shop.admin(), "POST", "/services/cart?instances=3").0, 200);
    assert_eq!((metric(&shop, "shop_instances", "cart"), ask(shop.entry(), "GET", "/buy").0), (3.0, 200));
    assert_eq!(ask(shop.admin(), "POST", "/services/nobody?instances=3").0, 404);
    for wrong in ["", "?instances=-1", "?instances=1001", "?instances=x"] {
        assert_eq!(ask(shop.admin(), "POST", &format!("/services/cart{wrong}")).0, 400, "{wrong}");
    }
    let (status, of) = ask(shop.admin(), "GET", "/services/cart");
    let of: serde_json::Value = serde_json::from_str(&of).unwrap();
    assert_eq!((status, of["instances"].as_array().unwrap().len(), &of["workers"]), (200, 3, &1.into()));
    assert_eq!(ask(shop.admin(), "GET", "/services/nobody").0, 404);
}

#[test]
fn calls_go_to_whoever_stands_before_a_service() {
    let shop = shop(None);
    let front = TcpListener::bind("127.0.0.1:0").unwrap();
    let path = format!("/services/cart?front={}", front.local_addr().unwrap());
    assert_eq!(ask(shop.admin(), "POST", &path).0, 200);
    let entry = shop.entry();
    let client = std::thread::spawn(move || ask(entry, "GET", "/buy").0);
    let (mut call, _) = front.accept().unwrap();
    let mut asked = [0; 4096];
    assert!(call.read(&mut asked).unwrap() > 0 && asked.starts_with(b"GET /?path="));
    call.write_all(b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert_eq!(client.join().unwrap(), 503);
    assert_eq!(
        (metric(&shop, "shop_asked_total", "cart"), metric(&shop, "shop_asked_total", "ad")),
        (1.0, 1.0)
    );
    assert_eq!(
        (metric(&shop, "shop_worked_total", "cart"), metric(&shop, "shop_worked_total", "ad")),
        (0.0, 1.0)
    );
}

#[test]
fn workers_that_are_all_busy_show_as_busy_and_do_what_they_can_do() {
    let shop = shop(None);
    metric(&shop, "shop_workers_busy_ratio", "cart");
    let entry = shop.entry();
    // No more than one instance has room for: all may come to the same.
    let clients: Vec<_> = (0..3)
        .map(|_| std::thread::spawn(move || (0..20).map(|_| ask(entry, "GET", "/buy").0).collect::<Vec<_>>()))
        .collect();
    let statuses: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    let failed: Vec<_> = statuses.iter().filter(|&&status| status != 200).collect();
    let busy = metric(&shop, "shop_workers_busy_ratio", "cart");
    assert!(statuses.len() == 60 && failed.is_empty() && busy > 0.3, "{failed:?} of 60, {busy} busy");
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(metric(&shop, "shop_workers_busy_ratio", "cart"), 0.0);
}

#[test]
fn a_queue_shows_as_the_time_that_it_takes_and_who_leaves_it_is_served_all_the_same() {
    let shop = shop_of(
        "[service.slow]\nworkers = 1\nservice = { dist = \"constant\", mean = \"2s\" }\nmax_queue = 4\n[api.wait]\npath = [\"slow\"]\noffered = \"1/s\"\n",
        None,
    );
    let until = |queue_s: f64| {
        while metric(&shop, "shop_queue_seconds", "slow") != queue_s {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until(0.0);
    let send = || {
        let mut stream = TcpStream::connect(shop.entry()).unwrap();
        write!(stream, "GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        stream
    };
    // One is worked on for two seconds, and two wait for as long each.
    let clients = [send(), send(), send()];
    until(4.0);
    assert_eq!(metric(&shop, "shop_worked_total", "slow"), 0.0);
    drop(clients);
    until(0.0);
    while metric(&shop, "shop_worked_total", "slow") < 3.0 {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn spans_say_who_called_whom() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let shop = shop(Some(collector.local_addr().unwrap()));
    assert_eq!(ask(shop.entry(), "GET", "/buy").0, 200);
    let (mut stream, _) = collector.accept().unwrap();
    let mut text = String::new();
    while !text.ends_with("]}") {
        let mut part = [0; 4096];
        let n = stream.read(&mut part).unwrap();
        assert!(n > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&part[..n]));
    }
    let body: serde_json::Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
    let span = |service: &str| {
        let resources = body["resourceSpans"].as_array().unwrap();
        let of = |r: &&serde_json::Value| r["resource"]["attributes"][0]["value"]["stringValue"] == service;
        resources.iter().find(of).unwrap_or_else(|| panic!("{service} in {body}"))["scopeSpans"][0]["spans"]
            [0]
        .clone()
    };
    let frontend = span("frontend");
    for service in ["cart", "ad"] {
        assert_eq!(span(service)["parentSpanId"], frontend["spanId"], "{service}");
        assert_eq!(span(service)["traceId"], frontend["traceId"], "{service}");
    }
    assert_eq!(frontend["attributes"][1]["value"]["stringValue"], "/buy");
}

#[test]
fn what_cannot_be_started_is_said() {
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let with = |scenario: &str, sample| {
        start(&Options { scenario: scenario.into(), listen: free, admin: free, spans: None, sample, seed: 1 })
    };
    let said = |result: io::Result<Shop>| result.err().expect("an error").to_string();
    assert!(said(with("/nowhere.toml", 0.1)).contains("/nowhere.toml: cannot be read"));
    assert!(said(with("/nowhere.toml", 1.5)).contains("--sample"));
}
