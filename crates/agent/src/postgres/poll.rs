//! The questions that are asked at every look, and what comes back.
//!
//! The one that is always asked reads the server's shared memory and takes no lock, and returns nothing of sessions that are idle. The others are asked when there is a reason to: the lock table is copied under latches that everybody needs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use crate::host::Process;
use crate::server::backend::{Backend, State, Waits};
use crate::server::chains::{Lock, Object, Pid};
use crate::server::stamp::Stamp;

use super::connect::words;
use super::modes::mode;
use super::waits::classify;

/// Longer than any of them may take at the server.
const PATIENCE: Duration = Duration::from_secs(6);

/// The server's time, how many transactions it has counted, since when it has been running, in how many sessions a statement has begun
/// since the last look; and the processes that do something, are in a transaction, or did something at the last look ($2), or all ($3). Most sessions
/// of a server are idle at any moment: of those only what tells that is read, which costs a third of reading everything.
const ACTIVITY: &str = "with b as materialized (select pg_stat_get_backend_pid(i) pid, pg_stat_get_backend_xact_start(i) x, \
    pg_stat_get_backend_wait_event_type(i) w, pg_stat_get_backend_activity_start(i) s from pg_stat_get_backend_idset() i) \
    select n.*, a.* from (select clock_timestamp(), \
    (select sum(pg_stat_get_db_xact_commit(oid) + pg_stat_get_db_xact_rollback(oid))::float8 from pg_database), \
    pg_postmaster_start_time(), (select count(*) from b where s >= $1)) n left join \
    (select a.pid, datid, usesysid, state, wait_event_type, wait_event, xact_start, query_start, \
    backend_start, state_change, backend_type, leader_pid, backend_xid is not null from b, pg_stat_get_activity(b.pid) a \
    where b.pid <> pg_backend_pid() and (x is not null or coalesce(w, '') not in ('Client', 'Activity') \
    or b.pid = any($2) or $3)) a on true";

/// Rows of what somebody waits for, and the rows of tables that those who wait are about to have.
const LOCKS: &str = "with l as materialized (select locktype, database, relation, classid, objid, mode, granted, pid, \
    waitstart, virtualtransaction, concat_ws('/', locktype, database, relation, page, tuple, virtualxid, transactionid, \
    classid, objid, objsubid) tag from pg_locks) \
    select tag, locktype, database, relation, classid, objid, mode, granted, pid, waitstart, virtualtransaction from l \
    where tag in (select tag from l where not granted) \
    or locktype = 'tuple' and pid in (select pid from l where not granted)";

const PROGRESS: &str = "select pid, heap_blks_scanned + heap_blks_vacuumed, 2 * heap_blks_total from pg_stat_progress_vacuum \
    union all select pid, blocks_done, blocks_total from pg_stat_progress_create_index \
    union all select pid, bytes_processed, bytes_total from pg_stat_progress_copy \
    union all select pid, sample_blks_scanned, sample_blks_total from pg_stat_progress_analyze \
    union all select pid, heap_blks_scanned, heap_blks_total from pg_stat_progress_cluster";

const RELATIONS: &str = "select oid, oid::regclass::text from pg_class where oid = any($1)";

const QUERIES: &str = "select pid, left(query, 2000), application_name, client_addr::text \
    from pg_stat_get_activity(null) where pid = any($1)";

/// The whole of a statement, if it is still that one and none of it is cut off; the server cuts between characters.
const STATEMENT: &str = "select query from pg_stat_get_activity($1) where backend_start = $2 and query_start = $3 \
    and state = 'active' and octet_length(query) + 4 < pg_size_bytes(current_setting('track_activity_query_size'))";

/// In one statement with the check that it is still the same: between two, the number could have gone to another process.
const CANCEL: &str = "select pg_cancel_backend(pid) from pg_stat_get_activity($1) \
    where backend_start = $2 and state = 'active' and (xact_start = $3 or query_start = $4)";

const TERMINATE: &str = "select pg_terminate_backend(pid) from pg_stat_get_activity($1) \
    where backend_start = $2 and (xact_start = $3 or xact_start is null and query_start = $4)";

/// The questions, prepared for one connection.
pub struct Poll {
    client: Client,
    activity: Statement,
    locks: Statement,
    progress: Statement,
    relations: Statement,
    queries: Statement,
    statement: Statement,
    cancel: Statement,
    terminate: Statement,
    statements: Option<Statement>,
    /// Questions that were asked: each is a transaction, and none of them is anybody's request.
    asked: AtomicU64,
}

/// What the server says of itself at a look.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Its time.
    pub at: Stamp,
    /// Transactions that it has counted.
    pub transactions: u64,
    /// When it began.
    pub began: Stamp,
    /// Sessions in which a statement has begun since the last look.
    pub moved: u64,
    /// Whether there are sessions that are not ours to see.
    pub hidden: bool,
}

