//! `[agent]`, `[app.NAME]`, and a table for each kind of server, as `[postgres.NAME]`: on each host, who finds the task that holds everybody up, and where.

use std::net::SocketAddr;
use std::path::PathBuf;

use http::uri::PathAndQuery;

use super::admission::Mode;
use super::dsn::{Dsn, MariaDbUrl, SearchUrl, StatusAddress};
use super::objective::SloRef;
use super::pool::Pool;
use super::report::{Report, Span};
use super::resolve;
use super::scalar::Secret;
use super::sentry::Sentry;
use super::suggest::did_you_mean;
use super::table::{choice, table};
use super::units::Rate;
use super::value::Node;
use crate::{Nanos, Slo};

table! {
    /// The agent: finds the task that holds up all others, and cancels that one.
    pub struct Agent {
        /// Where its metrics, its health and what it sees are served. Loopback unless `admin_token` is set.
        admin: SocketAddr = "127.0.0.1:9920",
        /// What that address wants in `authorization: Bearer`. Left out, it asks nobody.
        admin_token: Option<Secret>,
        /// Directories in which applications keep their ledgers. Left out, where the SDKs put them: `$PLIMSOLL_DIR`, or
        /// `/dev/shm/plimsoll-UID` of the user that it runs as.
        ledgers: Vec<PathBuf> = [],
        /// Where every event is appended as a line of JSON; "-" is the standard output. Left out, events are only logged and
        /// counted.
        events: Option<PathBuf>,
    }
}

table! {
    /// An application that keeps a ledger through an SDK.
    pub struct AppTable {
        /// What its requests are promised, or the name of such an objective.
        slo: SloRef,
        /// Whether tasks are cancelled, or only named, or neither.
        mode: Mode = "enforce",
        /// The pool that it serves. The sentry of this file is told to ease off while the objective is missed and nobody is to blame.
        pool: Option<String>,
        /// How much may be cancelled at most.
        budget: CancelBudget = {},
    }
}

table! {
    /// A PostgreSQL server, 15 or newer, as it is: nothing is installed in it. The role needs `pg_monitor` and `pg_signal_backend`.
    pub struct PostgresTable {
        /// Where it is and who asks: a URL, or keywords as in "host=/run/postgresql user=plimsoll". With `sslmode=require` over TLS, and the
        /// server has to prove who it is.
        dsn: Dsn,
        /// What it is held to over TLS: a file with certificates in PEM, which also has `sslmode` be `require`. Left out, those that the
        /// system trusts.
        tls_ca: Option<PathBuf>,
        /// What its statements are promised, or the name of such an objective.
        slo: SloRef,
        /// Whether statements are cancelled, or only named, or neither.
        mode: Mode = "enforce",
        /// What becomes of a session that holds a lock while it is idle in a transaction, and so cannot be cancelled: "never" leaves it
        /// alone and says so, "terminate" ends its connection. The latter also ends a statement that ignores being cancelled.
        escalate: Escalate = "never",
        /// From one look to the next while something is wrong; in calm, three times as long. A look takes about half a millisecond
        /// of the server's time at 200 connections.
        interval: Nanos ["10ms"..="10s"] = "50ms",
        /// Who asks the server for the plans of long SELECTs while something is wrong, to know how far they are: a role of its own that
        /// may read the tables of that database, and nothing else. Left out, nobody asks.
        estimates_dsn: Option<Dsn>,
        /// The pool that it serves. The sentry of this file is told to ease off while the objective is missed and nobody is to blame.
        pool: Option<String>,
        /// How much may be cancelled at most.
        budget: CancelBudget = {},
    }
}

