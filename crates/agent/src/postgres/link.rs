//! A connection to a server, and what is known as long as it lasts.

use std::collections::{HashMap, HashSet};

use plimsoll_core::Nanos;

use crate::host;
use crate::server::backend::{Backend, State};
use crate::server::chains::{Lock, Object, Pid};
use crate::server::kernel::Kernel;
use crate::server::latency::Pauses;
use crate::server::slots::{self, What};
use crate::server::stamp::Stamp;
use crate::server::{Glance, Seen};

use super::connect;
use super::facts::{Facts, quoted};
use super::poll::{Poll, any_waits};

/// How often `pg_stat_statements` is asked about means.
const SELDOM: Nanos = Nanos::from_secs(5);
/// How often the names of roles and databases are asked for, and how soon again where one is missing.
const NAMES: Nanos = Nanos::from_secs(60);
const MISSING: Nanos = Nanos::from_secs(5);
/// Names of relations that are kept.
const MOST_NAMES: usize = 4_096;
/// How far a statement is that is older is worth asking.
pub const LONG_NS: u64 = 1_000_000_000;

/// A connection.
pub struct Link {
    /// What is asked.
    pub poll: Poll,
    /// What the server and our role are.
    pub facts: Facts,
    /// What the kernel knows, where the server is on this host.
    kernel: Option<Kernel>,
    means: Means,
    named: Nanos,
    relations: HashMap<u32, String>,
    /// Sessions in which a statement ran at the last look: how that ended is worth knowing.
    running: Vec<Pid>,
}

/// What statements take on average.
#[derive(Default)]
struct Means {
    asked: Option<Nanos>,
    last: Option<(f64, f64)>,
    ns: Option<f64>,
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// What is wrong, in one line and without secrets.
    pub async fn connect(server: &connect::Server, now: Nanos) -> Result<Link, String> {
        let (client, facts) = connect::connect(server).await?;
        let poll = Poll::prepare(client, facts.statements.as_deref()).await?;
        let kernel = host::is_here(facts.pid.unsigned_abs(), facts.began_s).then(|| Kernel::new(now));
        Ok(Link {
            poll,
            facts,
            kernel,
            means: Means::default(),
            named: now,
            relations: HashMap::new(),
            running: Vec::new(),
        })
    }

    /// Whether the kernel of this host knows the server's processes.
    pub fn on_host(&self) -> bool {
        self.kernel.is_some()
    }

    /// Asks what is to be asked at this look; the last one was at `since`. Idle sessions are left out, unless they hold up somebody.
    ///
    /// # Errors
    /// What the server says.
    pub async fn look(&mut self, glance: Glance) -> Result<Seen, String> {
        let Glance { now, since, suspicious } = glance;
        let is_due = self.kernel.as_ref().is_some_and(|kernel| kernel.is_due(glance));
        let is_full = is_due || since == Stamp::EARLIEST;
        let (mut at, mut backends) = self.poll.look(since, &self.running, is_full).await?;
        if at.hidden && self.facts.sees {
            // A new connection finds out what it may do, and says what is missing.
            return Err(format!("role {} sees no more what others do", self.facts.role));
        }
        let mut locks = Vec::new();
        if any_waits(&backends) {
            locks = self.poll.locks().await?;
            // Who holds up others may have been idle for long.
            if !is_full && !all_known(&backends, &locks) {
                (at, backends) = self.poll.look(since, &[], true).await?;
            }
            with_prepared(&mut backends, &locks);
            lead(&backends, &mut locks);
        }
        let running = backends.iter().filter(|b| b.state == State::Active && b.is_client());
        self.running = running.map(|backend| backend.pid).collect();
        let long = |b: &Backend| b.state == State::Active && at.at.since_ns(b.since()) > LONG_NS;
        let progress = match suspicious && backends.iter().any(long) {
            true => self.poll.progress().await?,
            false => HashMap::new(),
        };
        let did = self.kernel.as_mut().map(|kernel| kernel.read(glance, at.at, is_full, &backends));
        self.ask_means(now).await?;
        self.ask_names(now, &backends).await?;
        self.ask_relations(&locks).await?;
        Ok(Seen {
            at: at.at,
            began: at.began,
            requests: at.transactions,
            moved: at.moved,
            backends,
            locks,
            progress,
            did: did.unwrap_or_default(),
            measured: Vec::new(),
            paused: Pauses::default(),
            mean_ns: self.means.ns,
        })
    }

    async fn ask_means(&mut self, now: Nanos) -> Result<(), String> {
        let Means { asked, last, ns } = &mut self.means;
        if asked.is_some_and(|asked| now.since(asked) < SELDOM) {
            return Ok(());
        }
        *asked = Some(now);
        let totals = self.poll.statements().await?;
        if let (Some((calls, ms)), Some((calls_before, ms_before))) = (totals, *last)
            && calls > calls_before
            && ms >= ms_before
        {
            *ns = Some((ms - ms_before) * 1e6 / (calls - calls_before));
        }
        *last = totals;
        Ok(())
    }

