//! CASE.toml: a server that is overloaded, by whom, and what must hold.

use std::fmt;
use std::str::FromStr;

use super::agent::Escalate;
use super::report::Report;
use super::table::{choice, table};
use super::units::{Rate, Size};
use super::value::{Derived, Node, Tables, text};
use crate::Nanos;

table! {
    /// The file of a case.
    pub struct CaseFile {
        /// What happens, in a line.
        title: String,
        /// Which of the sixteen cases of the ATROPOS paper (Table 2) it is, and in what it differs.
        paper: Option<String>,
        /// What 99 % of the requests are promised: what the agent goes by and all are judged by.
        slo: Nanos ["1ms"..="10s"] = "50ms",
        /// The name of the task that must be ended, and nobody else; left out, nobody may be.
        culprit: Option<String>,
        /// What becomes of a session that ignores being cancelled, as in the agent's config.
        escalate: Escalate = "never",
        /// The server.
        server: CaseServer,
        /// The requests, all together.
        load: CaseLoad = {},
        /// Kinds of requests.
        request: Tables<CaseRequest>,
        /// What runs beside them, in the order of the file.
        task: Tables<CaseTask>,
        /// What others do about it.
        remedy: CaseRemedies = {},
    }
}

table! {
    /// The server: a private one, on loopback and in a directory for temporary files.
    pub struct CaseServer {
        /// What it is.
        kind: ServerKind,
        /// Lines of its configuration, as in "innodb_buffer_pool_size = 64M".
        settings: Vec<Setting> = [],
        /// Statements by which its tables are made and filled, as the application whose they are.
        data: Vec<String> = [],
        /// Statements that its administrator runs before, such as grants to the application, which is called `app`.
        grants: Vec<String> = [],
        /// A slow disk, and little memory beside it, without which nothing that is said about IO could be tried. Needs control groups, and root,
        /// who may make them.
        disk: Option<CaseDisk>,
    }
}

table! {
    /// What a server's memory and disk are limited to.
    pub struct CaseDisk {
        /// All the memory that it may use, page cache included.
        memory: Size ["64MiB"..="1024GiB"],
        /// Reads a second, once the tables are filled.
        reads: Rate ["1/s"..="1000000/s"],
        /// What is read a second, likewise.
        read_per_s: Size as "read" ["1MiB"..="1024GiB"] = "1GiB",
        /// What is written a second, as far as somebody waits for it, likewise.
        written_per_s: Size as "written" ["1MiB"..="1024GiB"] = "1GiB",
    }
}

table! {
    /// A load that comes whether or not it is answered.
    pub struct CaseLoad {
        /// Requests a second, Poisson.
        rate: Rate = "400/s",
        /// Requests that the server works on at once, at most; others wait.
        connections: u32 [1..=1000] = 32,
    }
}

table! {
    /// One kind of request.
    pub struct CaseRequest {
        /// The statement, with parameters as the server writes them: $1 and $2, or ?.
        sql: String,
        /// How often, relative to the others.
        share: f64 [0.000001..=1000000.0] = 1.0,
        /// From where to where each parameter is drawn, both included; two at most.
        parameters: Vec<Span> = [],
    }
}

table! {
    /// Something that runs beside the requests, in a session of its own.
    pub struct CaseTask {
        /// What it does, one thing after the other: statements, and "wait 30s", with the session open.
        steps: Vec<CaseStep>,
        /// How long after the first.
        after: Nanos ["0s"..="1h"] = "0s",
        /// Whether the server's administrator does it; else the application.
        admin: Switch = "no",
    }
}

table! {
    /// What others do about such overloads: statements by which the server's administrator sets it up, when the tables are filled.
    pub struct CaseRemedies {
        /// What people do today: the server's time limits on statements.
        timeout: Vec<String> = [],
        /// What else the server has for it.
        native: Vec<String> = [],
    }
}

choice! {
    /// A kind of server.
    pub enum ServerKind {
        /// PostgreSQL, 15 or newer.
        Postgres = "postgres",
        /// MariaDB, 10.6 or newer.
        MariaDb = "mariadb",
    }
}

choice! {
    /// Yes or no.
    pub enum Switch {
        /// No.
        No = "no",
        /// Yes.
        Yes = "yes",
    }
}

/// A line of a server's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What is set.
    pub name: String,
    /// To what.
    pub value: String,
}

/// Whole numbers from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub from: i64,
    /// The last.
    pub to: i64,
}

/// One thing that a task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseStep {
    /// A statement.
    Run(String),
    /// Nothing, with its session open.
    Wait(Nanos),
}

