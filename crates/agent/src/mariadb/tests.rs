//! A real MariaDB that is brought to its knees, and freed by the agent. Where there is none the tests say so and pass, but with
//! `PLIMSOLL_REQUIRE_MARIADB=1` they fail.

use plimsoll_core::config::{self, Config, parse};
use plimsoll_testbed::database;
use plimsoll_testbed::database::task::How;
use plimsoll_testbed::mariadb::{Options, Server as Private, Session, there_is_none};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::MariaDb;
use crate::clock::now;
use crate::server::chains::{Pid, blame};
use crate::server::conformance::{self, Clients, Ground, Kind, LOOK, Tables, conformance, on_one_thread};
use crate::server::stamp::Stamp;
use crate::server::{Adapter, Glance, Seen};

type Agent = conformance::Agent<MariaDb>;

/// Users with the rights that `docs/mariadb.md` asks for and no more, and none; an application's, and its table.
const USERS: &[&str] = &[
    "create user watcher",
    "grant process, connection admin on *.* to watcher",
    "grant select on performance_schema.* to watcher",
    "create user nobody",
    "create database shop",
    "create user app",
    "grant all on shop.* to app",
    "create table shop.shelf (id int primary key, books int) engine = innodb",
    "insert into shop.shelf select seq, 0 from shop.seq_1_to_100",
];

fn settings(server: &Private, user: &str, more: &str) -> config::Database {
    settings_of(&server.url(user), more)
}

fn settings_of(url: &str, more: &str) -> config::Database {
    let text = format!("[mariadb.main]\ndsn = \"{url}\"\nslo = {{ p99 = \"100ms\" }}\n{more}");
    parse::<Config>(&text, "").unwrap_or_else(|e| panic!("{e}")).0.databases.remove(0)
}

async fn raise_with(options: &Options) -> Option<Private> {
    let server = match Private::start(options) {
        Ok(server) => server,
        Err(error) if there_is_none(&error) => return None,
        Err(error) => panic!("{error}"),
    };
    let mut session = Session::connect(&server.options()).await.unwrap();
    for statement in USERS {
        session.run(statement).await.unwrap();
    }
    Some(server)
}

impl Ground for Private {
    type Adapter = MariaDb;

    async fn raise() -> Option<Private> {
        Self::raise_as(Kind::default()).await
    }

    fn at(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    fn settings_at(&self, at: &str, user: &str, more: &str) -> config::Database {
        settings_of(&format!("mariadb://{user}@{at}"), more)
    }

    fn kill(&mut self) {
        self.stop(true);
    }

    async fn revive(&mut self) {
        self.resume().unwrap();
    }
}

impl Tables for Private {
    type Session = Session;

    const NOBODY: &'static str = "nobody";
    const GRANTS: &'static [&'static str] = &[
        "GRANT PROCESS ON *.* TO 'nobody'@'%'",
        "GRANT CONNECTION ADMIN ON *.* TO 'nobody'@'%'",
        "GRANT SELECT ON performance_schema.* TO 'nobody'@'%'",
    ];
    const USUAL: &'static str = "update shelf set books = books + 1 + sleep(0.03) where id = 1";
    const WORK: &'static str = "select sleep(600) from shelf limit 2";
    const REPORT: &'static [&'static str] = &["begin", "select count(*) from shelf"];
    const REST: &'static str = "select sleep(4)";

    async fn raise_as(Kind { tls, bin, port }: Kind) -> Option<Private> {
        raise_with(&Options { tls, bin, port, ..Options::default() }).await
    }

    async fn try_session(&self) -> Result<Session, String> {
        Session::connect(&self.options_of("app", Some("shop"))).await
    }

    async fn grant(&self, statement: &str) {
        Session::connect(&self.options()).await.unwrap().run(statement).await.unwrap();
    }
}

conformance!(Private);

/// One who looks when the test says so.
async fn watcher(server: &Private) -> MariaDb {
    let target = MariaDb::target(&settings(server, "watcher", "")).unwrap();
    MariaDb::connect(&target, now()).await.unwrap()
}

async fn look(watcher: &mut MariaDb) -> Seen {
    watcher.look(Glance { now: now(), since: Stamp::EARLIEST, suspicious: true }).await.unwrap()
}

#[test]
fn who_has_a_row_is_news_however_often_that_is_looked_at() {
    on_one_thread(async {
        let Some(server) = Private::raise().await else { return };
        let mut watcher = watcher(&server).await;
        let mut sessions = Vec::new();
        for _ in 0..3 {
            sessions.push(server.session().await);
        }
        let ids: Vec<Pid> = sessions.iter().map(|session| session.id().into()).collect();
        // Each gets the row when the one before has had it for a while.
        for (mut session, ms) in sessions.into_iter().zip([400, 800, 1_200]) {
            session.run("begin").await.unwrap();
            let sleeps = format!("do sleep({})", f64::from(ms) / 1_000.0);
            tokio::task::spawn_local(async move {
                session.run("update shelf set books = 0 where id = 1").await.unwrap();
                session.run(&sleeps).await.unwrap();
                session.run("commit").await.unwrap();
            });
            sleep(LOOK).await;
        }
        let mut had = Vec::new();
        let wait = async {
            while had.last() != Some(&ids[1]) {
                let seen = look(&mut watcher).await;
                had.extend(blame(&seen.locks, None, |_| None).iter().map(|blame| blame.culprit));
                had.dedup();
            }
        };
        let known = timeout(conformance::PATIENCE, wait).await;
        assert!(known.is_ok() && had == ids[..2], "all others wait for each in turn: {had:?} of {ids:?}");
    });
}