table! {
    /// A MariaDB server, 10.6 or newer, as it is: nothing is installed in it. The user needs `PROCESS` and `CONNECTION ADMIN`, and `SELECT` on
    /// `performance_schema`.
    pub struct MariaDbTable {
        /// Where it is and who asks: a URL. A Unix socket is named as in "mariadb://plimsoll@localhost/?socket=/run/mysqld/mysqld.sock". With
        /// `?sslmode=require` over TLS, and the server has to prove who it is.
        dsn: MariaDbUrl,
        /// What it is held to over TLS: a file with certificates in PEM, which also has `sslmode` be `require`. Left out, those that the
        /// system trusts.
        tls_ca: Option<PathBuf>,
        /// What its statements are promised, or the name of such an objective.
        slo: SloRef,
        /// Whether statements are cancelled, or only named, or neither.
        mode: Mode = "enforce",
        /// What becomes of a session that holds a lock which outlives its statement (it is idle in a transaction, or has locked all tables for
        /// a backup): "never" leaves it alone and says so, "terminate" ends its connection. The latter also ends a statement that
        /// ignores being cancelled.
        escalate: Escalate = "never",
        /// From one look to the next while something is wrong; in calm, four times as long. A look takes about 1.5 ms of the server's CPU time.
        interval: Nanos ["10ms"..="10s"] = "50ms",
        /// The pool that it serves. The sentry of this file is told to ease off while the objective is missed and nobody is to blame.
        pool: Option<String>,
        /// How much may be cancelled at most.
        budget: CancelBudget = {},
    }
}

table! {
    /// A node of OpenSearch, 2 or newer, or of Elasticsearch, 7.10 or newer, or a Solr, 9.1 or newer, as it is: nothing is installed in it. Where
    /// it has users, ours needs to see tasks and the node's figures, and to cancel tasks.
    pub struct SearchTable {
        /// Where it is and who asks, as in "https://plimsoll:...@127.0.0.1:9200"; without a name where it has no users.
        url: SearchUrl,
        /// What an https:// node is held to: a file with certificates in PEM. Left out, those that the system trusts.
        tls_ca: Option<PathBuf>,
        /// What its requests are promised, or the name of such an objective.
        slo: SloRef,
        /// Whether tasks are cancelled, or only named, or neither.
        mode: Mode = "enforce",
        /// From one look to the next while something is wrong; in calm, three times as long.
        interval: Nanos ["10ms"..="10s"] = "100ms",
        /// The pool that it serves. The sentry of this file is told to ease off while the objective is missed and nobody is to blame. Of a Solr
        /// that sentry is also asked which queries are under way; its pool needs `solr = {}`.
        pool: Option<String>,
        /// How much may be cancelled at most.
        budget: CancelBudget = {},
    }
}

table! {
    /// A pool of php-fpm, 8.0 or newer, as it is: its configuration needs `pm.status_path` and `pm.status_listen`. To end a request the agent
    /// has to run on the same host, as root or as the user of the pool.
    pub struct PhpFpmTable {
        /// The pool's `pm.status_listen`.
        status: StatusAddress,
        /// The pool's `pm.status_path`.
        path: PathAndQuery = "/status",
        /// What its requests are promised, or the name of such an objective.
        slo: SloRef,
        /// Whether requests are ended, with the worker that has them, or only named, or neither.
        mode: Mode = "enforce",
        /// From one look to the next while something is wrong; in calm, three times as long.
        interval: Nanos ["10ms"..="10s"] = "50ms",
        /// The pool that it serves. The sentry of this file is told to ease off while the objective is missed and nobody is to blame.
        pool: Option<String>,
        /// How much may be cancelled at most.
        budget: CancelBudget = {},
    }
}

table! {
    /// An Apache httpd, 2.4, with our module in it (`PlimsollStatus`). To end a request the agent has to run on the same host, as root or as the
    /// user of its workers, and httpd with the MPM `prefork`.
    pub struct HttpdTable {
        /// The socket of `PlimsollStatus`.
        status: StatusAddress,
        /// What its requests are promised, or the name of such an objective.
        slo: SloRef,
        /// Whether requests are ended, with the worker that has them, or only named, or neither.
        mode: Mode = "enforce",
        /// From one look to the next while something is wrong; in calm, three times as long.
        interval: Nanos ["10ms"..="10s"] = "50ms",
        /// The pool that it serves. The sentry of this file is told to ease off while the objective is missed and nobody is to blame.
        pool: Option<String>,
        /// How much may be cancelled at most.
        budget: CancelBudget = {},
    }
}