impl Poll {
    /// Prepares them. `statements` is the schema of `pg_stat_statements`, if it is there.
    ///
    /// # Errors
    /// What the server says.
    pub async fn prepare(client: Client, statements: Option<&str>) -> Result<Poll, String> {
        let prepare = async |sql: &str, types: &[Type]| {
            let prepared = timeout(PATIENCE, client.prepare_typed(sql, types)).await;
            prepared.map_err(|_| silence())?.map_err(|error| words(&error))
        };
        let totals = match statements {
            Some(schema) => {
                let sql = format!(
                    "select sum(calls)::float8, sum(total_exec_time)::float8 from {schema}.pg_stat_statements(false)"
                );
                // Created, but not loaded: then it has nothing to say.
                prepare(&sql, &[]).await.ok()
            }
            None => None,
        };
        let one = [Type::INT4, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ];
        let poll = Poll {
            activity: prepare(ACTIVITY, &[Type::TIMESTAMPTZ, Type::INT4_ARRAY, Type::BOOL]).await?,
            locks: prepare(LOCKS, &[]).await?,
            progress: prepare(PROGRESS, &[]).await?,
            relations: prepare(RELATIONS, &[Type::OID_ARRAY]).await?,
            queries: prepare(QUERIES, &[Type::INT4_ARRAY]).await?,
            statement: prepare(STATEMENT, &one[..3]).await?,
            cancel: prepare(CANCEL, &one).await?,
            terminate: prepare(TERMINATE, &one).await?,
            statements: totals,
            asked: AtomicU64::new(0),
            client,
        };
        poll.rehearse().await?;
        Ok(poll)
    }

    /// Asks once, about nobody, what else is first asked when somebody is to be ended: to plan it the server reads its catalogs, and who has
    /// to be ended may be keeping the disk busy.
    async fn rehearse(&self) -> Result<(), String> {
        let nobody = 0i32;
        let one: [&(dyn ToSql + Sync); 4] = [&nobody, &Stamp(0), &Stamp(0), &Stamp(0)];
        for statement in [&self.cancel, &self.terminate] {
            self.ask(statement, &one).await?;
        }
        self.locks().await?;
        self.progress().await?;
        self.relations(&[]).await?;
        self.queries(&[0]).await.map(drop)
    }

    /// For what is asked seldom.
    pub fn client(&self) -> &Client {
        &self.client
    }

    async fn ask(&self, statement: &Statement, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, String> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = timeout(PATIENCE, self.client.query(statement, values)).await;
        answer.map_err(|_| silence())?.map_err(|error| words(&error))
    }

    /// The server's time, and its processes: those that do something, are in a transaction, or are among `also`, or all. `since` is the
    /// time of the last look.
    ///
    /// # Errors
    /// What the server says.
    pub async fn look(&self, since: Stamp, also: &[Pid], all: bool) -> Result<(Now, Vec<Backend>), String> {
        let also = numbers(also);
        let rows = self.ask(&self.activity, &[&since, &also, &all]).await?;
        let now = rows.first().ok_or_else(silence)?;
        let now = Now {
            at: now.get(0),
            transactions: (now.get::<_, Option<f64>>(1).unwrap_or(0.0) as u64)
                .saturating_sub(self.asked.load(Ordering::Relaxed)),
            began: now.get(2),
            // Our own is among them.
            moved: u64::try_from(now.get::<_, i64>(3)).unwrap_or(0).saturating_sub(1),
            // All that is told of such a one is that it is there.
            hidden: rows.iter().any(|row| {
                row.get::<_, Option<i32>>(4).is_some() && row.get::<_, Option<Stamp>>(12).is_none()
            }),
        };
        Ok((now, rows.iter().filter_map(backend).collect()))
    }

    /// The lock table, as far as somebody waits.
    ///
    /// # Errors
    /// What the server says.
    pub async fn locks(&self) -> Result<Vec<Lock>, String> {
        Ok(self.ask(&self.locks, &[]).await?.iter().map(lock).collect())
    }

    /// How far commands are.
    ///
    /// # Errors
    /// What the server says.
    pub async fn progress(&self) -> Result<HashMap<Pid, (u64, u64)>, String> {
        let amount = |row: &Row, at| row.get::<_, Option<i64>>(at).and_then(|n| u64::try_from(n).ok());
        let rows = self.ask(&self.progress, &[]).await?;
        let row = |row: &Row| {
            let (done, total) = (amount(row, 1)?, amount(row, 2).filter(|&total| total > 0)?);
            Some((row.get::<_, i32>(0).into(), (done.min(total), total)))
        };
        Ok(rows.iter().filter_map(row).collect())
    }

    /// Calls and the time that they took in ms, of all statements together; nothing without `pg_stat_statements`.
    ///
    /// # Errors
    /// What the server says.
    pub async fn statements(&self) -> Result<Option<(f64, f64)>, String> {
        let Some(statement) = &self.statements else { return Ok(None) };
        let rows = self.ask(statement, &[]).await?;
        let of = |at| rows.first().and_then(|row| row.get::<_, Option<f64>>(at)).unwrap_or(0.0);
        Ok(Some((of(0), of(1))))
    }

