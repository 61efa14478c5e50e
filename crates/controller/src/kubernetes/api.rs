//! What is asked of the Kubernetes API: one Deployment's scale, and its pods.
//!
//! Of a pod only what is needed is read. No error holds what credentials may be in: lines of a kubeconfig, or what a command that
//! it names has printed.

use std::error::Error;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use kube::client::AuthError;
use kube::config::KubeconfigError;
use kube::core::Request;
use kube::{Client, Config};
use plimsoll_core::Nanos;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long one answer may take: the three of a step together take less than whoever drives it allows.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the credentials may take: a command that asks a server for them does not take longer.
const CREDENTIALS_PATIENCE: Duration = Duration::from_secs(10);
/// As whom the server notes the changes.
const FIELD_MANAGER: &str = "plimsoll";
/// Pods that are read at most, for each that there may be: a rollout has the new beside the old, and both may be ending.
const PODS_EACH: u32 = 4;
/// Longest error that is shown, in bytes.
const LONGEST: usize = 300;

/// A client with the credentials that there are: a kubeconfig's (`KUBECONFIG`, `~/.kube/config`), or those of the pod that this
/// runs in.
///
/// # Errors
/// Why there are none, in words for the operator.
pub async fn connect() -> Result<Client, String> {
    let mut config = Config::infer().await.map_err(|error| words(&error))?;
    // Whoever drives the provider tries again, and says so.
    config.default_retry = false;
    client(config, CREDENTIALS_PATIENCE).await
}

/// The client of a configuration, for which there is so much patience. It is made in a thread of its own, for a command that prints
/// credentials is waited for there; not in `spawn_blocking`, for which the end of the runtime would wait, too.
pub async fn client(config: Config, patience: Duration) -> Result<Client, String> {
    let (sender, made) = oneshot::channel();
    let runtime = Handle::current();
    let make = move || {
        let _runtime = runtime.enter();
        // Nobody waits for one that is late.
        let _ = sender.send(Client::try_from(config).map_err(|error| words(&error)));
    };
    let thread = thread::Builder::new().name("credentials".to_owned()).spawn(make);
    thread.map_err(|error| format!("no thread for the credentials: {error}"))?;
    match timeout(patience, made).await {
        Ok(made) => made.unwrap_or_else(|_| Err("the credentials cannot be used".to_owned())),
        Err(_) => Err(format!(
            "no credentials within {}; does the kubeconfig's command for them wait for something? `kubectl auth whoami` may say",
            Nanos::from(patience)
        )),
    }
}

/// One Deployment.
pub struct Api {
    client: Client,
    deployments: Request,
    deployment: String,
    pods: Request,
    most_pods: u32,
}

/// How many pods there should be, and which they are.
pub struct Scale {
    /// As the Deployment says it.
    pub replicas: u32,
    /// Their labels, as a query.
    pub selector: String,
}

/// One pod.
pub struct Pod {
    /// Its name.
    pub name: String,
    /// When it was made, as RFC 3339 in UTC, to the second: in the order of time as text.
    pub created: String,
    /// How far it is.
    pub phase: Phase,
}

/// How far a pod is.
pub enum Phase {
    /// Not ready, and why, where that is not just a matter of time.
    Starting(Option<String>),
    /// Takes requests, at this address.
    Ready(IpAddr),
    /// Told to end.
    Leaving,
}

impl Api {
    /// The Deployment of this name, of which there may be so many pods. Without a namespace it is that of the credentials.
    pub fn new(client: Client, namespace: Option<&str>, deployment: &str, most: u32) -> Api {
        let namespace = namespace.unwrap_or(client.default_namespace());
        Api {
            deployments: Request::new(format!("/apis/apps/v1/namespaces/{namespace}/deployments")),
            deployment: deployment.to_owned(),
            pods: Request::new(format!("/api/v1/namespaces/{namespace}/pods")),
            most_pods: most.max(1).saturating_mul(PODS_EACH),
            client,
        }
    }

    /// Its scale.
    ///
    /// # Errors
    /// What kept it from being read.
    pub async fn scale(&self) -> Result<Scale, String> {
        let what = format!("GET deployments/{}/scale", self.deployment);
        let request = self.deployments.get_subresource("scale", &self.deployment);
        let scale: shapes::Scale = self.ask(&what, request).await?;
        // Without one, every pod of the namespace would be found.
        if scale.status.selector.is_empty() {
            return Err(format!("{what}: it has no selector"));
        }
        Ok(Scale { replicas: scale.spec.replicas, selector: scale.status.selector })
    }

    /// So many pods there should be.
    ///
    /// # Errors
    /// What kept it from being said. It may have been heard nevertheless.
    pub async fn set_replicas(&self, replicas: u32) -> Result<(), String> {
        let what = format!("PATCH deployments/{}/scale", self.deployment);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        let request = self.deployments.patch_subresource("scale", &self.deployment, &params, &patch);
        self.ask::<serde::de::IgnoredAny>(&what, request).await.map(|_| ())
    }

