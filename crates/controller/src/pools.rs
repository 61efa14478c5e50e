//! The pools that are provisioned: what each is, who brings its servers about, and what it asks for.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_core::Nanos;
use plimsoll_core::config::{Class, Config, Pool, ProviderKind, Provision, Server, Workers};
use plimsoll_provisioning::demand::Demand;
use plimsoll_provisioning::planner::{Bounds, Pace, Plan, Planner, Reason};
use plimsoll_sentry::clock;
use tokio::sync::{Notify, Semaphore, watch};

use crate::actuator::Actuator;
#[cfg(feature = "kubernetes")]
use crate::kubernetes;
use crate::process::{Processes, Spec};
use crate::provider::{Reality, Traffic};
use crate::status::PoolStatus;

/// A pool with `provision`.
pub struct Provisioned {
    /// Its place in the config.
    pub index: usize,
    /// Servers that are there anyway.
    pub fixed: Vec<Server>,
    /// Who brings about the others; nobody where the controller does not act.
    pub actuator: Option<Actuator>,
    /// What it asked for last.
    pub demand: Option<Demand>,
    /// What is planned.
    pub plan: Option<Plan>,
}

impl Provisioned {
    /// Servers that take requests.
    pub fn ready(&self) -> Vec<Server> {
        let others = self.actuator.as_ref().map(Actuator::reality).unwrap_or_default().ready;
        self.fixed.iter().cloned().chain(others).collect()
    }

    /// As `/plan` shows it.
    pub fn status(&self, pool: &Pool, classes: &[&Class]) -> PoolStatus {
        let Reality { starting, leaving, trouble, failures, .. } =
            self.actuator.as_ref().map(Actuator::reality).unwrap_or_default();
        let demand = self.demand.as_ref();
        let load = demand.map(|demand| demand.load);
        PoolStatus {
            name: pool.name.clone(),
            planned: self.plan.map_or(0, |plan| plan.servers),
            reason: self.plan.map_or_else(|| "not planned yet".to_owned(), |plan| words(plan.reason)),
            ready: self.ready().iter().map(ToString::to_string).collect(),
            starting,
            leaving,
            trouble,
            failures,
            per_s: load.map(|load| load.per_s),
            service_ms: load.map(|load| load.service_s * 1e3),
            refused: demand.map(|demand| demand.refused),
            target_ms: demand.map(|demand| demand.target.as_millis_f64()),
            unattainable: demand.map_or_else(Vec::new, |demand| {
                let class = |&(i, why): &(usize, _)| format!("class `{}`: {why}", classes[i].name);
                demand.hopeless.iter().map(class).collect()
            }),
        }
    }
}

/// A reason in words.
pub fn words(reason: Reason) -> String {
    match reason {
        Reason::Steady => "steady".to_owned(),
        Reason::Refusals => "too much is refused".to_owned(),
        Reason::Forecast => "more is coming".to_owned(),
        Reason::Spare => "less has been needed for two periods".to_owned(),
        Reason::Outbid => "others earn more with the servers that there are".to_owned(),
        Reason::Unseen => "not every sentry says what arrives".to_owned(),
        Reason::Nonsense => "what the sentries say cannot be".to_owned(),
        Reason::Unattainable(why) => why.to_string(),
    }
}

/// The planner of a pool, and what it is for.
pub fn planner(pool: &Pool, provision: &Provision) -> Planner {
    let fixed = pool.servers.len() as u32;
    let least = provision.min.max(fixed);
    let slots = match pool.workers {
        Workers::Fixed(slots) => slots,
        // Measured before anything is planned.
        Workers::Adaptive => 1,
    };
    let bounds = Bounds { least, most: provision.max, slots };
    let pace = Pace {
        step: provision.step.unwrap_or(u32::MAX),
        gap: provision.pause,
        period: provision.period,
        refused: provision.drop_rate,
    };
    let season = (provision.season.0 / provision.period.0.max(1)) as usize;
    Planner::new(bounds, pace, season, least)
}

