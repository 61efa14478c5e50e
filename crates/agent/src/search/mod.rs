//! A stock node of OpenSearch or Elasticsearch, and in a folder of its own a stock Solr, of which what is connected to and who has what is seen alike.
//!
//! | file | does |
//! | --- | --- |
//! | `connect` | the connection, and what its errors say |
//! | `tasks` | who has begun what, and who works for them |
//! | `figures` | what the node counts |
//! | `takings` | from all of them: who has what of its threads, its processors and its heap |
//! | `words` | tasks as they may be told |
//! | `solr` | what Solr is asked, and what it and the sentry answer |

mod connect;
mod figures;
mod solr;
mod takings;
mod tasks;
mod words;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use http::{Method, StatusCode};
use plimsoll_core::Nanos;
use plimsoll_core::config::{Database, DatabaseKind};
use plimsoll_engine::standstill::Standstill;
use serde_json::Value;

use crate::clock as ours;
use crate::server::backend::{Backend, State};
use crate::server::chains::Pid;
use crate::server::latency::{OwnWait, Pauses};
use crate::server::slots::{self, What};
use crate::server::stamp::Stamp;
use crate::server::trust::certificates;
use crate::server::{Adapter, Glance, Seen, Told};

use self::connect::{Connection, Target};
use self::figures::{Figures, STATS, Stats};
pub use self::solr::Solr;
use self::takings::Takings;
use self::tasks::{LIST, List, Root};

/// The oldest versions that show what is needed.
const OLDEST_OPENSEARCH: (u32, u32) = (2, 0);
const OLDEST_ELASTICSEARCH: (u32, u32) = (7, 10);
/// Where a node listens, if it is not said.
const PORT: u16 = 9_200;
/// Tasks of which more is asked, to tell of them.
const MOST_TOLD: usize = 32;

/// A connection to a node of OpenSearch.
pub type OpenSearch = Search<false>;
/// A connection to a node of Elasticsearch.
pub type Elasticsearch = Search<true>;

/// A connection to a node of either; what they answer hardly differs.
pub struct Search<const ELASTIC: bool> {
    connection: Connection,
    target: Target,
    /// The node's name for itself.
    node: String,
    processors: u64,
    /// Why nothing can be cancelled, if so.
    powerless: Option<String>,
    warned: bool,
    figures: Figures,
    takings: Takings,
    /// How it stands still, if it is on this host; otherwise, what our own questions tell of that.
    standstill: Option<Standstill>,
    own_wait: OwnWait,
    /// Who was there at the last look.
    roots: HashMap<Pid, Root>,
}

impl<const ELASTIC: bool> Adapter for Search<ELASTIC> {
    type Target = Target;
    const SOURCE: &'static str = if ELASTIC { "elasticsearch" } else { "opensearch" };

    fn target(settings: &Database) -> Result<Target, String> {
        let (DatabaseKind::OpenSearch { tls_ca } | DatabaseKind::Elasticsearch { tls_ca }) = &settings.kind
        else {
            return Err("this is no table of a search engine".to_owned());
        };
        target(settings, PORT, tls_ca.as_deref())
    }

    async fn connect(target: &Target, now: Nanos) -> Result<Search<ELASTIC>, String> {
        let mut connection = Connection::open(target).await?;
        let version = version(&connection.get("/").await?, ELASTIC)?;
        let About { node, processors, process, serial } = about(&connection.get(NODE).await?)?;
        let powerless = powerless(&mut connection, target, &node).await?;
        let standstill = process.and_then(|(pid, began_s)| Standstill::find(pid, began_s, serial, now));
        let here = standstill.is_some();
        log::info!(version:% = version, user:% = target.user(), node:%, processors, here; "a search engine");
        Ok(Search {
            connection,
            target: target.clone(),
            node,
            processors,
            powerless,
            warned: false,
            figures: Figures::default(),
            takings: Takings::default(),
            standstill,
            own_wait: OwnWait::default(),
            roots: HashMap::new(),
        })
    }