    async fn ask_names(&mut self, now: Nanos, backends: &[Backend]) -> Result<(), String> {
        let Facts { roles, databases, .. } = &self.facts;
        let missing = backends.iter().any(|b| {
            b.user != 0 && !roles.contains_key(&b.user)
                || b.database != 0 && !databases.contains_key(&b.database)
        });
        let after = if missing { MISSING } else { NAMES };
        if now.since(self.named) >= after {
            self.named = now;
            self.facts.ask_names(self.poll.client()).await?;
        }
        Ok(())
    }

    async fn ask_relations(&mut self, locks: &[Lock]) -> Result<(), String> {
        let of = |object: Object| match object {
            Object::Relation(database, oid)
            | Object::Rows(database, oid)
            | Object::Extension(database, oid) => {
                (database == self.facts.database || database == 0).then_some(oid)
            }
            _ => None,
        };
        let unknown: HashSet<u32> = locks.iter().filter_map(|lock| of(lock.object)).collect();
        let unknown: Vec<u32> = unknown.into_iter().filter(|oid| !self.relations.contains_key(oid)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        if self.relations.len() > MOST_NAMES {
            self.relations.clear();
        }
        let named = self.poll.relations(&unknown).await?;
        // One without a name is not asked for again.
        self.relations.extend(unknown.iter().map(|&oid| (oid, format!("relation {oid}"))));
        self.relations.extend(named);
        Ok(())
    }

    /// A resource's name.
    pub fn resource(&self, index: u32, what: Option<&What>) -> String {
        match (index, what) {
            (slots::CPU, _) => "processors".to_owned(),
            (slots::DATA, _) => "data files".to_owned(),
            (slots::WAL, _) => "write-ahead log".to_owned(),
            (slots::PIN, _) => "pinned pages".to_owned(),
            (_, Some(What::Latch(name))) => format!("latch {name}"),
            (_, Some(What::Measured(_, name))) => (*name).to_owned(),
            (_, Some(&What::Lock { object, queue, .. })) => {
                let object = self.object(object);
                if queue { format!("the queue for {object}") } else { object }
            }
            (_, None) => "other locks".to_owned(),
        }
    }

    fn object(&self, object: Object) -> String {
        match object {
            Object::Relation(database, oid) => self.relation(database, oid),
            Object::Rows(database, oid) => format!("rows of {}", self.relation(database, oid)),
            Object::Extension(database, oid) => format!("the end of {}", self.relation(database, oid)),
            Object::Transaction => "a transaction's rows".to_owned(),
            Object::Advisory(class, id) => {
                format!("advisory lock {}", u64::from(class) << 32 | u64::from(id))
            }
            Object::Server => "the server".to_owned(),
            Object::Threads | Object::Undo | Object::Other => "a lock".to_owned(),
        }
    }

    fn relation(&self, database: u32, oid: u32) -> String {
        match (self.relations.get(&oid), self.facts.databases.get(&database)) {
            (Some(name), _) if database == self.facts.database || database == 0 => name.clone(),
            (_, Some(database)) => format!("relation {oid} of database {}", quoted(database)),
            _ => format!("relation {oid}"),
        }
    }
}

fn all_known(backends: &[Backend], locks: &[Lock]) -> bool {
    let pids: HashSet<Pid> = backends.iter().map(|backend| backend.pid).collect();
    locks.iter().all(|lock| lock.pid < 0 || pids.contains(&lock.pid))
}

/// Prepared transactions hold locks, and have no process.
fn with_prepared(backends: &mut Vec<Backend>, locks: &[Lock]) {
    let prepared: HashSet<Pid> = locks.iter().map(|lock| lock.pid).filter(|&pid| pid < 0).collect();
    backends.extend(prepared.into_iter().map(|pid| Backend {
        pid,
        process: None,
        database: 0,
        user: 0,
        state: State::None,
        waits: None,
        xact: None,
        query: None,
        began: Stamp(0),
        changed: None,
        kind: Some("prepared transaction".to_owned()),
        replays: false,
        leader: None,
        writes: true,
        keeps: true,
    }));
}

/// A parallel query is one: its workers' locks are its leader's, and they never wait for each other.
fn lead(backends: &[Backend], locks: &mut [Lock]) {
    let leaders: HashMap<Pid, Pid> = backends.iter().filter_map(|b| Some((b.pid, b.leader?))).collect();
    if !leaders.is_empty() {
        locks.iter_mut().for_each(|lock| lock.pid = leaders.get(&lock.pid).copied().unwrap_or(lock.pid));
    }
}
