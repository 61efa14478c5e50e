//! How much may enter, decided and told: a shop of real services behind a real sentry, and a controller that has its spans and metrics.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Controller, PATIENCE, PLIMSOLL, Place, get, ports, tool, until};
use crate::link::Link;

/// The catalog does 40 requests a second.
const SHOP: &str = "[service.frontend]\ncapacity = \"2000/s\"\n\
    [service.catalog]\nworkers = 2\nservice = { dist = \"constant\", mean = \"50ms\" }\n\
    [api.product]\npath = [\"frontend\", \"catalog\"]\noffered = \"160/s\"\n\
    [api.about]\npath = [\"frontend\"]\noffered = \"40/s\"\n";
const CAPACITY: f64 = 40.0;
const SENT: &str = "200";
/// What of it is for the catalog, and how busy an autoscaler wants that to be.
const OFFERED: f64 = 160.0;
const TARGET: f64 = 0.7;

fn here(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn post(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// A shop under too much load, with a sentry before it and a controller.
struct Bed {
    place: Place,
    /// Of the sentry.
    admin: SocketAddr,
    /// Of the shop.
    shop: SocketAddr,
    record: String,
    controller: Controller,
    /// Over these go metrics and spans.
    links: [Link; 2],
    _others: Vec<Controller>,
}

impl Bed {
    fn start() -> Bed {
        let (first, _) = ports(6);
        let [listen, admin, rates, telemetry, entry, shop] =
            [0, 1, 2, 3, 4, 5].map(|port| here(first + port));
        let links = [Link::to(shop), Link::to(telemetry)];
        let [metrics, spans] = [&links[0], &links[1]].map(|link| link.address);
        let settings = format!(
            "sentries = [\"{admin}\"]\nrates = {{ listen = \"{rates}\" }}\n\
             telemetry = {{ listen = \"{telemetry}\", wait = \"1s\", interval = \"250ms\", \
             scrape = [{{ server = \"{metrics}\", kind = \"gauge\", metric = \"shop_workers_busy_ratio\", queue = \"shop_queue_seconds\", \
             served = \"shop_worked_total\" }}] }}\n"
        );
        let config = format!(
            "[sentry]\nlisten = \"{listen}\"\nadmin = \"{admin}\"\nrates = {{ controllers = [\"{rates}\"] }}\n\
             [pool.shop]\nservers = [\"{entry}\"]\nworkers = 64\n\
             [class.product]\nmatch = [{{ path = \"/product\" }}]\nslo = {{ p95 = \"2s\" }}\n\
             [class.about]\nmatch = [{{ path = \"/about\" }}]\nslo = {{ p95 = \"2s\" }}\n"
        );
        let place = Place::new(&settings, &config);
        let file = |name: &str, text: &str| {
            let path = place.directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let [at_entry, at_shop, spans] = [entry, shop, spans].map(|address| address.to_string());
        let scenario = file("shop.toml", SHOP);
        let fleet = tool(&[
            "testbed", "shop", &scenario, "--listen", &at_entry, "--admin", &at_shop, "--spans", &spans,
            "--sample", "1",
        ]);
        let sentry = place.start_role("sentry", "sentry", &[]);
        let record = place.directory.path().join("record").to_str().unwrap().to_owned();
        let controller = place.start("controller", &["--record", &record]);
        let mut bed = Bed { place, admin, shop, record, controller, links, _others: vec![fleet, sentry] };
        until(PATIENCE, "the sentry reports", || bed.plan()["rates"]["streams"].as_u64() > Some(0));
        assert_eq!(bed.class(0)["may_enter_per_s"], Value::Null, "nobody is limited");

        let request = |name: &str, share: f64| {
            format!("[request.{name}]\nmethod = \"GET\"\npath = \"/{name}\"\nshare = {share:?}\n")
        };
        let mix = bed.place.directory.path().join("mix.toml");
        std::fs::write(&mix, request("product", 0.8) + &request("about", 0.2)).unwrap();
        let (target, mix) = (format!("http://{listen}/"), mix.to_str().unwrap().to_owned());
        let load = tool(&["load", "--rate", SENT, "--duration", "10m", "--target", &target, "--mix", &mix]);
        bed._others.insert(0, load);
        bed
    }

    fn plan(&self) -> Value {
        serde_json::from_str(&self.place.get("/plan").unwrap_or_default()).unwrap_or_default()
    }

    fn class(&self, at: usize) -> Value {
        self.plan()["rates"]["classes"][at].clone()
    }

    /// How much of the products may enter.
    fn limit(&self) -> Option<f64> {
        self.class(0)["may_enter_per_s"].as_f64()
    }

    /// Waits until that is about what the catalog can do.
    fn is_limited(&self) {
        until(PATIENCE, "as much enters as the catalog can do", || {
            self.limit().is_some_and(|limit| (0.5 * CAPACITY..1.3 * CAPACITY).contains(&limit))
        });
    }
}

#[test]
fn what_the_services_behind_cannot_do_does_not_enter_and_what_they_can_again_does() {
    let mut bed = Bed::start();
    bed.is_limited();
    assert!(bed.class(0)["why"].as_str().is_some_and(|why| why.contains("catalog")), "{}", bed.plan());
    assert_eq!(bed.class(1)["may_enter_per_s"], Value::Null, "it needs no catalog");
    until(PATIENCE, "the rest is refused where it enters, for that reason", || {
        let metrics = get(bed.admin, "/metrics").unwrap_or_default();
        let refused = metrics.lines().find(|line| {
            line.starts_with("plimsoll_requests_refused_total")
                && line.contains("\"product\"")
                && line.contains("\"rate\"")
        });
        refused.is_some_and(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() > 100.0)
    });

    // An autoscaler that goes by utilisation alone sees a catalog that is just as busy as it is to be. This one is told what is kept out.
    let instances = Cell::new(1.0);
    until(PATIENCE, "the catalog is scaled by what is sent, and all of that enters", || {
        let wanted = bed.plan()["rates"]["services"]["catalog"].clone();
        let [offered, admitted] =
            ["offered_per_s", "admitted_per_s"].map(|key| wanted[key].as_f64().unwrap_or(0.0));
        let enough = (offered / (TARGET * CAPACITY)).ceil();
        if admitted < offered && enough > instances.get() {
            assert!(offered < 2.0 * OFFERED, "{wanted}");
            instances.set(enough);
            let answer = post(bed.shop, &format!("/services/catalog?instances={enough}")).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        instances.get() > 1.0 && bed.class(0)["may_enter_per_s"].is_null()
    });
    assert!(instances.get() * CAPACITY > OFFERED, "{} instances are too few", instances.get());
    until(PATIENCE, "and that is known", || {
        bed.plan()["rates"]["services"]["catalog"]["ratio"].as_f64().is_some_and(|ratio| ratio < 1.2)
    });

    // What was decided here is decided again by what the simulator drives.
    bed.controller.signal("TERM");
    assert!(bed.controller.ended().success());
    let verified = Command::new(PLIMSOLL).args(["verify", &bed.record]).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success(), "{said}{}", String::from_utf8_lossy(&verified.stderr));
    let summary: Value = serde_json::from_str(&said).unwrap();
    assert!(summary["steps"].as_u64() > Some(20) && summary["limited"].as_u64() > Some(4), "{summary}");
}

/// No metrics, no spans; the sentry still says what comes. What was decided stays for ten seconds, as nobody knows better, and when nothing was heard
/// for a minute limits go.
#[test]
fn when_nothing_is_told_any_more_rates_stay_and_then_go() {
    let bed = Bed::start();
    bed.is_limited();
    bed.links.iter().for_each(|link| link.is_apart(true));
    for _ in 0..80 {
        std::thread::sleep(Duration::from_millis(100));
        let limit = bed.limit();
        let is_near = limit.is_some_and(|limit| (0.3 * CAPACITY..2.0 * CAPACITY).contains(&limit));
        assert!(is_near, "{limit:?}: {}", bed.plan());
    }
    until(3 * PATIENCE, "nobody is limited by what was so long ago", || bed.limit().is_none());
}
