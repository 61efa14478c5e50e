//! How a database is reached: a URL or keywords, as its own tools take them.

use std::fmt;

use serde_json::json;

use super::report::Report;
use super::suggest::did_you_mean;
use super::value::{Node, Shape, Value};

/// Longest one, in bytes.
const LONGEST: usize = 2048;
/// What may be said about a connection, in keywords or after the `?` of a URL.
const KEYWORDS: [&str; 18] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslmode",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "channel_binding",
    "target_session_attrs",
];
const EXAMPLE: &str = "\"postgres://plimsoll@127.0.0.1:5432/postgres\"";

/// Where a database server is and who asks. It may hold a password, so it prints as dots, and no excerpt of the file shows its line.
#[derive(Clone, PartialEq, Eq)]
pub struct Dsn(String);

impl Dsn {
    /// The whole of it, with a password if there is one.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"...\"")
    }
}

impl Value for Dsn {
    const SHAPE: Shape = Shape::new(
        || "a URL or keywords of a connection".to_owned(),
        || EXAMPLE.to_owned(),
        || json!({ "type": "string", "minLength": 1, "maxLength": LONGEST }),
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<Dsn> {
        // No message quotes the value, whatever its type.
        let Some(text) = node.text() else {
            return node.fail(report, format!("not a string; write for example {EXAMPLE}"));
        };
        match check(text) {
            Ok(()) => Some(Dsn(text.to_owned())),
            Err(why) => node.fail(report, why),
        }
    }
}

const MARIADB_EXAMPLE: &str = "\"mariadb://plimsoll@127.0.0.1:3306\"";

/// Where a MariaDB server is and who asks: a [`Dsn`] as its own tools write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MariaDbUrl(pub Dsn);

impl Value for MariaDbUrl {
    const SHAPE: Shape = Shape::new(
        || "a URL of a connection".to_owned(),
        || MARIADB_EXAMPLE.to_owned(),
        || json!({ "type": "string", "minLength": 1, "maxLength": LONGEST }),
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<MariaDbUrl> {
        // No message quotes the value, whatever its type.
        let Some(text) = node.text() else {
            return node.fail(report, format!("not a string; write for example {MARIADB_EXAMPLE}"));
        };
        match check_mariadb(text) {
            Ok(()) => Some(MariaDbUrl(Dsn(text.to_owned()))),
            Err(why) => node.fail(report, why),
        }
    }
}

const SEARCH_EXAMPLE: &str = "\"http://127.0.0.1:9200\"";

/// Where a node of OpenSearch or Elasticsearch is and who asks: `http://` or `https://`, with a name and a password where it wants some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchUrl(pub Dsn);

impl Value for SearchUrl {
    const SHAPE: Shape = Shape::new(
        || "a URL".to_owned(),
        || SEARCH_EXAMPLE.to_owned(),
        || json!({ "type": "string", "pattern": "^https?://", "maxLength": LONGEST }),
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<SearchUrl> {
        // No message quotes the value, whatever its type.
        let Some(text) = node.text() else {
            return node.fail(report, format!("not a string; write for example {SEARCH_EXAMPLE}"));
        };
        match check_search(text) {
            Ok(()) => Some(SearchUrl(Dsn(text.to_owned()))),
            Err(why) => node.fail(report, why),
        }
    }
}

fn check_search(text: &str) -> Result<(), String> {
    if text.trim().is_empty() || text.len() > LONGEST || text.contains(char::is_control) {
        return Err(format!("write one line of 1 to {LONGEST} bytes, for example {SEARCH_EXAMPLE}"));
    }
    let rest = match text.split_once("://") {
        Some(("http" | "https", rest)) => rest,
        _ => return Err(format!("not an http:// or https:// URL; write for example {SEARCH_EXAMPLE}")),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err(format!("it names no host; write for example {SEARCH_EXAMPLE}"));
    }
    if user.is_some_and(|user| !user.contains(':') || user.starts_with(':')) {
        return Err(
            "before the `@` stand a name and a password, as in \"https://plimsoll:...@HOST\"".to_owned()
        );
    }
    if !path.is_empty() {
        return Err("nothing follows the host and its port; a path is not supported".to_owned());
    }
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    after.rsplit_once(':').map_or(Ok(()), |(_, port)| check_port(port))
}

const STATUS_EXAMPLE: &str = "\"127.0.0.1:9001\"";

/// Where a server tells its status, apart from its work: a host and a port, or the path of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusAddress(pub Dsn);

impl Value for StatusAddress {
    const SHAPE: Shape = Shape::new(
        || "a host and a port, or the path of a Unix socket".to_owned(),
        || STATUS_EXAMPLE.to_owned(),
        || json!({ "type": "string", "minLength": 1, "maxLength": LONGEST }),
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<StatusAddress> {
        let Some(text) = node.text() else { return node.mismatch(report) };
        match check_status(text) {
            Ok(()) => Some(StatusAddress(Dsn(text.to_owned()))),
            Err(why) => node.fail(report, why),
        }
    }
}

fn check_status(text: &str) -> Result<(), String> {
    let wrong =
        |why: &str| Err(format!("{why}; write for example {STATUS_EXAMPLE}, or \"/run/php/status.sock\""));
    if text.len() > LONGEST || text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return wrong("not an address");
    }
    if text.starts_with('/') {
        return Ok(());
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !host.contains('/') && !port.is_empty() => check_port(port),
        Some(_) => wrong("not a host and a port"),
        None => wrong("neither a port nor the path of a socket, from the root on"),
    }
}

fn check_mariadb(text: &str) -> Result<(), String> {
    if text.trim().is_empty() || text.len() > LONGEST || text.contains(char::is_control) {
        return Err(format!("write one line of 1 to {LONGEST} bytes, for example {MARIADB_EXAMPLE}"));
    }
    let rest = match text.split_once("://") {
        Some(("mariadb" | "mysql", rest)) => rest,
        _ => return Err(format!("not a mariadb:// URL; write for example {MARIADB_EXAMPLE}")),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user.is_empty() || user.starts_with(':') {
        return Err(format!("nobody to connect as; write for example {MARIADB_EXAMPLE}"));
    }
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    after.rsplit_once(':').map_or(Ok(()), |(_, port)| check_port(port))?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("socket", path)) if path.starts_with('/') => {}
            Some(("socket", _)) => {
                return Err("`socket` is the path of a Unix socket, from the root on".to_owned());
            }
            Some(("sslmode", "disable" | "require")) => {}
            Some(("sslmode", _)) => return Err("`sslmode` is \"disable\" or \"require\"".to_owned()),
            // What is not a keyword may be a password that went astray.
            _ => {
                return Err("all that may follow the `?` is `socket=/path` and `sslmode=require`".to_owned());
            }
        }
    }
    Ok(())
}

fn check(text: &str) -> Result<(), String> {
    if text.trim().is_empty() || text.len() > LONGEST || text.contains(char::is_control) {
        return Err(format!("write one line of 1 to {LONGEST} bytes, for example {EXAMPLE}"));
    }
    match text.split_once("://") {
        Some(("postgres" | "postgresql", rest)) => check_url(rest),
        // A value in keywords may hold anything, also `://`.
        Some((scheme, _)) if !scheme.contains('=') => {
            Err("a URL of another kind; write postgres:// or postgresql://".to_owned())
        }
        _ => check_keywords(text),
    }
}

fn check_url(rest: &str) -> Result<(), String> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    for host in hosts.split(',') {
        // An IPv6 address stands in brackets.
        let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
        after.rsplit_once(':').map_or(Ok(()), |(_, port)| check_port(port))?;
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err("what follows the `?` is pairs `key=value`, separated by `&`".to_owned());
        };
        check_pair(key, value)?;
    }
    Ok(())
}

