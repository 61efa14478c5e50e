//! The agent from its start to its end: what it watches, what it shows, and another config while it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::config::{Config, HeraldReader, Secret};
use plimsoll_sentry::config_file::{LoadError, Loaded};
use plimsoll_sentry::followed::Followed;
use plimsoll_sentry::reload::{Reloads, changed};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::Admin;
use crate::events::Events;
use crate::herald;
use crate::record::Recorder;
use crate::status::Board;
use crate::targets::{self, Targets};
use crate::watch::Outlets;

/// How often it is looked whether the config says something else.
const LOOK: Duration = Duration::from_secs(1);

/// What to run.
pub struct Options {
    /// The config.
    pub config: Config,
    /// The file that it is from.
    pub file: Followed,
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
    let Options { config, file, events, record } = options;
    usable(&config)?;
    let path = events.or_else(|| config.agent.events.clone());
    let (events, writer) = Events::open(path.as_deref())?;
    let recorder = record.map(|path| Recorder::create(&path)).transpose()?;
    // One thread: the agent shall cost the host as little as can be, and a look is mostly waiting.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let tasks = LocalSet::new();
    let ended = tasks.block_on(&runtime, watch(config, file, events, recorder));
    // What still runs is dropped, and with it the last who could send.
    drop((tasks, runtime));
    writer.finish();
    ended
}

/// Whether there is something in the config for an agent to do, and it can be done.
fn usable(config: &Config) -> Result<(), String> {
    if config.apps.is_empty() && config.databases.is_empty() && config.herald.reader == HeraldReader::Off {
        return Err(
            "there is nothing to watch; add [app.NAME] for a program that keeps a ledger, or a table for a server, as [postgres.NAME], [mariadb.NAME], [opensearch.NAME], [elasticsearch.NAME], [solr.NAME], [phpfpm.NAME] or [httpd.NAME], or have the host read: remove reader = \"off\" of [herald]"
                .to_owned(),
        );
    }
    config.databases.iter().try_for_each(targets::check)
}

async fn watch(
    config: Config,
    file: Followed,
    events: Events,
    recorder: Option<Recorder>,
) -> Result<(), String> {
    let mut signals = Signals::new().map_err(|error| format!("cannot catch signals: {error}"))?;
    let (board, status) = Board::new();
    let (futures, figures) = herald::start(&config.herald);
    let (token, shown) = watch::channel(config.agent.admin_token.clone());
    let reloads = Arc::<Reloads>::default();
    let admin =
        Admin { token: shown, status, figures, futures: futures.clone(), reloads: Arc::clone(&reloads) };
    let bound = admin
        .start(config.agent.admin)
        .await
        .map_err(|error| format!("cannot listen on {}, `[agent] admin`: {error}", config.agent.admin))?;
    let mut targets = Targets::new(Outlets { events, board, recorder, sentry: None }, futures);
    targets.go_over(&config).await;
    log::info!(admin:% = bound; "agent ready");
    let mut reloader = Reloader { began_with: config, file, token, reloads };
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let loaded = tokio::select! {
            _ = signals.interrupt.recv() => return Ok(()),
            _ = signals.terminate.recv() => return Ok(()),
            _ = signals.hangup.recv() => Some(reloader.file.load()),
            _ = looks.tick() => reloader.file.look(),
        };
        if let Some(loaded) = loaded {
            reloader.go_over(loaded, &mut targets).await;
        }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// Goes over to another config while everything goes on that it does not change. One that cannot be used changes nothing.
struct Reloader {
    /// What cannot change while it runs is as it was here.
    began_with: Config,
    file: Followed,
    token: watch::Sender<Option<Secret>>,
    reloads: Arc<Reloads>,
}

impl Reloader {
    async fn go_over(&mut self, loaded: Result<Loaded, LoadError>, targets: &mut Targets) {
        let Loaded { config, warnings, .. } = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                error.log();
                return self.reloads.fail();
            }
        };
        for warning in warnings {
            log::warn!(warning:%; "config");
        }
        if let Err(error) = usable(&config) {
            log::error!(error:%; "config cannot be used");
            return self.reloads.fail();
        }
        targets.go_over(&config).await;
        self.token.send_replace(config.agent.admin_token.clone());
        self.reloads.succeed(&self.file);
        if let Some(what) = needs_restart(&self.began_with, &config) {
            log::warn!(what:%; "takes effect when the agent is started anew");
        }
    }
}

/// What of the difference between two configs a reload does not change.
fn needs_restart(before: &Config, after: &Config) -> Option<String> {
    changed(&[
        ("[agent] admin", before.agent.admin != after.agent.admin),
        ("[agent] events", before.agent.events != after.agent.events),
        ("[herald]", before.herald != after.herald),
    ])
}
