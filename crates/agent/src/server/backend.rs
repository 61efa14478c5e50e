//! A session of a server, or a process or thread of its own, and what it is doing.

use crate::host::Process;

use super::chains::Pid;
use super::stamp::Stamp;

/// A resource that is always there, or a class of latches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Waits {
    /// Reading and writing tables and indexes.
    DataFiles,
    /// Writing the log that makes changes durable.
    Wal,
    /// A page that somebody has pinned.
    BufferPin,
    /// A latch inside the server. Nobody can see who has it.
    Latch(String),
    /// A lock that somebody has.
    Lock,
}

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs a statement.
    Active,
    /// It waits for its client, outside of a transaction.
    Idle,
    /// It waits for its client, in a transaction.
    InTransaction,
    /// The same, in one that failed.
    Aborted,
    /// A process of the server's own, or nobody may know.
    None,
}

impl State {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Idle => "idle",
            State::InTransaction => "idle in transaction",
            State::Aborted => "idle in transaction (aborted)",
            State::None => "unknown",
        }
    }
}

/// What serves a client, or the server itself.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its number.
    pub pid: Pid,
    /// What the kernel knows it by; nothing for what is neither process nor thread.
    pub process: Option<Process>,
    /// The database, 0 for none.
    pub database: u32,
    /// The role, 0 for none.
    pub user: u32,
    /// What it is doing.
    pub state: State,
    /// What it waits for, if that is contention.
    pub waits: Option<Waits>,
    /// When its transaction began.
    pub xact: Option<Stamp>,
    /// When its statement, or its last one, began.
    pub query: Option<Stamp>,
    /// When it began.
    pub began: Stamp,
    /// When its state changed.
    pub changed: Option<Stamp>,
    /// What it is if it is no client's: `autovacuum worker`, `system user`, ...
    pub kind: Option<String>,
    /// Whether it replays what another server has done.
    pub replays: bool,
    /// Whether its transaction has changed anything.
    pub writes: bool,
    /// Whether what it holds outlives its statement, so that only the end of its connection frees it.
    pub keeps: bool,
    /// Whom it works for, if it is a parallel worker.
    pub leader: Option<Pid>,
}

impl Backend {
    /// Whether it is the session of a client.
    pub fn is_client(&self) -> bool {
        self.kind.is_none()
    }

    /// Since when it has been doing what it does.
    pub fn since(&self) -> Stamp {
        match self.state {
            State::Active => self.query.or(self.xact),
            _ => self.xact.or(self.changed),
        }
        .unwrap_or(self.began)
    }
}
