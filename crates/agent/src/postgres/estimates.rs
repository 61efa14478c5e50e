//! How long statements are expected to run, by the plans that the server makes for them: opt-in, over a connection of its own.
//!
//! Nobody outside of the executor sees how many rows a query has gone through. What can be seen is for how long it has run, and the
//! planner says what it costs in all. What a unit of cost takes on this machine is measured once for each connection, with a small
//! statement that reads no table. Where the kernel says so, time on the processor counts: it does not pass while the statement waits for a
//! lock, a disk or its turn. Plans err, by a factor as a rule: that tells one that is nearly done from one that has hardly begun. One that
//! runs for longer than its plan says was misjudged, and counts as unknown again ([`Known`](crate::server::account::Known)).
//!
//! What it must never do is to wait, or to do anything. So it asks about a few long statements only, while something is wrong, one at a
//! time and once each, beside the looks and not in them. `EXPLAIN` takes the weakest lock on each table, and gives up after a
//! millisecond if it cannot have it. It runs in a transaction that is read-only and rolled back; and as one statement of the extended
//! protocol, so that `select 1; drop table x` is an error. The planner may call functions of the statement (`IMMUTABLE` and `STABLE`
//! ones, on constants), and calls them with the rights of who asks: so that is a role of its own, and one that may cancel others, or see
//! what they do, is turned down.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use plimsoll_core::Nanos;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::clock;
use crate::host::{self, Host};

use crate::server::backend::{Backend, State, Waits};
use crate::server::chains::{Blame, Pid};
use crate::server::stamp::Stamp;

use super::connect::{self, Server};
use super::facts::{Facts, quoted};
use super::link::LONG_NS;
use super::plan::{Plan, reads};
use super::poll::process;

/// Statements whose plans are known at once, at most.
const MOST: usize = 8;
/// Different things that are said to be wrong, at most.
const MOST_WARNINGS: usize = 8;
/// After an error of the connection it is tried again so much later.
const AGAIN: Nanos = Nanos::from_secs(60);
/// Longer than any plan may take, at the server.
const PATIENCE: Duration = Duration::from_secs(5);

/// On top of what all of our connections set. Names are looked up where the role's own statements would look them up.
const SETTINGS: &str = "set statement_timeout = '250ms'; set lock_timeout = '1ms'; reset search_path; \
    reset max_parallel_workers_per_gather";

/// A statement whose cost the planner knows exactly: a quarter of a million rows, some 20 ms. The quickest of a few: others were disturbed.
const MEASURE: &str = "explain (analyze, timing off, format json) \
    select count(*) from pg_catalog.generate_series(1, 500) a, pg_catalog.generate_series(1, 500) b";
const MEASURES: usize = 3;

/// The connection that plans are asked for over, while it is not in use.
struct Planner {
    client: Client,
    /// `explain ...`, up to the statement.
    explain: &'static str,
    role: String,
    pid: Pid,
    database: u32,
    /// Units of cost that take a nanosecond.
    per_ns: f64,
}

/// What came of asking.
#[derive(Default)]
struct Answer {
    /// The connection, if it is as good as before.
    planner: Option<Planner>,
    expected_ns: Option<u64>,
    warning: Option<String>,
}

/// A statement: a process, and when it began what it does.
type Key = (Pid, Stamp);

/// Knows what statements are expected to take.
pub struct Estimates {
    server: Server,
    planner: Option<Planner>,
    /// Who is being asked about, nobody while connecting.
    asking: Option<(Option<Key>, JoinHandle<Answer>)>,
    /// The connection's process.
    pid: Option<Pid>,
    expected_ns: HashMap<Key, Option<u64>>,
    again_at: Nanos,
    warnings: Vec<String>,
    told: HashSet<String>,
}

impl Estimates {
    /// Where nobody was asked yet.
    pub fn new(mut server: Server) -> Estimates {
        server.config.application_name("plimsoll agent, plans");
        Estimates {
            server,
            planner: None,
            asking: None,
            pid: None,
            expected_ns: HashMap::new(),
            again_at: Nanos::ZERO,
            warnings: Vec::new(),
            told: HashSet::new(),
        }
    }

    /// The process that serves it: nobody's request.
    pub fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// What is wrong, since the last call.
    pub fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// For how long the statement of this process is expected to run in all.
    pub fn expected_ns(&self, backend: &Backend) -> Option<u64> {
        *self.expected_ns.get(&key(backend)?)?
    }

    /// Takes in what was answered since the last look, and forgets statements that have ended. It never waits.
    pub async fn look(&mut self, now: Nanos, backends: &[Backend]) {
        if let Some((about, asking)) = self.asking.take_if(|(_, asking)| asking.is_finished()) {
            let Answer { planner, expected_ns, warning } = asking.await.unwrap_or_default();
            if let Some(key) = about {
                self.expected_ns.insert(key, expected_ns);
            }
            if planner.is_none() {
                self.again_at = now + AGAIN;
            }
            self.pid = planner.as_ref().map(|planner| planner.pid);
            self.planner = planner;
            self.warnings.extend(
                warning
                    .filter(|warning| self.told.len() < MOST_WARNINGS && self.told.insert(warning.clone())),
            );
        }
        let live: HashSet<Key> = backends.iter().filter_map(key).collect();
        self.expected_ns.retain(|key, _| live.contains(key));
        if self.planner.as_ref().is_some_and(|planner| planner.client.is_closed()) {
            (self.planner, self.pid) = (None, None);
        }
        // In calm, where what a unit takes can be measured.
        if self.planner.is_none() && self.asking.is_none() && now >= self.again_at {
            let server = self.server.clone();
            self.asking = Some((None, tokio::spawn(async move { connected(&server).await })));
        }
    }

