//! A stock PostgreSQL, 15 or newer.
//!
//! | file | does |
//! | --- | --- |
//! | `connect`, `facts`, `link` | the connection; what the server and our role are; what is asked at a look |
//! | `poll`, `stamp` | the questions, and the rows that come back |
//! | `modes`, `waits` | which locks conflict, and what else is waited for |
//! | `estimates`, `plan` | opt-in: how long a SELECT is expected to run, by its plan |

mod connect;
mod estimates;
mod facts;
mod link;
pub(crate) mod modes;
mod plan;
mod poll;
mod stamp;
mod waits;

use std::collections::HashMap;

use plimsoll_core::Nanos;
use plimsoll_core::config::{Database, DatabaseKind, Dsn};

use crate::server::backend::Backend;
use crate::server::chains::{Blame, Pid};
use crate::server::mask::{Dialect, mask};
use crate::server::slots::What;
use crate::server::trust::certificates;
use crate::server::{Adapter, Glance, Seen, Told};

use self::estimates::Estimates;
use self::link::Link;

/// A connection to a server, and one for plans where that is asked for.
pub struct Postgres {
    link: Link,
    estimates: Option<Estimates>,
    warnings: Option<Vec<String>>,
}

/// Where a server is, and who asks.
pub struct Target {
    server: connect::Server,
    estimates: Option<connect::Server>,
}

impl Adapter for Postgres {
    type Target = Target;
    const SOURCE: &'static str = "postgres";
    const RESERVES: bool = true;

    fn target(settings: &Database) -> Result<Target, String> {
        let DatabaseKind::Postgres { estimates_dsn, tls_ca } = &settings.kind else {
            return Err("no PostgreSQL".to_owned());
        };
        let ca = certificates(tls_ca.as_deref())?;
        let server = |key: &str, dsn: &Dsn| {
            connect::server(dsn.reveal(), ca.as_deref()).map_err(|why| format!("`{key}`: {why}"))
        };
        let estimates = estimates_dsn.as_ref().map(|dsn| server("estimates_dsn", dsn)).transpose()?;
        Ok(Target { server: server("dsn", &settings.dsn)?, estimates })
    }

    async fn connect(target: &Target, now: Nanos) -> Result<Postgres, String> {
        let link = Link::connect(&target.server, now).await?;
        let facts = &link.facts;
        log::info!(version:% = facts.version, standby = facts.standby, role:% = facts.role; "a PostgreSQL");
        let estimates = target.estimates.clone().map(Estimates::new);
        Ok(Postgres { link, estimates, warnings: None })
    }

    async fn keep(&mut self) -> Result<(), String> {
        self.link.poll.client().batch_execute("").await.map_err(|error| connect::words(&error))
    }

    fn warnings(&mut self, enforce: bool) -> Vec<String> {
        // What our role may do is told once, and what comes up later when it does.
        let facts = &self.link.facts;
        let mut warnings = self.warnings.replace(Vec::new()).unwrap_or_else(|| facts.warnings(enforce));
        warnings.extend(self.estimates.iter_mut().flat_map(Estimates::warnings));
        warnings
    }

    async fn look(&mut self, glance: Glance) -> Result<Seen, String> {
        let mut seen = self.link.look(glance).await?;
        if let Some(pid) = self.estimates.as_ref().and_then(Estimates::pid) {
            seen.backends.retain(|backend| backend.pid != pid);
        }
        Ok(seen)
    }

    fn on_host(&self) -> bool {
        self.link.on_host()
    }

    async fn estimate(&mut self, seen: &mut Seen, blames: &[Blame], glance: Glance) -> Result<(), String> {
        let Some(estimates) = &mut self.estimates else { return Ok(()) };
        estimates.look(glance.now, &seen.backends).await;
        if glance.suspicious
            && let Some(backend) = estimates.wants(seen.at, &seen.backends, blames)
        {
            estimates.ask(backend, self.link.poll.statement(backend).await?);
        }
        Ok(())
    }

    fn expected_ns(&self, backend: &Backend) -> Option<u64> {
        self.estimates.as_ref()?.expected_ns(backend)
    }

    fn untouchable(&self, backend: &Backend) -> Option<String> {
        self.link.facts.untouchable(backend)
    }

    async fn end(&mut self, backend: &Backend, connection: bool) -> Result<Option<bool>, String> {
        self.link.poll.end(backend, connection).await
    }

    fn name(pid: Pid) -> String {
        if pid > 0 { format!("backend {pid}") } else { format!("prepared transaction {}", -pid) }
    }

    fn resource(&self, index: u32, what: Option<&What>) -> String {
        self.link.resource(index, what)
    }

    async fn told(&mut self, backends: &[&Backend]) -> HashMap<Pid, Told> {
        let pids: Vec<Pid> = backends.iter().map(|backend| backend.pid).collect();
        let mut queries = self.link.poll.queries(&pids).await.unwrap_or_default();
        let facts = &self.link.facts;
        let told = |backend: &&Backend| {
            let [text, name, address] = queries.remove(&backend.pid).unwrap_or_default();
            let client: Vec<String> =
                [name, address].into_iter().flatten().filter(|text| !text.is_empty()).collect();
            let told = Told {
                statement: text.map(|text| mask(&text, Dialect::Postgres)),
                user: facts.roles.get(&backend.user).map(|(name, _)| name.clone()),
                database: facts.databases.get(&backend.database).cloned(),
                client: Some(client.join(" at ")),
            };
            (backend.pid, told)
        };
        backends.iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests;
