//! A server of any kind, ready for a case: its tables filled, its users made.

use std::path::{Path, PathBuf};

use plimsoll_core::Nanos;
use plimsoll_core::config::Escalate;
use plimsoll_core::config::HttpCall;
use plimsoll_core::config::case::{CaseDisk, CaseFile, CaseServer, ServerKind, Setting, Switch};
use plimsoll_testbed::agent::Agent;
use plimsoll_testbed::apache::{Php, Site};
use plimsoll_testbed::clock::Clock;
use plimsoll_testbed::database::fill::Fill;
use plimsoll_testbed::database::http::Http;
use plimsoll_testbed::database::load::Load;
use plimsoll_testbed::database::loading::Loading;
use plimsoll_testbed::database::task::{Step, Task};
use plimsoll_testbed::disk_cap::{Disk, DiskCap};
use plimsoll_testbed::envoy::Envoy;
use plimsoll_testbed::postgres::agent::{ROLE, make_role};
use plimsoll_testbed::search::{self, Product};
use plimsoll_testbed::{etcd, mariadb, postgres};

use crate::front::Front;

/// Whose the tables are, and the load.
const APP: &str = "app";
/// Where they are, in a MariaDB.
const DATABASE: &str = "shop";
/// What the pool of a Solr is called.
const POOL: &str = "solr";
/// How many threads of a Solr its pool leaves to who cancels.
const SPARE: u32 = 4;
/// How many queries a Solr has at once that is as it comes, with 10,000 threads: more than can be slow here, or those that are not would wait
/// for a slot, where Solr itself makes nobody wait.
const MANY: u32 = 64;

/// A running server. Dropped, it ends and leaves nothing behind.
pub enum Stand {
    /// PostgreSQL.
    Postgres(postgres::Server),
    /// MariaDB.
    MariaDb(mariadb::Server),
    /// OpenSearch or Elasticsearch.
    Search(search::Server, Front),
    /// A Solr.
    Solr(search::Server, Front),
    /// A web site in PHP.
    Site(Site, Front),
    /// etcd, and whom clients ask: itself, or a sentry in front of it.
    Etcd(etcd::Server, etcd::Target),
}

impl Stand {
    /// Whether this machine has such a server.
    ///
    /// # Errors
    /// What is missing, and the command that installs it; that no disk can be made slow here where one is to be.
    pub fn is_there(server: &CaseServer) -> Result<(), String> {
        if let Some(disk) = &server.disk {
            DiskCap::new(disk.memory.bytes)
                .map_err(|why| format!("its disk is to be slow, and is not: {why}"))?;
        }
        match server.kind {
            ServerKind::Postgres => postgres::Server::is_there(&postgres::Options::default()),
            ServerKind::MariaDb => mariadb::Server::is_there(&mariadb::Options::default()),
            ServerKind::OpenSearch => search::Server::is_there(Product::OpenSearch, has_plugin(server)),
            ServerKind::Elasticsearch => search::Server::is_there(Product::Elasticsearch, false),
            ServerKind::Solr => search::Server::is_there(Product::Solr, false),
            ServerKind::Httpd => Site::is_there(Php::Httpd),
            ServerKind::PhpFpm => Site::is_there(Php::Fpm),
            ServerKind::Etcd => etcd::Server::is_there(),
        }
    }

