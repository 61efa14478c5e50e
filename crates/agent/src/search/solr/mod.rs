//! A stock Solr. It lists the queries that can be cancelled where they go to several shards, and of those neither their age nor their client;
//! so who runs is what the sentry in front of it says, if there is one, which makes all of them such queries.
//!
//! | file | does |
//! | --- | --- |
//! | `list` | who runs and who waits, as the sentry or Solr says it |
//! | `figures` | what Solr counts |

mod figures;
mod list;

use std::collections::{HashMap, HashSet};

use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use plimsoll_core::Nanos;
use plimsoll_core::config::{Database, DatabaseKind};
use serde_json::Value;

use crate::server::backend::Backend;
use crate::server::chains::Pid;
use crate::server::slots::What;
use crate::server::stamp::Stamp;
use crate::server::{Adapter, Glance, Seen, Told};

use self::figures::{Figures, METRICS, Metrics, OF_CORES};
use self::list::{Listed, Names, Row};
use super::connect::{self, Connection};
use super::takings::Takings;
use super::tasks::{Part, Pool};

/// The oldest version whose queries can be cancelled one by one.
const OLDEST: (u32, u32) = (9, 1);
/// Where Solr listens, if it is not said.
const PORT: u16 = 8_983;
/// Threads that Solr comes with: as good as all that it is asked for.
const THREADS: u64 = 10_000;

/// A Solr, and the sentry that knows who asks it.
pub struct Target {
    solr: connect::Target,
    /// The sentry's admin address, and the pool.
    sentry: Option<(connect::Target, String)>,
}

/// A connection to a Solr.
pub struct Solr {
    connection: Connection,
    target: connect::Target,
    sentry: Option<(Connection, String)>,
    /// Whether it knows by itself of which parts a core is.
    cloud: bool,
    processors: u64,
    began: Stamp,
    /// Why nothing can be cancelled, if so.
    powerless: Option<String>,
    warned: bool,
    figures: Figures,
    takings: Takings,
    names: Names,
    /// Who was there at the last look.
    rows: HashMap<Pid, Row>,
}

impl Adapter for Solr {
    type Target = Target;
    const SOURCE: &'static str = "solr";

    fn target(settings: &Database) -> Result<Target, String> {
        let DatabaseKind::Solr { tls_ca, sentry: (admin, token) } = &settings.kind else {
            return Err("this is no table of a Solr".to_owned());
        };
        let sentry = settings.pool.as_ref().map(|pool| {
            let target = connect::Target::sentry(*admin, token.as_ref())?;
            Ok::<_, String>((target, pool.clone()))
        });
        Ok(Target { solr: super::target(settings, PORT, tls_ca.as_deref())?, sentry: sentry.transpose()? })
    }

    async fn connect(target: &Target, _: Nanos) -> Result<Solr, String> {
        let mut connection = Connection::open(&target.solr).await?;
        let system: Value = connection.get(SYSTEM).await?;
        let version = version(&system)?;
        let cloud = system["mode"] == "solrcloud";
        let sentry = match &target.sentry {
            Some((sentry, pool)) => {
                let opened = Connection::open(sentry).await;
                let opened = opened.map_err(|why| format!("the sentry of pool {pool}: {why}"))?;
                Some((opened, list::path(pool, target.solr.address())))
            }
            None if cloud => {
                return Err(
                    "a SolrCloud is watched through the sentry in front of it; write pool = \"NAME\""
                        .to_owned(),
                );
            }
            None => None,
        };
        let processors = system["jvm"]["processors"].as_u64().unwrap_or(1).max(1);
        let mut solr = Solr {
            connection,
            target: target.solr.clone(),
            sentry,
            cloud,
            processors,
            began: figures::began(&system),
            powerless: None,
            warned: false,
            figures: Figures::default(),
            takings: Takings::default(),
            names: Names::default(),
            rows: HashMap::new(),
        };
        let cores: Metrics = solr.connection.get(OF_CORES).await?;
        if let Some(core) = cores.cores().next() {
            solr.powerless = solr.find_out(&core).await?;
        }
        log::info!(version:% = version, user:% = solr.target.user(), cloud, processors; "a Solr");
        Ok(solr)
    }

    fn warnings(&mut self, enforce: bool) -> Vec<String> {
        let warned = std::mem::replace(&mut self.warned, true);
        self.powerless.iter().filter(|_| enforce && !warned).cloned().collect()
    }

    async fn look(&mut self, glance: Glance) -> Result<Seen, String> {
        let (metrics, listed) = match &mut self.sentry {
            Some((sentry, path)) => {
                tokio::try_join!(self.connection.get::<Metrics>(METRICS), passing(sentry, path))?
            }
            None => {
                let metrics: Metrics = self.connection.get(OF_CORES).await?;
                let listed = self.marked(&metrics, glance.now).await?;
                (metrics, listed)
            }
        };
        let Listed { at, began, threads, counts, mut rows } = listed;
        let change = self.figures.look(at, &metrics, threads, counts);
        let before = std::mem::take(&mut self.rows);
        // Its age is told, a little later or earlier than the time is: it began when it was first said to.
        for row in &mut rows {
            let known = before.get(&row.pid).filter(|known| known.id == row.id);
            row.began = known.map_or(row.began, |known| known.began);
        }
        let new = rows.iter().filter(|row| !before.contains_key(&row.pid)).count() as u64;
        let parts: Vec<Part> = rows
            .iter()
            .map(|row| Part {
                id: row.pid,
                root: row.pid,
                pool: Pool::Search,
                age_ns: at.since_ns(row.began),
                took: None,
            })
            .collect();
        self.rows = rows.into_iter().map(|row| (row.pid, row)).collect();
        let ids: HashSet<Pid> = self.rows.keys().copied().collect();
        Ok(Seen {
            at,
            // Numbers and counts are those of whoever began last.
            began: began.max(self.began),
            requests: counts.answered,
            // Those that it has counted have begun something and are gone.
            moved: change.requests.saturating_add(new),
            backends: self.rows.values().map(|row| super::backend(row.pid, row.began, None)).collect(),
            locks: Vec::new(),
            progress: HashMap::new(),
            did: HashMap::new(),
            measured: self.takings.look(&ids, &parts, &change, self.processors),
            paused: change.paused,
            mean_ns: change.mean_ns,
        })
    }

