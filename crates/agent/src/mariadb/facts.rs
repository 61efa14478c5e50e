//! What a server and our rights in it are, asked once a connection.

use mysql_async::Error;

use crate::host::{self, Process};
use crate::server::backend::Backend;
use crate::server::stamp::Stamp;

use super::connect::words;
use super::poll::Poll;

/// The oldest version that shows what is needed: before, nobody but `SUPER` could end what others do.
const OLDEST: (u32, u32) = (10, 6);

const FACTS: &str = "SELECT VERSION(), CURRENT_USER(), @@performance_schema, @@thread_handling, \
    (SELECT tid FROM information_schema.processlist WHERE id = CONNECTION_ID()), \
    CAST(UNIX_TIMESTAMP(SYSDATE(6)) AS DOUBLE), \
    (SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status WHERE variable_name = 'UPTIME')";

const POOL: &str = "SELECT @@thread_pool_dedicated_listener, @@thread_pool_exact_stats, @@extra_port";

const INSTRUMENT: &str =
    "SELECT enabled FROM performance_schema.setup_instruments WHERE name = 'wait/lock/metadata/sql/mdl'";

/// A server and our rights.
#[derive(Clone, Debug)]
pub struct Facts {
    /// As it calls itself.
    pub version: String,
    /// Our user, as `name@host`.
    pub user: String,
    /// When it began, to the second.
    pub began: Stamp,
    /// Its process, where that is one of this host and each connection has a thread of its own.
    pub process: Option<u32>,
    /// Whether we may see what others do.
    pub sees: bool,
    /// Whether we may end what others do.
    pub ends: bool,
    /// Whether metadata locks are shown, and to us.
    pub shows_metadata: bool,
    /// Whether a pool of threads serves clients, and it is shown who waits for one of them.
    pub shows_pool: bool,
    /// What is not to be seen, and what would help.
    not_seen: Vec<String>,
}

