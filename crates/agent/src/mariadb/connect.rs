//! Connecting to a server, and saying why that failed.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, IoError, Opts, OptsBuilder, SslOpts};
use tokio::time::timeout;

use crate::server::trust::tls;

/// How long connecting may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the server says where all connections are taken, and what helps.
const TOO_MANY: u16 = 1040;
const FULL: &str = "; raise `max_connections`, or set `extra_port` and point `dsn` at it";
/// What we ask must cost little and wait for nothing, and the server gives it up when it takes longer. Backups keep out who writes only; a look
/// must not write either.
const SETTINGS: &str = "SET SESSION max_statement_time = 5, lock_wait_timeout = 1, innodb_lock_wait_timeout = 1, \
    tx_read_only = 1, wait_timeout = 600, sql_mode = '', net_write_timeout = 10";

/// What a URL says; over TLS a server is held to these certificates (PEM), or to those that the system trusts.
///
/// # Errors
/// What is wrong, without the URL.
pub fn options(url: &str, ca: Option<&[u8]>) -> Result<Opts, String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
    // Its errors may quote the URL.
    let options = Opts::from_url(&format!("mysql://{rest}"));
    let options = options
        .map_err(|_| "not a URL of a MariaDB; write for example \"mariadb://plimsoll@127.0.0.1:3306\"")?;
    let says = |word: &str| query.split('&').any(|pair| pair == word);
    let secure = ca.is_some() || says("sslmode=require");
    if ca.is_some() && says("sslmode=disable") {
        return Err("it says `sslmode=disable`, and there is a `tls_ca`; remove one of them".to_owned());
    }
    if secure && socket.is_some() {
        return Err("there is no TLS over a Unix socket; remove `socket`, or what asks for TLS".to_owned());
    }
    let tls = secure.then(|| {
        let roots = tls::trusted(ca)?.into_iter().map(|root| root.to_vec().into());
        Ok::<_, String>(SslOpts::default().with_root_certs(roots.collect()).with_disable_built_in_roots(true))
    });
    let builder = OptsBuilder::from_opts(options)
        .ssl_opts(tls.transpose()?)
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
        Error::Server(said) => {
            let helps = if said.code == TOO_MANY { FULL } else { "" };
            format!("the server says: {} ({}){helps}", said.message, said.code)
        }
        Error::Io(IoError::Tls(error)) => format!("no TLS with the server: {error}; see tls_ca"),
        Error::Io(error) => error.to_string(),
        Error::Driver(DriverError::NoClientSslFlagFromServer) => "the server does not speak TLS".to_owned(),
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
        let options = options("mariadb://u:p%40ss@127.0.0.1:3307/shop?socket=/run/x.sock", None).unwrap();
        assert_eq!(
            (options.user(), options.tcp_port(), options.socket()),
            (Some("u"), 3307, Some("/run/x.sock"))
        );
        assert_eq!((options.pass(), options.prefer_socket()), (Some("p@ss"), true));
        let options = self::options("mariadb://u@127.0.0.1", None).unwrap();
        assert!(!options.prefer_socket() && options.ssl_opts().is_none());
        let error = self::options("mariadb://u:hush@[::1/x", None).unwrap_err();
        assert!(!error.contains("hush"), "{error}");
        let error = self::options("mariadb://u:hush@h", Some(b"hush")).unwrap_err();
        assert!(error.contains("tls_ca: no certificate") && !error.contains("hush"), "{error}");
        for (url, said) in [
            ("mariadb://u:hush@h/?sslmode=disable", "remove one of them"),
            ("mariadb://u:hush@h/?socket=/run/x.sock", "no TLS over a Unix socket"),
        ] {
            let error = self::options(url, Some(b"hush")).unwrap_err();
            assert!(error.contains(said) && !error.contains("hush"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_said_so() {
        let error = connect(&options("mariadb://u:hush@127.0.0.1:9", None).unwrap()).await.err().unwrap();
        assert!(error.contains("refused") && !error.contains("hush"), "{error}");
    }
}
