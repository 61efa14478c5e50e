//! CASE.toml: a server that is overloaded, by whom, and what must hold.

use std::fmt;
use std::str::FromStr;

use super::agent::Escalate;
use super::call::{HttpCall, most};
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

/// A case whose file makes sense.
#[derive(Clone, Debug, PartialEq)]
pub struct Case(pub CaseFile);

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

    /// What is wrong with it, to a server of this kind: at which key, and why.
    fn wrong(&self, kind: ServerKind) -> Option<(&'static str, String)> {
        if kind == ServerKind::Etcd || self.etcd.is_some() {
            return self.wrong_for_etcd(kind);
        }
        let parameters = self.parameters.len();
        let asked = self.http.as_ref().map_or(0, HttpCall::parameters);
        let asked = asked.max(self.body.as_deref().map_or(0, most));
        Some(match (kind.speaks_http(), &self.http, &self.sql) {
            _ if parameters > 2 => ("parameters", "a request has two parameters at most".to_owned()),
            (true, None, _) => ("sql", format!("{kind} speaks HTTP; write http = \"GET /items\"")),
            (false, _, None) => ("http", format!("{kind} speaks SQL; write sql = \"select 1\"")),
            (true, _, Some(_)) => ("sql", format!("{kind} speaks HTTP; remove it")),
            (false, Some(_), _) => ("http", format!("{kind} speaks SQL; remove it")),
            (false, ..) if self.body.is_some() => ("body", format!("{kind} speaks SQL; remove it")),
            (true, ..) if asked > parameters => {
                ("parameters", format!("?{asked} has no value; write a range for each, as in [\"1..100\"]"))
            }
            _ => return None,
        })
    }
}

impl CaseRequest {
    fn wrong_for_etcd(&self, kind: ServerKind) -> Option<(&'static str, String)> {
        let (parameters, asked) = (self.parameters.len(), self.etcd.as_deref().map_or(0, most));
        Some(match (kind == ServerKind::Etcd, &self.etcd) {
            (true, None) => ("sql", format!("{kind} is asked otherwise; write etcd = \"range item-?1\"")),
            (false, _) => ("etcd", format!("{kind} is no etcd; remove it")),
            _ if self.sql.is_some() => ("sql", format!("{kind} speaks no SQL; remove it")),
            _ if self.http.is_some() => ("http", format!("{kind} is asked by `etcd` alone; remove it")),
            _ if self.body.is_some() => ("body", format!("{kind} is asked by `etcd` alone; remove it")),
            _ if parameters > 2 => ("parameters", "a request has two parameters at most".to_owned()),
            _ if asked > parameters => {
                ("parameters", format!("?{asked} has no value; write a range for each, as in [\"1..100\"]"))
            }
            _ => return None,
        })
    }
}

impl CaseTask {
    /// What is wrong with its steps, for a server of this kind.
    fn wrong(&self, kind: ServerKind) -> Option<String> {
        let other = |step: &&CaseStep| match step {
            CaseStep::Run(_) => kind.speaks_http(),
            CaseStep::Call(_) => !kind.speaks_http(),
            CaseStep::Wait(_) => false,
        };
        match self.steps.iter().find(other) {
            _ if self.steps.is_empty() => Some("it does nothing; write for example [\"wait 1s\"]".to_owned()),
            Some(CaseStep::Call(_)) if kind == ServerKind::Etcd => {
                Some(format!("{kind} is asked otherwise; write \"etcd range item- prefix\""))
            }
            Some(CaseStep::Call(_)) => Some(format!("{kind} speaks SQL; write a statement")),
            Some(_) => Some(format!("{kind} speaks HTTP; write \"http POST /items/_search {{}}\"")),
            None => None,
        }
    }
}

impl CaseFile {
    /// Where there are requests in lists of texts, and what is wrong with them; and with what fills the server.
    fn wrong_calls(&self) -> Vec<(Vec<&str>, String)> {
        let lists: [(&[&str], &Vec<String>); 4] = [
            (&["server", "data"], &self.server.data),
            (&["server", "grants"], &self.server.grants),
            (&["remedy", "timeout"], &self.remedy.timeout),
            (&["remedy", "native"], &self.remedy.native),
        ];
        let kind = self.server.kind;
        let calls = lists.into_iter().flat_map(|(path, list)| list.iter().map(move |call| (path, call)));
        let wrong = calls.filter_map(|(path, call)| {
            let is_line = kind.is_site() && path[0] == "remedy";
            let why = if is_line { call.parse::<Setting>().err() } else { call.parse::<HttpCall>().err() };
            Some((path.to_vec(), why?))
        });
        let site =
            [(&["fill"][..], self.fill.0.is_empty()), (&["server", "grants"], self.server.grants.is_empty())];
        let site = site.into_iter().filter(|&(_, is_empty)| kind.is_site() && !is_empty);
        let site = site.map(|(path, _)| (path.to_vec(), format!("{kind} has nothing but pages; remove it")));
        let fills = self.fill.0.iter().filter_map(|(name, fill)| {
            let why = match (most(&fill.line), fill.parameters.len()) {
                (_, 10..) => "a line has nine parameters at most".to_owned(),
                (asked, given) if asked > given => {
                    format!("?{asked} has no value; write a range for each, as in [\"1..100\"]")
                }
                _ => return None,
            };
            Some((vec!["fill", name, "parameters"], why))
        });
        wrong.chain(fills).chain(site).collect()
    }
}

