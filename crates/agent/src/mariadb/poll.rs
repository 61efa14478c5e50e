//! The questions that are asked at a look, and what comes back.
//!
//! Two are always asked: who does something, and how much was done. The others are asked when somebody waits: the metadata locks are walked
//! through in shards whose latches everybody needs, and for InnoDB's the server stops its lock system for as long as it copies.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Error};
use plimsoll_core::Nanos;
use tokio::time::{sleep, timeout};

use crate::clock::now;
use crate::server::Told;
use crate::server::chains::Pid;
use crate::server::stamp::Stamp;

use super::connect::words;
use super::lives::Life;
use super::undo::Counts;

/// Longer than any of them may take at the server.
const PATIENCE: Duration = Duration::from_secs(6);
/// InnoDB copies who waits for whom, and what transactions there are, for whoever asks; and makes no new copy before the last one has not been
/// read for 0.1 s. Whoever asks more often is told the same for ever.
const KEPT: Nanos = Nanos::from_millis(105);
/// Locks, waits and transactions that are read at most.
const MOST: usize = 20_000;

const STATUS: &str = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED), variable_name, variable_value \
    FROM information_schema.global_status WHERE variable_name IN ('QUESTIONS', 'INNODB_ROW_LOCK_CURRENT_WAITS', \
    'INNODB_HISTORY_LIST_LENGTH', 'INNODB_BUFFER_POOL_READ_REQUESTS', 'HANDLER_ICP_ATTEMPTS', 'HANDLER_WRITE', 'HANDLER_UPDATE', \
    'HANDLER_DELETE', 'HANDLER_READ_FIRST', 'HANDLER_READ_KEY', 'HANDLER_READ_LAST', 'HANDLER_READ_NEXT', 'HANDLER_READ_PREV', \
    'HANDLER_READ_RND', 'HANDLER_READ_RND_NEXT')";

const SESSIONS: &str = "SELECT id, CAST(time_ms * 1000 AS SIGNED), command, COALESCE(state, ''), query_id, COALESCE(tid, 0), \
    IF(user = 'system user' OR command IN ('Daemon', 'Binlog Dump', 'Slave_IO', 'Slave_SQL', 'Slave_worker') \
    OR user = 'unauthenticated user', user, NULL), stage, max_stage, CAST(progress * 1000 AS SIGNED) \
    FROM information_schema.processlist WHERE id <> CONNECTION_ID()";

const METADATA: &str = "SELECT object_type, CONCAT_WS('.', object_schema, object_name), lock_type, lock_status, \
    owner_thread_id, lock_duration FROM performance_schema.metadata_locks";

const THREADS: &str =
    "SELECT thread_id, processlist_id FROM performance_schema.threads WHERE processlist_id IS NOT NULL";

/// Who waits for whom. Everybody in a queue waits for all before him, too: of those only who has the lock counts.
const ROWS: &str = "SELECT DISTINCT requesting_trx_id, blocking_trx_id, requested_lock_id \
    FROM information_schema.innodb_lock_waits WHERE blocking_lock_id NOT IN \
    (SELECT requested_lock_id FROM information_schema.innodb_lock_waits)";

const TABLES: &str = "SELECT lock_id, lock_table FROM information_schema.innodb_locks";

const TRANSACTIONS: &str = "SELECT trx_id, trx_mysql_thread_id, CAST(UNIX_TIMESTAMP(trx_started) AS SIGNED) * 1000000, \
    CAST(UNIX_TIMESTAMP(trx_wait_started) AS SIGNED) * 1000000, trx_rows_modified > 0 FROM information_schema.innodb_trx";

const QUEUED: &str = "SELECT connection_id, CAST(queueing_time_microseconds AS SIGNED) FROM information_schema.thread_pool_queues";

/// There is no such statement any more, or no such connection.
const GONE: [u16; 2] = [1_957, 1_094];

/// A connection to ask over.
pub struct Poll {
    conn: Conn,
    /// Statements that were ours, and nobody's request.
    asked: u64,
    threads: HashMap<u64, Pid>,
    /// When InnoDB's copy was last read.
    copied: Nanos,
}

/// How much was done.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// The server's time, in microseconds since 1970.
    pub at: Stamp,
    /// Statements that clients have sent.
    pub questions: u64,
    /// Sessions that wait for a row.
    pub row_waits: u64,
    /// What was read and changed.
    pub counts: Counts,
}

