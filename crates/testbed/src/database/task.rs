//! What runs beside the load, each in a session of its own: culprits and innocents. A task is a script; it can be followed to its end,
//! and says how that came.

use std::time::Duration;

use plimsoll_core::Nanos;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Database, Session};
use crate::clock::Clock;

/// One thing that a task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A statement or a request, to its end.
    Run(String),
    /// Nothing, with the session open; in a transaction, where one has begun.
    Idle(Nanos),
}

/// A statement.
pub(crate) fn run(sql: impl Into<String>) -> Step {
    Step::Run(sql.into())
}

/// A task that runs.
pub struct Task {
    /// What the database knows its session by, where it takes such a name (`application_name`).
    pub name: String,
    /// The process id of its backend, or the number of its connection, or the port that it comes from.
    pub pid: i32,
    from: Nanos,
    clock: Clock,
    handle: JoinHandle<(Nanos, How)>,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// As [`Task::name`].
    pub name: String,
    /// As [`Task::pid`].
    pub pid: i32,
    /// When it began and ended, by the clock it was given.
    pub from: Nanos,
    /// Likewise.
    pub to: Nanos,
    /// What ended it.
    pub how: How,
}

/// What ended a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// It had nothing more to do.
    Finished,
    /// A statement was cancelled.
    Cancelled,
    /// The session was terminated.
    Terminated,
    /// Something else.
    Failed(String),
    /// Whoever started it stopped waiting for it.
    Abandoned,
}

impl Ending {
    /// Whether somebody ended it.
    pub fn was_ended(&self) -> bool {
        matches!(self.how, How::Cancelled | How::Terminated)
    }
}

impl Task {
    /// Connects and begins.
    ///
    /// # Errors
    /// Why it cannot.
    pub async fn start<D: Database>(
        database: &D,
        name: &str,
        steps: Vec<Step>,
        clock: Clock,
    ) -> Result<Task, String> {
        let session = database.begin(name).await.map_err(|e| format!("{name} cannot begin: {e}"))?;
        let (pid, from) = (session.id(), clock.now());
        let follow = async move {
            let how = follow(session, &steps).await;
            (clock.now(), how)
        };
        Ok(Task { name: name.to_owned(), pid, from, clock, handle: tokio::spawn(follow) })
    }

    /// Waits for its end, for so long at most; then its client goes away, which a backend that works does not notice.
    pub async fn ended(self, patience: Duration) -> Ending {
        let Task { name, pid, from, clock, mut handle } = self;
        let (to, how) = match timeout(patience, &mut handle).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(panicked)) => (clock.now(), How::Failed(panicked.to_string())),
            Err(_) => {
                handle.abort();
                (clock.now(), How::Abandoned)
            }
        };
        Ending { name, pid, from, to, how }
    }
}

/// Goes through the script, to its end or that of the session.
async fn follow(mut session: impl Session, steps: &[Step]) -> How {
    for step in steps {
        match step {
            Step::Run(sql) => {
                if let Err(how) = session.run(sql).await {
                    return how;
                }
            }
            Step::Idle(length) => {
                if let Ok(how) = timeout((*length).into(), session.closed()).await {
                    return how;
                }
            }
        }
    }
    How::Finished
}
