//! Stock servers, watched as they are: nothing is installed in them. What is the same of all kinds is here; what a kind is asked, and what
//! its answers mean, is behind [`Adapter`], a folder each.
//!
//! | file | does |
//! | --- | --- |
//! | `backend`, `stamp` | who is at work in a server, and since when |
//! | `chains` | who waits for a lock because of whom |
//! | `latency` | what can be seen of latencies |
//! | `kernel` | what processes did, where this host's kernel says so |
//! | `account`, `slots` | from all that to scenes |
//! | `reserve` | one more connection, for when no other is to be had |
//! | `measured` | what a server measures itself: pools of workers, memory |
//! | `clock` | the time of scenes |
//! | `pace` | how often it is asked |
//! | `mask` | statements as they may be told |

pub mod account;
pub mod backend;
pub mod chains;
pub mod clock;
pub mod kernel;
pub mod latency;
#[cfg(test)]
pub mod lies;
pub mod mask;
pub mod measured;
mod pace;
mod reserve;
pub mod slots;
pub mod stamp;
pub mod trust;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_cancellation::Scene;
use plimsoll_cancellation::decision::State as Standing;
use plimsoll_core::Nanos;
use plimsoll_core::config::{Database, Escalate, Mode};

use crate::clock as ours;
use crate::event::{About, rounded};
use crate::host::{Did, Process};
use crate::source::{Sent, Source, Trouble, Words};

use self::account::{Account, Known, Look};
use self::backend::{Backend, State};
use self::chains::{Blame, Lock, Pid, blame};
use self::clock::ServerClock;
use self::latency::Pauses;
use self::mask::without_password;
use self::measured::Measured;
use self::pace::Pace;
use self::reserve::Reserve;
use self::slots::What;
use self::stamp::Stamp;

/// When a look is taken, and how closely.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// Our time.
    pub now: Nanos,
    /// The server's time at the last look; [`Stamp::EARLIEST`] at the first of a connection.
    pub since: Stamp,
    /// Whether something is wrong: then what costs more is asked, too.
    pub suspicious: bool,
}

/// What a look brought.
#[derive(Debug)]
pub struct Seen {
    /// The server's time.
    pub at: Stamp,
    /// When the server began, to within a second: another time is another server.
    pub began: Stamp,
    /// Requests that it has counted, without what we asked.
    pub requests: u64,
    /// Sessions in which a statement has begun since the last look.
    pub moved: u64,
    /// Those that do something, are in a transaction, did something at the last look, or hold up others; without our own.
    pub backends: Vec<Backend>,
    /// What somebody waits for: who has it, and who wants it.
    pub locks: Vec<Lock>,
    /// How far commands are: done, of how much.
    pub progress: HashMap<Pid, (u64, u64)>,
    /// What processes did, where this host's kernel says so.
    pub did: HashMap<Process, Did>,
    /// What it measures itself, always the same things.
    pub measured: Vec<Measured>,
    /// How it stood still of late, where it tells.
    pub paused: Pauses,
    /// What statements take on average, in ns, where that is known.
    pub mean_ns: Option<f64>,
}

/// What a server says of a session when it is to be spoken of. Texts are as the server has them; what is told of a statement is masked.
#[derive(Debug, Default)]
pub struct Told {
    /// Its statement, masked.
    pub statement: Option<String>,
    /// Whose it is.
    pub user: Option<String>,
    /// Where.
    pub database: Option<String>,
    /// Who asks: a program's name, an address.
    pub client: Option<String>,
}