    fn warnings(&mut self, enforce: bool) -> Vec<String> {
        let warned = std::mem::replace(&mut self.warned, true);
        self.powerless.iter().filter(|_| enforce && !warned).cloned().collect()
    }

    async fn look(&mut self, _: Glance) -> Result<Seen, String> {
        let asked = ours::now();
        let list: List = self.connection.get(LIST).await?;
        let stats: Stats = self.connection.get(STATS).await?;
        let took_ns = ours::now().since(asked).0;
        let node = stats.node()?;
        let (roots, parts) = list.sort(&self.node);
        let (at, began, requests) = (node.at(), node.began(), node.requests());
        let mut change = self.figures.look(node);
        let told = change.paused;
        let stood = self.standstill.as_mut().and_then(|seen| seen.look(ours::now()));
        let stood = stood.map(|stood| Pauses::like(told, stood.stood_ns, stood.in_ns));
        change.paused = stood.unwrap_or(told);
        let paused = stood.unwrap_or_else(|| self.own_wait.look(took_ns, change.elapsed_ns, told));
        let before = std::mem::take(&mut self.roots);
        let new = roots.iter().filter(|root| !before.contains_key(&root.id)).count() as u64;
        self.roots = roots.into_iter().map(|root| (root.id, root)).collect();
        let ids: HashSet<Pid> = self.roots.keys().copied().collect();
        Ok(Seen {
            at,
            began,
            requests,
            // Those that it has counted have begun something and are gone.
            moved: change.requests.saturating_add(new),
            backends: self.roots.values().map(|root| backend(root.id, root.began, root.kind)).collect(),
            locks: Vec::new(),
            progress: self.roots.values().filter_map(|root| Some((root.id, root.progress?))).collect(),
            did: HashMap::new(),
            measured: self.takings.look(&ids, &parts, &change, self.processors),
            // A node on another host may not have told of it yet.
            paused,
            mean_ns: change.mean_ns,
        })
    }

    /// It says itself what its tasks take.
    fn on_host(&self) -> bool {
        false
    }

    fn untouchable(&self, backend: &Backend) -> Option<String> {
        let root = self.roots.get(&backend.pid);
        if let Some(root) = root.filter(|root| !root.cancellable) {
            return Some(format!("the server cannot cancel {}", root.action));
        }
        self.powerless.clone()
    }

    /// Tasks have numbers that are never used again, so it is the same or gone.
    async fn end(&mut self, backend: &Backend, _: bool) -> Result<Option<bool>, String> {
        let path = cancel(&self.node, backend.pid);
        let answer = self.connection.ask(Method::POST, &path).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            // Of one that is not there it may also say that it has failed to find it.
            status if status.is_success() => {
                let said: Value = answer.read()?;
                Ok(said["nodes"].as_object().is_some_and(|nodes| !nodes.is_empty()).then_some(true))
            }
            _ => Err(answer.refusal(&self.target, &path)),
        }
    }

    fn name(pid: Pid) -> String {
        format!("task {pid}")
    }

    fn resource(&self, index: u32, what: Option<&What>) -> String {
        resource(index, what)
    }

    async fn told(&mut self, backends: &[&Backend]) -> HashMap<Pid, Told> {
        let mut told = HashMap::new();
        for backend in backends.iter().take(MOST_TOLD) {
            // It may have ended since.
            if let Ok(answer) = self.connection.get::<Value>(&words::of_task(&self.node, backend.pid)).await {
                told.insert(backend.pid, words::told(&answer));
            }
        }
        told
    }
}

/// Where a node is that listens here if that is not said, and what it is held to.
fn target(settings: &Database, port: u16, tls_ca: Option<&Path>) -> Result<Target, String> {
    let ca = certificates(tls_ca)?;
    Target::read(settings.dsn.reveal(), port, ca.as_deref()).map_err(|why| format!("`url`: {why}"))
}

