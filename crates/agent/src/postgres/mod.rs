//! A stock PostgreSQL, 15 or newer, as a source: nothing is installed in it.
//!
//! | file | does |
//! | --- | --- |
//! | `connect`, `facts`, `link` | the connection; what the server and our role are; what is asked at a look |
//! | `poll`, `backend`, `stamp` | the questions, and the rows that come back |
//! | `chains`, `modes` | who waits for a lock because of whom |
//! | `waits` | what else is waited for |
//! | `latency` | what can be seen of latencies |
//! | `estimates`, `plan` | opt-in: how long a SELECT is expected to run, by its plan |
//! | `account`, `slots` | from all that to scenes |
//! | `mask` | statements as they may be told |

mod account;
mod backend;
mod chains;
mod connect;
mod estimates;
mod facts;
mod latency;
mod link;
mod mask;
mod modes;
mod plan;
mod poll;
mod slots;
mod stamp;
mod waits;

use std::time::Duration;

use plimsoll_cancellation::Scene;
use plimsoll_cancellation::decision::State as Standing;
use plimsoll_core::Nanos;
use plimsoll_core::config::{Escalate, Mode, Postgres};

use crate::clock;
use crate::event::{About, rounded};
use crate::source::{Sent, Source, Trouble, Words};

use self::account::{Account, Known, Look};
use self::backend::{Backend, State};
use self::chains::{Pid, blame};
use self::estimates::Estimates;
use self::facts::ServerClock;
use self::link::{Link, Seen};
use self::stamp::Stamp;

/// A server being watched.
pub struct Server {
    settings: Postgres,
    config: tokio_postgres::Config,
    link: Option<Link>,
    account: Account,
    estimates: Option<Estimates>,
    clock: ServerClock,
    /// When the server began, and its time at the last look.
    began: Option<Stamp>,
    last: Option<Stamp>,
    suspicious: bool,
    warnings: Vec<String>,
}

impl Server {
    /// A server that is not connected to yet.
    ///
    /// # Errors
    /// Where the DSN cannot be used, without naming it.
    pub fn new(settings: Postgres) -> Result<Server, String> {
        let config = connect::config(settings.dsn.reveal())?;
        let estimates = settings.estimates_dsn.as_ref().map(|dsn| Estimates::new(dsn.reveal()));
        let estimates = estimates.transpose().map_err(|why| format!("estimates_dsn: {why}"))?;
        Ok(Server {
            settings,
            config,
            link: None,
            account: Account::default(),
            estimates,
            clock: ServerClock::default(),
            began: None,
            last: None,
            suspicious: false,
            warnings: Vec::new(),
        })
    }

    async fn connect(&mut self) -> Result<Link, String> {
        let link = Link::connect(&self.config, clock::now()).await?;
        let (facts, here) = (&link.facts, link.on_host());
        log::info!(app:% = self.settings.name, version:% = facts.version, standby = facts.standby, role:% = facts.role, on_this_host = here; "connected");
        self.warnings.extend(facts.warnings(self.settings.mode == Mode::Enforce));
        self.last = None;
        Ok(link)
    }

    async fn look_through(&mut self, link: &mut Link, scene: &mut Scene) -> Result<Nanos, String> {
        let since = self.last.unwrap_or(Stamp::EARLIEST);
        let mut seen = link.look(clock::now(), since, self.suspicious).await?;
        if let Some(pid) = self.estimates.as_ref().and_then(Estimates::pid) {
            seen.backends.retain(|backend| backend.pid != pid);
        }
        let Seen { now: server, backends, locks, progress, did, mean_ns } = &seen;
        if self.began.replace(server.began).is_some_and(|before| before != server.began) {
            log::info!(app:% = self.settings.name; "the server was restarted");
            self.account.forget();
        }
        let started = |pid: Pid| {
            let backend = backends.iter().find(|backend| backend.pid == pid)?;
            Some(backend.xact.unwrap_or_else(|| backend.since()))
        };
        let replays = backends.iter().find(|backend| backend.replays()).map(|backend| backend.pid);
        let blames = blame(locks, replays, started);
        if let Some(estimates) = &mut self.estimates {
            estimates.look(clock::now(), backends).await;
            self.warnings.extend(estimates.warnings());
            if self.suspicious
                && let Some(backend) = estimates.wants(server.at, backends, &blames)
            {
                estimates.ask(backend, link.poll.statement(backend).await?);
            }
        }
        let expected_ns =
            |backend: &Backend| self.estimates.as_ref().and_then(|estimates| estimates.expected_ns(backend));
        let now = Nanos(self.clock.at(server.at, clock::now().0));
        let facts = &link.facts;
        let look = Look {
            now,
            server: server.at,
            backends,
            blames: &blames,
            transactions: server.transactions,
            moved: server.moved,
            mean_ns: *mean_ns,
            progress,
            expected_ns: &expected_ns,
            did,
            on_host: link.on_host(),
            may_signal: &|backend| facts.untouchable(backend).is_none(),
            may_terminate: self.settings.escalate == Escalate::Terminate,
        };
        self.account.look(&look, scene);
        self.last = Some(server.at);
        Ok(now)
    }

