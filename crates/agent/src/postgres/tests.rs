//! A real PostgreSQL that is brought to its knees, and freed by the agent. Where there is none the tests say so and pass, but with
//! `PLIMSOLL_REQUIRE_POSTGRES=1` they fail.

use plimsoll_cancellation::Scene;
use plimsoll_cancellation::decision::State as Standing;
use plimsoll_core::config::{self, Config, parse};
use plimsoll_testbed::postgres::{
    Case, Dose, How, Loading, Options, Plan, Server as Database, Session, Shutdown, Stage, there_is_none,
};
use serde_json::Value;
use tokio::time::sleep;

use super::*;
use crate::clock;
use crate::server::chains::blame;
use crate::server::conformance::{
    self, Clients, Ground, Kind, LOOK, PATIENCE, Tables, conformance, on_one_thread,
};
use crate::server::stamp::Stamp;
use crate::source::Source;

mod plans;
mod standby;

type Agent = conformance::Agent<Postgres>;

async fn stage(case: Case) -> Option<Stage> {
    match Stage::set(case, &Options::default()).await {
        Ok(stage) => Some(stage),
        Err(error) if there_is_none(&error) => None,
        Err(error) => panic!("{error}"),
    }
}

fn settings(dsn: &str, more: &str) -> config::Database {
    let text = format!("[postgres.main]\ndsn = \"{dsn}\"\nslo = {{ p99 = \"100ms\" }}\n{more}");
    parse::<Config>(&text, "").unwrap_or_else(|e| panic!("{e}")).0.databases.remove(0)
}

impl Ground for Database {
    type Adapter = Postgres;

    async fn raise() -> Option<Database> {
        Self::raise_as(Kind::default()).await
    }

    fn at(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    fn settings_at(&self, at: &str, user: &str, more: &str) -> config::Database {
        settings(&dsn_at(at, user), more)
    }

    fn kill(&mut self) {
        self.stop(Shutdown::Immediate);
    }

    async fn revive(&mut self) {
        self.resume().unwrap();
    }
}

impl Tables for Database {
    type Session = Session;

    const NOBODY: &'static str = "nobody";
    const GRANTS: &'static [&'static str] =
        &["GRANT pg_monitor TO nobody", "GRANT pg_signal_backend TO nobody"];
    const USUAL: &'static str =
        "with row as (select from shelf where id = 1 for update) select pg_sleep(0.03) from row";
    const WORK: &'static str = "select pg_sleep(600)";
    const REPORT: &'static [&'static str] = &["begin", "select count(*) from shelf"];
    const REST: &'static str = "select pg_sleep(4)";

    async fn raise_as(Kind { tls, bin, port }: Kind) -> Option<Database> {
        let database = with_roles_and(&Options { tls, bin, port, ..Options::default() }).await?;
        let session = Session::connect(&database.config("setup")).await.unwrap();
        session.run("create role nobody login").await.unwrap();
        Some(database)
    }

    async fn try_session(&self) -> Result<Session, String> {
        Session::connect(&as_role(self, "app")).await
    }

    async fn grant(&self, statement: &str) {
        Session::connect(&self.config("admin")).await.unwrap().run(statement).await.unwrap();
    }
}

conformance!(Database);

/// A role that may do what `docs/postgres.md` asks for and no more, and one of an application, which is no superuser; a table.
const ROLES: &str = "create role watcher login; grant pg_monitor, pg_signal_backend to watcher; create role app login; \
    create table shelf (id int primary key, books int); insert into shelf select i, 0 from generate_series(1, 100) i; \
    grant all on shelf to app; alter table shelf owner to app";

fn as_role(database: &Database, role: &str) -> tokio_postgres::Config {
    let mut config = database.config(role);
    config.user(role);
    config
}

fn dsn(database: &Database, role: &str) -> String {
    dsn_at(&database.at(), role)
}

fn dsn_at(at: &str, role: &str) -> String {
    format!("postgres://{role}@{at}/postgres")
}

async fn with_roles() -> Option<Database> {
    with_roles_and(&Options::default()).await
}

async fn with_roles_and(options: &Options) -> Option<Database> {
    let database = match Database::start(options) {
        Ok(server) => server,
        Err(error) if there_is_none(&error) => return None,
        Err(error) => panic!("{error}"),
    };
    let session = Session::connect(&database.config("setup")).await.unwrap();
    session.client.batch_execute(ROLES).await.unwrap();
    Some(database)
}

#[test]
fn a_right_that_is_lost_is_named() {
    on_one_thread(async {
        let Some(database) = with_roles().await else { return };
        let _clients = Clients::of(&database).await;
        let agent = Agent::start(settings(&dsn(&database, "watcher"), ""));
        agent.sees(|watched| watched.looks > 10 && watched.completed > 100).await;
        let admin = Session::connect(&database.config("setup")).await.unwrap();
        admin.run("revoke pg_monitor from watcher").await.unwrap();
        let said = |event: &Value| event["reason"].as_str().unwrap().contains("GRANT pg_monitor TO");
        agent.told("adapter_error", said).await;
    });
}

#[test]
fn the_least_privileges_are_enough_and_superusers_are_named() {
    on_one_thread(async {
        let Some(database) = with_roles().await else { return };
        let _clients = Clients::of(&database).await;
        let agent = Agent::start(settings(&dsn(&database, "watcher"), ""));
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
fn a_statement_that_ignores_being_cancelled_is_named_or_where_that_is_asked_for_ended() {
    // It catches even that, which `when others` does not.
    const STUBBORN: &str = "begin; update shelf set books = 0; do $$ begin loop \
        begin perform pg_sleep(600); exception when query_canceled then null; end; end loop; end $$";
    on_one_thread(async {
        let Some(database) = with_roles().await else { return };
        let _clients = Clients::of(&database).await;
        let boss = Session::connect(&database.config("boss")).await.unwrap();
        for (more, says) in [("", "it was told to end"), ("escalate = \"terminate\"", "was terminated")] {
            let agent = Agent::start(settings(&dsn(&database, "watcher"), more));
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
fn what_ends_somebody_is_planned_before_it_is_needed() {
    on_one_thread(async {
        let Some(database) = with_roles().await else { return };
        let server = connect::server(&dsn(&database, "watcher"), None).unwrap();
        let link = Link::connect(&server, clock::now()).await.unwrap();
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
        let server = connect::server(&database.dsn(), None).unwrap();
        let mut link = Link::connect(&server, clock::now()).await.unwrap();
        let glance = Glance { now: clock::now(), since: Stamp::EARLIEST, suspicious: false };
        let seen = link.look(glance).await.unwrap();
        let since = |pid| Some(seen.backends.iter().find(|backend| backend.pid == pid)?.since());
        let blames = blame(&seen.locks, None, since);
        assert_eq!(blames.len(), rows.len(), "all who wait, and nobody else");
        for row in rows {
            let (pid, blockers): (i32, Vec<i32>) = (row.get(0), row.get(1));
            let blame = blames.iter().find(|blame| blame.victim == Pid::from(pid)).unwrap();
            assert!(
                blockers.iter().any(|&pid| Pid::from(pid) == blame.chain[1]),
                "{blame:?} of {blockers:?}"
            );
        }
        let culprit = |n: usize| {
            let pid = Pid::from(sessions[n].pid);
            let culprit = blames.iter().find(|blame| blame.victim == pid).map(|blame| blame.culprit);
            culprit.and_then(|pid| sessions.iter().position(|session| Pid::from(session.pid) == pid))
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
        let agent = Agent::start(settings(&stage.server.dsn(), more));
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
