//! A scenario made ready to run: indices in place of names, samplers in place of descriptions.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path as FilePath;

use plimsoll_core::config;
use plimsoll_core::config::fleet::{Api, Autoscale, Failure, Offered, Retries, Scenario, Service};
use plimsoll_core::{Nanos, Slo, Statistic};
use plimsoll_ratecontrol::{Api as TopologyApi, Branch, ServiceId, Topology};

use crate::service::ServiceTime;

/// What every run of a scenario shares.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How long a run lasts.
    pub duration: Nanos,
    /// How often the controller sees the fleet and sets rates.
    pub signals: Nanos,
    /// Whether agents tell how long queues are.
    pub queues_seen: bool,
    /// In the order of the scenario.
    pub services: Vec<ServicePlan>,
    /// In the order of the scenario.
    pub apis: Vec<ApiPlan>,
    /// The paths of all APIs.
    pub paths: Vec<Path>,
    /// By service, instances that may call it; those who enter count as one.
    pub callers: Vec<u32>,
}

/// A service.
#[derive(Clone, Debug)]
pub struct ServicePlan {
    /// As the scenario has it.
    pub name: String,
    /// Requests that one instance works on at once.
    pub workers: u32,
    /// How long each takes.
    pub time: ServiceTime,
    /// Instances it begins with.
    pub instances: u32,
    /// Requests that wait at one instance at most.
    pub max_queue: usize,
    /// Instances come and go with utilisation.
    pub autoscale: Option<Autoscale>,
    /// Instances that end.
    pub failures: Vec<Failure>,
}

/// An API.
#[derive(Clone, Debug)]
pub struct ApiPlan {
    /// As the scenario has it.
    pub name: String,
    /// Its paths.
    pub paths: Range<usize>,
    /// How many requests users send.
    pub offered: Offered,
    /// Within what a request is to be answered, from when its user first sent it, so that it counts.
    pub deadline: Nanos,
    /// The part of its requests for which that is promised.
    pub tail: f64,
    /// From 1, the most important.
    pub priority: u32,
    /// Requests a second that are promised.
    pub min_rate: Option<f64>,
    /// What clients do about requests that did not go well.
    pub retries: Retries,
}

/// A path: steps, each one or more services that are called at once.
#[derive(Clone, Debug)]
pub struct Path {
    /// Of the requests of its API.
    pub share: f64,
    /// That, and the shares of the API's paths before it.
    pub share_up_to: f64,
    /// Step by step, the visits.
    pub stages: Vec<Range<usize>>,
    /// All visits, step by step.
    pub visits: Vec<Visit>,
}

/// A call of a service.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// Which one.
    pub service: u32,
    /// How much work it is, as a multiple of what is usual there.
    pub cost: f32,
}

/// How long the queue of an instance may become where nothing is said, in seconds of its work: twice what a request has as a rule, so
/// that an overload that nobody controls is one.
const QUEUE_S: f64 = 2.0;
/// What objectives are about where nothing is said.
const DEFAULT_TAIL: f64 = 0.95;

