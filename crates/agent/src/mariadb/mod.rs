//! A stock MariaDB, 10.6 or newer.
//!
//! | file | does |
//! | --- | --- |
//! | `connect`, `facts` | the connection; what the server and our rights are |
//! | `poll` | the questions, and the rows that come back |
//! | `lives` | when statements and transactions began, which the server says to the second only |
//! | `modes` | which metadata locks conflict |
//! | `names` | numbers for what locks are on |
//! | `threads` | who waits for a thread of a pool |
//! | `undo` | who keeps what was deleted from being purged |

mod connect;
mod facts;
mod lives;
mod modes;
mod names;
mod poll;
mod threads;
mod undo;

use std::collections::{HashMap, HashSet};

use mysql_async::Opts;
use plimsoll_core::Nanos;
use plimsoll_core::config::{Database, DatabaseKind};

use crate::clock::now;
use crate::host;
use crate::server::backend::{Backend, State, Waits};
use crate::server::chains::{Lock, Mode, Object, Pid};
use crate::server::kernel::Kernel;
use crate::server::latency::Pauses;
use crate::server::mask::{Dialect, mask};
use crate::server::slots::{self, What};
use crate::server::stamp::Stamp;
use crate::server::trust::certificates;
use crate::server::{Adapter, Glance, Seen, Told};

use self::facts::Facts;
use self::lives::Lives;
use self::names::Names;
use self::poll::{Locks, Poll, Row};
use self::threads::Queue;
use self::undo::Undo;

/// A connection to a server.
pub struct MariaDb {
    poll: Poll,
    facts: Facts,
    kernel: Option<Kernel>,
    lives: Lives,
    names: Names,
    queue: Queue,
    undo: Undo,
    /// The latest statement at the last look, by the server's count.
    latest: u64,
    /// Sessions in which a statement ran at the last look: how that ended is worth knowing.
    running: Vec<Pid>,
    warned: bool,
}

impl Adapter for MariaDb {
    type Target = Opts;
    const SOURCE: &'static str = "mariadb";
    const RESERVES: bool = true;
    /// A look costs the server 1.5 ms of CPU time, a quarter of it for files: `processlist` has a column that no table in memory can have.
    const CALM: u32 = 4;

    fn target(settings: &Database) -> Result<Opts, String> {
        let DatabaseKind::MariaDb { tls_ca } = &settings.kind else {
            return Err("no MariaDB".to_owned());
        };
        let ca = certificates(tls_ca.as_deref())?;
        connect::options(settings.dsn.reveal(), ca.as_deref()).map_err(|why| format!("`dsn`: {why}"))
    }

    async fn connect(target: &Opts, now: Nanos) -> Result<MariaDb, String> {
        let mut poll = Poll::new(connect::connect(target).await?);
        let facts = Facts::ask(&mut poll).await?;
        log::info!(version:% = facts.version, user:% = facts.user; "a MariaDB");
        Ok(MariaDb {
            kernel: facts.process.map(|_| Kernel::new(now)),
            poll,
            facts,
            lives: Lives::default(),
            names: Names::default(),
            queue: Queue::default(),
            undo: Undo::default(),
            latest: 0,
            running: Vec::new(),
            warned: false,
        })
    }

    async fn keep(&mut self) -> Result<(), String> {
        self.poll.ping().await
    }

    fn warnings(&mut self, enforce: bool) -> Vec<String> {
        let warned = std::mem::replace(&mut self.warned, true);
        if warned { Vec::new() } else { self.facts.warnings(enforce) }
    }