text! {
    Setting: "a line of a configuration", "name = value", { "pattern": "=" }, |text| match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !text.contains(char::is_control) => {
            Ok(Setting { name: name.trim().to_owned(), value: value.trim().to_owned() })
        }
        _ => Err(format!("\"{text}\" is not a line of a configuration; write \"name = value\"")),
    };
    Span: "a range", "1..100", { "pattern": r"^-?[0-9]+\.\.-?[0-9]+$" }, str::parse;
    CaseStep: "a step", "wait 30s", { "minLength": 1 }, str::parse;
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Span, String> {
        let numbers =
            text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        match numbers {
            Some((from, to)) if from <= to => Ok(Span { from, to }),
            _ => Err(format!(
                "\"{text}\" is not a range; write the smaller and the larger number, as in \"1..100\""
            )),
        }
    }
}

impl FromStr for CaseStep {
    type Err = String;
    fn from_str(text: &str) -> Result<CaseStep, String> {
        match text.strip_prefix("wait ") {
            Some(length) => length.parse().map(CaseStep::Wait),
            None if text.trim().is_empty() => Err("a step that does nothing; remove it".to_owned()),
            None => Ok(CaseStep::Run(text.to_owned())),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name, self.value)
    }
}

/// A case whose file makes sense.
#[derive(Clone, Debug, PartialEq)]
pub struct Case(pub CaseFile);

impl Derived for Case {
    type Written = CaseFile;

    fn derive(file: CaseFile, root: Node<'_>, report: &mut Report) -> Option<Case> {
        let mut fits = true;
        let mut wrong = |path: &[&str], message: String| {
            report.error(root.at(path), message);
            fits = false;
        };
        if file.request.0.is_empty() {
            wrong(&[], "there is no request; add [request.NAME] with sql = \"select 1\"".to_owned());
        }
        for (name, request) in &file.request.0 {
            if request.parameters.len() > 2 {
                wrong(&["request", name, "parameters"], "a statement has two parameters at most".to_owned());
            }
        }
        let names: Vec<&str> = file.task.0.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(culprit) = file.culprit.as_deref().filter(|culprit| !names.contains(culprit)) {
            let message =
                format!("there is no [task.{culprit}]; {}", super::suggest::did_you_mean(culprit, &names));
            wrong(&["culprit"], message);
        }
        for (name, task) in &file.task.0 {
            if task.steps.is_empty() {
                wrong(
                    &["task", name, "steps"],
                    "it does nothing; write for example [\"select 1\"]".to_owned(),
                );
            }
        }
        fits.then_some(Case(file))
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const CASE: &str = r#"
        title = "a title"
        culprit = "backup"
        [server]
        kind = "mariadb"
        settings = ["innodb_buffer_pool_size = 64M"]
        disk = { memory = "512MiB", reads = "1500/s", written = "30MiB" }
        [request.read]
        sql = "select 1 where ? > 0"
        parameters = ["-5..7"]
        [task.backup]
        steps = ["flush tables with read lock", "wait 30s"]
        admin = "yes"
    "#;

    #[test]
    fn a_case_reads_as_meant() {
        let Case(case) = parse::<Case>(CASE, "").unwrap_or_else(|e| panic!("{e}")).0;
        assert_eq!(case.server.settings[0].to_string(), "innodb_buffer_pool_size = 64M");
        assert_eq!(case.request.0[0].1.parameters, [Span { from: -5, to: 7 }]);
        let steps = &case.task.0[0].1.steps;
        assert_eq!(steps[1], CaseStep::Wait(Nanos::from_secs(30)));
        assert_eq!((case.slo, case.load.connections), (Nanos::from_millis(50), 32));
        let disk = case.server.disk.unwrap();
        assert_eq!((disk.reads.per_s, disk.written_per_s.bytes, disk.read_per_s.bytes), (1_500.0, 30 << 20, 1 << 30));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (from, to, said) in [
            ("culprit = \"backup\"", "culprit = \"bakup\"", "did you mean `backup`"),
            ("\"-5..7\"", "\"7..-5\"", "the smaller and the larger number"),
            ("\"-5..7\"", "\"1..2\", \"1..2\", \"1..2\"", "two parameters at most"),
            ("wait 30s", "wait long", "not a duration"),
            ("= 64M", "", "is not a line of a configuration"),
            ("memory = \"512MiB\", ", "", "`memory` is missing"),
            ("\"mariadb\"", "\"mysql\"", "unknown value"),
            ("[request.read]", "[rquest.read]", "unknown key `rquest`"),
        ] {
            let error = parse::<Case>(&CASE.replace(from, to), "").unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
