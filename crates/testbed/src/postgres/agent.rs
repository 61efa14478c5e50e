//! `plimsoll agent` beside a server, as a process of its own with a role that may do what `docs/postgres.md` asks for and no more.

use std::path::PathBuf;

use plimsoll_core::Nanos;

use super::server::Server;
use super::session::Session;
use crate::agent::Agent;

/// The role as which it connects.
pub const ROLE: &str = "watcher";

/// How it is to watch.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The program whose `agent` it is.
    pub program: PathBuf,
    /// What 99 % of the requests are promised.
    pub slo: Nanos,
    /// `enforce` or `shadow`.
    pub mode: &'static str,
    /// Whether sessions that are idle in a transaction are ended.
    pub terminate: bool,
}

/// Makes [`ROLE`] where it is not there yet, a member of `pg_monitor` and `pg_signal_backend` and of nothing else.
///
/// # Errors
/// What the server says.
pub async fn make_role(server: &Server) -> Result<(), String> {
    let session = Session::connect(&server.config("setup")).await?;
    let made = format!("select from pg_roles where rolname = '{ROLE}'");
    let made = session.client.query_opt(&made, &[]).await.map_err(|e| super::session::why(&e))?;
    if made.is_none() {
        session.run(&format!("create role {ROLE} login")).await?;
        session.run(&format!("grant pg_monitor, pg_signal_backend to {ROLE}")).await?;
    }
    Ok(())
}

impl Watch {
    /// Starts it.
    ///
    /// # Errors
    /// Where its role cannot be made, or its program does not start.
    pub async fn start(&self, server: &Server) -> Result<Agent, String> {
        make_role(server).await?;
        Agent::start(&self.program, &self.watched(server.port()), None)
    }

    fn watched(&self, port: u16) -> String {
        let escalate = if self.terminate { "terminate" } else { "never" };
        format!(
            "[postgres.main]
dsn = \"postgres://{ROLE}@127.0.0.1:{port}/postgres\"
slo = {{ p99 = \"{}us\" }}
mode = \"{}\"
escalate = \"{escalate}\"
",
            self.slo.0 / 1_000,
            self.mode,
        )
    }
}
