//! The agent at work: one task for each thing that is watched, all on one thread.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_core::config::{Config, Database, DatabaseKind, HeraldReader, Mode};
use plimsoll_ledger::place;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use crate::admin::Admin;
use crate::ease::Sentry;
use crate::events::Events;
use crate::flocks;
use crate::herald;
use crate::ledger::scan;
use crate::mariadb::MariaDb;
use crate::postgres::Postgres;
use crate::record::Recorder;
use crate::search::{Elasticsearch, OpenSearch, Solr};
use crate::server::{Adapter, Server};
use crate::status::Board;
use crate::watch::{Outlets, Promise, Watch};
use crate::workers::{Apache, PhpFpm};

/// How long a watch that panicked is left alone.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// What to run.
pub struct Options {
    /// The config.
    pub config: Config,
    /// Where events go, instead of the config's.
    pub events: Option<PathBuf>,
    /// Where every scene and decision is written down, if anywhere.
    pub record: Option<PathBuf>,
}

/// Runs until it is told to end.
///
/// # Errors
/// Why it cannot begin, in words for the operator.
pub fn run(options: Options) -> Result<(), String> {
    let Options { config, events, record } = options;
    if config.apps.is_empty() && config.databases.is_empty() && config.herald.reader == HeraldReader::Off {
        return Err(
            "there is nothing to watch; add [app.NAME] for a program that keeps a ledger, or a table for a server, as [postgres.NAME], [mariadb.NAME], [opensearch.NAME], [elasticsearch.NAME], [solr.NAME], [phpfpm.NAME] or [httpd.NAME], or have the host read: remove reader = \"off\" of [herald]"
                .to_owned(),
        );
    }
    let path = events.or_else(|| config.agent.events.clone());
    let (events, writer) = Events::open(path.as_deref())?;
    let recorder = record.map(|path| Recorder::create(&path)).transpose()?;
    // One thread: the agent shall cost the host as little as can be, and a look is mostly waiting.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let tasks = LocalSet::new();
    let ended = tasks.block_on(&runtime, watch(config, events, recorder));
    // What still runs is dropped, and with it the last who could send.
    drop((tasks, runtime));
    writer.finish();
    ended
}

async fn watch(config: Config, events: Events, recorder: Option<Recorder>) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("cannot catch signals: {error}");
    let mut interrupt = signal(SignalKind::interrupt()).map_err(wrong)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(wrong)?;
    let (board, status) = Board::new();
    let sentry = Some(Sentry::new(config.sentry.admin, config.sentry.admin_token.clone()));
    let outlets = Outlets { events, board, recorder, sentry };
    config.databases.iter().try_for_each(check)?;
    let agent = &config.agent;
    let (futures, figures) = herald::start(&config.herald);
    if let (Some(sentry), true) = (&outlets.sentry, config.herald.reader != HeraldReader::Off) {
        flocks::spawn(&config.pools, &futures, sentry);
    }
    let admin = Admin { token: agent.admin_token.clone(), status, figures, futures };
    let bound = admin.start(agent.admin).await;
    let bound =
        bound.map_err(|error| format!("cannot listen on {}, `[agent] admin`: {error}", agent.admin))?;
    for database in config.databases.iter().filter(|database| database.mode != Mode::Off) {
        let (database, outlets) = (database.clone(), outlets.clone());
        match database.kind {
            DatabaseKind::Postgres { .. } => {
                tokio::task::spawn_local(keep_watching::<Postgres>(database, outlets))
            }
            DatabaseKind::MariaDb { .. } => {
                tokio::task::spawn_local(keep_watching::<MariaDb>(database, outlets))
            }
            DatabaseKind::OpenSearch { .. } => {
                tokio::task::spawn_local(keep_watching::<OpenSearch>(database, outlets))
            }
            DatabaseKind::Elasticsearch { .. } => {
                tokio::task::spawn_local(keep_watching::<Elasticsearch>(database, outlets))
            }
            DatabaseKind::Solr { .. } => tokio::task::spawn_local(keep_watching::<Solr>(database, outlets)),
            DatabaseKind::PhpFpm { .. } => {
                tokio::task::spawn_local(keep_watching::<PhpFpm>(database, outlets))
            }
            DatabaseKind::Httpd => tokio::task::spawn_local(keep_watching::<Apache>(database, outlets)),
        };
    }
    let directories = match agent.ledgers.as_slice() {
        [] => vec![place::directory()],
        directories => directories.to_vec(),
    };
    let apps = Rc::new(config.apps);
    if !apps.is_empty() {
        for dir in directories {
            tokio::task::spawn_local(scan(dir, Rc::clone(&apps), outlets.clone()));
        }
    }
    log::info!(admin:% = bound; "agent ready");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Whether a database's table can be used.
fn check(database: &Database) -> Result<(), String> {
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
        let _ = tokio::task::spawn_local(Watch::new(server, promise, &outlets).run()).await;
        tokio::time::sleep(AFTER_PANIC).await;
    }
}