/// A session, or a thread of the server's own.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The connection.
    pub id: Pid,
    /// For how long it has been doing what it does.
    pub since_us: i64,
    /// Whether it runs a statement.
    pub active: bool,
    /// What it is busy with, in the server's words.
    pub state: String,
    /// The number of its statement, or its last one.
    pub query: u64,
    /// The kernel's number of its thread.
    pub thread: u32,
    /// What it is if it is no client's.
    pub kind: Option<String>,
    /// How far it is: done, of how much.
    pub progress: Option<(u64, u64)>,
}

impl Row {
    /// Whether it says that it waits for somebody. Who waits for a row does not say so.
    pub fn waits(&self) -> bool {
        self.active
            && self.kind.is_none()
            && (self.state.starts_with("Waiting for ") || self.state == "User lock")
    }
}

/// A transaction of InnoDB.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    /// Its number; 0 where it has not locked anything.
    pub id: u64,
    /// The second in which it began.
    pub began: Stamp,
    /// Whether it has changed anything.
    pub writes: bool,
}

impl Transaction {
    /// Whether this one of the same connection is the same. It may have got a number since.
    pub fn is(&self, other: &Transaction) -> bool {
        self.began == other.began && (self.id == other.id || self.id == 0)
    }
}

/// A metadata lock.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// What sort of thing is locked: `TABLE`, `BACKUP`.
    pub kind: String,
    /// Which.
    pub name: String,
    /// How.
    pub mode: String,
    /// Whether its owner has it or waits for it.
    pub granted: bool,
    /// The connection.
    pub owner: Pid,
}

/// One who waits for a row.
#[derive(Clone, Debug)]
pub struct RowWait {
    /// The connection that waits.
    pub waiter: Pid,
    /// The one that has it.
    pub holder: Pid,
    /// The server's name for what is waited for.
    pub lock: String,
    /// The table.
    pub table: String,
    /// The second in which the wait began.
    pub since: Option<Stamp>,
}

/// All locks that somebody waits for.
#[derive(Debug, Default)]
pub struct Locks {
    /// Of metadata.
    pub metadata: Vec<Metadata>,
    /// Of rows.
    pub rows: Vec<RowWait>,
    /// Transactions by connection.
    pub transactions: HashMap<Pid, Transaction>,
    /// Connections that have locked something until they unlock it.
    pub keeps: HashSet<Pid>,
    /// Who keeps what was deleted from being purged, where others go past it.
    pub unpurged: Option<Pid>,
}

impl Locks {
    /// Connections that are named in it.
    pub fn owners(&self) -> impl Iterator<Item = Pid> {
        let metadata = self.metadata.iter().map(|lock| lock.owner);
        let rows = self.rows.iter().flat_map(|wait| [wait.waiter, wait.holder]);
        metadata.chain(rows).chain(self.unpurged)
    }

    /// Whether a connection waits for one.
    pub fn waits(&self, id: Pid) -> bool {
        let metadata = || self.metadata.iter().any(|lock| lock.owner == id && !lock.granted);
        self.rows.iter().any(|wait| wait.waiter == id) || metadata()
    }

    /// Whether what this session does goes past what somebody else keeps from being purged.
    pub fn goes_past(&self, row: &Row) -> bool {
        self.unpurged.is_some_and(|holder| holder != row.id)
            && row.active
            && !row.waits()
            && !self.waits(row.id)
    }
}

impl Poll {
    /// Over this connection.
    pub fn new(conn: Conn) -> Poll {
        Poll { conn, asked: 0, threads: HashMap::new(), copied: Nanos::ZERO }
    }

    /// Waits until InnoDB makes a new copy of its locks for who asks.
    pub async fn until_news(&self) {
        let read = now().since(self.copied);
        sleep(KEPT.since(read).into()).await;
    }