    async fn look(&mut self, glance: Glance) -> Result<Seen, String> {
        self.poll.until_news().await;
        let glance = Glance { now: now(), ..glance };
        let is_due = self.kernel.as_ref().is_some_and(|kernel| kernel.is_due(glance));
        let is_full = is_due || glance.since == Stamp::EARLIEST;
        let status = self.poll.status().await?;
        if self.facts.shows_pool {
            self.queue.look(status.at, &self.poll.queued().await?);
        }
        let also: Vec<Pid> = self.running.iter().copied().chain(self.queue.ids()).collect();
        let mut rows = self.poll.sessions(self.latest, &also, is_full).await?;
        let mut locks = Locks::default();
        let unpurged = self.undo.look(status.at, status.counts);
        let waits = status.row_waits > 0 || rows.iter().any(Row::waits);
        if self.facts.sees && (waits || unpurged.is_some()) {
            locks = self.poll.locks(status.row_waits > 0, waits && self.facts.shows_metadata).await?;
            let runs = |id| rows.iter().any(|row| row.id == id && row.active);
            locks.unpurged = unpurged.and_then(|since| undo::holder(since, &locks.transactions, runs));
            // Who holds up others may have been idle for long.
            let known: HashSet<Pid> = rows.iter().map(|row| row.id).collect();
            if !is_full && locks.owners().any(|id| !known.contains(&id)) {
                rows = self.poll.sessions(self.latest, &also, true).await?;
            }
        }
        let moved = rows.iter().filter(|row| row.query > self.latest).count() as u64;
        self.latest = rows.iter().map(|row| row.query).fold(self.latest, u64::max);
        let backends: Vec<Backend> =
            rows.iter().map(|row| self.backend(row, status.at, &locks, glance.suspicious)).collect();
        self.lives.keep(&rows, is_full);
        let running = backends.iter().filter(|b| b.state == State::Active && b.is_client());
        self.running = running.map(|backend| backend.pid).collect();
        let past: Vec<Pid> = rows.iter().filter(|row| locks.goes_past(row)).map(|row| row.id).collect();
        let locks = self.locks(&locks, &past, &backends);
        let did = self.kernel.as_mut().map(|kernel| kernel.read(glance, status.at, is_full, &backends));
        Ok(Seen {
            at: status.at,
            began: self.facts.began,
            requests: status.questions,
            moved,
            progress: rows.iter().filter_map(|row| Some((row.id, row.progress?))).collect(),
            backends,
            locks,
            did: did.unwrap_or_default(),
            measured: Vec::new(),
            paused: Pauses::default(),
            mean_ns: None,
        })
    }

    fn on_host(&self) -> bool {
        self.kernel.is_some()
    }

    fn untouchable(&self, backend: &Backend) -> Option<String> {
        self.facts.untouchable(backend)
    }

    /// A statement is known by its number, and so is a transaction: whoever has gone on to another is left alone.
    async fn end(&mut self, backend: &Backend, connection: bool) -> Result<Option<bool>, String> {
        let Some(life) = self.lives.of(backend.pid) else { return Ok(None) };
        let ended = match connection {
            true => self.poll.end_connection(backend.pid, &life).await?,
            false => self.poll.end_statement(life.query_id()).await?,
        };
        Ok(ended.then_some(true))
    }

    fn name(pid: Pid) -> String {
        format!("connection {pid}")
    }

    fn resource(&self, index: u32, what: Option<&What>) -> String {
        match (index, what) {
            (slots::CPU, _) => "processors".to_owned(),
            (slots::DATA, _) => "data files".to_owned(),
            (slots::WAL, _) => "redo log".to_owned(),
            (_, Some(&What::Lock { object, queue, .. })) => {
                let object = self.object(object);
                if queue { format!("the queue for {object}") } else { object }
            }
            (_, Some(What::Latch(name))) => format!("latch {name}"),
            (_, Some(What::Measured(_, name))) => (*name).to_owned(),
            (_, None) => "other locks".to_owned(),
        }
    }

    async fn told(&mut self, backends: &[&Backend]) -> HashMap<Pid, Told> {
        let ids: Vec<Pid> = backends.iter().map(|backend| backend.pid).collect();
        let mut told = self.poll.told(&ids).await.unwrap_or_default();
        for told in told.values_mut() {
            told.statement = told.statement.take().map(|text| mask(&text, Dialect::MariaDb));
        }
        told
    }
}