/// A kind of server, as a connection to one. It is asked one thing at a time, and dropped after an error: nobody knows then what state the
/// connection is in.
pub trait Adapter: Sized + 'static {
    /// Where a server is and who asks.
    type Target;

    /// The kind, as in the config and in the status.
    const SOURCE: &'static str;
    /// Whether one connection more is kept in reserve: of a kind that lets in so many and no more.
    const RESERVES: bool = false;
    /// How many times as long it is from one look to the next in calm: the more so, the more a look costs the server.
    const CALM: u32 = 3;

    /// Reads that from the config, before anything is watched.
    ///
    /// # Errors
    /// What is wrong, with the key and without secrets.
    fn target(settings: &Database) -> Result<Self::Target, String>;

    /// Connects, and asks what the server and our rights are.
    ///
    /// # Errors
    /// What is wrong and what to do about it, in one line and without secrets.
    fn connect(target: &Self::Target, now: Nanos) -> impl Future<Output = Result<Self, String>>;

    /// Whether a connection that nothing was asked of lately still stands, and sees to it that the server does not end it for that.
    ///
    /// # Errors
    /// As [`Adapter::connect`].
    fn keep(&mut self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }

    /// What cannot be seen or done, and which right or setting would help, since the last call.
    fn warnings(&mut self, enforce: bool) -> Vec<String>;

    /// Looks: what runs, what it has and waits for, how far it is.
    ///
    /// # Errors
    /// As [`Adapter::connect`].
    fn look(&mut self, glance: Glance) -> impl Future<Output = Result<Seen, String>>;

    /// Whether this host's kernel knows the server's processes.
    fn on_host(&self) -> bool;

    /// Thinks about how long statements will take, where something is known of that. It must not wait.
    ///
    /// # Errors
    /// As [`Adapter::connect`].
    fn estimate(&mut self, _: &mut Seen, _: &[Blame], _: Glance) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }

    /// For how long the statement of a backend is expected to run in all, in ns, where anybody knows.
    fn expected_ns(&self, _: &Backend) -> Option<u64> {
        None
    }

    /// Why a backend can never be ended, if that is so.
    fn untouchable(&self, backend: &Backend) -> Option<String>;

    /// Cancels what a backend does, or ends its `connection`, if it is still the same: whether the server could tell it. Nothing if it is not.
    ///
    /// # Errors
    /// As [`Adapter::connect`].
    fn end(
        &mut self,
        backend: &Backend,
        connection: bool,
    ) -> impl Future<Output = Result<Option<bool>, String>>;

    /// What people call a backend.
    fn name(pid: Pid) -> String;

    /// What people call a resource: one that is always there, or what a number stands for now.
    fn resource(&self, index: u32, what: Option<&What>) -> String;

    /// What these backends run, for whom.
    fn told(&mut self, backends: &[&Backend]) -> impl Future<Output = HashMap<Pid, Told>>;
}

/// A server being watched.
pub struct Server<A: Adapter> {
    settings: Database,
    target: Rc<A::Target>,
    pub(crate) adapter: Option<A>,
    reserve: Reserve<A>,
    pub(crate) account: Account,
    clock: ServerClock,
    /// When the server began, and its time at the last look.
    began: Option<Stamp>,
    last: Option<Stamp>,
    suspicious: bool,
    pace: Pace,
    warnings: Vec<String>,
    /// Whether those are all that hold.
    starts_over: bool,
}

/// A server's own idea of when it began may be off by so much from one look to the next.
const SAME_NS: u64 = 2_500_000_000;

impl<A: Adapter> Server<A> {
    /// A server that is not connected to yet.
    ///
    /// # Errors
    /// Where the config cannot be used, without secrets.
    pub fn new(settings: Database) -> Result<Server<A>, String> {
        Ok(Server {
            target: Rc::new(A::target(&settings)?),
            settings,
            adapter: None,
            reserve: Reserve::new(),
            account: Account::default(),
            clock: ServerClock::default(),
            began: None,
            last: None,
            suspicious: false,
            pace: Pace::default(),
            warnings: Vec::new(),
            starts_over: false,
        })
    }

    async fn connect(&mut self) -> Result<A, String> {
        let adapter = match A::connect(&self.target, ours::now()).await {
            Ok(adapter) => adapter,
            Err(why) => {
                let kept = self.reserve.take().ok_or_else(|| why.clone())?;
                let why = without_password(self.settings.dsn.reveal(), why);
                log::warn!(app:% = self.settings.name, why:%; "the connection in reserve is used");
                kept
            }
        };
        log::info!(app:% = self.settings.name, kernel_knows_it = adapter.on_host(); "connected");
        (self.last, self.starts_over) = (None, true);
        self.account.reconnected();
        Ok(adapter)
    }

    async fn look_around(&mut self, scene: &mut Scene) -> Result<Nanos, String> {
        let mut adapter = match self.adapter.take() {
            Some(adapter) => adapter,
            None => self.connect().await?,
        };
        let now = self.look_through(&mut adapter, scene).await?;
        // Only one that answered is kept: after an error nobody knows what state it is in.
        self.adapter = Some(adapter);
        if A::RESERVES && !self.suspicious {
            self.reserve.see_to(&self.target, ours::now()).await;
        }
        Ok(now)
    }

