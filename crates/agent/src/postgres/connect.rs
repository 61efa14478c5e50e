//! Connecting to a server, and saying why that failed.

use std::error::Error as _;
use std::time::Duration;

use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};

use super::facts::Facts;

/// How long connecting may take, where the DSN does not say.
const PATIENCE: Duration = Duration::from_secs(5);
/// A statement of ours that takes longer is given up by the server, too. We lock nothing, and what we ask must cost little.
const SETTINGS: &str = "set statement_timeout = '5s'; set lock_timeout = '1s'; set idle_session_timeout = 0; set jit = off; \
    set search_path = pg_catalog; set default_transaction_read_only = on; set max_parallel_workers_per_gather = 0; \
    set plan_cache_mode = force_generic_plan";

/// What a DSN says.
///
/// # Errors
/// What is wrong, without the DSN.
pub fn config(dsn: &str) -> Result<Config, String> {
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
    if config.get_ssl_mode() == SslMode::Require {
        return Err("`sslmode=require` is not supported yet; reach the server over a Unix socket, loopback or a tunnel".to_owned());
    }
    Ok(config)
}

/// Connects, and asks what the server is.
///
/// # Errors
/// What is wrong, in one line and without secrets.
pub async fn connect(config: &Config) -> Result<(Client, Facts), String> {
    let connecting = tokio::time::timeout(PATIENCE + PATIENCE, config.connect(NoTls)).await;
    let (client, connection) =
        connecting.map_err(|_| "the server does not answer".to_owned())?.map_err(|error| words(&error))?;
    // It ends with the client. Why it broke, the next statement says.
    tokio::spawn(async move { drop(connection.await) });
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

/// An error with its cause, in one line.
pub fn words(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("the server says: {} ({})", db.message(), db.code().code());
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
        for dsn in [
            "host=h port=x password=hush",
            "postgres://u:hush@h/db?sslmode=nope",
            "postgres://u:hush@h/db?sslmode=require",
        ] {
            let error = config(dsn).unwrap_err();
            assert!(!error.contains("hush"), "{error}");
        }
        let config = config("host=/run/postgresql user=plimsoll").unwrap();
        assert_eq!(config.get_application_name(), Some("plimsoll agent"));
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_said_so() {
        let config = config("postgres://u:hush@127.0.0.1:9/db").unwrap();
        let error = connect(&config).await.err().unwrap();
        assert!(error.contains("refused") && !error.contains("hush"), "{error}");
    }
}
