//! A real PostgreSQL that is brought to its knees, and freed by the agent. Where there is none the tests say so and pass, but with
//! `PLIMSOLL_REQUIRE_POSTGRES=1` they fail.

use std::fs;
use std::path::PathBuf;

use plimsoll_core::config::{Config, parse};
use plimsoll_testbed::postgres::{
    Case, Dose, How, Loading, Options, Plan, Server as Database, Session, Shutdown, Stage, there_is_none,
};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use super::*;
use crate::events::Events;
use crate::status::{Board, Status, Watched};
use crate::watch::{Outlets, Promise, Watch};

mod plans;
mod standby;

/// Nothing here takes longer, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(20);

fn database() -> Option<Database> {
    match Database::start(&Options::default()) {
        Ok(server) => Some(server),
        Err(error) if there_is_none(&error) => None,
        Err(error) => panic!("{error}"),
    }
}

async fn stage(case: Case) -> Option<Stage> {
    match Stage::set(case, &Options::default()).await {
        Ok(stage) => Some(stage),
        Err(error) if there_is_none(&error) => None,
        Err(error) => panic!("{error}"),
    }
}

fn settings(dsn: &str, more: &str) -> Postgres {
    let text = format!("[postgres.main]\ndsn = \"{dsn}\"\nslo = {{ p99 = \"100ms\" }}\n{more}");
    parse::<Config>(&text, "").unwrap_or_else(|e| panic!("{e}")).0.databases.remove(0)
}

/// An agent that watches one server.
struct Agent {
    status: watch::Receiver<Status>,
    file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Agent {
    /// Starts it. To be called within a [`LocalSet`].
    fn start(dsn: &str, more: &str) -> Agent {
        let settings = settings(dsn, more);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("events.jsonl");
        let (events, _) = Events::open(Some(&file)).unwrap();
        let (board, status) = Board::new();
        let promise = Promise {
            app: settings.name.clone(),
            name: settings.name.clone(),
            source: "postgres",
            slo: settings.slo.clone(),
            mode: settings.mode,
            budget: settings.budget.clone(),
            sentry: None,
        };
        let outlets = Outlets { events, board, recorder: None, sentry: None };
        let server = Server::new(settings).unwrap();
        tokio::task::spawn_local(Watch::new(server, promise, &outlets).run());
        Agent { status, file, _dir: dir }
    }

    fn events(&self, what: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.file).unwrap();
        let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        all.filter(|event| what.is_empty() || event["event"] == what).collect()
    }

    /// Waits for an event that fits; the first one.
    async fn told(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let wait = async {
            loop {
                if let Some(event) = self.events(what).into_iter().find(&fits) {
                    return event;
                }
                sleep(LOOK).await;
            }
        };
        let told = timeout(PATIENCE, wait).await;
        told.unwrap_or_else(|_| panic!("no {what} in {:#?}", self.events("")))
    }