    /// The pods with these labels that have not ended.
    ///
    /// # Errors
    /// What kept them from being read, or that there are too many to be the Deployment's.
    pub async fn pods(&self, selector: &str) -> Result<Vec<Pod>, String> {
        // One that was evicted stays in the list for long.
        let living = "status.phase!=Failed,status.phase!=Succeeded";
        let params = ListParams::default().labels(selector).fields(living).limit(self.most_pods);
        let list: shapes::Pods = self.ask("GET pods", self.pods.list(&params)).await?;
        if !list.metadata.more.is_empty() {
            return Err(format!(
                "GET pods: more than {} have the labels `{selector}`; is the selector that of another workload too?",
                self.most_pods
            ));
        }
        Ok(list.items.into_iter().map(shapes::Pod::read).collect())
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        what: &str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, String> {
        let request = request.map_err(|error| format!("{what}: {error}"))?;
        match timeout(PATIENCE, self.client.request(request)).await {
            Ok(answer) => answer.map_err(|error| format!("{what}: {}", words(&error))),
            Err(_) => Err(format!("{what}: no answer within {} s", PATIENCE.as_secs())),
        }
    }
}

/// An error for the operator.
pub fn words(error: &(dyn Error + 'static)) -> String {
    let mut text = reason(error);
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

fn reason(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => {
            return format!("{} {}: {}", status.code, status.reason, status.message);
        }
        Some(kube::Error::Service(error)) => return reason(&**error),
        Some(kube::Error::Auth(error)) => return reason(error),
        _ => {}
    }
    match error.downcast_ref() {
        Some(AuthError::ReadTokenFile(error, path)) => return format!("{}: {error}", path.display()),
        Some(AuthError::AuthExecRun { out, .. }) => {
            return format!("the kubeconfig's command for credentials failed: {}", out.status);
        }
        Some(_) => return "the credentials cannot be used; `kubectl auth whoami` may say why".to_owned(),
        None => {}
    }
    if let Some(KubeconfigError::Parse(_)) = error.downcast_ref() {
        return "the kubeconfig cannot be read; `kubectl config view` may say why".to_owned();
    }
    match error.source() {
        Some(source) if error.is::<kube::config::InferConfigError>() => {
            format!("{}; and this is not a pod with a service account", reason(source))
        }
        Some(source) => format!("{error}: {}", reason(source)),
        None => error.to_string(),
    }
}

/// The objects of the API, as far as they are read.
mod shapes {
    use super::{Deserialize, IpAddr, Phase};

    #[derive(Deserialize)]
    pub struct Scale {
        pub spec: ScaleSpec,
        #[serde(default)]
        pub status: ScaleStatus,
    }

    #[derive(Deserialize)]
    pub struct ScaleSpec {
        /// Left out where it is 0.
        #[serde(default)]
        pub replicas: u32,
    }

    #[derive(Default, Deserialize)]
    pub struct ScaleStatus {
        #[serde(default)]
        pub selector: String,
    }

    #[derive(Deserialize)]
    pub struct Pods {
        pub metadata: ListMetadata,
        pub items: Vec<Pod>,
    }

    #[derive(Deserialize)]
    pub struct ListMetadata {
        #[serde(default, rename = "continue")]
        pub more: String,
    }

    #[derive(Deserialize)]
    pub struct Pod {
        metadata: Metadata,
        #[serde(default)]
        status: Status,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: String,
        #[serde(default)]
        creation_timestamp: String,
        deletion_timestamp: Option<String>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Status {
        #[serde(rename = "podIP")]
        pod_ip: Option<String>,
        conditions: Vec<Condition>,
        container_statuses: Vec<Container>,
    }

    #[derive(Deserialize)]
    struct Condition {
        r#type: String,
        status: String,
        reason: Option<String>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Container {
        state: State,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct State {
        waiting: Option<Waiting>,
    }

    #[derive(Deserialize)]
    struct Waiting {
        reason: Option<String>,
    }

    impl Pod {
        pub fn read(self) -> super::Pod {
            let phase = match (&self.metadata.deletion_timestamp, self.status.address()) {
                (Some(_), _) => Phase::Leaving,
                (None, Some(address)) => Phase::Ready(address),
                (None, None) => Phase::Starting(self.status.obstacle()),
            };
            super::Pod { name: self.metadata.name, created: self.metadata.creation_timestamp, phase }
        }
    }

    impl Status {
        fn condition(&self, kind: &str) -> Option<&Condition> {
            self.conditions.iter().find(|condition| condition.r#type == kind)
        }

        /// Where it is ready.
        fn address(&self) -> Option<IpAddr> {
            let is_ready = self.condition("Ready").is_some_and(|condition| condition.status == "True");
            self.pod_ip.as_ref().filter(|_| is_ready)?.parse().ok()
        }

        /// What it waits for that may never come.
        fn obstacle(&self) -> Option<String> {
            let scheduled = self.condition("PodScheduled").filter(|condition| condition.status != "True");
            let waiting =
                self.container_statuses.iter().filter_map(|container| container.state.waiting.as_ref());
            let mut reasons =
                waiting.map(|waiting| &waiting.reason).chain(scheduled.map(|c| &c.reason)).flatten();
            let usual = ["ContainerCreating", "PodInitializing"];
            reasons.find(|reason| !usual.contains(&reason.as_str())).cloned()
        }
    }
}