    /// Why this task cannot be cancelled, if so, and what would help.
    fn not_cancellable(&self, known: &Known) -> Option<String> {
        let link = self.link.as_ref()?;
        if let Some(why) = link.facts.untouchable(&known.backend) {
            return Some(why);
        }
        let idle = known.backend.state != State::Active;
        (idle && self.settings.escalate == Escalate::Never).then(|| {
            format!(
                "its session is {} and ignores being cancelled; escalate = \"terminate\" would end its connection",
                known.backend.state.as_str()
            )
        })
    }

    fn words_of(&self, known: &Known, query: Option<&[Option<String>; 3]>) -> Words {
        let backend = &known.backend;
        let facts = self.link.as_ref().map(|link| &link.facts);
        let client = query.map(|[_, name, address]| {
            let both = [name, address].map(|text| text.as_deref().unwrap_or(""));
            both.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" at ")
        });
        let age_ns = self.last.filter(|_| backend.pid > 0).map(|now| now.since_ns(known.started));
        let chain = known.chain.iter().map(|&pid| name(pid)).collect::<Vec<_>>().join(" -> ");
        Words {
            name: name(backend.pid),
            pid: u32::try_from(backend.pid).ok(),
            about: About {
                what: query
                    .and_then(|[text, ..]| Some(mask::mask(text.as_deref()?)))
                    .filter(|text| !text.is_empty()),
                kind: (!backend.is_client()).then(|| backend.kind.clone()),
                state: Some(backend.state.as_str().to_owned()),
                user: facts.and_then(|facts| Some(facts.roles.get(&backend.user)?.0.clone())),
                database: facts.and_then(|facts| facts.databases.get(&backend.database).cloned()),
                client: client.filter(|text| !text.is_empty()),
                age_s: age_ns.map(|ns| rounded(ns as f64 / 1e9)),
                progress_pct: known.progress.map(|(done, total)| rounded(100.0 * done as f64 / total as f64)),
                chain: (known.chain.len() > 1).then_some(chain),
                holds_up: (known.holds_up > 0).then_some(known.holds_up),
                not_cancellable: self.not_cancellable(known),
                // Its client gets the error that the database gives.
                again: Some("not re-executable"),
            },
        }
    }
}

fn name(pid: Pid) -> String {
    if pid > 0 { format!("backend {pid}") } else { format!("prepared transaction {}", -pid) }
}

impl Source for Server {
    async fn look(&mut self, scene: &mut Scene) -> Result<Nanos, Trouble> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.connect().await.map_err(Trouble::passing)?,
        };
        let now = self.look_through(&mut link, scene).await.map_err(Trouble::passing)?;
        // Only one that answered is kept: after an error nobody knows what state it is in.
        self.link = Some(link);
        Ok(now)
    }

    fn judged(&mut self, state: Standing, exact: bool) -> Duration {
        self.suspicious = exact || state != Standing::Calm;
        let interval = Duration::from(self.settings.interval);
        if self.suspicious { interval } else { interval * 3 }
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn resource(&self, index: u32) -> String {
        let what = self.account.what(index);
        self.link.as_ref().map_or_else(|| format!("resource {index}"), |link| link.resource(index, what))
    }

    async fn words(&mut self, tasks: &[u64]) -> Vec<Words> {
        let known: Vec<Option<&Known>> = tasks.iter().map(|&task| self.account.known(task)).collect();
        let pids: Vec<Pid> = known.iter().flatten().map(|known| known.backend.pid).collect();
        let queries = match &self.link {
            Some(link) if !pids.is_empty() => link.poll.queries(&pids).await.unwrap_or_default(),
            _ => Default::default(),
        };
        let words = |(known, task): (Option<&Known>, &u64)| match known {
            Some(known) => self.words_of(known, queries.get(&known.backend.pid)),
            None => Words { name: format!("task {task}"), ..Words::default() },
        };
        known.into_iter().zip(tasks).map(words).collect()
    }

    async fn cancel(&mut self, task: u64, _: u32, _: &str, tries: u32) -> Sent {
        let (Some(known), Some(link)) = (self.account.known(task), &self.link) else { return Sent::Gone };
        if let Some(why) = self.not_cancellable(known) {
            return Sent::Failed(why);
        }
        let may = self.settings.escalate == Escalate::Terminate;
        // Told twice to no effect is enough.
        let terminate = may && (known.backend.state != State::Active || tries >= 2);
        match link.poll.end(&known.backend, terminate).await {
            Ok(Some(true)) if terminate => Sent::Terminated,
            Ok(Some(true)) => Sent::Told,
            Ok(Some(false)) => Sent::Failed("the server could not signal its process".to_owned()),
            Ok(None) => Sent::Gone,
            Err(why) => Sent::Failed(why),
        }
    }

    fn is_silent(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