impl Plan {
    /// Reads a scenario and the files that it names. Returns what is doubtful in it, too.
    ///
    /// # Errors
    /// What cannot be read, where, and what to write instead.
    pub fn read(file: &FilePath) -> Result<(Plan, Vec<String>), String> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|e| format!("{name}: cannot be read: {e}"))?;
        let (scenario, warnings) =
            config::parse::<Scenario>(&text, &name).map_err(|errors| errors.to_string())?;
        let plan = Plan::new(&scenario, file.parent().unwrap_or(FilePath::new("")))?;
        Ok((plan, warnings.iter().map(ToString::to_string).collect()))
    }

    /// Whose path one is.
    pub fn api_of(&self, path: usize) -> &ApiPlan {
        let at = self.apis.partition_point(|api| api.paths.end <= path);
        &self.apis[at.min(self.apis.len() - 1)]
    }

    /// Makes a scenario ready. Files that it names are relative to `directory`.
    ///
    /// # Errors
    /// Where such a file cannot be read.
    pub fn new(scenario: &Scenario, directory: &FilePath) -> Result<Plan, String> {
        let service = |service: &Service| ServicePlan::new(service, directory);
        let services = scenario.services.iter().map(service).collect::<Result<_, _>>()?;
        let (mut apis, mut paths) = (Vec::new(), Vec::new());
        for api in &scenario.apis {
            let first = paths.len();
            paths.extend(paths_of(api));
            apis.push(ApiPlan {
                name: api.name.clone(),
                paths: first..paths.len(),
                offered: api.offered.clone(),
                deadline: api.deadline,
                tail: api.slo.as_ref().map_or(DEFAULT_TAIL, tail),
                priority: api.priority,
                min_rate: api.min_rate,
                retries: api.retries.clone(),
            });
        }
        let services: Vec<ServicePlan> = services;
        let callers = callers(&services, &paths);
        let queues_seen = scenario.telemetry.tells_queues();
        Ok(Plan {
            duration: scenario.duration,
            signals: scenario.signals,
            queues_seen,
            services,
            apis,
            paths,
            callers,
        })
    }

    /// What one request of an API is, in the mean over its paths, at each service: as multiples of what is usual there.
    pub fn load(&self, api: usize) -> Vec<f64> {
        let mut load = vec![0.0; self.services.len()];
        for path in &self.paths[self.apis[api].paths.clone()] {
            for visit in &path.visits {
                load[visit.service as usize] += path.share * f64::from(visit.cost);
            }
        }
        load
    }

    /// What a controller is told of it: who calls whom, the objectives, the priorities; not what services can do or APIs cost.
    pub fn topology(&self) -> Topology {
        let apis = self.apis.iter().map(|api| {
            let branches = self.paths[api.paths.clone()].iter().map(|path| {
                let services = path.visits.iter().map(|visit| ServiceId(visit.service)).collect();
                Branch { share: path.share, services }
            });
            let (priority, min_per_s) = (api.priority, api.min_rate.unwrap_or(0.0));
            TopologyApi { branches: branches.collect(), slo: api.deadline, priority, min_per_s }
        });
        Topology::new(self.services.len(), apis.collect())
    }
}

impl ServicePlan {
    fn new(service: &Service, directory: &FilePath) -> Result<ServicePlan, String> {
        let time = ServiceTime::new(&service.work.times, directory)?;
        let workers = service.work.workers;
        let per_s = f64::from(workers) / (time.mean_ns() / 1e9);
        let usual = (per_s * QUEUE_S).ceil().clamp(1.0, 1e7) as usize;
        Ok(ServicePlan {
            name: service.name.clone(),
            workers,
            time,
            instances: service.instances,
            max_queue: service.max_queue.map_or(usual, |max| max as usize),
            autoscale: service.autoscale.clone(),
            failures: service.failures.clone(),
        })
    }

    /// Requests a second, of the usual work, that one instance can serve.
    pub fn instance_per_s(&self) -> f64 {
        f64::from(self.workers) * 1e9 / self.time.mean_ns()
    }
}

fn paths_of(api: &Api) -> impl Iterator<Item = Path> {
    let mut share_up_to = 0.0;
    api.branches.iter().map(move |branch| {
        share_up_to += branch.share;
        let (mut stages, mut visits) = (Vec::new(), Vec::new());
        for stage in &branch.stages {
            let first = visits.len();
            visits.extend(
                stage.iter().map(|&(service, cost)| Visit { service: service as u32, cost: cost as f32 }),
            );
            stages.push(first..visits.len());
        }
        Path { share: branch.share, share_up_to, stages, visits }
    })
}

/// By service, how many instances are in the step before it on any path.
fn callers(services: &[ServicePlan], paths: &[Path]) -> Vec<u32> {
    let mut by = vec![BTreeSet::new(); services.len()];
    for path in paths {
        for (i, stage) in path.stages.iter().enumerate() {
            for visit in &path.visits[stage.clone()] {
                let before = i.checked_sub(1).map(|before| &path.visits[path.stages[before].clone()]);
                match before {
                    Some(visits) => by[visit.service as usize].extend(visits.iter().map(|v| Some(v.service))),
                    None => drop(by[visit.service as usize].insert(None)),
                }
            }
        }
    }
    let instances = |caller: &Option<u32>| caller.map_or(1, |service| services[service as usize].instances);
    by.iter().map(|callers| callers.iter().map(instances).sum()).collect()
}

/// The part of the requests that the highest percentile of an objective is about.
fn tail(slo: &Slo) -> f64 {
    let mut percentiles = slo.targets().iter().filter_map(|&(statistic, _)| match statistic {
        Statistic::Percentile(percentile) => Some(percentile.fraction()),
        Statistic::Mean => None,
    });
    percentiles.next_back().unwrap_or(DEFAULT_TAIL)
}
