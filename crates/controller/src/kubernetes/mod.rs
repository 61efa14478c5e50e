//! Servers that are pods of a Deployment.
//!
//! Its scale is set to what is wanted, and the pods that its selector finds are read every other second: those that are ready are
//! offered to the sentries. Pods rather than the EndpointSlices of a Service: the Deployment alone is enough, what is not ready yet
//! and why can be told, and a pod that is being deleted is seen one step earlier. Read rather than watched: a list is complete, so
//! nothing depends on what was missed. Which pod goes when there are too many is decided by Kubernetes, and it is told to end at
//! the same moment; docs/controller.md says what a pod does so that nobody notices.

mod api;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_core::config::{Pool, Provision, Scheme, Server};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::api::connect;
use self::api::{Api, Phase, Pod};
use crate::backoff::Backoff;
use crate::provider::{Provider, Reality, Traffic};

/// How long the replicas must be those wanted until it is forgotten that somebody else set them: longer than an autoscaler takes to
/// do so again.
const SETTLED: Nanos = Nanos::from_secs(60);

/// What is scaled, and what its pods are to a sentry.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What the log calls it.
    pub name: String,
    /// The Deployment's namespace; without, that of the credentials.
    pub namespace: Option<String>,
    /// The Deployment's name.
    pub deployment: String,
    /// The port of its pods.
    pub port: u16,
    /// Most replicas that are asked for.
    pub most: u32,
}

impl Spec {
    /// Of a pool that is provisioned by a Deployment; nothing where that or the port is missing.
    pub fn of(pool: &Pool, provision: &Provision) -> Option<Spec> {
        Some(Spec {
            name: pool.name.clone(),
            namespace: provision.namespace.clone(),
            deployment: provision.deployment.clone()?,
            port: u16::try_from(provision.port?).ok()?,
            most: provision.max.saturating_sub(pool.servers.len() as u32),
        })
    }
}

/// The Deployment of one pool.
pub struct Deployment {
    spec: Spec,
    api: Api,
    /// Places for servers of all pools, and those that this one has.
    places: Arc<Semaphore>,
    held: Vec<OwnedSemaphorePermit>,
    /// The replicas that were set last; nothing where that is not certain.
    set: Option<u32>,
    /// Since when they are those wanted.
    agreed_since: Option<Nanos>,
    /// How setting them goes.
    backoff: Backoff,
    trouble: Option<String>,
    failures: u64,
}

impl Deployment {
    /// That of `spec`, by this client.
    pub fn new(spec: Spec, client: kube::Client, places: Arc<Semaphore>) -> Deployment {
        let api = Api::new(client, spec.namespace.as_deref(), &spec.deployment, spec.most);
        Deployment {
            spec,
            api,
            places,
            held: Vec::new(),
            set: None,
            agreed_since: None,
            backoff: Backoff::default(),
            trouble: None,
            failures: 0,
        }
    }

    fn failed(&mut self, now: Nanos, what: String) {
        log::warn!(pool:% = self.spec.name, what:%; "deployment cannot be scaled");
        self.failures += 1;
        self.backoff.failed(now);
        self.trouble = Some(what);
    }

    /// As many of those wanted as there are places for. What is there already is not given up for want of one.
    fn reserve(&mut self, wanted: u32, replicas: u32) -> u32 {
        while (self.held.len() as u32) < wanted
            && let Ok(place) = Arc::clone(&self.places).try_acquire_owned()
        {
            self.held.push(place);
        }
        wanted.min(replicas.max(self.held.len() as u32))
    }

    /// Sets the replicas, where they are others, and returns them as they are then. What goes wrong does not keep anybody from
    /// looking at the pods.
    async fn scale(&mut self, wanted: u32, replicas: u32, now: Nanos) -> u32 {
        if wanted == replicas {
            let is_settled = now.since(*self.agreed_since.get_or_insert(now)) >= SETTLED;
            if is_settled {
                self.backoff.succeeded();
            }
            // An error is over, whereas somebody else may come back.
            if is_settled || self.set.is_none() {
                self.trouble = None;
            }
            return replicas;
        }
        self.agreed_since = None;
        if !self.backoff.allows(now) {
            return replicas;
        }
        let is_overruled = self.set == Some(wanted);
        // It may be heard nevertheless where an error comes back, or nothing.
        self.set = None;
        if let Err(error) = self.api.set_replicas(wanted).await {
            self.failed(now, error);
            return replicas;
        }
        log::info!(pool:% = self.spec.name, from = replicas, to = wanted; "deployment scaled");
        self.set = Some(wanted);
        self.trouble = None;
        if is_overruled {
            let what = format!(
                "somebody else set the replicas of {} to {replicas}; remove its HorizontalPodAutoscaler, if it has one",
                self.spec.deployment
            );
            self.failed(now, what);
        }
        wanted
    }

    fn reality(&self, wanted: u32, mut pods: Vec<Pod>, traffic: &Traffic) -> Reality {
        pods.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
        let count = |phase: fn(&Phase) -> bool| pods.iter().filter(|pod| phase(&pod.phase)).count() as u32;
        let leaving = count(|phase| matches!(phase, Phase::Leaving));
        let unready = count(|phase| matches!(phase, Phase::Starting(_)));
        let ready: Vec<Server> = pods
            .iter()
            .filter_map(|pod| match pod.phase {
                Phase::Ready(address) => Some(address.to_string()),
                _ => None,
            })
            .map(|host| Server { scheme: Scheme::Http, host, port: self.spec.port })
            .collect();
        let stuck = || {
            let why = |pod: &Pod| match &pod.phase {
                Phase::Starting(Some(why)) => Some(format!("pod {}: {why}", pod.name)),
                _ => None,
            };
            pods.iter().find_map(why)
        };
        let down = || {
            let down = ready.iter().find(|server| traffic.down.contains(server))?;
            Some(format!("{down}: the sentries find it down"))
        };
        Reality {
            // Those that Kubernetes has not made yet among them.
            starting: unready.max(wanted.saturating_sub(ready.len() as u32)),
            leaving,
            waits: false,
            trouble: self.trouble.clone().or_else(stuck).or_else(down),
            failures: self.failures,
            ready,
        }
    }
}

impl Provider for Deployment {
    const EVERY: Duration = Duration::from_secs(2);

    async fn present(&mut self) -> Result<u32, String> {
        Ok(self.api.scale().await?.replicas)
    }

    async fn step(&mut self, wanted: u32, traffic: &Traffic, now: Nanos) -> Result<Reality, String> {
        let scale = self.api.scale().await?;
        let wanted = self.reserve(wanted.min(self.spec.most), scale.replicas);
        let replicas = self.scale(wanted, scale.replicas, now).await;
        let pods = self.api.pods(&scale.selector).await?;
        // A place is free again only when its pod is gone.
        self.held.truncate(pods.len().max(replicas as usize));
        Ok(self.reality(wanted, pods, traffic))
    }
}