    /// The names of relations of the database that we are in.
    ///
    /// # Errors
    /// What the server says.
    pub async fn relations(&self, oids: &[u32]) -> Result<Vec<(u32, String)>, String> {
        let rows = self.ask(&self.relations, &[&oids]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// What processes run: statement, application, address.
    ///
    /// # Errors
    /// What the server says.
    pub async fn queries(&self, pids: &[Pid]) -> Result<HashMap<Pid, [Option<String>; 3]>, String> {
        let rows = self.ask(&self.queries, &[&numbers(pids)]).await?;
        let row = |row: &Row| (row.get::<_, i32>(0).into(), [row.get(1), row.get(2), row.get(3)]);
        Ok(rows.iter().map(row).collect())
    }

    /// What this process runs, if that is still the same and all of it is known.
    ///
    /// # Errors
    /// What the server says.
    pub async fn statement(&self, backend: &Backend) -> Result<Option<String>, String> {
        let pid = number(backend.pid);
        let values: [&(dyn ToSql + Sync); 3] = [&pid, &backend.began, &backend.query];
        Ok(self.ask(&self.statement, &values).await?.first().and_then(|row| row.get(0)))
    }

    /// Cancels the statement of this process, or ends its connection, if it is still the same: whether the server could tell it. Nothing
    /// if it is not.
    ///
    /// # Errors
    /// What the server says.
    pub async fn end(&self, backend: &Backend, terminate: bool) -> Result<Option<bool>, String> {
        let statement = if terminate { &self.terminate } else { &self.cancel };
        let pid = number(backend.pid);
        let values: [&(dyn ToSql + Sync); 4] = [&pid, &backend.began, &backend.xact, &backend.query];
        Ok(self.ask(statement, &values).await?.first().map(|row| row.get(0)))
    }
}

fn silence() -> String {
    format!("the server has not answered for {} s", PATIENCE.as_secs())
}

/// As the server numbers its processes. A prepared transaction has none.
fn number(pid: Pid) -> i32 {
    i32::try_from(pid).unwrap_or(0)
}

fn numbers(pids: &[Pid]) -> Vec<i32> {
    pids.iter().map(|&pid| number(pid)).collect()
}

/// The process of a backend; a prepared transaction has none.
pub fn process(pid: Pid) -> Option<Process> {
    u32::try_from(pid).ok().map(Process::whole)
}

/// A state as the view calls it.
fn state(text: Option<&str>) -> State {
    match text {
        Some("active" | "fastpath function call") => State::Active,
        Some("idle") => State::Idle,
        Some("idle in transaction") => State::InTransaction,
        Some("idle in transaction (aborted)") => State::Aborted,
        _ => State::None,
    }
}

/// The process of a row, whose columns come after those of [`Now`]; there may be none.
fn backend(row: &Row) -> Option<Backend> {
    let number = |at| row.get::<_, Option<u32>>(at).unwrap_or(0);
    let pid = row.get::<_, Option<i32>>(4)?;
    let (kind, event): (Option<&str>, Option<&str>) = (row.get(8), row.get(9));
    let what = Some(row.get::<_, Option<String>>(14).unwrap_or_default());
    Some(Backend {
        pid: pid.into(),
        process: process(pid.into()),
        database: number(5),
        user: number(6),
        state: state(row.get(7)),
        waits: kind.zip(event).and_then(|(kind, event)| classify(kind, event)),
        xact: row.get(10),
        query: row.get(11),
        began: row.get::<_, Option<Stamp>>(12)?,
        changed: row.get(13),
        replays: what.as_deref() == Some("startup"),
        kind: what.filter(|what| what != "client backend"),
        leader: row.get::<_, Option<i32>>(15).map(Pid::from),
        writes: row.get::<_, Option<bool>>(16).unwrap_or(false),
        // Cancelling a statement aborts its transaction, and that gives back all it has.
        keeps: false,
    })
}

fn lock(row: &Row) -> Lock {
    let number = |at| row.get::<_, Option<u32>>(at).unwrap_or(0);
    let object = match row.get::<_, Option<&str>>(1).unwrap_or("") {
        "relation" => Object::Relation(number(2), number(3)),
        "tuple" => Object::Rows(number(2), number(3)),
        "extend" => Object::Extension(number(2), number(3)),
        "transactionid" => Object::Transaction,
        "advisory" => Object::Advisory(number(4), number(5)),
        _ => Object::Other,
    };
    // A prepared transaction has no process; its number stands for it.
    let virtual_pid = || -> Pid {
        let number =
            row.get::<_, Option<&str>>(10).unwrap_or("").rsplit('/').next().and_then(|n| n.parse().ok());
        -Pid::from(number.unwrap_or(1i32)).abs().max(1)
    };
    Lock {
        tag: row.get(0),
        object,
        pid: row.get::<_, Option<i32>>(8).map_or_else(virtual_pid, Pid::from),
        mode: mode(row.get(6)),
        granted: row.get(7),
        since: row.get(9),
    }
}

/// Whether anybody waits for a lock.
pub fn any_waits(backends: &[Backend]) -> bool {
    backends.iter().any(|backend| backend.waits == Some(Waits::Lock))
}
