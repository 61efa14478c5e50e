//! Sessions of a MariaDB, and what errors of it say.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, Statement};

use crate::database::load::Kind;
use crate::database::request::Outcome;
use crate::database::task::How;
use crate::database::{self, Database};

/// The server ended a statement because it was asked to (`KILL QUERY`), or because it took too long.
const CANCELLED: [u16; 2] = [1_317, 1_969];
/// The server ended the connection because it was asked to.
const KILLED: u16 = 1_927;
/// How often it is looked whether a connection is still there on which nothing is asked.
const LOOK: Duration = Duration::from_millis(20);

/// A connection.
pub struct Session {
    conn: Conn,
    /// To see what becomes of it while nothing is asked.
    beside: Option<Conn>,
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// Why not.
    pub async fn connect(options: &Opts) -> Result<Session, String> {
        let conn = Conn::new(options.clone()).await.map_err(|e| why(&e))?;
        Ok(Session { conn, beside: None })
    }

    /// What the server calls it.
    pub fn id(&self) -> u32 {
        self.conn.id()
    }

    /// Runs statements without parameters, one after the other.
    ///
    /// # Errors
    /// What the server says.
    pub async fn run(&mut self, sql: &str) -> Result<(), String> {
        self.conn.query_drop(sql).await.map_err(|e| format!("{}: {sql}", why(&e)))
    }

    /// The first column of what a statement returns.
    ///
    /// # Errors
    /// What the server says.
    pub async fn texts(&mut self, sql: &str) -> Result<Vec<String>, String> {
        self.conn.query(sql).await.map_err(|e| format!("{}: {sql}", why(&e)))
    }
}

/// A connection of a load, with its statements.
pub struct Prepared {
    conn: Conn,
    statements: Vec<Statement>,
    closed: bool,
}

impl Database for Opts {
    type Client = Prepared;
    type Session = Session;

    async fn open(&self, kinds: &[Kind]) -> Result<Prepared, String> {
        let mut conn = Conn::new(self.clone()).await.map_err(|e| why(&e))?;
        let mut statements = Vec::new();
        for kind in kinds {
            statements.push(conn.prep(kind.text.as_str()).await.map_err(|e| why(&e))?);
        }
        Ok(Prepared { conn, statements, closed: false })
    }

    async fn begin(&self, _: &str) -> Result<Session, String> {
        let mut session = Session::connect(self).await?;
        session.beside = Some(Conn::new(self.clone()).await.map_err(|e| why(&e))?);
        Ok(session)
    }
}

impl database::Client for Prepared {
    fn is_closed(&self) -> bool {
        self.closed || self.conn.is_disconnected()
    }

    async fn ask(&mut self, kind: usize, parameters: &[i64]) -> Outcome {
        let statement = self.statements[kind].clone();
        match self.conn.exec_drop(statement, parameters.to_vec()).await {
            Ok(()) => Outcome::Ok,
            Err(Error::Server(said)) if said.code != KILLED => {
                said.state.as_bytes().try_into().map_or(Outcome::Lost, Outcome::Failed)
            }
            Err(_) => {
                self.closed = true;
                Outcome::Lost
            }
        }
    }
}

impl database::Session for Session {
    fn id(&self) -> i32 {
        // A server that has just been started counts from 1 on.
        i32::try_from(self.conn.id()).unwrap_or(0)
    }

    async fn run(&mut self, sql: &str) -> Result<(), How> {
        self.conn.query_drop(sql).await.map_err(|error| how(&error))
    }

    async fn closed(&mut self) -> How {
        let there = format!("SELECT 1 FROM information_schema.processlist WHERE id = {}", self.conn.id());
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(beside) = &mut self.beside else { return std::future::pending().await };
            match beside.query_first::<u8, _>(there.as_str()).await {
                Ok(Some(_)) => {}
                Ok(None) => return How::Terminated,
                Err(error) => return how(&error),
            }
        }
    }
}

/// What an error says, the server's own words where it has some.
pub fn why(error: &Error) -> String {
    match error {
        Error::Server(said) => format!("{} (error {})", said.message, said.code),
        error => error.to_string(),
    }
}

fn how(error: &Error) -> How {
    match error {
        Error::Server(said) if CANCELLED.contains(&said.code) => How::Cancelled,
        Error::Server(said) if said.code == KILLED => How::Terminated,
        // A connection that the server ends while it runs something just breaks.
        Error::Io(_) | Error::Driver(_) => How::Terminated,
        error => How::Failed(why(error)),
    }
}