    /// Starts one, makes its users and fills its tables. Where an agent `watches`, it has the plug-in that the case wants in it, otherwise none.
    ///
    /// # Errors
    /// Where it does not start, or what it says.
    pub async fn set(case: &CaseFile, watches: bool) -> Result<Stand, String> {
        let server = &case.server;
        let settings: Vec<(String, String)> =
            server.settings.iter().map(|line| (line.name.clone(), line.value.clone())).collect();
        let memory_bytes = server.disk.as_ref().map(|disk| disk.memory.bytes);
        match server.kind {
            ServerKind::Postgres => {
                let options = postgres::Options { settings, memory_bytes, ..postgres::Options::default() };
                let stand = postgres::Server::start(&options)?;
                make_role(&stand).await?;
                let session = postgres::Session::connect(&stand.config("setup")).await?;
                session.run(&format!("create role {APP} login")).await?;
                session.run(&format!("grant create on schema public to {APP}")).await?;
                for statement in &server.grants {
                    session.run(statement).await?;
                }
                session.run(&format!("set role {APP}")).await?;
                for statement in &server.data {
                    session.run(statement).await?;
                }
                session.run("reset role").await?;
                // What was filled is written now, not while something is measured.
                session.run("checkpoint").await?;
                server.disk.as_ref().map_or(Ok(()), |disk| stand.slow_down(speed(disk)))?;
                Ok(Stand::Postgres(stand))
            }
            ServerKind::MariaDb => {
                let options = mariadb::Options { settings, memory_bytes, ..mariadb::Options::default() };
                let stand = mariadb::Server::start(&options)?;
                let mut session = mariadb::Session::connect(&stand.options()).await?;
                let users = [
                    format!("create database {DATABASE}"),
                    format!("create user {APP}"),
                    format!("grant all on {DATABASE}.* to {APP}"),
                    format!("create user {ROLE}"),
                    format!("grant process, connection admin on *.* to {ROLE}"),
                    format!("grant select on performance_schema.* to {ROLE}"),
                ];
                for statement in users.iter().chain(&server.grants) {
                    session.run(statement).await?;
                }
                let mut app = mariadb::Session::connect(&stand.options_of(APP, Some(DATABASE))).await?;
                for statement in &server.data {
                    app.run(statement).await?;
                }
                server.disk.as_ref().map_or(Ok(()), |disk| stand.slow_down(speed(disk)))?;
                Ok(Stand::MariaDb(stand))
            }
            ServerKind::OpenSearch => {
                let stand =
                    Stand::search(Product::OpenSearch, settings, case, watches && has_plugin(server)).await?;
                Ok(Stand::Search(stand, Front::Nobody))
            }
            ServerKind::Elasticsearch => {
                let stand = Stand::search(Product::Elasticsearch, settings, case, false).await?;
                Ok(Stand::Search(stand, Front::Nobody))
            }
            ServerKind::Solr => {
                let stand = Stand::search(Product::Solr, settings, case, false).await?;
                Ok(Stand::Solr(stand, Front::Nobody))
            }
            ServerKind::Httpd => Stand::site(Php::Httpd, settings, case),
            ServerKind::PhpFpm => Stand::site(Php::Fpm, settings, case),
            ServerKind::Etcd => {
                let stand = etcd::Server::start(&etcd::Options { settings })?;
                let target = etcd::Target { address: stand.address(), timeout: None };
                let mut session = etcd::Session::connect(&target).await?;
                for line in server.data.iter().chain(&server.grants) {
                    let operation: etcd::Operation = line.parse()?;
                    session.run(&operation, &[]).await.map_err(|status| format!("{line}: {status}"))?;
                }
                Ok(Stand::Etcd(stand, target))
            }
        }
    }

    async fn search(
        product: Product,
        settings: Vec<(String, String)>,
        case: &CaseFile,
        with_plugin: bool,
    ) -> Result<search::Server, String> {
        let stand = search::Server::start(product, &settings, with_plugin).await?;
        fill(&stand.http(), case).await?;
        // What was filled is there for who searches, and written, now.
        stand.settle().await?;
        Ok(stand)
    }

    fn site(php: Php, settings: Vec<(String, String)>, case: &CaseFile) -> Result<Stand, String> {
        Ok(Stand::Site(Site::start(php, settings, pages(case)?)?, Front::Nobody))
    }

    /// Puts an Envoy in front of it, if it speaks HTTP: from now on clients ask that.
    ///
    /// # Errors
    /// Where there is none, or it does not start.
    pub fn put_envoy_before(&mut self) -> Result<(), String> {
        let (server, front) = match self {
            Stand::Search(server, front) | Stand::Solr(server, front) => (server.http(), front),
            Stand::Site(site, front) => (site.http(), front),
            _ => return Err("an Envoy hands on HTTP, which this server does not speak".to_owned()),
        };
        *front = Front::Envoy(Envoy::before(server.address)?);
        Ok(())
    }