fn check_keywords(text: &str) -> Result<(), String> {
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let Some((key, after)) = rest.split_once('=') else {
            return Err(format!("neither a URL nor pairs `key=value`; write for example {EXAMPLE}"));
        };
        let (value, after) = value(after.trim_start())?;
        check_pair(key.trim(), &value)?;
        rest = after.trim_start();
    }
    Ok(())
}

/// A value in keywords: up to the next space, or in single quotes; a backslash takes the next character as it is.
fn value(text: &str) -> Result<(String, &str), String> {
    let (quoted, text) = text.strip_prefix('\'').map_or((false, text), |text| (true, text));
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if !quoted && c.is_whitespace() => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted { Err("a quote that is not closed; add a `'`".to_owned()) } else { Ok((value, "")) }
}

fn check_pair(key: &str, value: &str) -> Result<(), String> {
    match key {
        "port" => value.split(',').try_for_each(check_port),
        "sslmode" if !["disable", "prefer", "require"].contains(&value) => {
            Err("`sslmode` is \"disable\", \"prefer\" or \"require\"".to_owned())
        }
        key if KEYWORDS.contains(&key) => Ok(()),
        // What is not a keyword may be a password that went astray.
        key if key.len() <= 32 && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') => {
            Err(format!("unknown keyword `{key}`; {}", did_you_mean(key, &KEYWORDS)))
        }
        _ => Err(format!("an unknown keyword; there are {}", KEYWORDS.join(", "))),
    }
}