table! {
    /// Bounds within which whoever errs, errs.
    pub struct CancelBudget {
        /// From one cancellation to the next at least: what the first one freed must have been seen.
        interval: Nanos ["10ms"..="1h"] = "40ms",
        /// Cancellations in a time, in the long run.
        rate: Rate = "1/s",
        /// Cancellations as a share of the requests that are completed, in 0..1, in the long run.
        ratio: f64 [0.0..=1.0] = 0.01,
        /// Cancellations that may be saved up against both: there may be as many culprits at once as a pool has workers.
        burst: u32 [1..=1000] = 32,
    }
}

choice! {
    /// What is done about a session that ignores being cancelled.
    pub enum Escalate {
        /// It is named.
        Never = "never",
        /// Its connection is ended.
        Terminate = "terminate",
    }
}

/// An application with its objective.
#[derive(Clone, Debug, PartialEq)]
pub struct App {
    /// The NAME in its header, which is also that in the names of its ledgers.
    pub name: String,
    /// What its requests are promised.
    pub slo: Slo,
    /// Whether tasks are cancelled, or only named, or neither.
    pub mode: Mode,
    /// The pool that it serves.
    pub pool: Option<String>,
    /// How much may be cancelled at most.
    pub budget: CancelBudget,
}

/// What kind of server a database is, and what only that kind has.
#[derive(Clone, Debug, PartialEq)]
pub enum DatabaseKind {
    /// PostgreSQL.
    Postgres {
        /// Who asks for the plans of long SELECTs, if anybody does.
        estimates_dsn: Option<Dsn>,
        /// What it is held to over TLS, if not to what the system trusts.
        tls_ca: Option<PathBuf>,
    },
    /// MariaDB.
    MariaDb {
        /// Likewise.
        tls_ca: Option<PathBuf>,
    },
    /// OpenSearch.
    OpenSearch {
        /// Likewise, an https:// node.
        tls_ca: Option<PathBuf>,
    },
    /// Elasticsearch.
    Elasticsearch {
        /// Likewise.
        tls_ca: Option<PathBuf>,
    },
    /// Solr.
    Solr {
        /// Likewise.
        tls_ca: Option<PathBuf>,
        /// The admin address of the sentry that has its pool, and what has to be shown there.
        sentry: (SocketAddr, Option<Secret>),
    },
    /// A pool of php-fpm.
    PhpFpm {
        /// Where its status page is.
        path: String,
    },
    /// Apache httpd with our module.
    Httpd,
}

/// A server with its objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Database {
    /// The NAME in its header.
    pub name: String,
    /// What it is.
    pub kind: DatabaseKind,
    /// Where it is and who asks; of php-fpm and httpd, where they tell their status.
    pub dsn: Dsn,
    /// What its statements or requests are promised.
    pub slo: Slo,
    /// Whether statements are cancelled, or only named, or neither.
    pub mode: Mode,
    /// What becomes of a session that ignores being cancelled.
    pub escalate: Escalate,
    /// From one look to the next while something is wrong.
    pub interval: Nanos,
    /// The pool that it serves.
    pub pool: Option<String>,
    /// How much may be cancelled at most.
    pub budget: CancelBudget,
}

/// Longest name of an application in a ledger.
const LONGEST_APP: usize = 32;

/// What is wrong within `[agent]`.
pub(super) fn check(agent: &Agent, root: Node<'_>, report: &mut Report) {
    if !agent.admin.ip().is_loopback() && agent.admin_token.is_none() {
        let message = "`admin` is open to the network; add admin_token, or write admin = \"127.0.0.1:9920\"";
        report.error(root.at(&["agent", "admin"]), message);
    }
    if let Some(twice) = (1..agent.ledgers.len()).find(|&i| agent.ledgers[..i].contains(&agent.ledgers[i])) {
        let message =
            format!("directory {} is there twice; remove one of them", agent.ledgers[twice].display());
        report.error(root.at(&["agent", "ledgers"]), message);
    }
}