/// What is asked of the node when it is connected to.
const NODE: &str = "/_nodes/_local/os,process,jvm\
    ?filter_path=nodes.*.os.allocated_processors,nodes.*.process.id,nodes.*.jvm.start_time_in_millis,\
    nodes.*.jvm.gc_collectors";

/// What the serial collector is called where it collects what is old.
const SERIAL: &str = "MarkSweepCompact";

fn cancel(node: &str, id: Pid) -> String {
    format!("/_tasks/{node}:{id}/_cancel")
}

/// The product and its version in words.
fn version(said: &Value, elastic: bool) -> Result<String, String> {
    let number = said["version"]["number"].as_str().ok_or("this is neither OpenSearch nor Elasticsearch")?;
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    let at = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let is_elastic = said["version"]["distribution"] != "opensearch";
    let [name, other, table] = match is_elastic {
        true => ["Elasticsearch", "[opensearch", "[elasticsearch"],
        false => ["OpenSearch", "[elasticsearch", "[opensearch"],
    };
    if is_elastic != elastic {
        return Err(format!("this is {name} {number}; write {table}.NAME] instead of {other}.NAME]"));
    }
    let oldest = if elastic { OLDEST_ELASTICSEARCH } else { OLDEST_OPENSEARCH };
    if at < oldest {
        let (major, minor) = oldest;
        return Err(format!(
            "{name} {number} does not show what is needed; {major}.{minor} is the oldest that does"
        ));
    }
    Ok(format!("{name} {number}"))
}

/// What a node says of itself.
#[derive(Debug, PartialEq)]
struct About {
    /// Its name for itself.
    node: String,
    processors: u64,
    /// Its process, and when its JVM began, in seconds since 1970.
    process: Option<(u32, f64)>,
    /// Whether it collects garbage on one thread.
    serial: bool,
}

fn about(said: &Value) -> Result<About, String> {
    let (node, facts) = said["nodes"]
        .as_object()
        .and_then(|nodes| nodes.iter().next())
        .ok_or("the node says nothing of itself")?;
    let pid = facts["process"]["id"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let began_ms = facts["jvm"]["start_time_in_millis"].as_f64();
    let collectors = facts["jvm"]["gc_collectors"].as_array();
    Ok(About {
        node: node.clone(),
        processors: facts["os"]["allocated_processors"].as_u64().unwrap_or(1).max(1),
        process: pid.zip(began_ms.map(|ms| ms / 1e3)),
        serial: collectors.is_some_and(|names| names.iter().any(|name| name == SERIAL)),
    })
}

/// Why nothing can be cancelled, if so. It is found out with a task that never was.
async fn powerless(
    connection: &mut Connection,
    target: &Target,
    node: &str,
) -> Result<Option<String>, String> {
    let answer = connection.ask(Method::POST, &cancel(node, 0)).await?;
    Ok((answer.status == StatusCode::FORBIDDEN).then(|| {
        format!(
            "user {} may not cancel anything; give its role the cluster permission cluster:admin/tasks/cancel",
            target.user()
        )
    }))
}

fn backend(pid: Pid, began: Stamp, kind: Option<&str>) -> Backend {
    Backend {
        pid,
        process: None,
        database: 0,
        user: 0,
        state: State::Active,
        waits: None,
        xact: None,
        query: Some(began),
        began: Stamp(0),
        changed: Some(began),
        kind: kind.map(str::to_owned),
        replays: false,
        writes: false,
        keeps: false,
        leader: None,
    }
}

/// What a place of the scene is called: search engines have processors, and what their figures tell of.
fn resource(index: u32, what: Option<&What>) -> String {
    match (index, what) {
        (slots::CPU, _) => "processors".to_owned(),
        (_, Some(What::Measured(_, name))) => (*name).to_owned(),
        _ => "something else".to_owned(),
    }
}

#[cfg(test)]
mod tests;