impl Derived for Case {
    type Written = CaseFile;

    fn derive(file: CaseFile, root: Node<'_>, report: &mut Report) -> Option<Case> {
        let mut fits = true;
        let mut wrong = |path: &[&str], message: String| {
            report.error(root.at(path), message);
            fits = false;
        };
        let kind = file.server.kind;
        if file.request.0.is_empty() {
            let example = match kind {
                ServerKind::Etcd => "etcd = \"range item-?1\"",
                _ if kind.speaks_http() => "http = \"GET /items\"",
                _ => "sql = \"select 1\"",
            };
            wrong(&[], format!("there is no request; add [request.NAME] with {example}"));
        }
        for (name, request) in &file.request.0 {
            if let Some((key, why)) = request.wrong(kind) {
                wrong(&["request", name, key], why);
            }
        }
        let names: Vec<&str> = file.task.0.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(culprit) = file.culprit.as_deref().filter(|culprit| !names.contains(culprit)) {
            let message =
                format!("there is no [task.{culprit}]; {}", super::suggest::did_you_mean(culprit, &names));
            wrong(&["culprit"], message);
        }
        for (name, task) in &file.task.0 {
            if let Some(why) = task.wrong(kind) {
                wrong(&["task", name, "steps"], why);
            }
        }
        if kind.speaks_http() {
            file.wrong_calls().into_iter().for_each(|(path, why)| wrong(&path, why));
        } else if let Some((name, _)) = file.fill.0.first() {
            wrong(&["fill", name], format!("{kind} speaks SQL; write statements in [server] data"));
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
        assert_eq!(
            (disk.reads.per_s, disk.written_per_s.bytes, disk.read_per_s.bytes),
            (1_500.0, 30 << 20, 1 << 30)
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (from, to, said) in [
            ("culprit = \"backup\"", "culprit = \"bakup\"", "did you mean `backup`"),
            ("\"-5..7\"", "\"7..-5\"", "the smaller and the larger number"),
            ("\"-5..7\"", "\"1..2\", \"1..2\", \"1..2\"", "two parameters at most"),
            ("sql = \"select 1 where ? > 0\"", "http = \"GET /items\"", "mariadb speaks SQL; write sql"),
            (
                "\"flush tables with read lock\"",
                "\"http GET /items\"",
                "mariadb speaks SQL; write a statement",
            ),
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

    const SEARCH: &str = r#"
        title = "a title"
        [server]
        kind = "opensearch"
        data = ["PUT /items {}"]
        [fill.items]
        http = "POST /items/_bulk"
        line = '{"id": ?0, "price": ?1}'
        count = 1000
        parameters = ["1..100"]
        [request.read]
        http = "POST /items/_search?preference=?1"
        body = '{"from": ?2}'
        parameters = ["1..9", "0..5"]
        [task.hog]
        steps = ["http POST /items/_search {\"size\": 10000}", "wait 1s"]
        copies = 8
    "#;

    #[test]
    fn a_server_that_speaks_http_is_asked_so() {
        let Case(case) = parse::<Case>(SEARCH, "").unwrap_or_else(|e| panic!("{e}")).0;
        assert_eq!(case.request.0[0].1.text(), "POST /items/_search?preference=?1 {\"from\": ?2}");
        let task = &case.task.0[0].1;
        assert!(matches!(&task.steps[0], CaseStep::Call(call) if call.body == "{\"size\": 10000}"));
        assert_eq!((task.copies, case.fill.0[0].1.count), (8, 1_000));
        for (from, to, said) in [
            (
                "http = \"POST /items/_search?preference=?1\"",
                "sql = \"select 1\"",
                "opensearch speaks HTTP; write http",
            ),
            ("\"0..5\"", "", "?2 has no value"),
            ("[\"1..100\"]", "[]", "?1 has no value"),
            ("\"PUT /items {}\"", "\"create table items\"", "is not a request"),
            ("\"http POST", "\"POST", "opensearch speaks HTTP; write \"http POST"),
            ("\"http POST", "\"http post", "is not a request"),
            ("opensearch", "postgres", "postgres speaks SQL"),
        ] {
            let error = parse::<Case>(&SEARCH.replace(from, to), "").unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    const SITE: &str = r#"
        title = "a title"
        [server]
        kind = "phpfpm"
        settings = ["pm.max_children = 8"]
        data = ["PUT /page.php <?php echo 'x';"]
        [request.read]
        http = "GET /page.php"
        [remedy]
        timeout = ["request_terminate_timeout = 5s"]
    "#;

    #[test]
    fn a_site_has_pages_and_lines() {
        let Case(case) = parse::<Case>(SITE, "").unwrap_or_else(|e| panic!("{e}")).0;
        assert!(case.server.kind.is_site() && case.server.kind.speaks_http());
        for (from, to, said) in [
            ("\"PUT /page", "\"/page", "is not a request"),
            ("_timeout = 5s", "_timeout 5s", "is not a line of a configuration"),
            ("data =", "grants = [\"PUT /x\"]\ndata =", "phpfpm has nothing but pages"),
        ] {
            let error = parse::<Case>(&SITE.replace(from, to), "").unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