/// Puts the provider of a pool to work. `state` is the controller's directory, `places` are servers that may be started.
///
/// # Errors
/// Where it cannot be set up, in words for the operator.
pub async fn actuator(
    pool: &Pool,
    provision: &Provision,
    state: &Path,
    places: &Arc<Semaphore>,
    traffic: watch::Receiver<Traffic>,
    changed: Rc<Notify>,
) -> Result<Actuator, String> {
    match provision.provider {
        ProviderKind::Process => {
            let spec = spec(pool, provision);
            let directory = state.join("pools").join(&pool.name);
            let processes = Processes::open(spec, &directory, Arc::clone(places), clock::now());
            let processes = processes.map_err(|error| format!("{}: {error}", directory.display()))?;
            Ok(Actuator::start(pool.name.clone(), processes, traffic, changed))
        }
        ProviderKind::Kubernetes => {
            let of_pool =
                |error: String| format!("pool `{}` is provisioned by kubernetes: {error}", pool.name);
            kubernetes(pool, provision, places, traffic, changed).await.map_err(of_pool)
        }
    }
}

#[cfg(feature = "kubernetes")]
async fn kubernetes(
    pool: &Pool,
    provision: &Provision,
    places: &Arc<Semaphore>,
    traffic: watch::Receiver<Traffic>,
    changed: Rc<Notify>,
) -> Result<Actuator, String> {
    let spec = kubernetes::Spec::of(pool, provision).ok_or("`deployment` or `port` is missing")?;
    let deployment = kubernetes::Deployment::new(spec, kubernetes::connect().await?, Arc::clone(places));
    Ok(Actuator::start(pool.name.clone(), deployment, traffic, changed))
}

#[cfg(not(feature = "kubernetes"))]
async fn kubernetes(
    _: &Pool,
    _: &Provision,
    _: &Arc<Semaphore>,
    _: watch::Receiver<Traffic>,
    _: Rc<Notify>,
) -> Result<Actuator, String> {
    Err("this build has no kubernetes; build with `--features kubernetes`".to_owned())
}

fn spec(pool: &Pool, provision: &Provision) -> Spec {
    let most = provision.max.saturating_sub(pool.servers.len() as u32);
    Spec {
        name: pool.name.clone(),
        command: provision.command.clone(),
        ports: provision.ports.into_iter().flat_map(|ports| ports.iter()).collect(),
        ready: provision.ready.clone(),
        most,
        start_timeout: provision.start_timeout,
        drain_timeout: provision.drain_timeout,
        stop_timeout: provision.stop_timeout,
        sentries: None,
    }
}

/// Ends the servers that an earlier controller started for pools that are not provisioned any more.
pub fn end_forgotten(
    config: &Config,
    state: &Path,
    traffic: &watch::Receiver<Traffic>,
    changed: &Rc<Notify>,
) -> Vec<Actuator> {
    let is_known = |name: &str| {
        let by_process = |p: &Provision| p.provider == ProviderKind::Process;
        config.pools.iter().any(|pool| pool.name == name && pool.provision.as_ref().is_some_and(by_process))
    };
    let directories = std::fs::read_dir(state.join("pools")).into_iter().flatten().flatten();
    let forgotten =
        directories.filter(|entry| entry.file_name().to_str().is_some_and(|name| !is_known(name)));
    let end = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let spec = Spec {
            name: name.clone(),
            command: Vec::new(),
            ports: Vec::new(),
            ready: None,
            most: 0,
            start_timeout: Nanos::ZERO,
            drain_timeout: Nanos::from_secs(30),
            stop_timeout: Nanos::from_secs(10),
            sentries: None,
        };
        let none = Arc::new(Semaphore::new(0));
        let processes = Processes::open(spec, &entry.path(), none, clock::now()).ok()?;
        let actuator = Actuator::start(name, processes, traffic.clone(), Rc::clone(changed));
        actuator.order(0);
        Some(actuator)
    };
    forgotten.filter_map(end).collect()
}