fn check_port(port: &str) -> Result<(), String> {
    match port.parse::<u16>() {
        _ if port.is_empty() => Ok(()),
        Ok(1..) => Ok(()),
        _ => Err("a port is a number from 1 to 65535".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_keywords_are_taken() {
        for dsn in [
            "postgres://plimsoll@127.0.0.1:5432/postgres",
            "postgresql://",
            "postgres://u:p%40ss@[::1]:5433,other/db?sslmode=require&connect_timeout=3",
            "postgres:///db?host=/var/run/postgresql",
            "host=/run/postgresql user=plimsoll dbname=postgres",
            "host = 127.0.0.1 port=5433 password='with = and \\' and ://'",
        ] {
            assert_eq!(check(dsn), Ok(()), "{dsn}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (dsn, said) in [
            ("", "one line"),
            ("mysql://u:hush@h/db", "another kind"),
            ("hush", "neither a URL"),
            ("postgres://u:hush@h:99999/db", "from 1 to 65535"),
            ("postgres://u:hush@h/db?sslmod=require", "did you mean `sslmode`"),
            ("host=h sslmode=verify-full password=hush", "`sslmode` is"),
            ("host=h pasword=hush", "did you mean `password`"),
            ("password='hush", "not closed"),
            ("password=x hush hush=1", "an unknown keyword"),
            ("port=0 password=hush", "from 1 to 65535"),
        ] {
            let error = check(dsn).unwrap_err();
            assert!(error.contains(said) && !error.contains("hush"), "{dsn}: {error}");
        }
    }

    #[test]
    fn a_mariadb_is_reached_by_a_url() {
        for url in [
            "mariadb://plimsoll@127.0.0.1:3306",
            "mysql://plimsoll:p%40ss@[::1]:3307/shop",
            "mariadb://plimsoll@localhost/?socket=/run/mysqld/mysqld.sock",
            "mariadb://plimsoll@db.example?sslmode=require",
        ] {
            assert_eq!(check_mariadb(url), Ok(()), "{url}");
        }
        for (url, said) in [
            ("", "one line"),
            ("postgres://u:hush@h/db", "not a mariadb:// URL"),
            ("host=h password=hush", "not a mariadb:// URL"),
            ("mariadb://:hush@h/db", "nobody to connect as"),
            ("mariadb://u:hush@h:0/db", "from 1 to 65535"),
            ("mariadb://u:hush@h/db?socket=run", "path of a Unix socket"),
            ("mariadb://u@h/db?password=hush", "all that may follow"),
            ("mariadb://u:hush@h/db?sslmode=hush", "`sslmode` is"),
        ] {
            let error = check_mariadb(url).unwrap_err();
            assert!(error.contains(said) && !error.contains("hush"), "{url}: {error}");
        }
    }

    #[test]
    fn a_search_engine_is_reached_by_a_url() {
        for url in ["http://127.0.0.1:9200", "https://plimsoll:p%40ss@[::1]:9200/", "http://localhost"] {
            assert_eq!(check_search(url), Ok(()), "{url}");
        }
        for (url, said) in [
            ("", "one line"),
            ("127.0.0.1:9200", "not an http://"),
            ("http://u:hush@", "names no host"),
            ("http://hush@h", "a name and a password"),
            ("http://u:hush@h:0", "from 1 to 65535"),
            ("http://u:hush@h/search", "a path is not supported"),
        ] {
            let error = check_search(url).unwrap_err();
            assert!(error.contains(said) && !error.contains("hush"), "{url}: {error}");
        }
    }

    #[test]
    fn a_status_has_a_place_of_its_own() {
        for address in ["127.0.0.1:9001", "[::1]:9001", "php:9001", "/run/php/status.sock"] {
            assert_eq!(check_status(address), Ok(()), "{address}");
        }
        for (address, said) in [
            ("9001", "neither a port"),
            ("127.0.0.1:", "not a host"),
            ("127.0.0.1:99999", "from 1 to 65535"),
            ("http://127.0.0.1/x:1", "not a host"),
            ("a b:1", "not an address"),
        ] {
            let error = check_status(address).unwrap_err();
            assert!(error.contains(said), "{address}: {error}");
        }
    }
}