    /// Asks anything.
    ///
    /// # Errors
    /// What the server says, or that it answers something else than what was asked.
    pub async fn ask<T: FromRow + Send + 'static>(&mut self, sql: &str) -> Result<Vec<T>, Error> {
        self.asked += 1;
        let wrong = |what: String| Error::Io(std::io::Error::other(what).into());
        let rows = timeout(PATIENCE, self.conn.query::<mysql_async::Row, _>(sql));
        let rows = rows.await.map_err(|_| wrong(silence()))??;
        // The client would panic where a row does not fit; and what it says of that may hold anything that the row does.
        let fit =
            |row| T::from_row_opt(row).map_err(|_| wrong("a row of the answer does not fit".to_owned()));
        rows.into_iter().map(fit).collect()
    }

    /// Whether the server is there. It does not count that as a question.
    ///
    /// # Errors
    /// What the server says.
    pub async fn ping(&mut self) -> Result<(), String> {
        self.conn.ping().await.map_err(|error| words(&error))
    }

    async fn rows<T: FromRow + Send + 'static>(&mut self, sql: &str) -> Result<Vec<T>, String> {
        self.ask(sql).await.map_err(|error| words(&error))
    }

    /// How much was done.
    ///
    /// # Errors
    /// What the server says.
    pub async fn status(&mut self) -> Result<Status, String> {
        let rows: Vec<(i64, String, String)> = self.rows(STATUS).await?;
        let at = Stamp(rows.first().ok_or("the server has no status")?.0);
        let of = |name: &str| -> u64 {
            let row = rows.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(name));
            row.and_then(|(_, _, value)| value.parse().ok()).unwrap_or(0)
        };
        let questions = of("QUESTIONS").saturating_sub(self.asked);
        let handled =
            |(_, name, _): &&(i64, String, String)| name.to_ascii_uppercase().starts_with("HANDLER_");
        let counts = Counts {
            pages: of("INNODB_BUFFER_POOL_READ_REQUESTS"),
            rows: rows.iter().filter(handled).filter_map(|(_, _, value)| value.parse::<u64>().ok()).sum(),
            history: of("INNODB_HISTORY_LIST_LENGTH"),
        };
        Ok(Status { at, questions, row_waits: of("INNODB_ROW_LOCK_CURRENT_WAITS"), counts })
    }

    /// The port that it goes to, unless it goes over a socket.
    pub fn port(&self) -> Option<u16> {
        let options = self.conn.opts();
        options.socket().is_none().then(|| options.tcp_port())
    }

    /// Connections that wait for a thread of the pool, and for how many microseconds. Who has not logged in yet has no number.
    ///
    /// # Errors
    /// What the server says.
    pub async fn queued(&mut self) -> Result<Vec<(Pid, i64)>, String> {
        let queued: Vec<(Option<Pid>, i64)> = self.rows(&format!("{QUEUED} LIMIT {MOST}")).await?;
        Ok(queued.into_iter().filter_map(|(id, us)| Some((id?, us))).collect())
    }

    /// The sessions: those that do something, have had a statement since number `latest`, or are among `also`; or all.
    ///
    /// # Errors
    /// What the server says.
    pub async fn sessions(&mut self, latest: u64, also: &[Pid], all: bool) -> Result<Vec<Row>, String> {
        let which = match all {
            true => String::new(),
            false => format!(" AND (command <> 'Sleep' OR query_id > {latest} OR id IN (0{}))", list(also)),
        };
        type Columns = (Pid, i64, String, String, u64, u32, Option<String>, u64, u64, i64);
        let rows: Vec<Columns> = self.rows(&format!("{SESSIONS}{which}")).await?;
        let row = |(id, since_us, command, state, query, thread, kind, stage, stages, done): Columns| Row {
            id,
            since_us,
            active: command != "Sleep" && kind.is_none(),
            state,
            query,
            thread,
            kind,
            // Of each stage it says how far it is in thousandths of a percent.
            progress: (stages > 0).then(|| {
                let done = stage.saturating_sub(1) * 100_000 + u64::try_from(done).unwrap_or(0).min(100_000);
                (done.min(stages * 100_000), stages * 100_000)
            }),
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// What is waited for.
    ///
    /// # Errors
    /// What the server says.
    pub async fn locks(&mut self, rows: bool, metadata: bool) -> Result<Locks, String> {
        let mut locks = Locks::default();
        if metadata {
            self.metadata(&mut locks).await?;
        }
        type Columns = (u64, Pid, Option<i64>, Option<i64>, bool);
        let transactions: Vec<Columns> = self.rows(&format!("{TRANSACTIONS} LIMIT {MOST}")).await?;
        let by_number: HashMap<u64, (Pid, Option<Stamp>)> =
            transactions.iter().map(|&(id, thread, _, waits, _)| (id, (thread, waits.map(Stamp)))).collect();
        for (id, thread, began, _, writes) in transactions {
            let transaction = Transaction { id, began: Stamp(began.unwrap_or(0)), writes };
            locks.transactions.insert(thread, transaction);
        }
        if rows {
            let tables: Vec<(String, String)> = self.rows(&format!("{TABLES} LIMIT {MOST}")).await?;
            let tables: HashMap<String, String> = tables.into_iter().collect();
            let waits: Vec<(u64, u64, String)> = self.rows(&format!("{ROWS} LIMIT {MOST}")).await?;
            locks.rows.extend(waits.into_iter().filter_map(|(waiter, holder, lock)| {
                let (&(waiter, since), &(holder, _)) = (by_number.get(&waiter)?, by_number.get(&holder)?);
                let table = tables.get(&lock).map(|table| table.replace('`', "")).unwrap_or_default();
                Some(RowWait { waiter, holder, lock, table, since })
            }));
        }
        self.copied = now();
        Ok(locks)
    }

    async fn metadata(&mut self, locks: &mut Locks) -> Result<(), String> {
        type Columns = (String, String, String, String, u64, String);
        let rows: Vec<Columns> = self.rows(&format!("{METADATA} LIMIT {MOST}")).await?;
        if rows.iter().any(|row| !self.threads.contains_key(&row.4)) {
            self.threads = self.rows::<(u64, Pid)>(THREADS).await?.into_iter().collect();
        }
        let wanted: HashSet<(String, String)> =
            rows.iter().filter(|row| row.3 == "PENDING").map(|row| (row.0.clone(), row.1.clone())).collect();
        for (kind, name, mode, status, thread, duration) in rows {
            // The server has some for itself, which nobody waits for.
            let Some(&owner) = self.threads.get(&thread) else { continue };
            let granted = status == "GRANTED";
            if granted && duration == "EXPLICIT" {
                locks.keeps.insert(owner);
            }
            if wanted.contains(&(kind.clone(), name.clone())) && (granted || status == "PENDING") {
                locks.metadata.push(Metadata { kind, name, mode, granted, owner });
            }
        }
        Ok(())
    }

    /// Cancels the statement of this number: whether it was still running.
    ///
    /// # Errors
    /// What the server says.
    pub async fn end_statement(&mut self, query: u64) -> Result<bool, String> {
        self.end(&format!("KILL QUERY ID {query}")).await
    }

    /// Ends a connection, if it still does what it did in this statement, or idles after it; or if it is still in this transaction: whether it
    /// was.
    ///
    /// # Errors
    /// What the server says.
    pub async fn end_connection(&mut self, id: Pid, life: &Life) -> Result<bool, String> {
        let state = if life.is_active() { "<>" } else { "=" };
        let same = format!(
            "SELECT 1 FROM information_schema.processlist WHERE id = {id} AND query_id = {} AND command {state} 'Sleep'",
            life.query_id()
        );
        let gone = format!("SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {};", GONE[1]);
        // Of transactions there is nothing new before that.
        let otherwise = life.transaction().map_or(gone.clone(), |Transaction { id: number, began, .. }| {
            format!(
                "DO SLEEP({}); IF NOT EXISTS (SELECT 1 FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = {id} \
                 AND {number} IN (0, trx_id) AND CAST(UNIX_TIMESTAMP(trx_started) AS SIGNED) * 1000000 = {}) THEN {gone} END IF;",
                KEPT.as_secs_f64(),
                began.0
            )
        });
        // In one statement with the check: between two, it could have gone on to something else.
        let sql = format!(
            "BEGIN NOT ATOMIC IF NOT EXISTS ({same}) THEN {otherwise} END IF; KILL CONNECTION {id}; END"
        );
        let ended = self.end(&sql).await;
        self.copied = now();
        ended
    }

    async fn end(&mut self, sql: &str) -> Result<bool, String> {
        match self.ask::<(u8,)>(sql).await {
            Ok(_) => Ok(true),
            Err(Error::Server(said)) if GONE.contains(&said.code) => Ok(false),
            Err(error) => Err(words(&error)),
        }
    }

    /// What these connections run, for whom.
    ///
    /// # Errors
    /// What the server says.
    pub async fn told(&mut self, ids: &[Pid]) -> Result<HashMap<Pid, Told>, String> {
        let sql = format!(
            "SELECT id, LEFT(info, 2000), user, db, host FROM information_schema.processlist WHERE id IN (0{})",
            list(ids)
        );
        type Columns = (Pid, Option<String>, Option<String>, Option<String>, Option<String>);
        let rows: Vec<Columns> = self.rows(&sql).await?;
        let told = |(id, statement, user, database, client): Columns| {
            (id, Told { statement, user, database, client })
        };
        Ok(rows.into_iter().map(told).collect())
    }
}

/// Numbers, each after a comma.
fn list(ids: &[Pid]) -> String {
    ids.iter().map(|id| format!(",{id}")).collect()
}

fn silence() -> String {
    format!("the server has not answered for {} s", PATIENCE.as_secs())
}
