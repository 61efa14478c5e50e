//! Connecting to a server, and saying why that failed.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, Opts, OptsBuilder};
use tokio::time::timeout;

/// How long connecting may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// What we ask must cost little and wait for nothing, and the server gives it up when it takes longer. Backups keep out who writes only; a look
/// must not write either.
const SETTINGS: &str = "SET SESSION max_statement_time = 5, lock_wait_timeout = 1, innodb_lock_wait_timeout = 1, \
    tx_read_only = 1, wait_timeout = 600, sql_mode = '', net_write_timeout = 10";

/// What a URL says.
///
/// # Errors
/// What is wrong, without the URL.
pub fn options(url: &str) -> Result<Opts, String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
    // Its errors may quote the URL.
    let options = Opts::from_url(&format!("mysql://{rest}"));
    let options = options
        .map_err(|_| "not a URL of a MariaDB; write for example \"mariadb://plimsoll@127.0.0.1:3306\"")?;
    let builder = OptsBuilder::from_opts(options)
        .socket(socket)
        .prefer_socket(socket.is_some())
        .tcp_nodelay(true)
        .stmt_cache_size(0)
        .setup(vec![SETTINGS]);
    Ok(builder.into())
}

/// Connects.
///
/// # Errors
/// What is wrong, in one line and without secrets.
pub async fn connect(options: &Opts) -> Result<Conn, String> {
    let connecting = timeout(PATIENCE, Conn::new(options.clone())).await;
    let mut conn = connecting.map_err(|_| "the server does not answer".to_owned())?.map_err(|e| words(&e))?;
    // A name that operators see beside the connection is not to be had in the process list; its user's is.
    conn.query_drop("SET NAMES utf8mb4").await.map_err(|e| words(&e))?;
    Ok(conn)
}

/// An error in one line.
pub fn words(error: &Error) -> String {
    let words = match error {
        Error::Server(said) => format!("the server says: {} ({})", said.message, said.code),
        Error::Io(error) => error.to_string(),
        Error::Driver(DriverError::ConnectionClosed) => "the server has closed the connection".to_owned(),
        // What else the driver says may quote what was sent.
        Error::Driver(DriverError::UnknownAuthPlugin { name }) => {
            format!("the server wants the authentication plugin `{name}`, which is not supported")
        }
        Error::Driver(_) | Error::Other(_) => "the server gave an answer that makes no sense".to_owned(),
        Error::Url(_) => "not a URL of a MariaDB".to_owned(),
    };
    words.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_without_being_told() {
        let options = options("mariadb://u:p%40ss@127.0.0.1:3307/shop?socket=/run/x.sock").unwrap();
        assert_eq!(
            (options.user(), options.tcp_port(), options.socket()),
            (Some("u"), 3307, Some("/run/x.sock"))
        );
        assert_eq!((options.pass(), options.prefer_socket()), (Some("p@ss"), true));
        assert!(!self::options("mariadb://u@127.0.0.1").unwrap().prefer_socket());
        let error = self::options("mariadb://u:hush@[::1/x").unwrap_err();
        assert!(!error.contains("hush"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_said_so() {
        let error = connect(&options("mariadb://u:hush@127.0.0.1:9").unwrap()).await.err().unwrap();
        assert!(error.contains("refused") && !error.contains("hush"), "{error}");
    }
}
