//! What a server and our role in it are, asked once a connection.

use std::collections::HashMap;

use tokio_postgres::Client;

use crate::server::backend::Backend;

/// The oldest version that shows what is needed.
const OLDEST: i32 = 150_000;

const FACTS: &str = "select current_setting('server_version_num')::int4, current_setting('server_version'), \
    pg_is_in_recovery(), current_user::text, (select rolsuper from pg_roles where rolname = current_user), \
    pg_has_role('pg_read_all_stats', 'usage'), pg_has_role('pg_signal_backend', 'usage'), pg_backend_pid(), \
    (select extract(epoch from backend_start)::float8 from pg_stat_get_activity(pg_backend_pid())), \
    (select n.nspname::text from pg_extension e join pg_namespace n on n.oid = e.extnamespace where extname = 'pg_stat_statements'), \
    (select oid from pg_database where datname = current_database()), current_setting('track_activities')::bool";

/// A server and our role.
#[derive(Clone, Debug)]
pub struct Facts {
    /// As it calls itself.
    pub version: String,
    /// Whether it is a standby.
    pub standby: bool,
    /// Our role.
    pub role: String,
    /// Whether that may do anything.
    pub superuser: bool,
    /// Whether it may see what others do.
    pub sees: bool,
    /// Whether it may cancel what others do, superusers apart.
    pub signals: bool,
    /// Our own process.
    pub pid: i32,
    /// When that began, in seconds since 1970.
    pub began_s: f64,
    /// Where `pg_stat_statements` is, quoted.
    pub statements: Option<String>,
    /// The database that we are in.
    pub database: u32,
    /// Roles by number: name, whether it may do anything.
    pub roles: HashMap<u32, (String, bool)>,
    /// Databases by number.
    pub databases: HashMap<u32, String>,
}

impl Facts {
    /// Asks.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub async fn ask(client: &Client) -> Result<Facts, String> {
        let wrong = |error: tokio_postgres::Error| super::connect::words(&error);
        let row = client.query_one(FACTS, &[]).await.map_err(wrong)?;
        let version: String = row.get(1);
        if row.get::<_, i32>(0) < OLDEST {
            return Err(format!(
                "PostgreSQL {version} does not show what is needed; 15 is the oldest that does"
            ));
        }
        if !row.get::<_, bool>(11) {
            return Err("`track_activities` is off, so nothing can be seen; set it to on".to_owned());
        }
        let mut facts = Facts {
            version,
            standby: row.get(2),
            role: row.get(3),
            superuser: row.get::<_, Option<bool>>(4).unwrap_or(false),
            sees: row.get(5),
            signals: row.get(6),
            pid: row.get(7),
            began_s: row.get::<_, Option<f64>>(8).unwrap_or(0.0),
            statements: row.get::<_, Option<String>>(9).map(|schema| quoted(&schema)),
            database: row.get(10),
            roles: HashMap::new(),
            databases: HashMap::new(),
        };
        facts.ask_names(client).await?;
        Ok(facts)
    }

    /// Asks for the names again: there may be new ones.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub async fn ask_names(&mut self, client: &Client) -> Result<(), String> {
        let wrong = |error: tokio_postgres::Error| super::connect::words(&error);
        // Looked up one by one the names stay in our session's cache: who is to be ended may keep the disk busy, and whose it is is asked then.
        let roles = "select oid, pg_get_userbyid(oid)::text, rolsuper from pg_roles";
        let roles = client.query(roles, &[]).await.map_err(wrong)?;
        self.roles = roles.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
        let databases =
            client.query("select oid, datname::text from pg_database", &[]).await.map_err(wrong)?;
        self.databases = databases.iter().map(|row| (row.get(0), row.get(1))).collect();
        Ok(())
    }

    /// What cannot be seen or done, and what would help.
    pub fn warnings(&self, enforce: bool) -> Vec<String> {
        let Facts { role, .. } = self;
        let role = quoted(role);
        let mut warnings = Vec::new();
        if !self.sees {
            warnings.push(format!(
                "role {role} does not see what others do; as a superuser: GRANT pg_monitor TO {role}"
            ));
        }
        if enforce && !self.signals && !self.superuser {
            warnings.push(format!(
                "role {role} may not cancel anything; as a superuser: GRANT pg_signal_backend TO {role}"
            ));
        }
        warnings
    }

    /// Why a process can never be cancelled, if that is so.
    pub fn untouchable(&self, backend: &Backend) -> Option<String> {
        if backend.replays {
            return Some(
                "it replays what a transaction of the primary does: that one would have to end".to_owned(),
            );
        }
        if let Some(kind) = &backend.kind {
            return Some(format!("it is no client's session but a {kind}"));
        }
        if !self.signals && !self.superuser {
            return Some(format!("role {} lacks pg_signal_backend", quoted(&self.role)));
        }
        let is_superuser = self.roles.get(&backend.user).is_none_or(|(_, is)| *is);
        (is_superuser && !self.superuser)
            .then(|| "it is a superuser's, whom only a superuser can cancel".to_owned())
    }
}

/// As an identifier in SQL.
pub fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_must_be() {
        assert_eq!(quoted("plimsoll"), "plimsoll");
        assert_eq!(quoted("My \"role\""), "\"My \"\"role\"\"\"");
        assert_eq!((quoted("1a"), quoted("")), ("\"1a\"".to_owned(), "\"\"".to_owned()));
    }
}