    async fn look_through(&mut self, adapter: &mut A, scene: &mut Scene) -> Result<Nanos, String> {
        let since = self.last.unwrap_or(Stamp::EARLIEST);
        let glance = Glance { now: ours::now(), since, suspicious: self.suspicious };
        let mut seen = adapter.look(glance).await?;
        let before = self.began.replace(seen.began);
        if before.is_some_and(|before| before.since_ns(seen.began).max(seen.began.since_ns(before)) > SAME_NS)
        {
            log::info!(app:% = self.settings.name; "the server was restarted");
            self.account.forget();
        }
        let replays = seen.backends.iter().find(|backend| backend.replays).map(|backend| backend.pid);
        let blames = blame(&seen.locks, replays, |pid| {
            let backend = seen.backends.iter().find(|backend| backend.pid == pid)?;
            Some(backend.xact.unwrap_or_else(|| backend.since()))
        });
        adapter.estimate(&mut seen, &blames, glance).await?;
        self.warnings.extend(adapter.warnings(self.settings.mode == Mode::Enforce));
        let now = Nanos(self.clock.at(seen.at, ours::now().0));
        let look = Look {
            now,
            server: seen.at,
            backends: &seen.backends,
            blames: &blames,
            transactions: seen.requests,
            moved: seen.moved,
            paused: seen.paused,
            mean_ns: seen.mean_ns,
            progress: &seen.progress,
            expected_ns: &|backend| adapter.expected_ns(backend),
            did: &seen.did,
            measured: &seen.measured,
            on_host: adapter.on_host(),
            may_signal: &|backend| adapter.untouchable(backend).is_none(),
            may_terminate: self.settings.escalate == Escalate::Terminate,
        };
        self.account.look(&look, scene);
        self.last = Some(seen.at);
        Ok(now)
    }

    /// Why this task cannot be cancelled, if so, and what would help.
    fn not_cancellable(&self, known: &Known) -> Option<String> {
        if let Some(why) = self.adapter.as_ref()?.untouchable(&known.backend) {
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

    fn words_of(&self, known: &Known, told: Told) -> Words {
        let backend = &known.backend;
        let age_ns = self.last.filter(|_| backend.pid > 0).map(|now| now.since_ns(known.started));
        let chain = known.chain.iter().map(|&pid| A::name(pid)).collect::<Vec<_>>().join(" -> ");
        Words {
            name: A::name(backend.pid),
            pid: u32::try_from(backend.pid).ok(),
            about: About {
                what: told.statement.filter(|text| !text.is_empty()),
                kind: backend.kind.clone(),
                state: Some(backend.state.as_str().to_owned()),
                user: told.user,
                database: told.database,
                client: told.client.filter(|text| !text.is_empty()),
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

impl<A: Adapter> Source for Server<A> {
    async fn look(&mut self, scene: &mut Scene) -> Result<Nanos, Trouble> {
        let looked = self.look_around(scene).await;
        // Whatever a server says back, a password goes no further.
        looked.map_err(|why| Trouble::passing(without_password(self.settings.dsn.reveal(), why)))
    }

    fn judged(&mut self, state: Standing, exact: bool) -> Duration {
        self.suspicious = exact || state != Standing::Calm;
        self.pace.next(state, self.suspicious, self.settings.interval.into(), A::CALM)
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn starts_over(&mut self) -> bool {
        std::mem::take(&mut self.starts_over)
    }

    fn resource(&self, index: u32) -> String {
        let what = self.account.what(index);
        self.adapter
            .as_ref()
            .map_or_else(|| format!("resource {index}"), |adapter| adapter.resource(index, what))
    }

    async fn words(&mut self, tasks: &[u64]) -> Vec<Words> {
        let known: Vec<Option<&Known>> = tasks.iter().map(|&task| self.account.known(task)).collect();
        let backends: Vec<&Backend> = known.iter().flatten().map(|known| &known.backend).collect();
        let mut told = match &mut self.adapter {
            Some(adapter) if !backends.is_empty() => adapter.told(&backends).await,
            _ => HashMap::new(),
        };
        let words = |(known, task): (Option<&Known>, &u64)| match known {
            Some(known) => self.words_of(known, told.remove(&known.backend.pid).unwrap_or_default()),
            None => Words { name: format!("task {task}"), ..Words::default() },
        };
        known.into_iter().zip(tasks).map(words).collect()
    }

    async fn cancel(&mut self, task: u64, _: u32, _: &str, tries: u32) -> Sent {
        let Some(known) = self.account.known(task) else { return Sent::Gone };
        if let Some(why) = self.not_cancellable(known) {
            return Sent::Failed(why);
        }
        let Some(adapter) = &mut self.adapter else { return Sent::Gone };
        let Known { backend, queues, .. } = known;
        let may = self.settings.escalate == Escalate::Terminate;
        // Told twice to no effect is enough. Who only waits in a queue leaves it when its statement ends, whatever else it has.
        let deaf = backend.state != State::Active || backend.keeps && !queues || tries >= 2;
        let connection = may && deaf;
        match adapter.end(backend, connection).await {
            Ok(Some(true)) if connection => Sent::Terminated,
            Ok(Some(true)) => Sent::Told,
            Ok(Some(false)) => Sent::Failed("the server could not signal it".to_owned()),
            Ok(None) => Sent::Gone,
            Err(why) => Sent::Failed(why),
        }
    }

    fn is_silent(&self) -> bool {
        true
    }
}

#[cfg(test)]
pub mod conformance;
