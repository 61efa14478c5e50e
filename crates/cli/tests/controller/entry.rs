//! How much may enter, decided and told: a shop of real services behind a real sentry, and a controller that has its spans and metrics.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use serde_json::Value;

use crate::harness::{PATIENCE, PLIMSOLL, Place, get, ports, tool, until};

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

#[test]
fn what_the_services_behind_cannot_do_does_not_enter_and_what_they_can_again_does() {
    let (first, _) = ports(6);
    let [listen, admin, rates, telemetry, entry, shop] = [0, 1, 2, 3, 4, 5].map(|port| here(first + port));
    let settings = format!(
        "sentries = [\"{admin}\"]\nrates = {{ listen = \"{rates}\" }}\n\
         telemetry = {{ listen = \"{telemetry}\", wait = \"1s\", interval = \"250ms\", \
         scrape = [{{ server = \"{shop}\", kind = \"gauge\", metric = \"shop_workers_busy_ratio\", queue = \"shop_queue_seconds\", \
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
    let [at_entry, at_shop, spans] = [entry, shop, telemetry].map(|address| address.to_string());
    let scenario = file("shop.toml", SHOP);
    let _shop = tool(&[
        "testbed", "shop", &scenario, "--listen", &at_entry, "--admin", &at_shop, "--spans", &spans,
        "--sample", "1",
    ]);
    let _sentry = place.start_role("sentry", "sentry", &[]);
    let record = place.directory.path().join("record").to_str().unwrap().to_owned();
    let mut controller = place.start("controller", &["--record", &record]);
    let plan = || serde_json::from_str::<Value>(&place.get("/plan").unwrap_or_default()).unwrap_or_default();
    let class = |at: usize| plan()["rates"]["classes"][at].clone();
    until(PATIENCE, "the sentry reports", || plan()["rates"]["streams"].as_u64() > Some(0));
    assert_eq!(class(0)["may_enter_per_s"], Value::Null, "nobody is limited");

    let request = |name: &str, share: f64| {
        format!("[request.{name}]\nmethod = \"GET\"\npath = \"/{name}\"\nshare = {share:?}\n")
    };
    let mix = file("mix.toml", &(request("product", 0.8) + &request("about", 0.2)));
    let target = format!("http://{listen}/");
    let _load = tool(&["load", "--rate", SENT, "--duration", "10m", "--target", &target, "--mix", &mix]);
    until(PATIENCE, "as much enters as the catalog can do", || {
        let is_near = |limit: f64| (0.5 * CAPACITY..1.3 * CAPACITY).contains(&limit);
        class(0)["may_enter_per_s"].as_f64().is_some_and(is_near)
    });
    assert!(class(0)["why"].as_str().is_some_and(|why| why.contains("catalog")), "{}", plan());
    assert_eq!(class(1)["may_enter_per_s"], Value::Null, "it needs no catalog");
    until(PATIENCE, "the rest is refused where it enters, for that reason", || {
        let metrics = get(admin, "/metrics").unwrap_or_default();
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
        let wanted = plan()["rates"]["services"]["catalog"].clone();
        let [offered, admitted] =
            ["offered_per_s", "admitted_per_s"].map(|key| wanted[key].as_f64().unwrap_or(0.0));
        let enough = (offered / (TARGET * CAPACITY)).ceil();
        if admitted < offered && enough > instances.get() {
            assert!(offered < 2.0 * OFFERED, "{wanted}");
            instances.set(enough);
            let answer = post(shop, &format!("/services/catalog?instances={enough}")).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        instances.get() > 1.0 && class(0)["may_enter_per_s"].is_null()
    });
    assert!(instances.get() * CAPACITY > OFFERED, "{} instances are too few", instances.get());
    until(PATIENCE, "and that is known", || {
        plan()["rates"]["services"]["catalog"]["ratio"].as_f64().is_some_and(|ratio| ratio < 1.2)
    });

    // What was decided here is decided again by what the simulator drives.
    controller.signal("TERM");
    assert!(controller.ended().success());
    let verified = Command::new(PLIMSOLL).args(["verify", &record]).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success(), "{said}{}", String::from_utf8_lossy(&verified.stderr));
    let summary: Value = serde_json::from_str(&said).unwrap();
    assert!(summary["steps"].as_u64() > Some(20) && summary["limited"].as_u64() > Some(4), "{summary}");
}