fn check_pool(pool: Option<&str>, pools: &[Pool], span: Span, report: &mut Report) {
    let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    // A file for the agent alone has none; the sentry knows.
    if let Some(wanted) = pool.filter(|pool| !names.is_empty() && !names.contains(pool)) {
        report.error(span, format!("there is no [pool.{wanted}]; {}", did_you_mean(wanted, &names)));
    }
}

/// The applications, with the objectives that they name.
pub(super) fn apps(
    tables: Vec<(String, AppTable)>,
    slos: &[(String, Slo)],
    pools: &[Pool],
    root: Node<'_>,
    report: &mut Report,
) -> Option<Vec<App>> {
    let app = |(name, table): (String, AppTable)| {
        let AppTable { slo, mode, pool, budget } = table;
        check_pool(pool.as_deref(), pools, root.at(&["app", &name, "pool"]), report);
        let slo = resolve::objective(slo, slos, root.at(&["app", &name, "slo"]), report);
        if name.len() > LONGEST_APP || name.contains('.') {
            let message = format!(
                "no ledger can be called `{name}`: an application's name is 1 to {LONGEST_APP} letters, digits, `_` or `-`"
            );
            report.error(root.at(&["app", &name]), message);
            return None;
        }
        Some(App { slo: slo?, name, mode, pool, budget })
    };
    // Resolved to the end before any is dropped, so that every wrong name is reported.
    tables.into_iter().map(app).collect::<Vec<_>>().into_iter().collect()
}

/// The tables of servers, a list for each kind.
pub(super) struct DatabaseTables {
    pub(super) postgres: Vec<(String, PostgresTable)>,
    pub(super) mariadb: Vec<(String, MariaDbTable)>,
    pub(super) opensearch: Vec<(String, SearchTable)>,
    pub(super) elasticsearch: Vec<(String, SearchTable)>,
    pub(super) solr: Vec<(String, SearchTable)>,
    pub(super) phpfpm: Vec<(String, PhpFpmTable)>,
    pub(super) httpd: Vec<(String, HttpdTable)>,
}

impl DatabaseTables {
    /// Whether there is none of any kind.
    pub(super) fn is_empty(&self) -> bool {
        let DatabaseTables { postgres, mariadb, opensearch, elasticsearch, solr, phpfpm, httpd } = self;
        let databases = postgres.is_empty() && mariadb.is_empty();
        let search = opensearch.is_empty() && elasticsearch.is_empty() && solr.is_empty();
        databases && search && phpfpm.is_empty() && httpd.is_empty()
    }
}

/// Whether two kinds have a server of the same name.
fn check_names(names: &[(&str, &str)], root: Node<'_>, report: &mut Report) {
    for (index, (kind, name)) in names.iter().enumerate() {
        if let Some((other, _)) = names[..index].iter().find(|(_, other)| other == name) {
            // Events and metrics know a server by its name alone.
            let message = format!("there is a [{other}.{name}], too; give one of them another name");
            report.error(root.at(&[kind, name]), message);
        }
    }
}

