//! One session of a database, and what errors of it say.

use tokio::task::{JoinError, JoinHandle};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, NoTls, Statement};

use crate::database::load::Kind;
use crate::database::request::{CANCELLED, Outcome, TERMINATED};
use crate::database::task::How;
use crate::database::{self, Database};

/// A connection, driven by a task of its own in the present tokio runtime.
pub struct Session {
    /// To ask with.
    pub client: Client,
    /// The process id of the backend that serves it.
    pub pid: i32,
    pub(crate) driver: Driver,
}

/// The task that drives a connection. It ends with it, and with the error that ended it.
pub(crate) type Driver = JoinHandle<Result<(), Error>>;

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// Why not.
    pub async fn connect(config: &Config) -> Result<Session, String> {
        let (client, driver) = connect(config).await.map_err(|e| why(&e))?;
        let row = client.query_one("select pg_backend_pid()", &[]).await.map_err(|e| why(&e))?;
        Ok(Session { client, pid: row.get(0), driver })
    }

    /// Runs statements without parameters, one after the other.
    ///
    /// # Errors
    /// What the server says.
    pub async fn run(&self, sql: &str) -> Result<(), String> {
        self.client.batch_execute(sql).await.map_err(|e| format!("{}: {sql}", why(&e)))
    }
}

/// Connects, without asking anything.
pub(crate) async fn connect(config: &Config) -> Result<(Client, Driver), Error> {
    let (client, connection) = config.connect(NoTls).await?;
    Ok((client, tokio::spawn(connection)))
}

/// What an error says, the server's own words where it has some.
pub fn why(error: &Error) -> String {
    match error.as_db_error() {
        Some(told) => format!("{} (SQLSTATE {})", told.message(), told.code().code()),
        None => error.to_string(),
    }
}

/// The five characters of an error of the server; nothing where the connection itself failed.
pub(crate) fn state(error: &Error) -> Option<[u8; 5]> {
    error.code().and_then(|code: &SqlState| code.code().as_bytes().try_into().ok())
}

/// A connection of a load, with its statements.
pub struct Prepared {
    client: Client,
    statements: Vec<Statement>,
}

impl Database for Config {
    type Client = Prepared;
    type Session = Session;

    async fn open(&self, kinds: &[Kind]) -> Result<Prepared, String> {
        let (client, _) = connect(self).await.map_err(|e| why(&e))?;
        let mut statements = Vec::new();
        for kind in kinds {
            statements.push(client.prepare(&kind.text).await.map_err(|e| why(&e))?);
        }
        Ok(Prepared { client, statements })
    }

    async fn begin(&self, task: &str) -> Result<Session, String> {
        let mut config = self.clone();
        Session::connect(config.application_name(task)).await
    }
}

impl database::Client for Prepared {
    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    async fn ask(&mut self, kind: usize, parameters: &[i64]) -> Outcome {
        let parameters: Vec<&(dyn ToSql + Sync)> =
            parameters.iter().map(|p| p as &(dyn ToSql + Sync)).collect();
        match self.client.query(&self.statements[kind], &parameters).await {
            Ok(_) => Outcome::Ok,
            Err(error) => state(&error).map_or(Outcome::Lost, Outcome::Failed),
        }
    }
}

impl database::Session for Session {
    fn id(&self) -> i32 {
        self.pid
    }

    async fn run(&mut self, sql: &str) -> Result<(), How> {
        match self.client.batch_execute(sql).await {
            Ok(()) => Ok(()),
            Err(error) if error.is_closed() => Err(closed((&mut self.driver).await)),
            Err(error) => Err(how(&error)),
        }
    }

    async fn closed(&mut self) -> How {
        closed((&mut self.driver).await)
    }
}

/// Why the connection ended.
fn closed(ended: Result<Result<(), Error>, JoinError>) -> How {
    match ended {
        Ok(Err(error)) => how(&error),
        Ok(Ok(())) => How::Failed("the connection was closed".to_owned()),
        Err(error) => How::Failed(error.to_string()),
    }
}

fn how(error: &Error) -> How {
    match state(error) {
        Some(CANCELLED) => How::Cancelled,
        Some(TERMINATED) => How::Terminated,
        _ => How::Failed(why(error)),
    }
}
