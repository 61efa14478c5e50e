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
        let database =
            config.databases.into_iter().next().ok_or("there is no server for protego to watch")?;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::config::Escalate;
    use plimsoll_testbed::clock::Clock;
    use plimsoll_testbed::database::task::{How, Step};
    use plimsoll_testbed::postgres::there_is_none;

    use super::*;
    use crate::catalog;
    use crate::stand::Stand;

    #[tokio::test]
    async fn who_waits_is_given_up_and_who_is_to_blame_goes_on() {
        let case = catalog::find("c20").unwrap();
        match Stand::is_there(&case.server) {
            Err(why) if there_is_none(&why) => return,
            there => there.unwrap(),
        }
        let stand = Stand::set(&case, false).await.unwrap();
        let count = Step::Run("update counter set count = count + 1 where id = 1".to_owned());
        let hold = vec![Step::Run("begin".to_owned()), count.clone(), Step::Idle(Nanos::from_secs(600))];
        let slo = Nanos::from_millis(50);
        let protego = Protego::start(&stand.watched(&case, slo, Escalate::Never), slo).unwrap();
        let holder = stand.task("holder", false, hold, Clock::start()).await.unwrap();
        // The first may come before the other has it.
        let how = loop {
            let waiter = stand.task("waiter", false, vec![count.clone()], Clock::start()).await.unwrap();
            let how = waiter.ended(Duration::from_secs(60)).await.how;
            if how != How::Finished {
                break how;
            }
        };
        assert_eq!(how, How::Cancelled);
        assert_eq!(protego.stop(), Ok(()));
        assert_eq!(holder.ended(Duration::ZERO).await.how, How::Abandoned);
    }

    #[test]
    fn what_it_cannot_watch_is_said() {
        let Err(error) = Protego::start("[herald]\nreader = \"off\"\n", Nanos::from_millis(50)) else {
            panic!("there is nothing to watch");
        };
        assert!(error.contains("no server"), "{error}");
    }
}
