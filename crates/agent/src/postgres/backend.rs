//! A row of `pg_stat_activity`: a process of the server and what it is doing.

use super::chains::Pid;
use super::stamp::Stamp;
use super::waits::Waits;

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
    /// As the view calls it.
    pub fn of(text: Option<&str>) -> State {
        match text {
            Some("active" | "fastpath function call") => State::Active,
            Some("idle") => State::Idle,
            Some("idle in transaction") => State::InTransaction,
            Some("idle in transaction (aborted)") => State::Aborted,
            _ => State::None,
        }
    }

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

/// A process.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its number.
    pub pid: Pid,
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
    /// When the process began.
    pub began: Stamp,
    /// When its state changed.
    pub changed: Option<Stamp>,
    /// `client backend`, `autovacuum worker`, ...
    pub kind: String,
    /// Whether its transaction has changed anything.
    pub writes: bool,
    /// Whom it works for, if it is a parallel worker.
    pub leader: Option<Pid>,
}

impl Backend {
    /// Whether it is the session of a client.
    pub fn is_client(&self) -> bool {
        self.kind == "client backend"
    }

    /// Whether it replays the log of a primary, on a standby.
    pub fn replays(&self) -> bool {
        self.kind == "startup"
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
