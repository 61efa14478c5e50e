//! The remedy `protego`: who waits for a lock so long that its objective is lost is given up, whoever is to blame. The policy is the one that
//! `plimsoll reproduce atropos` measures; the server it sees and steers as the agent does, by the same adapter and with the same rights.

use std::thread::{self, JoinHandle};

use plimsoll_agent::steer::steer;
use plimsoll_cancellation::baseline::Protego as Policy;
use plimsoll_core::Nanos;
use plimsoll_core::config::case::ServerKind;
use plimsoll_core::config::{Config, parse};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// From one look to the next. The original decides when a request comes to a lock; a server can hardly be asked more often than this.
const INTERVAL: Nanos = Nanos::from_millis(20);

/// One that watches, on a thread of its own. Dropped, it ends.
pub struct Protego {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), String>>,
}

impl Protego {
    /// Whether there are requests of such a server that can be seen to wait, and given up.
    pub fn applies(kind: ServerKind) -> bool {
        matches!(kind, ServerKind::Postgres | ServerKind::MariaDb)
    }

    /// Begins to watch the server of which a table of an agent's config tells.
    ///
    /// # Errors
    /// Where the table is wrong, or there is no thread to be had.
    pub fn start(watched: &str, limit: Nanos) -> Result<Protego, String> {
        let (config, _) = parse::<Config>(watched, "").map_err(|e| e.to_string())?;
        let database = config.databases.into_iter().next().ok_or("there is no server for protego to watch")?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
            runtime.block_on(async {
                tokio::select! {
                    why = steer(database, Policy::new(limit).every(INTERVAL)) => Err(why),
                    // Whether it is told or whoever would is gone.
                    _ = stopped => Ok(()),
                }
            })
        };
        let thread = thread::Builder::new().name("protego".to_owned()).spawn(run);
        Ok(Protego { stop, thread: thread.map_err(|e| format!("cannot start a thread: {e}"))? })
    }

    /// Ends it.
    ///
    /// # Errors
    /// Why it has ended by itself before.
    pub fn stop(self) -> Result<(), String> {
        drop(self.stop);
        self.thread.join().unwrap_or_else(|_| Err("protego panicked".to_owned()))
    }
}