impl Facts {
    /// Asks.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub async fn ask(poll: &mut Poll) -> Result<Facts, String> {
        type Columns = (String, String, u8, String, u32, f64, i64);
        let rows: Vec<Columns> = poll.ask(FACTS).await.map_err(|error| match &error {
            // Its process list has other columns.
            Error::Server(said) if said.code == 1_054 => {
                "this is no MariaDB 10.6 or newer; MySQL is not supported yet".to_owned()
            }
            error => words(error),
        })?;
        let (version, user, performance, threads, thread, now_s, uptime_s) =
            rows.into_iter().next().ok_or("the server says nothing of itself")?;
        if !version.contains("MariaDB") || number(&version) < OLDEST {
            return Err(format!(
                "{version} does not show what is needed; MariaDB 10.6 is the oldest that does"
            ));
        }
        let grants: Vec<String> = poll.ask("SHOW GRANTS").await.map_err(|error| words(&error))?;
        let has = |right: &str| grants.iter().any(|grant| grants_all(grant, right));
        let began_s = now_s - uptime_s as f64;
        let mut facts = Facts {
            sees: has("PROCESS"),
            ends: has("CONNECTION ADMIN") || has("SUPER"),
            process: if threads == "one-thread-per-connection" { process(thread, began_s) } else { None },
            began: Stamp((began_s * 1e6) as i64),
            shows_metadata: true,
            shows_pool: threads == "pool-of-threads",
            not_seen: Vec::new(),
            version,
            user: as_sql(&user),
        };
        let why_not = facts.metadata(poll, performance == 1).await?;
        facts.shows_metadata = why_not.is_none();
        facts.not_seen.extend(why_not);
        if facts.shows_pool {
            let why_not = facts.pool(poll).await?;
            facts.shows_pool = why_not.is_none();
            facts.not_seen.extend(why_not);
        }
        Ok(facts)
    }

    /// Why metadata locks are not shown, and what would help.
    async fn metadata(&self, poll: &mut Poll, performance: bool) -> Result<Option<String>, String> {
        let lost = "who holds up others by a lock on a table or by a backup is not seen";
        if !performance {
            return Ok(Some(format!(
                "{lost}: performance_schema is off; write in the server's configuration: performance_schema = ON, \
                 performance-schema-instrument = 'wait/lock/metadata/sql/mdl=ON'"
            )));
        }
        match poll.ask::<String>(INSTRUMENT).await {
            Ok(enabled) if enabled.iter().any(|enabled| enabled == "YES") => Ok(None),
            Ok(_) => Ok(Some(format!(
                "{lost}; as an administrator: UPDATE performance_schema.setup_instruments SET enabled = 'YES' \
                 WHERE name = 'wait/lock/metadata/sql/mdl'; or in the server's configuration: \
                 performance-schema-instrument = 'wait/lock/metadata/sql/mdl=ON'"
            ))),
            // Denied.
            Err(Error::Server(said)) if said.code == 1_142 => Ok(Some(format!(
                "{lost}; as an administrator: GRANT SELECT ON performance_schema.* TO {}",
                self.user
            ))),
            Err(error) => Err(words(&error)),
        }
    }

    /// Why those who wait for a thread of the pool are not shown, and what would help. Who comes through the pool himself is warned, too.
    async fn pool(&mut self, poll: &mut Poll) -> Result<Option<String>, String> {
        let rows: Vec<(u8, u8, u16)> = poll.ask(POOL).await.map_err(|error| words(&error))?;
        let (listens, exact, extra_port) =
            rows.into_iter().next().ok_or("the server says nothing of its pool")?;
        if poll.port() != Some(extra_port) {
            self.not_seen.push(
                "whoever takes all threads of the server's pool keeps the agent out, too; let it connect to the extra port; in the \
                 server's configuration: extra_port = 3307, extra_max_connections = 4"
                    .to_owned(),
            );
        }
        Ok((listens == 0 || exact == 0).then(|| {
            "who waits for a thread of the server's pool is not seen; in the server's configuration: thread_pool_dedicated_listener = ON, \
             thread_pool_exact_stats = ON"
                .to_owned()
        }))
    }

    /// What cannot be seen or done, and what would help.
    pub fn warnings(&self, enforce: bool) -> Vec<String> {
        let Facts { user, .. } = self;
        let mut warnings = Vec::new();
        if !self.sees {
            warnings.push(format!(
                "user {user} does not see what others do; as an administrator: GRANT PROCESS ON *.* TO {user}"
            ));
        }
        if enforce && !self.ends {
            warnings.push(format!(
                "user {user} may not cancel anything; as an administrator: GRANT CONNECTION ADMIN ON *.* TO {user}"
            ));
        }
        warnings.extend(self.not_seen.iter().cloned());
        warnings
    }

    /// Why a connection can never be ended, if that is so.
    pub fn untouchable(&self, backend: &Backend) -> Option<String> {
        if let Some(kind) = &backend.kind {
            return Some(format!("it is no client's connection but the server's ({kind})"));
        }
        (!self.ends).then(|| format!("user {} lacks CONNECTION ADMIN", self.user))
    }

    /// A thread of the server's, as this host's kernel knows it.
    pub fn thread(&self, tid: u32) -> Option<Process> {
        let pid = self.process?;
        (tid > 0).then_some(Process { pid, tid: Some(tid) })
    }
}

/// `10.11` of `10.11.6-MariaDB-0+deb12u1`.
fn number(version: &str) -> (u32, u32) {
    // Some put `5.5.5-` before it, for clients that are old.
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether a line of `SHOW GRANTS` gives this right for everything.
fn grants_all(grant: &str, right: &str) -> bool {
    let Some((rights, _)) = grant.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON *.* TO "))
    else {
        return false;
    };
    rights.split(", ").any(|given| given == right || given == "ALL PRIVILEGES")
}

/// `plimsoll@%` as SQL wants it.
fn as_sql(user: &str) -> String {
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    format!("'{}'@'{}'", name.replace('\'', "''"), host.replace('\'', "''"))
}

/// The process of this thread, if that is of this host and began then.
fn process(thread: u32, began_s: f64) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    host::is_here(process, began_s).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_those_for_everything() {
        let grant = "GRANT PROCESS, CONNECTION ADMIN ON *.* TO `plimsoll`@`%` IDENTIFIED BY PASSWORD '*HUSH'";
        assert!(grants_all(grant, "PROCESS") && grants_all(grant, "CONNECTION ADMIN"));
        assert!(!grants_all(grant, "SUPER") && !grants_all(grant, "CONNECTION"));
        assert!(grants_all("GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION", "PROCESS"));
        assert!(!grants_all("GRANT ALL PRIVILEGES ON `shop`.* TO `app`@`%`", "PROCESS"));
    }

    #[test]
    fn versions_and_users_are_read() {
        assert_eq!(number("10.11.6-MariaDB-0+deb12u1"), (10, 11));
        assert_eq!(number("5.5.5-10.6.12-MariaDB-log"), (10, 6));
        assert!(number("8.0.36") < OLDEST && number("nonsense") < OLDEST);
        assert_eq!(as_sql("plimsoll@%"), "'plimsoll'@'%'");
    }
}