#[test]
fn whose_transaction_has_ended_is_left_alone_and_whose_goes_on_is_not() {
    on_one_thread(async {
        let Some(server) = Private::raise().await else { return };
        let mut watcher = watcher(&server).await;
        let steps = ["begin", "update shelf set books = 0 where id = 1"];
        let mut holder = server.session().await;
        let mut waiter = server.session().await;
        conformance::follow(&mut holder, &steps).await.unwrap();
        tokio::task::spawn_local(async move { waiter.run("delete from shelf where id = 1").await });
        let id = Pid::from(holder.id());
        let has_it = async |watcher: &mut MariaDb| loop {
            let seen = look(watcher).await;
            if !seen.locks.is_empty() {
                return seen.backends.iter().find(|backend| backend.pid == id).unwrap().clone();
            }
        };
        let before = has_it(&mut watcher).await;
        conformance::follow(&mut holder, &["commit"]).await.unwrap();
        conformance::follow(&mut holder, &["begin", "update shelf set books = 0 where id = 2"])
            .await
            .unwrap();
        assert_eq!(watcher.end(&before, true).await, Ok(None));
        let mut waiter = server.session().await;
        tokio::task::spawn_local(async move { waiter.run("delete from shelf where id = 2").await });
        let now = has_it(&mut watcher).await;
        // Another statement, and the same transaction.
        conformance::follow(&mut holder, &["select count(*) from shelf"]).await.unwrap();
        assert_eq!(watcher.end(&now, true).await, Ok(Some(true)));
        assert!(holder.run("commit").await.is_err(), "its connection is gone");
    });
}

#[test]
fn who_has_all_tables_for_a_backup_is_ended_with_its_connection() {
    on_one_thread(async {
        let Some(server) = Private::raise().await else { return };
        let _clients = Clients::of(&server).await;
        let agent = Agent::start(settings(&server, "watcher", "escalate = \"terminate\""));
        agent.sees(|watched| watched.completed > 100).await;
        let mut backup = Session::connect(&server.options()).await.unwrap();
        backup.run("flush tables with read lock").await.unwrap();
        // Its statement could be cancelled, to no effect.
        let how = database::Session::run(&mut backup, "select sleep(600)").await.unwrap_err();
        assert!(matches!(how, How::Terminated), "{how:?}");
        let cancel = agent.told("cancel", |_| true).await;
        assert_eq!((&cancel["pid"], &cancel["outcome"]), (&backup.id().into(), &"terminated".into()));
        assert_eq!(cancel["resource"], "the backup lock");
        agent.told("released", |_| true).await;
        assert_eq!(agent.events("cancel").len(), 1, "{:#?}", agent.events(""));
    });
}

#[test]
fn a_statement_whose_end_frees_nothing_is_followed_by_its_connections() {
    on_one_thread(async {
        let Some(server) = Private::raise().await else { return };
        let _clients = Clients::of(&server).await;
        let agent = Agent::start(settings(&server, "watcher", "escalate = \"terminate\""));
        agent.sees(|watched| watched.completed > 100).await;
        let mut hog = server.session().await;
        hog.run("begin").await.unwrap();
        // Its first statement, for all that can be seen from outside, is all of its transaction; cancelled, it leaves the rows locked.
        let locked = "select id, sleep(id) from shelf for update";
        let ended = database::Session::run(&mut hog, locked).await;
        assert!(ended.is_err(), "it is ended, one way or the other");
        let cancel = agent.told("cancel", |_| true).await;
        assert_eq!(cancel["pid"], hog.id(), "{cancel:#}");
        agent.told("released", |_| true).await;
        assert!(hog.run("commit").await.is_err(), "its connection is gone");
    });
}

#[test]
fn who_has_all_threads_of_the_pool_is_ended() {
    on_one_thread(async {
        let settings = [
            ("thread_handling", "pool-of-threads"),
            ("thread_pool_size", "1"),
            ("thread_pool_max_threads", "6"),
            ("thread_pool_dedicated_listener", "ON"),
            ("thread_pool_exact_stats", "ON"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let Some(server) = raise_with(&Options { settings, ..Options::default() }).await else { return };
        let _clients = Clients::of(&server).await;
        let mut hogs = Vec::new();
        for _ in 0..8 {
            hogs.push(server.session().await);
        }
        let agent = Agent::start(self::settings(&server, "watcher", ""));
        agent.sees(|watched| watched.completed > 100).await;
        assert!(agent.events("").is_empty(), "{:#?}", agent.events(""));
        let ids: Vec<u32> = hogs.iter().map(|hog| hog.id()).collect();
        for mut hog in hogs {
            tokio::task::spawn_local(async move {
                database::Session::run(&mut hog, "select sleep(600) from shelf limit 2").await
            });
        }
        sleep(LOOK).await;
        // Who has not logged in yet waits for a thread, too, and has no number.
        let mut strangers = Vec::new();
        for _ in 0..4 {
            strangers.push(TcpStream::connect(server.at()).await.unwrap());
        }
        let cancel = agent.told("cancel", |_| true).await;
        assert!(ids.iter().any(|id| cancel["pid"] == *id), "{cancel:#}");
        assert_eq!(cancel["resource"], "the pool of threads");
        agent.told("released", |_| true).await;
        for cancel in agent.events("cancel") {
            assert!(ids.iter().any(|id| cancel["pid"] == *id), "{cancel:#}");
        }
    });
}

#[test]
fn what_is_not_shown_is_said_and_how_to_show_it() {
    on_one_thread(async {
        let Some(server) = raise_with(&Options { shows_metadata: false, ..Options::default() }).await else {
            return;
        };
        let agent = Agent::start(settings(&server, "watcher", ""));
        agent
            .told("adapter_error", |e| e["reason"].as_str().unwrap().contains("performance_schema = ON"))
            .await;
        agent.sees(|watched| watched.looks > 5).await;
    });
}
