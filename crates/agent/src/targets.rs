//! What is watched, a task each. Going over to another config begins those anew that it says otherwise, and leaves alone all others with
//! what they have learnt.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use plimsoll_core::config::{App, Config, Database, DatabaseKind, HeraldReader, Mode, Pool, Workers};
use plimsoll_ledger::place;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, spawn_local};

use crate::ease::Sentry;
use crate::flocks;
use crate::herald::Page;
use crate::ledger::scan;
use crate::mariadb::MariaDb;
use crate::postgres::Postgres;
use crate::search::{Elasticsearch, OpenSearch, Solr};
use crate::server::{Adapter, Server};
use crate::watch::{Outlets, Promise, Watch};
use crate::workers::{Apache, PhpFpm};

/// How long a watch that panicked is left alone.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// All that is watched.
pub struct Targets {
    outlets: Outlets,
    /// Whom the herald is asked through.
    futures: Page,
    databases: Vec<(Database, JoinHandle<()>)>,
    /// By the directories that they lie in.
    ledgers: Vec<(PathBuf, JoinHandle<()>)>,
    apps: watch::Sender<Rc<[App]>>,
    /// The pools whose slots follow from how their servers fare.
    pools: Vec<Pool>,
    flocks: JoinSet<()>,
}

impl Targets {
    /// Nothing yet.
    pub fn new(outlets: Outlets, futures: Page) -> Targets {
        let apps = watch::Sender::new(Rc::from([]));
        let (databases, ledgers, pools, flocks) = Default::default();
        Targets { outlets, futures, databases, ledgers, apps, pools, flocks }
    }

    /// Watches what the config says, each thing as it says. To be called within a [`tokio::task::LocalSet`].
    pub async fn go_over(&mut self, config: &Config) {
        let sentry = Some(Sentry::new(config.sentry.admin, config.sentry.admin_token.clone()));
        // All may have something to tell it.
        let all_anew = self.outlets.sentry != sentry;
        self.outlets.sentry = sentry;
        self.watch_databases(config, all_anew).await;
        self.watch_ledgers(config, all_anew).await;
        self.watch_flocks(config, all_anew);
    }

    async fn watch_databases(&mut self, config: &Config, all_anew: bool) {
        let wanted: Vec<_> = config.databases.iter().filter(|database| database.mode != Mode::Off).collect();
        keep(&mut self.databases, |database| !all_anew && wanted.contains(&database)).await;
        for database in wanted {
            if !self.databases.iter().any(|(watched, _)| watched == database) {
                self.databases.push((database.clone(), watch_database(database, &self.outlets)));
            }
        }
    }

    async fn watch_ledgers(&mut self, config: &Config, all_anew: bool) {
        let wanted = match config.agent.ledgers.as_slice() {
            _ if config.apps.is_empty() => Vec::new(),
            [] => vec![place::directory()],
            directories => directories.to_vec(),
        };
        if **self.apps.borrow() != *config.apps {
            self.apps.send_replace(Rc::from(&*config.apps));
        }
        keep(&mut self.ledgers, |directory| !all_anew && wanted.contains(directory)).await;
        for directory in wanted {
            if !self.ledgers.iter().any(|(watched, _)| *watched == directory) {
                let task = spawn_local(scan(directory.clone(), self.apps.subscribe(), self.outlets.clone()));
                self.ledgers.push((directory, task));
            }
        }
    }

    fn watch_flocks(&mut self, config: &Config, all_anew: bool) {
        if config.herald.reader == HeraldReader::Off {
            return;
        }
        let adaptive = config.pools.iter().filter(|pool| pool.workers == Workers::Adaptive);
        let pools: Vec<_> = adaptive.cloned().collect();
        if let (Some(sentry), true) = (&self.outlets.sentry, all_anew || self.pools != pools) {
            self.flocks = flocks::spawn(&pools, &self.futures, sentry);
            self.pools = pools;
        }
    }
}

/// Ends the tasks of what does not stay, and waits until they have given back what they had.
async fn keep<T>(watched: &mut Vec<(T, JoinHandle<()>)>, stays: impl Fn(&T) -> bool) {
    for (_, task) in watched.extract_if(.., |(what, _)| !stays(what)) {
        task.abort();
        // That it was ended is what it says.
        let _ = task.await;
    }
}

fn watch_database(database: &Database, outlets: &Outlets) -> JoinHandle<()> {
    let (database, outlets) = (database.clone(), outlets.clone());
    match database.kind {
        DatabaseKind::Postgres { .. } => spawn_local(keep_watching::<Postgres>(database, outlets)),
        DatabaseKind::MariaDb { .. } => spawn_local(keep_watching::<MariaDb>(database, outlets)),
        DatabaseKind::OpenSearch { .. } => spawn_local(keep_watching::<OpenSearch>(database, outlets)),
        DatabaseKind::Elasticsearch { .. } => spawn_local(keep_watching::<Elasticsearch>(database, outlets)),
        DatabaseKind::Solr { .. } => spawn_local(keep_watching::<Solr>(database, outlets)),
        DatabaseKind::PhpFpm { .. } => spawn_local(keep_watching::<PhpFpm>(database, outlets)),
        DatabaseKind::Httpd => spawn_local(keep_watching::<Apache>(database, outlets)),
    }
}

/// Whether a database's table can be used.
///
/// # Errors
/// What is wrong with it, with its header.
pub fn check(database: &Database) -> Result<(), String> {
    let (source, checked) = match database.kind {
        DatabaseKind::Postgres { .. } => (Postgres::SOURCE, Postgres::target(database).map(drop)),
        DatabaseKind::MariaDb { .. } => (MariaDb::SOURCE, MariaDb::target(database).map(drop)),
        DatabaseKind::OpenSearch { .. } => (OpenSearch::SOURCE, OpenSearch::target(database).map(drop)),
        DatabaseKind::Elasticsearch { .. } => {
            (Elasticsearch::SOURCE, Elasticsearch::target(database).map(drop))
        }
        DatabaseKind::Solr { .. } => (Solr::SOURCE, Solr::target(database).map(drop)),
        DatabaseKind::PhpFpm { .. } => (PhpFpm::SOURCE, PhpFpm::target(database).map(drop)),
        DatabaseKind::Httpd => (Apache::SOURCE, Apache::target(database).map(drop)),
    };
    checked.map_err(|why| format!("[{source}.{}]: {why}", database.name))
}

/// Watches a database; again from the beginning, should that ever panic: what is watched depends on what a server says.
async fn keep_watching<A: Adapter>(database: Database, outlets: Outlets) {
    loop {
        let Ok(server) = Server::<A>::new(database.clone()) else { return };
        let promise = Promise {
            app: database.name.clone(),
            name: database.name.clone(),
            source: A::SOURCE,
            slo: database.slo.clone(),
            mode: database.mode,
            budget: database.budget.clone(),
            sentry: outlets.sentry.as_ref().and_then(|sentry| sentry.of_pool(database.pool.as_deref()?)),
        };
        // The panic itself is in the log.
        let _ = AssertUnwindSafe(Watch::new(server, promise, &outlets).run()).catch_unwind().await;
        tokio::time::sleep(AFTER_PANIC).await;
    }
}