    /// Runs statements as its administrator.
    ///
    /// # Errors
    /// What it says.
    pub async fn administer(&mut self, statements: &[String]) -> Result<(), String> {
        match self {
            Stand::Postgres(server) => {
                let session = postgres::Session::connect(&server.config("setup")).await?;
                for statement in statements {
                    session.run(statement).await?;
                }
            }
            Stand::MariaDb(server) => {
                let mut session = mariadb::Session::connect(&server.options()).await?;
                for statement in statements {
                    session.run(statement).await?;
                }
            }
            Stand::Search(server, _) | Stand::Solr(server, _) => call(&server.http(), statements).await?,
            Stand::Site(..) if statements.is_empty() => {}
            Stand::Site(site, _) => {
                let lines = statements.iter().map(|line| line.parse::<Setting>());
                let lines: Vec<Setting> = lines.collect::<Result<_, String>>()?;
                site.reconfigure(lines.into_iter().map(|line| (line.name, line.value)))?;
            }
            // An etcd has no limits of its own; its clients have.
            Stand::Etcd(_, target) => {
                for statement in statements {
                    let limit = statement.strip_prefix("timeout ");
                    let limit = limit.ok_or_else(|| format!("\"{statement}\": write \"timeout 5s\""))?;
                    target.timeout = Some(limit.parse()?);
                }
            }
        }
        Ok(())
    }

    /// What it calls itself.
    ///
    /// # Errors
    /// What it says.
    pub async fn version(&self) -> Result<String, String> {
        match self {
            Stand::Postgres(server) => {
                let session = postgres::Session::connect(&server.config("setup")).await?;
                let row = session.client.query_one("show server_version", &[]).await;
                Ok(format!("PostgreSQL {}", row.map_err(|e| postgres::session::why(&e))?.get::<_, String>(0)))
            }
            Stand::MariaDb(server) => {
                let mut session = mariadb::Session::connect(&server.options()).await?;
                let version = session.texts("select version()").await?;
                Ok(format!("MariaDB {}", version.first().map_or("", String::as_str)))
            }
            Stand::Search(server, _) | Stand::Solr(server, _) => server.version().await,
            Stand::Site(site, _) => site.version(),
            Stand::Etcd(server, _) => server.version(),
        }
    }