    async fn sees(&self, what: impl Fn(&Watched) -> bool) -> Watched {
        let wait = async {
            loop {
                if let Some(watched) = self.status.borrow().watched.get("main").filter(|w| what(w)) {
                    return watched.clone();
                }
                sleep(LOOK).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{:?}", self.status.borrow()))
    }
}

/// A role that may do what `docs/agent.md` asks for and no more, and one of an application, which is no superuser; a table.
const ROLES: &str = "create role watcher login; grant pg_monitor, pg_signal_backend to watcher; create role app login; \
    create table shelf (id int primary key, books int); insert into shelf select i, 0 from generate_series(1, 100) i; \
    grant all on shelf to app; alter table shelf owner to app";

fn as_role(database: &Database, role: &str) -> tokio_postgres::Config {
    let mut config = database.config(role);
    config.user(role);
    config
}

fn dsn(database: &Database, role: &str) -> String {
    format!("postgres://{role}@127.0.0.1:{}/postgres", database.port())
}

async fn with_roles() -> Option<Database> {
    let database = database()?;
    let session = Session::connect(&database.config("setup")).await.unwrap();
    session.client.batch_execute(ROLES).await.unwrap();
    Some(database)
}

/// Sessions of the application that each add a book now and then, until they are dropped; none of them may ever be cancelled.
async fn borrowers(database: &Database) -> Vec<tokio::task::AbortHandle> {
    let mut borrowers = Vec::new();
    for n in 0..16 {
        let session = Session::connect(&as_role(database, "app")).await.unwrap();
        let task = tokio::task::spawn_local(async move {
            loop {
                let add = format!("update shelf set books = books + 1 where id = {}", 1 + n % 20);
                session.run(&add).await.unwrap_or_else(|error| panic!("a victim suffered: {error}"));
                sleep(Duration::from_millis(20)).await;
            }
        });
        borrowers.push(task.abort_handle());
    }
    borrowers
}

fn on_one_thread(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, body);
}

#[test]
fn the_least_privileges_are_enough_and_superusers_are_named() {
    on_one_thread(async {
        let Some(database) = with_roles().await else { return };
        let _borrowers = borrowers(&database).await;
        let agent = Agent::start(&dsn(&database, "watcher"), "");
        agent.sees(|watched| watched.looks > 10 && watched.completed > 100).await;
        assert!(agent.events("").is_empty(), "{:?}", agent.events(""));

        let hog = Session::connect(&as_role(&database, "app")).await.unwrap();
        let hold = "begin; update shelf set books = 0; select pg_sleep(600)";
        let error = hog.client.batch_execute(hold).await.unwrap_err();
        assert_eq!(error.code().map(|code| code.code()), Some("57014"), "{error}");
        let cancel = agent.told("cancel", |_| true).await;
        assert_eq!((&cancel["pid"], &cancel["resource"]), (&hog.pid.into(), &"rows of public.shelf".into()));
        assert_eq!(cancel["task"], format!("backend {}", hog.pid));
        assert!(cancel["about"]["holds_up"].as_u64().unwrap() > 0);
        let released = agent.told("released", |_| true).await;
        assert_eq!(released["outcome"], "cancelled");

        let boss = Session::connect(&database.config("boss")).await.unwrap();
        boss.client.batch_execute("begin; update shelf set books = 0").await.unwrap();
        let escalate = agent.told("escalate", |_| true).await;
        assert_eq!(escalate["pid"], boss.pid);
        assert!(escalate["reason"].as_str().unwrap().contains("superuser"), "{escalate}");
        assert_eq!(agent.events("cancel").len(), 1, "{:#?}", agent.events(""));
        boss.client.batch_execute("rollback").await.unwrap();
    });
}

#[test]
fn a_session_that_idles_is_ended_only_where_that_is_asked_for() {
    on_one_thread(async {
        let Some(database) = with_roles().await else { return };
        let _borrowers = borrowers(&database).await;
        let idler = Session::connect(&as_role(&database, "app")).await.unwrap();
        let timid = Agent::start(&dsn(&database, "watcher"), "");
        timid.sees(|watched| watched.completed > 100).await;
        idler.client.batch_execute("begin; update shelf set books = 0").await.unwrap();
        let escalate = timid.told("escalate", |_| true).await;
        assert_eq!(escalate["pid"], idler.pid);
        assert!(escalate["reason"].as_str().unwrap().contains("escalate = \"terminate\""), "{escalate}");
        assert!(timid.events("cancel").is_empty(), "{:#?}", timid.events("cancel"));
        idler.client.batch_execute("rollback").await.unwrap();
        timid.told("released", |_| true).await;

        let bold = Agent::start(&dsn(&database, "watcher"), "escalate = \"terminate\"");
        bold.sees(|watched| watched.completed > 100).await;
        idler.client.batch_execute("begin; update shelf set books = 0").await.unwrap();
        let cancel = bold.told("cancel", |_| true).await;
        assert_eq!((&cancel["pid"], &cancel["outcome"]), (&idler.pid.into(), &"terminated".into()));
        assert!(idler.client.batch_execute("commit").await.is_err(), "its connection is gone");
    });
}

#[test]
fn a_statement_that_ignores_being_cancelled_is_named_or_where_that_is_asked_for_ended() {
    // It catches even that, which `when others` does not.
    const STUBBORN: &str = "begin; update shelf set books = 0; do $$ begin loop \
        begin perform pg_sleep(600); exception when query_canceled then null; end; end loop; end $$";
    on_one_thread(async {
        let Some(database) = with_roles().await else { return };
        let _borrowers = borrowers(&database).await;
        let boss = Session::connect(&database.config("boss")).await.unwrap();
        for (more, says) in [("", "it was told to end"), ("escalate = \"terminate\"", "was terminated")] {
            let agent = Agent::start(&dsn(&database, "watcher"), more);
            agent.sees(|watched| watched.completed > 100).await;
            let stubborn = Session::connect(&as_role(&database, "app")).await.unwrap();
            let watched = async {
                let cancel = agent.told("cancel", |_| true).await;
                let escalate = agent.told("escalate", |_| true).await;
                assert_eq!((&cancel["pid"], &escalate["pid"]), (&stubborn.pid.into(), &stubborn.pid.into()));
                assert!(escalate["reason"].as_str().unwrap().contains(says), "{escalate}");
                if more.is_empty() {
                    assert!(agent.events("released").is_empty(), "{:#?}", agent.events(""));
                    boss.client.query("select pg_terminate_backend($1)", &[&stubborn.pid]).await.unwrap();
                }
                agent.told("released", |_| true).await;
                assert!(agent.events("").len() < 10, "told, not repeated: {:#?}", agent.events(""));
            };
            let (ended, ()) = tokio::join!(stubborn.client.batch_execute(STUBBORN), watched);
            let ended = ended.unwrap_err();
            assert!(ended.code().is_none_or(|code| code.code() == "57P01"), "{ended}");
        }
    });
}

#[test]
fn an_alter_table_in_the_queue_is_cancelled_and_the_select_before_it_goes_on() {
    on_one_thread(async {
        let Some(database) = with_roles().await else { return };
        let _borrowers = borrowers(&database).await;
        let agent = Agent::start(&dsn(&database, "watcher"), "");
        agent.sees(|watched| watched.completed > 100).await;
        let report = Session::connect(&as_role(&database, "app")).await.unwrap();
        report.client.batch_execute("begin; select count(*) from shelf").await.unwrap();
        let report_goes_on = report.client.batch_execute("select pg_sleep(4)");
        let alter = Session::connect(&as_role(&database, "app")).await.unwrap();
        let alters = alter.client.batch_execute("alter table shelf add column x int");
        let (report_goes_on, altered) = tokio::join!(report_goes_on, alters);
        report_goes_on.expect("it is no culprit: all others could share the table with it");
        assert!(altered.unwrap_err().to_string().contains("db error"));
        let cancel = agent.told("cancel", |_| true).await;
        assert_eq!(cancel["pid"], alter.pid);
        assert_eq!(cancel["resource"], "the queue for public.shelf");
        let chain = cancel["about"]["chain"].as_str().unwrap();
        assert!(chain.ends_with(&format!("backend {} -> backend {}", alter.pid, report.pid)), "{chain}");
    });
}

#[test]
fn a_server_that_is_killed_and_comes_back_is_watched_again() {
    on_one_thread(async {
        let Some(mut database) = with_roles().await else { return };
        let agent = Agent::start(&dsn(&database, "watcher"), "");
        agent.sees(|watched| watched.looks > 5).await;
        database.stop(Shutdown::Immediate);
        agent.told("adapter_error", |_| true).await;
        let refused = |e: &Value| e["reason"].as_str().unwrap().contains("refused");
        agent.told("adapter_error", refused).await;
        agent.sees(|watched| watched.errors > 2 && watched.trouble.is_some()).await;
        database.resume().unwrap();
        let looks = agent.sees(|_| true).await.looks;
        agent.sees(|watched| watched.trouble.is_none() && watched.looks > looks + 5).await;
        assert!(agent.events("adapter_error").len() < 10, "told, not repeated: {:#?}", agent.events(""));
    });
}

#[test]
fn a_role_without_rights_is_told_what_it_lacks() {
    on_one_thread(async {
        let Some(database) = database() else { return };
        let session = Session::connect(&database.config("setup")).await.unwrap();
        session.client.batch_execute("create role nobody login").await.unwrap();
        let agent = Agent::start(&dsn(&database, "nobody"), "");
        let says = |what: &'static str| move |e: &Value| e["reason"].as_str().unwrap().contains(what);
        agent.told("adapter_error", says("GRANT pg_monitor TO nobody")).await;
        agent.told("adapter_error", says("GRANT pg_signal_backend TO nobody")).await;
        agent.sees(|watched| watched.looks > 5).await;
        let missing = Agent::start(&dsn(&database, "stranger"), "");
        missing.told("adapter_error", says("\"stranger\" does not exist")).await;
    });
}

#[test]
fn what_ends_somebody_is_planned_before_it_is_needed() {
    on_one_thread(async {
        let Some(database) = with_roles().await else { return };
        let config = connect::config(&dsn(&database, "watcher")).unwrap();
        let link = Link::connect(&config, clock::now()).await.unwrap();
        // Planning reads catalogs, which takes as long as any read while somebody keeps the disk busy.
        let planned = "select generic_plans + custom_plans > 0 from pg_prepared_statements \
            where statement ~ '^select pg_(cancel|terminate)_backend'";
        let rows = link.poll.client().query(planned, &[]).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<bool>>(), [true, true]);
    });
}

