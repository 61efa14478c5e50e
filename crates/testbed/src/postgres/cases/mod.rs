//! The cases: what a task does to everybody else (ATROPOS, Table 2, c6 to c8), and the lock queue that every operator knows. One file a
//! case: how its server is to be, and who overloads it.

mod alter;
mod c6;
mod c7;
mod c8;
mod innocent;

use std::fmt;
use std::str::FromStr;

use plimsoll_core::Nanos;

use super::server::Server;
use super::tables::Scale;
use super::task::{Step, Task};
use crate::clock::Clock;
use crate::disk_cap::Disk;

/// One case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// A transaction that updated every account goes on working.
    C6,
    /// The same, but its client has fallen asleep. Only terminating the session helps.
    C6Idle,
    /// An import writes more log than the disk takes.
    C7,
    /// A vacuum reads as fast as the disk can.
    C8,
    /// A change of a table waits for a long report, and everybody else for the change.
    Alter,
    /// The same, but who has read the table has fallen asleep in its transaction, and needs no processor.
    AlterIdle,
}

/// How much a culprit does.
#[derive(Clone, Copy, Debug)]
pub struct Dose {
    /// How long it holds what others need, where that is up to it (c6, alter and their idle kin).
    pub hold: Nanos,
    /// Rows that it writes (c7), of about 300 bytes each.
    pub rows: u64,
}

impl Default for Dose {
    fn default() -> Dose {
        Dose { hold: Nanos::from_secs(20), rows: 4_000_000 }
    }
}

/// How a server is to be so that a case hurts.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    /// Lines of its configuration, as [`Options::settings`](super::Options::settings).
    pub settings: Vec<(String, String)>,
    /// How much is in its tables.
    pub scale: Scale,
    /// As [`Options::memory_bytes`](super::Options::memory_bytes).
    pub memory_bytes: Option<u64>,
    /// What its disk is slowed down to when the tables are filled.
    pub disk: Option<Disk>,
}

impl Case {
    /// All of them.
    pub const ALL: [Case; 6] = [Case::C6, Case::C6Idle, Case::C7, Case::C8, Case::Alter, Case::AlterIdle];

    /// As the paper names it, where it does.
    pub const fn as_str(self) -> &'static str {
        match self {
            Case::C6 => "c6",
            Case::C6Idle => "c6-idle",
            Case::C7 => "c7",
            Case::C8 => "c8",
            Case::Alter => "alter",
            Case::AlterIdle => "alter-idle",
        }
    }

    /// What it needs.
    pub fn ground(self) -> Ground {
        match self {
            Case::C6 | Case::C6Idle | Case::Alter | Case::AlterIdle => Ground::default(),
            Case::C7 => c7::ground(),
            Case::C8 => c8::ground(),
        }
    }

    /// Starts who overloads the server, in the order in which they came. By `clock` their endings are told.
    ///
    /// # Errors
    /// Where one cannot begin.
    pub async fn trigger(self, server: &Server, dose: Dose, clock: Clock) -> Result<Vec<Task>, String> {
        let sessions = Sessions { server, clock };
        match self {
            Case::C6 => Ok(vec![sessions.start("reprice", c6::script(dose.hold)).await?]),
            Case::C6Idle => Ok(vec![sessions.start("reprice", c6::idle_script(dose.hold)).await?]),
            Case::C7 => Ok(vec![sessions.start("import", c7::script(dose.rows)).await?]),
            Case::C8 => Ok(vec![sessions.start("vacuum", c8::script()).await?]),
            Case::Alter => alter::start(sessions, alter::report(dose.hold)).await,
            Case::AlterIdle => alter::start(sessions, alter::idle_report(dose.hold)).await,
        }
    }

    /// Starts somebody who is slow and harms nobody: a report on a table that no culprit touches, but c8's.
    ///
    /// # Errors
    /// Where it cannot begin.
    pub async fn innocent(server: &Server, length: Nanos, clock: Clock) -> Result<Task, String> {
        Sessions { server, clock }.start("report", innocent::script(length)).await
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Case {
    type Err = String;
    fn from_str(text: &str) -> Result<Case, String> {
        let known = || Case::ALL.map(Case::as_str).join(", ");
        let found = Case::ALL.into_iter().find(|case| case.as_str() == text);
        found.ok_or_else(|| format!("there is no case `{text}`; write one of {}", known()))
    }
}

/// Where tasks begin.
#[derive(Clone, Copy)]
struct Sessions<'a> {
    server: &'a Server,
    clock: Clock,
}

impl Sessions<'_> {
    async fn start(self, name: &'static str, steps: Vec<Step>) -> Result<Task, String> {
        Task::start(&self.server.client(name), name, steps, self.clock).await
    }
}

/// A part of a statement that computes for so long altogether, while `from` is read row by row.
fn working(length: Nanos, from: &str) -> String {
    /// Seconds that one row takes.
    const ROW_S: f64 = 0.01;
    let rows = (length.as_secs_f64() / ROW_S).ceil();
    format!("select count(work({ROW_S})) from (select id from {from} limit {rows}) rows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_by_its_name() {
        for case in Case::ALL {
            assert_eq!(case.to_string().parse(), Ok(case));
        }
        let error = "c9".parse::<Case>().unwrap_err();
        assert_eq!(error, "there is no case `c9`; write one of c6, c6-idle, c7, c8, alter, alter-idle");
    }
}