    /// Starts an agent that watches it, with the rights that the docs ask for and no more. Nothing watches an etcd from beside it: a sentry
    /// comes between it and its clients, so what that costs counts.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn watch(&mut self, case: &CaseFile, slo: Nanos, program: &Path) -> Result<Agent, String> {
        let tables = self.watched(case, slo, case.escalate);
        if let Stand::Etcd(_, target) = self {
            let (sentry, address, _) = Agent::sentry(program, &tables)?;
            target.address = address;
            return Ok(sentry);
        }
        if let Stand::Solr(_, Front::Sentry { tables: of_sentry, .. }) = self {
            return Agent::start(program, &format!("{of_sentry}\n{tables}pool = \"{POOL}\"\n"), None);
        }
        Agent::start(program, &tables, self.ledgers().as_deref())
    }

    /// Where the ledger is that our plug-in keeps of it, if that is in it.
    fn ledgers(&self) -> Option<PathBuf> {
        let Stand::Search(server, _) = self else { return None };
        server.has_plugin().then(|| server.ledgers())
    }

    /// Puts a sentry in front of a Solr, which knows who is there and is asked by who watches: from now on clients ask that. Of no other server
    /// that an agent watches does it want one.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn put_sentry_before(&mut self, case: &CaseFile, program: &Path) -> Result<(), String> {
        let Stand::Solr(server, front) = self else { return Ok(()) };
        let threads = case.server.settings.iter().find(|it| it.name == "-Dsolr.jetty.threads.max");
        let threads: Option<u32> = threads.and_then(|threads| threads.value.parse().ok());
        let workers = threads.map_or(MANY, |threads| threads.saturating_sub(SPARE).max(1));
        let server = server.http().address;
        let pool = format!("[pool.{POOL}]\nservers = [\"{server}\"]\nworkers = {workers}\nsolr = {{}}\n");
        let (process, address, admin) = Agent::sentry(program, &pool)?;
        let tables = format!("[sentry]\nadmin = \"{admin}\"\n\n{pool}");
        *front = Front::Sentry { _process: process, address, tables };
        Ok(())
    }

    /// What the config of an agent, or of a sentry in front of it, says of it.
    pub fn watched(&self, case: &CaseFile, slo: Nanos, escalate: Escalate) -> String {
        let slo = format!("{{ p99 = \"{}us\" }}", slo.0 / 1_000);
        let (kind, keys) = match self {
            Stand::Postgres(server) => {
                let dsn = format!("postgres://{ROLE}@127.0.0.1:{}/postgres", server.port());
                ("postgres", format!("dsn = \"{dsn}\"\nescalate = \"{escalate}\""))
            }
            Stand::MariaDb(server) => {
                let dsn = server.url(ROLE);
                ("mariadb", format!("dsn = \"{dsn}\"\nescalate = \"{escalate}\""))
            }
            // The name that our plug-in keeps its ledger under.
            Stand::Search(server, _) if server.has_plugin() => {
                return format!("[app.{}]\nslo = {slo}\n", case.server.kind);
            }
            Stand::Search(server, _) | Stand::Solr(server, _) => {
                (case.server.kind.as_str(), format!("url = \"http://{}\"", server.http().address))
            }
            Stand::Site(site, _) => site.watched(),
            Stand::Etcd(server, _) => {
                return format!(
                    "[pool.kv]\nservers = [\"{}\"]\n\n[etcd.main]\nslo = {slo}\n",
                    server.address()
                );
            }
        };
        format!("[{kind}.main]\n{keys}\nslo = {slo}\n")
    }

    /// Begins a load.
    ///
    /// # Errors
    /// Where it makes no sense, or the server does not take it.
    pub async fn load(&self, load: Load) -> Result<Loading, String> {
        match self {
            Stand::Search(server, front) | Stand::Solr(server, front) => {
                load.start(front.asked(server.http())).await
            }
            Stand::Site(site, front) => load.start(front.asked(site.http())).await,
            Stand::Etcd(_, target) => load.start(target.clone()).await,
            Stand::Postgres(server) => {
                let mut config = server.config("load");
                load.start(config.user(APP).clone()).await
            }
            Stand::MariaDb(server) => load.start(server.options_of(APP, Some(DATABASE))).await,
        }
    }

    /// Begins a task, as the application or the server's administrator.
    ///
    /// # Errors
    /// Where it cannot begin.
    pub async fn task(
        &self,
        name: &str,
        admin: bool,
        steps: Vec<Step>,
        clock: Clock,
    ) -> Result<Task, String> {
        match self {
            Stand::Postgres(server) => {
                let mut config = server.config(name);
                if !admin {
                    config.user(APP);
                }
                Task::start(&config, name, steps, clock).await
            }
            Stand::MariaDb(server) => {
                let options = match admin {
                    true => server.options(),
                    false => server.options_of(APP, Some(DATABASE)),
                };
                Task::start(&options, name, steps, clock).await
            }
            Stand::Search(server, front) | Stand::Solr(server, front) => {
                Task::start(&front.asked(server.http()), name, steps, clock).await
            }
            Stand::Site(site, front) => Task::start(&front.asked(site.http()), name, steps, clock).await,
            Stand::Etcd(_, target) => Task::start(target, name, steps, clock).await,
        }
    }
}

fn has_plugin(server: &CaseServer) -> bool {
    server.plugin == Switch::Yes
}

fn speed(disk: &CaseDisk) -> Disk {
    Disk {
        read_bytes_per_s: disk.read_per_s.bytes,
        write_bytes_per_s: disk.written_per_s.bytes,
        reads_per_s: disk.reads.per_s.ceil() as u64,
    }
}

/// Sends requests over HTTP, one after the other.
async fn call(server: &Http, calls: &[String]) -> Result<(), String> {
    for text in calls {
        server.call(&text.parse()?).await?;
    }
    Ok(())
}

/// The pages of a site: names, and what is there.
fn pages(case: &CaseFile) -> Result<Vec<(String, String)>, String> {
    let calls = case.server.data.iter().map(|text| text.parse::<HttpCall>());
    calls.map(|call| call.map(|HttpCall { path, body, .. }| (path, body))).collect()
}

/// Makes and fills what a case has on a server that speaks HTTP.
async fn fill(server: &Http, case: &CaseFile) -> Result<(), String> {
    call(server, &case.server.grants).await?;
    call(server, &case.server.data).await?;
    for (name, fill) in &case.fill.0 {
        let parameters: Vec<(i64, i64)> = fill.parameters.iter().map(|span| (span.from, span.to)).collect();
        let fill = Fill { call: &fill.http, line: &fill.line, count: fill.count, parameters: &parameters };
        fill.send(server).await.map_err(|e| format!("[fill.{name}]: {e}"))?;
    }
    Ok(())
}
