//! Connecting to a server, and saying why that failed.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::facts::Facts;
use crate::server::trust::tls;

/// How long connecting may take, where the DSN does not say.
const PATIENCE: Duration = Duration::from_secs(5);
/// What helps where all connections are taken.
const FULL: &str = "; raise `max_connections`, or from PostgreSQL 16 on set `reserved_connections` and GRANT pg_use_reserved_connections TO \
    the agent's role";
/// A statement of ours that takes longer is given up by the server, too. We lock nothing, and what we ask must cost little.
const SETTINGS: &str = "set statement_timeout = '5s'; set lock_timeout = '1s'; set idle_session_timeout = 0; set jit = off; \
    set search_path = pg_catalog; set default_transaction_read_only = on; set max_parallel_workers_per_gather = 0; \
    set plan_cache_mode = force_generic_plan";

/// Where a server is, who asks, and over what.
#[derive(Clone)]
pub struct Server {
    /// What the DSN says, and what we add.
    pub config: Config,
    /// How it has to prove who it is, where it has to.
    tls: Option<MakeRustlsConnect>,
}

/// What a DSN says; over TLS a server is held to these certificates (PEM), or to those that the system trusts.
///
/// # Errors
/// What is wrong, without the DSN.
pub fn server(dsn: &str, ca: Option<&[u8]>) -> Result<Server, String> {
    let mut config: Config = dsn.parse().map_err(|error: tokio_postgres::Error| words(&error))?;
    if config.get_application_name().is_none() {
        config.application_name("plimsoll agent");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(PATIENCE);
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        config.host("127.0.0.1");
    }
    // A server as packages install it offers TLS with a certificate that nobody can check, so it has to be asked for.
    if ca.is_some() && config.get_ssl_mode() == SslMode::Disable {
        return Err("it says `sslmode=disable`, and there is a `tls_ca`; remove one of them".to_owned());
    }
    let secure = ca.is_some() || config.get_ssl_mode() == SslMode::Require;
    let tls = secure.then(|| tls::client(ca)).transpose()?;
    if secure {
        config.ssl_mode(SslMode::Require);
    }
    Ok(Server { config, tls: tls.map(|tls| MakeRustlsConnect::new(Arc::unwrap_or_clone(tls))) })
}

/// Connects, and asks what the server is.
///
/// # Errors
/// What is wrong, in one line and without secrets.
pub async fn connect(server: &Server) -> Result<(Client, Facts), String> {
    let client = tokio::time::timeout(PATIENCE + PATIENCE, open(server)).await;
    let client =
        client.map_err(|_| "the server does not answer".to_owned())?.map_err(|error| words(&error))?;
    for setting in SETTINGS.split("; ") {
        // What an old version or our role cannot set is not needed.
        if let Err(error) = client.batch_execute(setting).await
            && error.is_closed()
        {
            return Err(words(&error));
        }
    }
    let facts = Facts::ask(&client).await?;
    Ok((client, facts))
}

async fn open(Server { config, tls }: &Server) -> Result<Client, tokio_postgres::Error> {
    // A connection ends with the client. Why it broke, the next statement says.
    match tls {
        Some(tls) => {
            let (client, connection) = config.connect(tls.clone()).await?;
            tokio::spawn(async move { drop(connection.await) });
            Ok(client)
        }
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(async move { drop(connection.await) });
            Ok(client)
        }
    }
}

/// An error with its cause, in one line.
pub fn words(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let helps = if *db.code() == SqlState::TOO_MANY_CONNECTIONS { FULL } else { "" };
        return format!("the server says: {} ({}){helps}", db.message(), db.code().code());
    }
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.contains(&text) {
            words += &format!(": {text}");
        }
        cause = error.source();
    }
    words.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_dsn_is_said_without_it() {
        for dsn in ["host=h port=x password=hush", "postgres://u:hush@h/db?sslmode=nope"] {
            let error = server(dsn, None).err().unwrap();
            assert!(!error.contains("hush"), "{error}");
        }
        let error = server("postgres://u:hush@h/db", Some(b"hush")).err().unwrap();
        assert!(error.contains("tls_ca: no certificate") && !error.contains("hush"), "{error}");
        let error = server("postgres://u:hush@h/db?sslmode=disable", Some(b"hush")).err().unwrap();
        assert!(error.contains("remove one of them") && !error.contains("hush"), "{error}");
        let server = server("host=/run/postgresql user=plimsoll", None).unwrap();
        assert_eq!(server.config.get_application_name(), Some("plimsoll agent"));
        assert!(server.tls.is_none());
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_said_so() {
        let server = server("postgres://u:hush@127.0.0.1:9/db", None).unwrap();
        let error = connect(&server).await.err().unwrap();
        assert!(error.contains("refused") && !error.contains("hush"), "{error}");
    }
}
