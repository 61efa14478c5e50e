//! CASE.toml: a server that is overloaded, by whom, and what must hold.

mod check;

use std::fmt;
use std::str::FromStr;

use super::agent::Escalate;
use super::call::HttpCall;
use super::table::{choice, table};
use super::units::{Rate, Size};
use super::value::{Tables, text};
use crate::Nanos;

pub use check::Case;

table! {
    /// The file of a case.
    pub struct CaseFile {
        /// What happens, in a line.
        title: String,
        /// Which of the sixteen cases of the ATROPOS paper (Table 2) it is, and in what it differs.
        paper: Option<String>,
        /// What 99 % of the requests are promised: what the agent goes by and all are judged by; a duration from "1ms" to "10s", or from "1x" to
        /// "100x" so many times what they take undisturbed, which is measured first. The paper promises all sixteen 1.2 times that.
        slo: CaseSlo = "50ms",
        /// The name of the task that must be ended, and nobody else; left out, nobody may be.
        culprit: Option<String>,
        /// What becomes of a session that ignores being cancelled, as in the agent's config.
        escalate: Escalate = "never",
        /// Whether its server is not to be had everywhere, or takes a gigabyte or a minute to start: who runs all cases leaves it out.
        heavy: Switch = "no",
        /// The server.
        server: CaseServer,
        /// What a server that speaks HTTP is filled with, many at once.
        fill: Tables<CaseFill>,
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
        /// Whether the agent watches it from inside, by our plug-in of an OpenSearch, which is in it then and in no other run.
        plugin: Switch = "no",
        /// Statements by which its tables are made and filled, as the application whose they are. To a server that speaks HTTP, here as
        /// below, requests: "METHOD PATH BODY"; of a web site, its pages: "PUT /page.php <?php ...". To an etcd, "fill item- 100000 size=200".
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
    /// What fills a server that speaks HTTP: lines that are alike, many in a request.
    pub struct CaseFill {
        /// To where they are sent.
        http: HttpCall,
        /// One of them, with `?0` for its number, from 1 on, and `?1` and so on for parameters.
        line: String,
        /// How many.
        count: u32 [1..=10000000],
        /// From where to where each parameter is drawn, both included; nine at most.
        parameters: Vec<Span> = [],
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
        sql: Option<String>,
        /// Instead of a statement, to a server that speaks HTTP: method and path, with parameters as ?1 and ?2.
        http: Option<HttpCall>,
        /// What is sent with it, likewise.
        body: Option<String>,
        /// Instead of both, to an etcd: "range item-?1" or "put item-?1 text", with parameters as ?1 and ?2.
        etcd: Option<String>,
        /// How often, relative to the others.
        share: f64 [0.000001..=1000000.0] = 1.0,
        /// From where to where each parameter is drawn, both included; two at most.
        parameters: Vec<Span> = [],
    }
}

table! {
    /// Something that runs beside the requests, in a session of its own.
    pub struct CaseTask {
        /// What it does, one thing after the other: statements, or "http POST /items/_search {}" to a server that speaks HTTP, and
        /// "wait 30s", with the session open. To an etcd, "etcd range item- prefix sort=value".
        steps: Vec<CaseStep>,
        /// How many do this at once.
        copies: u32 [1..=1000] = 1,
        /// How often each of them does it, one time after the other.
        times: u32 [1..=10000] = 1,
        /// How long after the first.
        after: Nanos ["0s"..="1h"] = "0s",
        /// Whether the server's administrator does it; else the application.
        admin: Switch = "no",
    }
}

table! {
    /// What others do about such overloads: statements by which the server's administrator sets it up, when the tables are filled. Of a web
    /// site, lines of its configuration: "name = value".
    pub struct CaseRemedies {
        /// What people do today: the server's time limits on statements.
        timeout: Vec<String> = [],
        /// What else the server has for it.
        native: Vec<String> = [],
        /// Whether that is an Envoy in front of it, which holds how many requests the server has at once to what it finds good (adaptive
        /// concurrency). For servers that speak HTTP.
        envoy: Switch = "no",
    }
}

choice! {
    /// A kind of server.
    pub enum ServerKind {
        /// PostgreSQL, 15 or newer.
        Postgres = "postgres",
        /// MariaDB, 10.6 or newer.
        MariaDb = "mariadb",
        /// OpenSearch, 3.8.
        OpenSearch = "opensearch",
        /// Elasticsearch, 7.10.
        Elasticsearch = "elasticsearch",
        /// Solr, 9.8, behind the sentry where that protects it.
        Solr = "solr",
        /// PHP in the processes of an Apache httpd 2.4, with our module.
        Httpd = "httpd",
        /// A php-fpm behind an Apache httpd.
        PhpFpm = "phpfpm",
        /// etcd, 3.4 or newer.
        Etcd = "etcd",
    }
}

impl ServerKind {
    /// Whether it is spoken to over HTTP; else in SQL, or as an etcd is.
    pub const fn speaks_http(self) -> bool {
        !matches!(self, ServerKind::Postgres | ServerKind::MariaDb | ServerKind::Etcd)
    }

    /// Whether it is a web site, whose pages are files and which is set up by lines of its configuration.
    pub const fn is_site(self) -> bool {
        matches!(self, ServerKind::Httpd | ServerKind::PhpFpm)
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

/// What 99 % of the requests of a case are promised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CaseSlo {
    /// To be answered within this.
    Within(Nanos),
    /// Within so many times what 99 % of them take undisturbed.
    Times(f64),
}

/// One thing that a task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseStep {
    /// A statement.
    Run(String),
    /// A request over HTTP.
    Call(HttpCall),
    /// Nothing, with its session open.
    Wait(Nanos),
}

text! {
    Setting: "a line of a configuration", "name = value", { "pattern": "=" }, str::parse;
    CaseSlo: "a duration or a multiple", "50ms", { "pattern": r"^\s*[0-9.]+\s*(ns|us|ms|s|m|h|x)\s*$" }, str::parse;
    Span: "a range", "1..100", { "pattern": r"^-?[0-9]+\.\.-?[0-9]+$" }, str::parse;
    CaseStep: "a step", "wait 30s", { "minLength": 1 }, str::parse;
}

impl FromStr for Setting {
    type Err = String;
    fn from_str(text: &str) -> Result<Setting, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() && !text.contains(char::is_control) => {
                Ok(Setting { name: name.trim().to_owned(), value: value.trim().to_owned() })
            }
            _ => Err(format!("\"{text}\" is not a line of a configuration; write \"name = value\"")),
        }
    }
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

