//! A standby: a copy of a server that follows it, and answers what only reads.

use std::process::Stdio;

use super::{Options, SUPERUSER, Server};

impl Server {
    /// Copies it, and starts the copy, which follows it over loopback until it is promoted.
    ///
    /// # Errors
    /// Where it cannot be copied, in PostgreSQL's words; where the copy does not start.
    pub fn standby(&self) -> Result<Server, String> {
        let mut standby = Server::new(self.install.clone(), &Options::default())?;
        let mut copy = self.install.command("pg_basebackup", standby.directory.path());
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--host=127.0.0.1"]);
        copy.arg(format!("--username={SUPERUSER}")).arg(format!("--port={}", self.port));
        copy.arg("-D").arg(standby.data()).stdin(Stdio::null());
        let copied = copy.output().map_err(|e| format!("cannot start {copy:?}: {e}"))?;
        if !copied.status.success() {
            return Err(format!(
                "pg_basebackup failed: {}",
                String::from_utf8_lossy(&copied.stderr).trim_end()
            ));
        }
        // The rest is as the other has it.
        standby.set(&standby.places())?;
        standby.resume()?;
        Ok(standby)
    }
}