#[test]
fn who_waits_for_whom_is_what_the_server_says_itself() {
    on_one_thread(async {
        let Some(database) = with_roles().await else { return };
        let connect = async || Session::connect(&as_role(&database, "app")).await.unwrap();
        let mut sessions = Vec::new();
        for _ in 0..8 {
            sessions.push(std::rc::Rc::new(connect().await));
        }
        let statements = [
            "begin; select count(*) from shelf",
            "begin; update shelf set books = 1 where id = 1; update shelf set books = 1 where id = 2",
            "begin; update shelf set books = 2 where id = 3; update shelf set books = 2 where id = 1",
            "update shelf set books = 3 where id = 1",
            "update shelf set books = 3 where id = 3",
            "alter table shelf add column y int",
            "select count(*) from shelf",
            "begin; lock table shelf in share mode",
        ];
        let mut expected = 0;
        for (session, statement) in sessions.iter().zip(statements) {
            let session = std::rc::Rc::clone(session);
            let of = session.pid;
            tokio::task::spawn_local(async move { drop(session.client.batch_execute(statement).await) });
            // One after the other, so that the order of the queue is what is written here.
            let settled = "select state = 'idle in transaction' or wait_event_type = 'Lock' from pg_stat_activity where pid = $1";
            let watch = Session::connect(&database.config("watch")).await.unwrap();
            while !watch
                .client
                .query_one(settled, &[&of])
                .await
                .unwrap()
                .get::<_, Option<bool>>(0)
                .unwrap_or(false)
            {
                sleep(LOOK).await;
            }
            expected += 1;
        }
        assert_eq!(expected, 8);
        let watch = Session::connect(&database.config("watch")).await.unwrap();
        let rows = "select pid, pg_blocking_pids(pid) from pg_stat_activity where wait_event_type = 'Lock'";
        let rows = watch.client.query(rows, &[]).await.unwrap();
        let config = connect::config(&database.dsn()).unwrap();
        let mut link = Link::connect(&config, clock::now()).await.unwrap();
        let seen = link.look(clock::now(), Stamp::EARLIEST, false).await.unwrap();
        let since = |pid| Some(seen.backends.iter().find(|backend| backend.pid == pid)?.since());
        let blames = blame(&seen.locks, None, since);
        assert_eq!(blames.len(), rows.len(), "all who wait, and nobody else");
        for row in rows {
            let (pid, blockers): (Pid, Vec<Pid>) = (row.get(0), row.get(1));
            let blame = blames.iter().find(|blame| blame.victim == pid).unwrap();
            assert!(blockers.contains(&blame.chain[1]), "{blame:?} of {blockers:?}");
        }
        let culprit = |n: usize| {
            let pid = sessions[n].pid;
            let culprit = blames.iter().find(|blame| blame.victim == pid).map(|blame| blame.culprit);
            culprit.and_then(|pid| sessions.iter().position(|session| session.pid == pid))
        };
        let culprits: Vec<_> = (0..8).map(culprit).collect();
        // 2, 3 and 4 wait for rows, in the end of 1. The ALTER waits for the SELECT of 0, which is the oldest that shares the table with
        // it; what comes after that waits for the ALTER.
        assert_eq!(culprits, [None, None, Some(1), Some(1), Some(1), Some(0), Some(5), culprits[7]]);
        assert!(culprits[7].is_some());
    });
}

