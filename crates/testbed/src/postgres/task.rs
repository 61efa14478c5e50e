//! What runs beside the load, each in a session of its own: culprits and innocents. A task is a script; it can be followed to its end,
//! and says how that came.

use std::time::Duration;

use plimsoll_core::Nanos;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;
use tokio_postgres::{Config, Error};

use super::request::{CANCELLED, TERMINATED};
use super::session::{Session, state, why};
use crate::clock::Clock;

/// One thing that a task does.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A statement, to its end.
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
    /// What the database knows its session by (`application_name`).
    pub name: &'static str,
    /// The process id of its backend.
    pub pid: i32,
    from: Nanos,
    clock: Clock,
    handle: JoinHandle<(Nanos, How)>,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// As [`Task::name`].
    pub name: &'static str,
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
    /// A statement was cancelled (SQLSTATE 57014).
    Cancelled,
    /// The session was terminated (SQLSTATE 57P01).
    Terminated,
    /// Something else.
    Failed(String),
    /// Whoever started it stopped waiting for it.
    Abandoned,
}

impl Task {
    /// Connects and begins.
    pub(crate) async fn start(
        mut config: Config,
        name: &'static str,
        steps: Vec<Step>,
        clock: Clock,
    ) -> Result<Task, String> {
        config.application_name(name);
        let session = Session::connect(&config).await.map_err(|e| format!("{name} cannot begin: {e}"))?;
        let (pid, from) = (session.pid, clock.now());
        let follow = async move {
            let how = follow(session, &steps).await;
            (clock.now(), how)
        };
        Ok(Task { name, pid, from, clock, handle: tokio::spawn(follow) })
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
async fn follow(session: Session, steps: &[Step]) -> How {
    let Session { client, mut driver, .. } = session;
    for step in steps {
        match step {
            Step::Run(sql) => {
                if let Err(error) = client.batch_execute(sql).await {
                    return if error.is_closed() { closed(driver.await) } else { how(&error) };
                }
            }
            Step::Idle(length) => tokio::select! {
                () = tokio::time::sleep((*length).into()) => {}
                ended = &mut driver => return closed(ended),
            },
        }
    }
    How::Finished
}

/// Why the connection ended while nothing was asked.
fn closed(ended: Result<Result<(), Error>, JoinError>) -> How {
    match ended {
        Ok(Err(error)) => how(&error),
        Ok(Ok(())) => How::Failed("the connection was closed".to_owned()),
        Err(error) => How::Failed(error.to_string()),
    }
}

fn how(error: &Error) -> How {
    match state(error) {
        Some(CANCELLED) => How::Cancelled,
        Some(TERMINATED) => How::Terminated,
        _ => How::Failed(why(error)),
    }
}
