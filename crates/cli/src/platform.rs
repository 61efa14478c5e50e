//! A whole platform for a tool to load and look at: a sentry, a controller, and the web services that the controller starts and stops.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, Uri};
use plimsoll_core::Nanos;
use plimsoll_core::config::mix::{Mix, Request};
use plimsoll_sentry::admin::model::Overview;
use plimsoll_testbed::pages::MIX;
use serde_json::Value;
use tempfile::TempDir;

use crate::processes::{
    Process, configure, directory, free_addresses, get, plimsoll, ready, role, said, uri,
};

/// How long the first servers may take to be there.
const READY_TRIES: u32 = 100;
const READY_PAUSE: Duration = Duration::from_millis(100);
/// From one look at a platform under load to the next.
const LOOK: Duration = Duration::from_millis(250);

/// The processes. Dropping it ends them all.
pub struct Platform {
    listen: SocketAddr,
    /// The sentry's admin address.
    pub admin: SocketAddr,
    plan_at: SocketAddr,
    // They end in this order: the controller with its servers, then the sentry.
    _controller: Process,
    _sentry: Process,
    _directory: TempDir,
}

/// What the controller says of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolNow {
    /// Servers that there should be.
    pub planned: u64,
    /// Servers that take requests.
    pub ready: u64,
    /// Servers that are not ready yet.
    pub starting: u64,
    /// Servers that finish what they have.
    pub leaving: u64,
    /// The last change of plan, and why; nothing before the first.
    pub changed: Option<String>,
    /// What went wrong last with starting them, while it lasts.
    pub trouble: Option<String>,
}

impl PoolNow {
    /// Servers that exist, in whatever phase.
    pub fn servers(&self) -> u64 {
        self.ready + self.starting + self.leaving
    }
}

impl Platform {
    /// Starts everything and waits until the sentry has the first servers. `controller` are lines for `[controller]`, `pools` are the
    /// tables of pools and classes.
    ///
    /// # Errors
    /// What did not start, with the last lines of its log.
    pub async fn start(controller: &str, pools: &str) -> Result<Platform, String> {
        let directory = directory()?;
        let [listen, admin, plan_at] = free_addresses()?;
        let config = format!(
            "[sentry]\nlisten = \"{listen}\"\nadmin = \"{admin}\"\ndrain_timeout = \"2s\"\n\n\
             [controller]\nadmin = \"{plan_at}\"\nstate = {:?}\n{controller}\n{pools}",
            directory.path().join("state")
        );
        configure(directory.path(), &config)?;
        let sentry = role(directory.path(), "sentry", &[])?;
        ready(admin).await.map_err(|error| error + &said(directory.path(), "sentry"))?;
        // What it has started is to end with it.
        let controller = role(directory.path(), "controller", &["--stop-servers"])?;
        let platform = Platform {
            listen,
            admin,
            plan_at,
            _controller: controller,
            _sentry: sentry,
            _directory: directory,
        };
        platform.settled().await?;
        Ok(platform)
    }

    /// Waits until what is planned at first is there, and the sentry has it.
    async fn settled(&self) -> Result<(), String> {
        for _ in 0..READY_TRIES {
            if let (Ok(pools), Ok(overview)) = (self.pools().await, self.overview().await) {
                let has = |(pool, seen): (&PoolNow, usize)| pool.planned > 0 && pool.planned == seen as u64;
                let seen = overview.pools.iter().map(|pool| pool.servers.len());
                if !pools.is_empty() && pools.iter().zip(seen).all(has) {
                    return Ok(());
                }
            }
            tokio::time::sleep(READY_PAUSE).await;
        }
        let said = said(self._directory.path(), "controller");
        Err(format!("the first servers are not ready after 10 s{said}"))
    }

    /// The pools that the controller sizes, in the order of the config.
    ///
    /// # Errors
    /// Where it does not answer.
    pub async fn pools(&self) -> Result<Vec<PoolNow>, String> {
        let plan = read(self.plan_at, "/plan").await?;
        let changes = plan["changes"].as_array().map_or(&[][..], Vec::as_slice);
        let pool = |pool: &Value| {
            let change = changes.iter().rfind(|change| change["of"] == pool["name"]);
            let words = |change: &Value| {
                let reason = change["reason"].as_str().unwrap_or_default();
                format!("{} to {}: {reason}", change["from"], change["to"])
            };
            let count = |key: &str| pool[key].as_u64().unwrap_or(0);
            PoolNow {
                planned: count("planned"),
                ready: pool["ready"].as_array().map_or(0, |ready| ready.len() as u64),
                starting: count("starting"),
                leaving: count("leaving"),
                changed: change.map(words),
                trouble: pool["trouble"].as_str().map(str::to_owned),
            }
        };
        Ok(plan["pools"].as_array().into_iter().flatten().map(pool).collect())
    }

    /// What the sentry says of its pools and classes.
    ///
    /// # Errors
    /// Where it does not answer.
    pub async fn overview(&self) -> Result<Overview, String> {
        serde_json::from_value(read(self.admin, "/classes").await?).map_err(|e| e.to_string())
    }

    /// Where to send requests.
    pub fn target(&self) -> Uri {
        uri(self.listen)
    }

    /// Tells `look` what the controller and the sentry say again and again while something is done. Where the controller does not answer
    /// nothing is told; what is done goes on.
    pub async fn watched<T>(
        &self,
        done: impl Future<Output = T>,
        mut look: impl FnMut(Vec<PoolNow>, Option<Overview>),
    ) -> T {
        let watch = async {
            let mut ticks = tokio::time::interval(LOOK);
            loop {
                ticks.tick().await;
                let (pools, overview) = tokio::join!(self.pools(), self.overview());
                if let Ok(pools) = pools {
                    look(pools, overview.ok());
                }
            }
        };
        tokio::select! {
            result = done => result,
            never = watch => never,
        }
    }
}

/// What an admin address answers as JSON.
async fn read(admin: SocketAddr, path: &str) -> Result<Value, String> {
    let answer = get(admin, path).await.map_err(|e| format!("http://{admin}{path}: {e}"))?;
    serde_json::from_str(&answer).map_err(|e| format!("http://{admin}{path}: {e}"))
}

/// How a web service with so many workers is started on `{port}`, as the config wants it.
///
/// # Errors
/// Where this program cannot be found.
pub fn page_command(workers: u32) -> Result<String, String> {
    let program = plimsoll()?.get_program().to_string_lossy().into_owned();
    let arguments = ["testbed", "pages", "--listen", "127.0.0.1:{port}", "--work", "wait", "--workers"];
    let workers = workers.to_string();
    Ok(format!("{:?}", [&[&*program][..], &arguments, &[&*workers]].concat()))
}

/// Requests for every page of the web service from classes with these shares: class `gold` asks for `/cheap/gold` and so on, under the
/// name `gold-cheap`.
pub fn mix<'a>(classes: impl IntoIterator<Item = (&'a str, f64)>, deadline: Option<Nanos>) -> Mix {
    let requests = classes.into_iter().flat_map(|(class, share)| {
        MIX.map(|(page, of)| Request {
            name: format!("{class}-{}", page.as_str()),
            method: Method::GET,
            path: format!("/{}/{class}", page.as_str()).parse().expect("a path"),
            share: share * of,
            body: String::new(),
            headers: Vec::new(),
            deadline,
        })
    });
    Mix { requests: requests.collect() }
}
