//! Whether the file of a case makes sense as a whole.

use super::{CaseFile, CaseRequest, CaseStep, CaseTask, ServerKind, Setting, Switch};
use crate::config::call::{HttpCall, most};
use crate::config::report::Report;
use crate::config::suggest::did_you_mean;
use crate::config::value::{Derived, Node};

/// A case whose file makes sense.
#[derive(Clone, Debug, PartialEq)]
pub struct Case(pub CaseFile);

impl CaseRequest {
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
            let message = format!("there is no [task.{culprit}]; {}", did_you_mean(culprit, &names));
            wrong(&["culprit"], message);
        }
        for (name, task) in &file.task.0 {
            if let Some(why) = task.wrong(kind) {
                wrong(&["task", name, "steps"], why);
            }
        }
        if file.remedy.envoy == Switch::Yes && !kind.speaks_http() {
            wrong(
                &["remedy", "envoy"],
                format!("an Envoy hands on HTTP, which a {kind} does not speak; remove it"),
            );
        }
        if file.server.plugin == Switch::Yes && kind != ServerKind::OpenSearch {
            wrong(&["server", "plugin"], format!("there is no plug-in of ours for {kind}; remove it"));
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
    use super::super::{CaseSlo, Span};
    use super::*;
    use crate::Nanos;
    use crate::config::parse;

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
        assert_eq!((case.slo, case.load.connections), (CaseSlo::Within(Nanos::from_millis(50)), 32));
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
            ("\"mariadb\"", "\"mariadb\"\nplugin = \"yes\"", "no plug-in of ours for mariadb; remove it"),
            ("culprit = \"backup\"", "slo = \"20s\"", "from \"1ms\" to \"10s\""),
            ("culprit = \"backup\"", "slo = \"0.5x\"", "write for example \"1.2x\""),
            ("culprit = \"backup\"", "slo = \"soon\"", "not a duration"),
            ("[request.read]", "[rquest.read]", "unknown key `rquest`"),
            ("[request.read]", "[remedy]\nenvoy = \"yes\"\n[request.read]", "which a mariadb does not speak"),
        ] {
            let error = parse::<Case>(&CASE.replace(from, to), "").unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn an_objective_may_be_a_multiple_of_what_is_usual() {
        let slo = |text: &str| text.parse::<CaseSlo>().unwrap().beside(Nanos::from_millis(10));
        assert_eq!(["1.2x", " 3 x", "50ms"].map(slo), [12, 30, 50].map(Nanos::from_millis));
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
