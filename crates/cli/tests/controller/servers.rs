//! Rates and servers of one controller: a surge is held back at the entry for as long as it takes to start servers for it.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{PATIENCE, PLIMSOLL, Place, ports, tool, until};

/// What one server does: 40 requests a second.
const SHOP: &str = "[service.catalog]\nworkers = 2\nservice = { dist = \"constant\", mean = \"50ms\" }\n\
    [api.product]\npath = [\"catalog\"]\noffered = \"100/s\"\nslo = { p95 = \"1s\" }\n";
const CALM: f64 = 10.0;
const SURGE: f64 = 100.0;
/// The fewest that have room for the surge, and the most that there may be.
const ENOUGH: usize = 3;
const MOST: usize = 6;

/// What the controller says at one moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    servers: usize,
    limit_per_s: Option<f64>,
    offered_per_s: f64,
    admitted_per_s: f64,
}

impl Look {
    fn at(plan: &Value) -> Look {
        let class = &plan["rates"]["classes"][0];
        let per_s = |key: &str| class[key].as_f64();
        Look {
            servers: plan["pools"][0]["ready"].as_array().map_or(0, Vec::len),
            limit_per_s: per_s("may_enter_per_s"),
            offered_per_s: per_s("offered_per_s").unwrap_or(0.0),
            admitted_per_s: per_s("admitted_per_s").unwrap_or(0.0),
        }
    }

    /// All that the surge sends gets in.
    fn is_open(&self) -> bool {
        self.limit_per_s.is_none()
            && self.offered_per_s > 0.8 * SURGE
            && self.admitted_per_s > 0.95 * self.offered_per_s
    }
}

#[test]
fn a_surge_is_limited_until_its_servers_are_there_and_neither_undoes_what_the_other_does() {
    let (first, _) = ports(4);
    let (port, last) = ports(2 * MOST as u16);
    let [listen, admin, rates, spans] =
        [0, 1, 2, 3].map(|nth| SocketAddr::from(([127, 0, 0, 1], first + nth)));
    let settings = format!(
        "sentries = [\"{admin}\"]\nrates = {{ listen = \"{rates}\" }}\n\
         telemetry = {{ listen = \"{spans}\", wait = \"1s\", interval = \"250ms\", scrape = [{{ server = \"{admin}\", kind = \"sentry\" }}] }}\n"
    );
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let scenario = file("shop.toml", SHOP);
    let spans = spans.to_string();
    let command = [
        PLIMSOLL,
        "testbed",
        "shop",
        &scenario,
        "--listen",
        "127.0.0.1:{port}",
        "--admin",
        "127.0.0.1:0",
        "--spans",
        &spans,
        "--sample",
        "1",
    ];
    let config = format!(
        "[sentry]\nlisten = \"{listen}\"\nadmin = \"{admin}\"\nrates = {{ controllers = [\"{rates}\"] }}\n\
         [pool.catalog]\nservice = \"catalog\"\nworkers = 2\nadmission = {{ policy = \"none\" }}\n\
         provision = {{ max = {MOST}, pause = \"2s\", period = \"2s\", season = \"0s\", ports = \"{port}-{last}\", \
         ready = \"/healthz\", command = {command:?} }}\n\
         [class.product]\nmatch = [{{ path = \"/product\" }}]\nslo = {{ mean = \"250ms\", p95 = \"1s\" }}\n"
    );
    let place = Place::new(&settings, &config);
    let _sentry = place.start_role("sentry", "sentry", &[]);
    let _controller = place.start("controller", &["--stop-servers"]);
    let plan = || serde_json::from_str::<Value>(&place.get("/plan").unwrap_or_default()).unwrap_or_default();
    let look = || Look::at(&plan());
    until(PATIENCE, "there is a server, and the sentry listens", || {
        look().servers == 1 && plan()["rates"]["streams"].as_u64() > Some(0)
    });

    let mix = file("mix.toml", "[request.product]\nmethod = \"GET\"\npath = \"/product\"\nshare = 1.0\n");
    let target = format!("http://{listen}/");
    let rate = format!("0s:{CALM},5s:{SURGE}");
    let _load = tool(&["load", "--rate", &rate, "--duration", "10m", "--target", &target, "--mix", &mix]);
    let looks = RefCell::new(Vec::new());
    let watch = || {
        let look = look();
        looks.borrow_mut().push(look);
        look
    };
    until(PATIENCE, "the surge is limited", || watch().limit_per_s.is_some_and(|limit| limit < 0.8 * SURGE));
    until(PATIENCE, "its servers come, and all of it gets in", || {
        let look = watch();
        look.is_open() && look.servers >= ENOUGH
    });
    let before = looks.borrow().len();
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(50));
        watch();
    }
    let looks = looks.into_inner();
    let servers: Vec<usize> = looks.iter().map(|look| look.servers).collect();
    let fall = servers.windows(2).position(|pair| pair[1] < pair[0]).unwrap_or(servers.len());
    assert!(
        servers[fall..].is_sorted_by(|a, b| a >= b),
        "what is given back is not wanted again: {servers:?}"
    );
    assert!(servers.iter().all(|&servers| servers <= MOST) && servers.last() >= Some(&ENOUGH), "{servers:?}");
    let all = |of: fn(&Look) -> f64| looks[before..].iter().map(of).sum::<f64>();
    let part = all(|look| look.admitted_per_s) / all(|look| look.offered_per_s);
    assert!(part > 0.9, "{part} of what comes gets in: {:?}", &looks[before..]);
}
