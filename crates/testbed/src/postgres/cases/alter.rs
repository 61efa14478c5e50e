//! The lock queue that every operator knows: a report reads a table for long, which harms nobody; somebody changes the table, which takes a
//! moment once nobody reads it, and waits; and behind who waits for a table all of it wait who come later, even to read.
//!
//! So whoever is blocked is blocked by the change, and that by the report. Without either all go on.

use std::time::Duration;

use plimsoll_core::Nanos;

use super::{Sessions, working};
use crate::postgres::session::{Session, why};
use crate::postgres::task::{Step, Task, run};

/// How often it is looked whether the report has begun, and from one look to the next.
const LOOKS: u32 = 500;
const LOOK: Duration = Duration::from_millis(10);

/// It works all the time.
pub(super) fn report(hold: Nanos) -> Vec<Step> {
    vec![run(working(hold, "account"))]
}

/// It has read what it wanted, and keeps its transaction open: so does a client that waits for somebody else, or whose user has left.
pub(super) fn idle_report(hold: Nanos) -> Vec<Step> {
    vec![run("begin"), run("select count(*) from account"), Step::Idle(hold), run("commit")]
}

/// Who reads, and when it has begun to, who changes.
pub(super) async fn start(sessions: Sessions<'_>, report: Vec<Step>) -> Result<Vec<Task>, String> {
    let report = sessions.start("report", report).await?;
    until_it_reads(sessions, report.pid).await?;
    let change = vec![run("alter table account add column if not exists note text")];
    Ok(vec![report, sessions.start("migration", change).await?])
}

/// A change that came first would be done at once.
async fn until_it_reads(sessions: Sessions<'_>, pid: i32) -> Result<(), String> {
    let watch = Session::connect(&sessions.server.config("watch")).await?;
    let reads = "select exists (select from pg_locks
                                where pid = $1 and relation = 'account'::regclass and granted)";
    for _ in 0..LOOKS {
        let row = watch.client.query_one(reads, &[&pid]).await.map_err(|e| why(&e))?;
        if row.get(0) {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
    Err("the report that is to be waited for has not begun".to_owned())
}
