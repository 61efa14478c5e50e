//! What the demo of a fleet starts: the same shop twice, and before one of them a sentry and a controller. Dropping the stage ends them all.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http::{Method, Uri};
use plimsoll_core::Nanos;
use plimsoll_core::config::mix::{Mix, Request};
use plimsoll_simulator::fleet::optimum::{Asked, Best};
use plimsoll_simulator::fleet::plan::Plan;
use serde_json::Value;
use tempfile::TempDir;

use super::Phases;
use crate::processes::{
    Process, answers, configure, directory, free_addresses, get, plimsoll, ready, role, said, uri,
};

/// An API of the shop.
pub struct Api {
    pub name: &'static str,
    /// The services that a request takes, as a scenario has them.
    path: &'static str,
    /// Requests a second in calm, and in the surge so many times as many.
    pub calm_per_s: f64,
    /// From 1, the most important.
    pub priority: u32,
}

/// The most important first. The last two need nothing of what is too little.
pub const APIS: [Api; 4] = [
    Api {
        name: "checkout",
        path: r#"["frontend", "cart", "recommendation", "checkout"]"#,
        calm_per_s: 15.0,
        priority: 1,
    },
    Api {
        name: "product",
        path: r#"["frontend", "catalog", "recommendation"]"#,
        calm_per_s: 55.0,
        priority: 2,
    },
    Api { name: "cart", path: r#"["frontend", "cart"]"#, calm_per_s: 15.0, priority: 2 },
    Api { name: "home", path: r#"["frontend", "catalog"]"#, calm_per_s: 15.0, priority: 2 },
];

/// What the services can do a second. Their workers wait instead of computing, so that the machine is not what is scarce.
const SERVICES: [(&str, u32); 5] =
    [("frontend", 1_000), ("catalog", 500), ("cart", 500), ("recommendation", 120), ("checkout", 30)];

/// How long the sentry may take to hear the controller.
const READY_TRIES: u32 = 100;
const READY_PAUSE: Duration = Duration::from_millis(100);
/// What counts is answered within this.
pub const DEADLINE_MS: u64 = 1_000;
/// The part of the requests whose way is told.
const SAMPLE: &str = "0.5";

/// The processes of the demo.
pub struct Stage {
    bare: SocketAddr,
    listen: SocketAddr,
    admin: SocketAddr,
    plan_at: SocketAddr,
    // They end in this order.
    _controller: Process,
    _sentry: Process,
    _shops: [Process; 2],
    _directory: TempDir,
}

/// How the controller sees a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limit {
    /// Requests a second that may enter; all where there is no number.
    pub per_s: Option<f64>,
    /// Why not more may.
    pub why: Option<String>,
}

impl Stage {
    /// Starts everything and waits until the sentry listens to the controller.
    pub async fn set(phases: Phases) -> Result<Stage, String> {
        let directory = directory()?;
        let file = directory.path().join("shop.toml");
        std::fs::write(&file, scenario(phases))
            .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        let [listen, admin, plan_at, rates, spans] = free_addresses()?;
        let (protected, [entry, metrics]) = shop(&file, Some(spans))?;
        // Nobody learns from the other one.
        let (alone, [bare, _]) = shop(&file, None)?;
        let config = config([listen, admin, plan_at, rates, spans], entry, metrics, directory.path());
        configure(directory.path(), &config)?;
        let said = |role| said(directory.path(), role);
        let sentry = role(directory.path(), "sentry", &[])?;
        ready(admin).await.map_err(|error| error + &said("sentry"))?;
        let controller = role(directory.path(), "controller", &[])?;
        answers(plan_at, "/plan", "the controller").await.map_err(|error| error + &said("controller"))?;
        let stage = Stage {
            bare,
            listen,
            admin,
            plan_at,
            _controller: controller,
            _sentry: sentry,
            _shops: [alone, protected],
            _directory: directory,
        };
        stage.listened_to().await?;
        Ok(stage)
    }

    async fn listened_to(&self) -> Result<(), String> {
        for _ in 0..READY_TRIES {
            if self.rates().await.is_some_and(|rates| rates["streams"].as_u64() > Some(0)) {
                return Ok(());
            }
            tokio::time::sleep(READY_PAUSE).await;
        }
        Err("the sentry does not listen to the controller after 10 s".to_owned()
            + &said(self._directory.path(), "sentry"))
    }

    /// Where to send requests: to the one shop itself, and to the sentry before the other.
    pub fn targets(&self) -> [Uri; 2] {
        [uri(self.bare), uri(self.listen)]
    }

    pub fn live_page(&self) -> Uri {
        uri(self.admin)
    }

    pub fn plan_page(&self) -> String {
        format!("{}plan", uri(self.plan_at))
    }

    /// How the controller sees each API, in their order; nothing where it does not answer.
    pub async fn limits(&self) -> Option<[Limit; APIS.len()]> {
        let rates = self.rates().await?;
        Some(APIS.map(|api| {
            let classes = rates["classes"].as_array().map_or(&[][..], Vec::as_slice);
            let class = classes.iter().find(|class| class["name"] == api.name);
            class.map_or_else(Limit::default, |class| Limit {
                per_s: class["may_enter_per_s"].as_f64(),
                why: class["why"].as_str().map(str::to_owned),
            })
        }))
    }

    async fn rates(&self) -> Option<Value> {
        let plan: Value = serde_json::from_str(&get(self.plan_at, "/plan").await.ok()?).ok()?;
        Some(plan["rates"].clone())
    }
}

/// A shop, and where its entry and its metrics are.
fn shop(scenario: &Path, spans: Option<SocketAddr>) -> Result<(Process, [SocketAddr; 2]), String> {
    let mut command = plimsoll()?;
    command.args(["testbed", "shop", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).arg(scenario);
    if let Some(spans) = spans {
        command.args(["--sample", SAMPLE, "--spans", &spans.to_string()]);
    }
    let (process, ready) = Process::start_testbed(command, "the shop")?;
    let address = |key: &str| ready[key].as_str().and_then(|address| address.parse().ok());
    match (address("addr"), address("admin")) {
        (Some(entry), Some(admin)) => Ok((process, [entry, admin])),
        _ => Err(format!("the shop did not say where it is: {ready}")),
    }
}

fn scenario(phases: Phases) -> String {
    let mut text = format!("duration = \"{}\"\n", phases.end);
    for (name, capacity) in SERVICES {
        text += &format!("\n[service.{name}]\ncapacity = \"{capacity}/s\"\n");
    }
    for Api { name, path, calm_per_s, priority } in APIS {
        text += &format!(
            "\n[api.{name}]\npath = {path}\noffered = [[\"0s\", \"{calm_per_s}/s\"], [\"{}\", \"{}/s\"]]\n\
             slo = {{ p95 = \"{DEADLINE_MS}ms\" }}\npriority = {priority}\n",
            phases.surge,
            phases.factor * calm_per_s,
        );
    }
    text
}

/// What the surge would be answered at best, by API, in requests a second.
pub fn optimum(phases: Phases) -> Result<Vec<f64>, String> {
    let (scenario, _) =
        plimsoll_core::config::parse(&scenario(phases), "shop.toml").map_err(|e| e.to_string())?;
    let plan = Plan::new(&scenario, Path::new(""))?;
    let apis = plan.apis.iter().enumerate().map(|(place, api)| Asked {
        offered_per_s: api.offered.at(phases.surge),
        min_per_s: 0.0,
        priority: api.priority,
        load: plan.load(place),
    });
    let capacity = plan.services.iter().map(|s| s.instance_per_s() * f64::from(s.instances));
    Best { capacity_per_s: capacity.collect(), apis: apis.collect() }.solve()
}

/// Requests as users send them, in calm and in the surge alike.
pub fn mix() -> Mix {
    let all: f64 = APIS.iter().map(|api| api.calm_per_s).sum();
    let request = |api: &Api| Request {
        name: format!("{}-request", api.name),
        method: Method::GET,
        path: format!("/{}", api.name).parse().expect("a path"),
        share: api.calm_per_s / all,
        body: String::new(),
        headers: Vec::new(),
        deadline: Some(Nanos::from_millis(DEADLINE_MS)),
    };
    Mix { requests: APIS.iter().map(request).collect() }
}

fn config(
    [listen, admin, plan_at, rates, spans]: [SocketAddr; 5],
    entry: SocketAddr,
    metrics: SocketAddr,
    directory: &Path,
) -> String {
    let state = directory.join("state");
    let mut text = format!(
        r#"[sentry]
listen = "{listen}"
admin  = "{admin}"
rates  = {{ controllers = ["{rates}"] }}

[controller]
admin    = "{plan_at}"
state    = {state:?}
sentries = ["{admin}"]

[controller.rates]
listen = "{rates}"

[controller.telemetry]
listen   = "{spans}"
wait     = "1s"
interval = "250ms"
scrape   = [{{ server = "{metrics}", kind = "gauge", metric = "shop_workers_busy_ratio" }}]

[pool.shop]
servers   = ["{entry}"]
workers   = 4096
admission = {{ policy = "none" }}
"#
    );
    for Api { name, priority, .. } in APIS {
        text += &format!(
            "\n[class.{name}]\nmatch    = [{{ path = \"/{name}\" }}]\nslo      = {{ p95 = \"{DEADLINE_MS}ms\" }}\npriority = {priority}\n"
        );
    }
    text
}