impl MariaDb {
    fn backend(&mut self, row: &Row, at: Stamp, locks: &Locks, suspicious: bool) -> Backend {
        let transaction = locks.transactions.get(&row.id);
        let life = self.lives.look(row, at, transaction);
        let explicit = locks.keeps.contains(&row.id);
        let queued = self.queue.since(row.id);
        let state = match (row.active, transaction.is_some() || explicit) {
            _ if row.kind.is_some() => State::None,
            _ if queued.is_some() => State::Active,
            (true, _) => State::Active,
            (false, true) => State::InTransaction,
            (false, false) => State::Idle,
        };
        let process = self.facts.thread(row.thread);
        let waits = if row.waits() || locks.waits(row.id) || locks.goes_past(row) || queued.is_some() {
            Some(Waits::Lock)
        } else if suspicious && row.active && process.is_some_and(host::waits_for_disk) {
            Some(Waits::DataFiles)
        } else {
            None
        };
        Backend {
            pid: row.id,
            process,
            database: 0,
            user: 0,
            state,
            waits,
            xact: life.began(),
            query: queued.or(life.query()),
            began: Stamp(0),
            changed: Some(queued.unwrap_or(life.changed())),
            kind: row.kind.clone(),
            replays: false,
            writes: transaction.is_some_and(|transaction| transaction.writes),
            keeps: explicit || life.is_older_than_its_statement(),
            leader: None,
        }
    }

    /// As rows of one table of locks.
    fn locks(&mut self, locks: &Locks, past: &[Pid], backends: &[Backend]) -> Vec<Lock> {
        let statement = |id: Pid| backends.iter().find(|b| b.pid == id).and_then(|backend| backend.query);
        let metadata = locks.metadata.iter().map(|lock| Lock {
            tag: format!("{}:{}", lock.kind, lock.name),
            object: match lock.kind.as_str() {
                "BACKUP" => Object::Server,
                "USER LEVEL LOCK" | "USER LOCK" => Object::Advisory(0, self.names.number(&lock.name)),
                _ => Object::Relation(0, self.names.number(&lock.name)),
            },
            pid: lock.owner,
            mode: modes::mode(&lock.kind, &lock.mode),
            granted: lock.granted,
            // When it began to wait nobody says; hardly before its statement began.
            since: if lock.granted { None } else { statement(lock.owner) },
        });
        let mut all: Vec<Lock> = metadata.collect();
        for wait in &locks.rows {
            let object = Object::Rows(0, self.names.number(&wait.table));
            let lock = |pid: Pid, granted: bool| Lock {
                tag: wait.lock.clone(),
                object,
                pid,
                // That they conflict the server has said.
                mode: Some(Mode::EXCLUSIVE),
                granted,
                since: if granted { None } else { wait.since.max(statement(pid)) },
            };
            all.extend([lock(wait.waiter, false), lock(wait.holder, true)]);
        }
        let queued = |backend: &&Backend| self.queue.since(backend.pid).is_some();
        let waiting = backends.iter().filter(queued).map(|b| (b.pid, b.query));
        let at_work = |b: &&Backend| b.state == State::Active && b.is_client() && !queued(b);
        if waiting.clone().next().is_some() {
            let has = backends.iter().filter(at_work).map(|b| b.pid);
            all.extend(as_lock(Object::Threads, has, waiting));
        }
        let past = past.iter().filter(|&&id| self.queue.since(id).is_none());
        all.extend(as_lock(Object::Undo, locks.unpurged, past.map(|&id| (id, statement(id)))));
        all
    }

    fn object(&self, object: Object) -> String {
        match object {
            Object::Relation(_, number) => format!("table {}", self.names.name(number)),
            Object::Rows(_, number) => format!("rows of {}", self.names.name(number)),
            // What it is called may be somebody's data.
            Object::Advisory(_, number) => format!("user lock {number}"),
            Object::Server => "the backup lock".to_owned(),
            Object::Threads => "the pool of threads".to_owned(),
            Object::Undo => "the undo history".to_owned(),
            Object::Extension(..) | Object::Transaction | Object::Other => "a lock".to_owned(),
        }
    }
}

/// What is no lock, but has who is in the way of others, as one that these have and those wait for.
fn as_lock(
    object: Object,
    has: impl IntoIterator<Item = Pid>,
    wait: impl IntoIterator<Item = (Pid, Option<Stamp>)>,
) -> Vec<Lock> {
    let lock = |pid, granted, since| Lock {
        tag: format!("{object:?}"),
        object,
        pid,
        mode: Some(Mode::EXCLUSIVE),
        granted,
        since,
    };
    let has = has.into_iter().map(|pid| lock(pid, true, None));
    has.chain(wait.into_iter().map(|(pid, since)| lock(pid, false, since))).collect()
}

#[cfg(test)]
mod tests;