/// A case of the testbed with its own load: the culprit is cancelled, and no request suffers.
fn case(case: Case, more: &'static str) {
    on_one_thread(async move {
        let Some(stage) = stage(case).await else { return };
        let agent = Agent::start(&stage.server.dsn(), more);
        let plan = Plan { length: Nanos::from_secs(600), seed: 11, ..Plan::default() };
        eprintln!("seed {}", plan.seed);
        let loading: Loading = stage.load(&plan).start(stage.server.config("load")).await.unwrap();
        agent.sees(|watched| watched.completed > 500).await;
        let dose = Dose { hold: Nanos::from_secs(600), ..Dose::default() };
        let tasks = case.trigger(&stage.server, dose, loading.clock()).await.unwrap();
        let pids: Vec<i32> = tasks.iter().map(|task| task.pid).collect();
        let cancel = agent.told("cancel", |_| true).await;
        assert!(pids.contains(&(cancel["pid"].as_i64().unwrap() as i32)), "{pids:?}: {cancel:#}");
        agent.told("released", |_| true).await;
        loading.stop();
        for request in loading.finished().await {
            let cancelled = format!("{:?}", request.outcome).contains("57014");
            assert!(!cancelled, "a victim was cancelled: {request:?}");
        }
        for task in tasks.into_iter().filter(|task| Some(i64::from(task.pid)) == cancel["pid"].as_i64()) {
            let how = task.ended(PATIENCE).await.how;
            assert!(matches!(how, How::Cancelled) || more.contains("terminate"), "{how:?}");
        }
    });
}

#[test]
fn a_long_write_is_cancelled() {
    case(Case::C6, "");
}

#[test]
fn a_forgotten_transaction_is_ended_where_that_is_asked_for() {
    case(Case::C6Idle, "escalate = \"terminate\"");
}

#[test]
fn the_lock_queue_is_dissolved() {
    case(Case::Alter, "");
}

#[test]
fn a_bulk_insert_that_fills_the_log_is_cancelled() {
    case(Case::C7, "");
}
