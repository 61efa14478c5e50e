//! A fleet of real services, and where it is wanted a sentry and a controller in front of it, each a process of its own on loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use http::Uri;
use plimsoll_core::Nanos;
use plimsoll_core::config::mix::{Mix, Request};
use plimsoll_simulator::fleet::overshoot::Load;
use serde_json::Value;
use tempfile::TempDir;

use super::front::stand_before;
use super::scene::Scene;
use crate::processes::{
    Process, answers, configure, directory, free_addresses, get, plimsoll, post, ready, role, said, uri,
};

/// The part of the requests that is traced.
const SAMPLE: &str = "0.5";

/// What the controller is told of how services fare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// Four times a second how busy they are, how long their queues and what they get done, as their own exporters would.
    Queues,
    /// Four times a second how long the queues of these are, by a sentry before each of them; nothing of the others.
    Sentries(&'static [&'static str]),
    /// How busy they are, by a real Prometheus that looks once a second.
    Prometheus,
}

/// Who stands at the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nobody.
    Open,
    /// A sentry, told by a controller that decides so, as `[controller.rates] decide` has it.
    Held(&'static str, Signals),
}

/// The processes. Dropping it ends them all.
pub struct Bed {
    target: SocketAddr,
    shop: SocketAddr,
    controller: Option<SocketAddr>,
    // They end in this order.
    _processes: Vec<Process>,
    directory: TempDir,
}