    /// It says itself how busy it is.
    fn on_host(&self) -> bool {
        false
    }

    fn untouchable(&self, backend: &Backend) -> Option<String> {
        if self.rows.get(&backend.pid).is_some_and(|row| row.waits) {
            return Some("it waits before the sentry and has nothing yet".to_owned());
        }
        self.powerless.clone()
    }

    /// Numbers are never used again, so it is the same or gone.
    async fn end(&mut self, backend: &Backend, _: bool) -> Result<Option<bool>, String> {
        let Some(Row { core, id, .. }) = self.rows.get(&backend.pid) else { return Ok(None) };
        let path = self.cancel(core, id);
        let answer = self.connection.ask(Method::GET, &path).await?;
        let said: Value = answer.accepted(&self.target, &path)?;
        let is_found = said["cancellationResult"] == "success" || said["responseCode"] == 200;
        Ok(is_found.then_some(true))
    }

    fn name(pid: Pid) -> String {
        format!("query {pid}")
    }

    fn resource(&self, index: u32, what: Option<&What>) -> String {
        super::resource(index, what)
    }

    async fn told(&mut self, backends: &[&Backend]) -> HashMap<Pid, Told> {
        let rows = backends.iter().filter_map(|backend| self.rows.get(&backend.pid));
        rows.map(|row| (row.pid, row.told())).collect()
    }
}

/// What Solr is asked when it is connected to.
const SYSTEM: &str = "/solr/admin/info/system?wt=json";

impl Solr {
    /// What is asked for with these words of a core, which in no cloud wants to be told of which parts it is.
    fn of_core(&self, core: &str, what: &str) -> String {
        let scheme = if self.target.is_tls() { "https://" } else { "" };
        let shards = format!("&shards={scheme}{}{core}", self.target.address());
        format!("{core}/tasks/{what}{}", if self.cloud { "" } else { &shards })
    }

    fn cancel(&self, core: &str, id: &str) -> String {
        self.of_core(core, &format!("cancel?wt=json&queryUUID={}", utf8_percent_encode(id, NON_ALPHANUMERIC)))
    }

    /// Why nothing can be cancelled, if so. It is found out with a query that never was.
    async fn find_out(&mut self, core: &str) -> Result<Option<String>, String> {
        let path = self.cancel(core, "plimsoll-none");
        let answer = self.connection.ask(Method::GET, &path).await?;
        Ok((answer.status == StatusCode::FORBIDDEN).then(|| self.forbidden("cancels nothing")))
    }

    /// What would help where it refuses.
    fn forbidden(&self, what: &str) -> String {
        let (user, address) = (self.target.user(), self.target.address());
        format!(
            "Solr {what}: start it with -Dsolr.allowUrls={address} in SOLR_OPTS, and if it has users, give the role of {user} the permission \"read\""
        )
    }

    /// The queries that their clients have marked.
    async fn marked(&mut self, metrics: &Metrics, now: Nanos) -> Result<Listed, String> {
        let at = Stamp(i64::try_from(now.0 / 1_000).unwrap_or(i64::MAX));
        let mut running = Vec::new();
        for core in metrics.cores() {
            let path = self.of_core(&core, "list?wt=json");
            let answer = self.connection.ask(Method::GET, &path).await?;
            if answer.status == StatusCode::FORBIDDEN {
                return Err(self.forbidden("does not list its queries"));
            }
            let said: Value = answer.accepted(&self.target, &path)?;
            let tasks = said["taskList"].as_object().into_iter().flatten();
            running.extend(tasks.map(|(id, asked)| {
                (core.clone(), id.clone(), asked.as_str().unwrap_or_default().to_owned())
            }));
        }
        Ok(Listed {
            at,
            began: self.began,
            threads: THREADS,
            counts: metrics.counts(),
            rows: self.names.rows(running, at),
        })
    }
}

/// The queries that pass the sentry.
async fn passing(sentry: &mut Connection, path: &str) -> Result<Listed, String> {
    let of_sentry = |why: String| why.replace("the node", "the sentry");
    let answer = sentry.ask(Method::GET, path).await.map_err(of_sentry)?;
    if answer.status.is_success() {
        return answer.read::<list::Queries>().map(list::Queries::listed).map_err(of_sentry);
    }
    let said: Value = answer.read().unwrap_or_default();
    let why = said["error"].as_str().unwrap_or("it wants its admin_token, or knows of no Solr");
    Err(format!("the sentry says {}: {why}", answer.status.as_u16()))
}

/// The version in words.
fn version(system: &Value) -> Result<&str, String> {
    let version = system["lucene"]["solr-spec-version"].as_str().ok_or("this is no Solr")?;
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let (major, minor) = OLDEST;
    match (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST {
        true => Err(format!(
            "Solr {version} does not cancel what is needed; {major}.{minor} is the oldest that does"
        )),
        false => Ok(version),
    }
}

#[cfg(test)]
mod tests;