    /// About whom to ask now, if anybody: who runs for long, and first those who hold up others.
    pub fn wants<'a>(&self, now: Stamp, backends: &'a [Backend], blames: &[Blame]) -> Option<&'a Backend> {
        let database = self.planner.as_ref()?.database;
        if self.expected_ns.len() >= MOST {
            return None;
        }
        let culprits: HashSet<Pid> = blames.iter().map(|blame| blame.culprit).collect();
        let wanted = backends.iter().filter(|b| {
            let runs = b.is_client() && b.state == State::Active && b.waits != Some(Waits::Lock);
            let asked = key(b).is_none_or(|key| self.expected_ns.contains_key(&key));
            runs && b.database == database && now.since_ns(b.since()) > LONG_NS && !asked
        });
        wanted.min_by_key(|backend| (!culprits.contains(&backend.pid), backend.since()))
    }

    /// Asks about this one, whose statement this is, if all of it is known.
    pub fn ask(&mut self, backend: &Backend, statement: Option<String>) {
        let Some(key) = key(backend) else { return };
        match (self.planner.take(), statement.filter(|statement| reads(statement))) {
            (Some(planner), Some(statement)) => {
                self.asking = Some((Some(key), tokio::spawn(planner.answer(statement))));
            }
            (planner, _) => {
                self.planner = planner;
                self.expected_ns.insert(key, None);
            }
        }
    }
}

impl Drop for Estimates {
    fn drop(&mut self) {
        if let Some((_, asking)) = &self.asking {
            asking.abort();
        }
    }
}

fn key(backend: &Backend) -> Option<Key> {
    Some((backend.pid, backend.query?))
}

async fn connected(server: &Server) -> Answer {
    match Planner::connect(server).await {
        Ok(planner) => Answer { planner: Some(planner), ..Answer::default() },
        Err(why) => Answer { warning: Some(format!("no plan estimates: {why}")), ..Answer::default() },
    }
}

/// How many units of cost take a nanosecond.
async fn per_ns(client: &Client, facts: &Facts) -> Result<f64, String> {
    let wrong = |error: tokio_postgres::Error| connect::words(&error);
    let process = process(facts.pid.into()).filter(|process| host::is_here(process.pid, facts.began_s));
    let mut host = Host::default();
    let mut best: f64 = 0.0;
    for _ in 0..MEASURES {
        host.read(clock::now(), process.into_iter());
        let plan: Plan = client.query_one(MEASURE, &[]).await.map_err(wrong)?.try_get(0).map_err(wrong)?;
        let did = host.read(clock::now(), process.into_iter());
        let ran_ns = did.into_values().next().map(|did| did.counters.ran_ns);
        let took_ns = ran_ns.or_else(|| plan.took_ns()).filter(|&ns| ns > 0);
        if let (Some(cost), Some(took_ns)) = (plan.cost(), took_ns) {
            best = best.max(cost / took_ns as f64);
        }
    }
    if best > 0.0 { Ok(best) } else { Err("the server does not say how long a plan takes".to_owned()) }
}

impl Planner {
    async fn connect(server: &Server) -> Result<Planner, String> {
        let (client, facts) = connect::connect(server).await?;
        let (role, pid, database) = (quoted(&facts.role), facts.pid.into(), facts.database);
        if facts.superuser || facts.signals || facts.sees {
            return Err(format!(
                "role {role} may do more than read tables, and so could functions that a statement calls while it is planned; \
                 give `estimates_dsn` a role without pg_monitor and pg_signal_backend"
            ));
        }
        let per_ns = per_ns(&client, &facts).await?;
        client.batch_execute(SETTINGS).await.map_err(|error| connect::words(&error))?;
        // Statements whose parameters are sent apart can be planned without them from this version on.
        let major: u32 = facts.version.split(['.', ' ']).next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let explain =
            if major >= 16 { "explain (generic_plan, format json) " } else { "explain (format json) " };
        Ok(Planner { client, explain, role, pid, database, per_ns })
    }

    async fn answer(mut self, statement: String) -> Answer {
        let planned = timeout(PATIENCE, self.plan(&statement)).await;
        match planned {
            Ok(Ok(plan)) => {
                let expected_ns = plan.cost().map(|cost| (cost / self.per_ns).ceil() as u64);
                Answer { planner: Some(self), expected_ns, warning: None }
            }
            Ok(Err(error)) if !error.is_closed() => {
                let warning = self.warning(&error);
                Answer { planner: Some(self), expected_ns: None, warning }
            }
            Ok(Err(_)) | Err(_) => Answer::default(),
        }
    }

    async fn plan(&mut self, statement: &str) -> Result<Plan, tokio_postgres::Error> {
        let transaction = self.client.build_transaction().read_only(true).start().await?;
        let row = transaction.query_one(&format!("{}{statement}", self.explain), &[]).await;
        // Whatever a function has set is as it was before.
        transaction.rollback().await?;
        row?.try_get(0)
    }

    /// What somebody can do about an error. Others are told in their kind alone: the words may be those of the statement.
    fn warning(&self, error: &tokio_postgres::Error) -> Option<String> {
        let code = error.code()?;
        let (said, role) = (connect::words(error), &self.role);
        if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            return Some(format!("no plan estimate: {said}; as its owner: GRANT SELECT on it TO {role}"));
        }
        if *code == SqlState::UNDEFINED_TABLE {
            return Some(format!(
                "no plan estimate: {said}; if it is in another schema: ALTER ROLE {role} SET search_path"
            ));
        }
        log::debug!(code:% = code.code(); "no plan estimate");
        None
    }
}