impl Bed {
    /// Starts everything and waits until it is ready.
    ///
    /// # Errors
    /// What did not start, with the last lines of its log.
    pub async fn start(scene: &Scene, entry: Entry, seed: u64) -> Result<Bed, String> {
        let directory = directory()?;
        let [listen, admin, plan_at, rates, spans, prometheus] = free_addresses()?;
        let scenario = directory.path().join("fleet.toml");
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
        };
        write(&scenario, &scene.text)?;
        let mut command = plimsoll()?;
        command.args(["testbed", "shop"]).arg(&scenario);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--seed", &seed.to_string()]);
        if entry != Entry::Open {
            command.args(["--spans", &spans.to_string(), "--sample", SAMPLE]);
        }
        let (shop, said_ready) = Process::start_testbed(command, "the shop")?;
        let address = |key: &str| said_ready[key].as_str().and_then(|address| address.parse().ok());
        let (Some(fleet), Some(shop_admin)) = (address("addr"), address("admin")) else {
            return Err(format!("the shop did not say where it is: {said_ready}"));
        };
        let mut bed =
            Bed { target: fleet, shop: shop_admin, controller: None, _processes: vec![shop], directory };
        let Entry::Held(decide, signals) = entry else { return Ok(bed) };
        let at = At { listen, admin, plan_at, rates, spans, prometheus, fleet, shop: shop_admin };
        let path = bed.directory.path().to_owned();
        if signals == Signals::Prometheus {
            write(&path.join("prometheus.yml"), &at.prometheus_config())?;
            bed._processes.insert(0, start_prometheus(&path, prometheus)?);
            answers(prometheus, "/-/ready", "prometheus").await?;
        }
        let mut fronts = Vec::new();
        if let Signals::Sentries(services) = signals {
            for &service in services {
                let (sentry, admin) = stand_before(service, shop_admin, &path.join(service)).await?;
                bed._processes.insert(0, sentry);
                fronts.push(admin);
            }
        }
        configure(&path, &at.config(scene, decide, signals, &fronts, &path.join("state")))?;
        bed._processes.insert(0, role(&path, "sentry", &[])?);
        ready(admin).await.map_err(|error| error + &said(&path, "sentry"))?;
        bed._processes.insert(0, role(&path, "controller", &[])?);
        let up = answers(plan_at, "/healthz", "the controller").await;
        up.map_err(|error| error + &said(&path, "controller"))?;
        (bed.target, bed.controller) = (listen, Some(plan_at));
        bed.is_told().await?;
        Ok(bed)
    }

    /// Waits until the sentry hears the controller.
    async fn is_told(&self) -> Result<(), String> {
        for _ in 0..100 {
            if self.rates().await?["streams"].as_u64() > Some(0) {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let said = said(self.directory.path(), "sentry");
        Err(format!("the sentry hears of no rates within 10 s{said}"))
    }

    /// Where requests are to be sent.
    pub fn target(&self) -> Uri {
        uri(self.target)
    }

    /// Starts instances of a service, or kills some.
    ///
    /// # Errors
    /// Where the shop does not answer, or does not want to.
    pub async fn resize(&self, service: &str, instances: u32) -> Result<(), String> {
        let path = format!("/services/{service}?instances={instances}");
        post(self.shop, &path).await.map_err(|e| format!("the shop: POST {path}: {e}"))
    }

    /// Calls that all services have done.
    ///
    /// # Errors
    /// Where the shop does not answer.
    pub async fn calls(&self) -> Result<f64, String> {
        let page = get(self.shop, "/metrics").await.map_err(|e| format!("the shop: {e}"))?;
        let done = page.lines().filter(|line| line.starts_with("shop_worked_total{"));
        Ok(done.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
    }

    /// What each service was asked for so far, and what it can do.
    ///
    /// # Errors
    /// Where the shop does not answer.
    pub async fn load(&self, scene: &Scene) -> Result<Vec<Load>, String> {
        let page = get(self.shop, "/metrics").await.map_err(|e| format!("the shop: {e}"))?;
        let of = |family: &str| -> Vec<f64> {
            let rows = page
                .lines()
                .filter(|line| line.strip_prefix(family).is_some_and(|rest| rest.starts_with('{')));
            rows.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect()
        };
        // In the order of the plan, as everything is there.
        let (asked, instances) = (of("shop_asked_total"), of("shop_instances"));
        let services = scene.plan.services.iter().zip(asked.into_iter().zip(instances));
        let load = services.map(|(service, (asked, instances))| Load {
            asked,
            can_per_s: service.instance_per_s() * instances,
        });
        Ok(load.collect())
    }

    /// How many classes are limited now; none where there is no controller.
    ///
    /// # Errors
    /// Where it does not answer.
    pub async fn limited(&self) -> Result<usize, String> {
        if self.controller.is_none() {
            return Ok(0);
        }
        let rates = self.rates().await?;
        let classes = rates["classes"].as_array().ok_or("the controller sets no rates")?;
        Ok(classes.iter().filter(|class| !class["may_enter_per_s"].is_null()).count())
    }

    async fn rates(&self) -> Result<Value, String> {
        let address = self.controller.ok_or("there is no controller")?;
        let text = get(address, "/plan").await.map_err(|e| format!("the controller: {e}"))?;
        let mut plan: Value = serde_json::from_str(&text).map_err(|e| format!("/plan: {e}"))?;
        Ok(plan["rates"].take())
    }
}

/// Whether this machine has a Prometheus.
pub fn has_prometheus() -> bool {
    let mut command = Command::new("prometheus");
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn start_prometheus(directory: &Path, listen: SocketAddr) -> Result<Process, String> {
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", directory.join("prometheus.yml").display()));
    command.arg(format!("--storage.tsdb.path={}", directory.join("prometheus").display()));
    command.arg(format!("--web.listen-address={listen}"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Process::start(command)
}

/// Where everything is.
struct At {
    listen: SocketAddr,
    admin: SocketAddr,
    plan_at: SocketAddr,
    rates: SocketAddr,
    spans: SocketAddr,
    prometheus: SocketAddr,
    fleet: SocketAddr,
    shop: SocketAddr,
}

impl At {
    fn prometheus_config(&self) -> String {
        format!(
            "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: shop\n    static_configs:\n      - targets: [\"{}\"]\n",
            self.shop
        )
    }

    /// Before services stand sentries whose admins are these.
    fn config(
        &self,
        scene: &Scene,
        decide: &str,
        signals: Signals,
        fronts: &[SocketAddr],
        state: &Path,
    ) -> String {
        let At { listen, admin, plan_at, rates, spans, prometheus, fleet, shop } = self;
        let source = match signals {
            Signals::Queues => format!(
                "scrape = [{{ server = \"{shop}\", kind = \"gauge\", metric = \"shop_workers_busy_ratio\", queue = \"shop_queue_seconds\", \
                 served = \"shop_worked_total\" }}]"
            ),
            Signals::Sentries(_) => {
                let each =
                    fronts.iter().map(|admin| format!("{{ server = \"{admin}\", kind = \"sentry\" }}"));
                format!("scrape = [{}]", each.collect::<Vec<_>>().join(", "))
            }
            Signals::Prometheus => format!(
                "prometheus = {{ server = \"{prometheus}\", query = \"shop_workers_busy_ratio\", label = \"service\" }}"
            ),
        };
        let classes = scene.plan.apis.iter().map(|api| {
            let promised = api.min_rate.map_or(String::new(), |rate| format!("min_rate = \"{rate:.3}/s\"\n"));
            format!(
                "\n[class.{name}]\nmatch = [{{ path = \"/{name}\" }}]\nslo = {{ p{tail} = \"{slo}\" }}\npriority = {priority}\n{promised}",
                name = api.name,
                tail = (100.0 * api.tail).round(),
                slo = api.deadline,
                priority = api.priority,
            )
        });
        format!(
            r#"[sentry]
listen        = "{listen}"
admin         = "{admin}"
threads       = 1
drain_timeout = "1s"
rates         = {{ controllers = ["{rates}"] }}

[controller]
admin     = "{plan_at}"
interval  = "500ms"
state     = {state:?}
rates     = {{ listen = "{rates}", decide = "{decide}" }}
telemetry = {{ listen = "{spans}", wait = "1s", interval = "250ms", {source} }}

# What the fleet can do is what is judged, so nothing else limits anybody.
[pool.fleet]
servers              = ["{fleet}"]
workers              = 10000
max_idle_connections = 1000
admission            = {{ policy = "none" }}
{}"#,
            classes.collect::<String>()
        )
    }
}

/// Requests of all APIs, as many of each as the surge has.
pub fn mix(scene: &Scene) -> Mix {
    let requests = scene.plan.apis.iter().zip(scene.offered()).map(|(api, per_s)| Request {
        // As `observed` reads it: the class, then anything.
        name: format!("{}-", api.name),
        method: http::Method::GET,
        path: format!("/{}", api.name).parse().expect("a name makes a path"),
        share: per_s,
        body: String::new(),
        headers: Vec::new(),
        deadline: Some(Nanos(api.deadline.0)),
    });
    Mix { requests: requests.collect() }
}
