//! One session of a database, and what errors of it say.

use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls};

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