impl CaseSlo {
    /// In time, where 99 % of the requests take so long undisturbed; of a multiple, to a tenth of a millisecond.
    pub fn beside(self, undisturbed: Nanos) -> Nanos {
        match self {
            CaseSlo::Within(limit) => limit,
            CaseSlo::Times(times) => Nanos((times * undisturbed.0 as f64 / 1e5).round() as u64 * 100_000),
        }
    }
}

impl FromStr for CaseSlo {
    type Err = String;
    fn from_str(text: &str) -> Result<CaseSlo, String> {
        if let Some(times) = text.trim().strip_suffix('x') {
            let times = times.trim().parse().ok().filter(|times| (1.0..=100.0).contains(times));
            return times.map(CaseSlo::Times).ok_or_else(|| {
                format!("\"{text}\" is not from one to a hundred times what requests take; write for example \"1.2x\"")
            });
        }
        let limit: Nanos = text.parse()?;
        match (Nanos::from_millis(1)..=Nanos::from_secs(10)).contains(&limit) {
            true => Ok(CaseSlo::Within(limit)),
            false => Err(format!("\"{text}\" is out of range; write a duration from \"1ms\" to \"10s\"")),
        }
    }
}

impl FromStr for CaseStep {
    type Err = String;
    fn from_str(text: &str) -> Result<CaseStep, String> {
        match text.split_once(' ') {
            Some(("wait", length)) => length.parse().map(CaseStep::Wait),
            Some(("http", call)) => call.parse().map(CaseStep::Call),
            Some(("etcd", operation)) => Ok(CaseStep::Run(operation.to_owned())),
            _ if text.trim().is_empty() => Err("a step that does nothing; remove it".to_owned()),
            _ => Ok(CaseStep::Run(text.to_owned())),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name, self.value)
    }
}

impl CaseRequest {
    /// What is asked, in the server's language: a statement, or "METHOD PATH BODY".
    pub fn text(&self) -> String {
        match (&self.http, &self.body) {
            _ if self.etcd.is_some() => self.etcd.clone().unwrap_or_default(),
            (Some(call), Some(body)) => HttpCall { body: body.clone(), ..call.clone() }.to_string(),
            (Some(call), None) => call.to_string(),
            (None, _) => self.sql.clone().unwrap_or_default(),
        }
    }
}