/// The databases, with the objectives that they name: those of one kind after those of the other, each in the order of the file.
pub(super) fn databases(
    tables: DatabaseTables,
    sentry: &Sentry,
    slos: &[(String, Slo)],
    pools: &[Pool],
    root: Node<'_>,
    report: &mut Report,
) -> Option<Vec<Database>> {
    let DatabaseTables { postgres, mariadb, opensearch, elasticsearch, solr, phpfpm, httpd } = tables;
    type Kind<'a> = &'a dyn Fn(Option<PathBuf>) -> DatabaseKind;
    let asked = (sentry.admin, sentry.admin_token.clone());
    let search: [(&str, Kind<'_>, _); 3] = [
        ("opensearch", &|tls_ca| DatabaseKind::OpenSearch { tls_ca }, opensearch),
        ("elasticsearch", &|tls_ca| DatabaseKind::Elasticsearch { tls_ca }, elasticsearch),
        ("solr", &|tls_ca| DatabaseKind::Solr { tls_ca, sentry: asked.clone() }, solr),
    ];
    let mut names: Vec<(&str, &str)> = postgres.iter().map(|(name, _)| ("postgres", name.as_str())).collect();
    names.extend(mariadb.iter().map(|(name, _)| ("mariadb", name.as_str())));
    for (section, _, tables) in &search {
        names.extend(tables.iter().map(|(name, _)| (*section, name.as_str())));
    }
    names.extend(phpfpm.iter().map(|(name, _)| ("phpfpm", name.as_str())));
    names.extend(httpd.iter().map(|(name, _)| ("httpd", name.as_str())));
    check_names(&names, root, report);
    let mut resolve = |section: &str, name: &str, slo: SloRef, pool: Option<&str>| {
        check_pool(pool, pools, root.at(&[section, name, "pool"]), report);
        let served = pools.iter().find(|it| section == "solr" && Some(&*it.name) == pool);
        if let Some(served) = served.filter(|pool| pool.solr.is_none()) {
            let message = format!("[pool.{}] is no Solr; add solr = {{}} to it", served.name);
            report.error(root.at(&[section, name, "pool"]), message);
        }
        resolve::objective(slo, slos, root.at(&[section, name, "slo"]), report)
    };
    let mut databases = Vec::new();
    for (name, table) in postgres {
        let PostgresTable { dsn, tls_ca, slo, mode, escalate, interval, estimates_dsn, pool, budget } = table;
        let slo = resolve("postgres", &name, slo, pool.as_deref());
        let kind = DatabaseKind::Postgres { estimates_dsn, tls_ca };
        databases.push(slo.map(|slo| Database {
            name,
            kind,
            dsn,
            slo,
            mode,
            escalate,
            interval,
            pool,
            budget,
        }));
    }
    for (name, table) in mariadb {
        let MariaDbTable { dsn: MariaDbUrl(dsn), tls_ca, slo, mode, escalate, interval, pool, budget } =
            table;
        let slo = resolve("mariadb", &name, slo, pool.as_deref());
        let kind = DatabaseKind::MariaDb { tls_ca };
        databases.push(slo.map(|slo| Database {
            name,
            kind,
            dsn,
            slo,
            mode,
            escalate,
            interval,
            pool,
            budget,
        }));
    }
    for (section, kind, tables) in search {
        for (name, table) in tables {
            let SearchTable { url: SearchUrl(dsn), tls_ca, slo, mode, interval, pool, budget } = table;
            let slo = resolve(section, &name, slo, pool.as_deref());
            let (kind, escalate) = (kind(tls_ca), Escalate::Never);
            databases.push(slo.map(|slo| Database {
                name,
                kind,
                dsn,
                slo,
                mode,
                escalate,
                interval,
                pool,
                budget,
            }));
        }
    }
    // A worker that is told to end has no say in it: there is nothing to escalate to.
    let escalate = Escalate::Never;
    for (name, table) in phpfpm {
        let PhpFpmTable { status: StatusAddress(dsn), path, slo, mode, interval, pool, budget } = table;
        let slo = resolve("phpfpm", &name, slo, pool.as_deref());
        let kind = DatabaseKind::PhpFpm { path: path.path().to_owned() };
        databases.push(slo.map(|slo| Database {
            name,
            kind,
            dsn,
            slo,
            mode,
            escalate,
            interval,
            pool,
            budget,
        }));
    }
    for (name, table) in httpd {
        let HttpdTable { status: StatusAddress(dsn), slo, mode, interval, pool, budget } = table;
        let slo = resolve("httpd", &name, slo, pool.as_deref());
        let kind = DatabaseKind::Httpd;
        databases.push(slo.map(|slo| Database {
            name,
            kind,
            dsn,
            slo,
            mode,
            escalate,
            interval,
            pool,
            budget,
        }));
    }
    // Resolved to the end before any is dropped, so that every wrong name is reported.
    databases.into_iter().collect()
}
