//! A real PostgreSQL, brought to its knees and freed. Where there is none the tests say so and pass, but with
//! `PLIMSOLL_REQUIRE_POSTGRES=1` they fail.

use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_testbed::clock::Clock;
use plimsoll_testbed::postgres::cases::Case;
use plimsoll_testbed::postgres::request::{Outcome, Request, TERMINATED};
use plimsoll_testbed::postgres::tables::{Scale, fill};
use plimsoll_testbed::postgres::{
    Dose, How, Loading, Options, Plan, Server, Session, Shutdown, Stage, Task, there_is_none,
};
use tokio::time::{sleep, timeout};

/// For what takes moments.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

async fn stage(case: Case) -> Option<Stage> {
    match Stage::set(case, &Options::default()).await {
        Ok(stage) => Some(stage),
        Err(error) if there_is_none(&error) => None,
        Err(error) => panic!("{error}"),
    }
}

fn server() -> Option<Server> {
    server_of(&Options::default())
}

fn server_of(options: &Options) -> Option<Server> {
    match Server::start(options) {
        Ok(server) => Some(server),
        Err(error) if there_is_none(&error) => None,
        Err(error) => panic!("{error}"),
    }
}

/// A load that goes on until it is stopped.
async fn begin(stage: &Stage) -> Loading {
    let plan = Plan { length: Nanos::from_secs(600), seed: 11, ..Plan::default() };
    eprintln!("seed {}", plan.seed);
    stage.load(&plan).start(stage.server.config("load")).await.unwrap()
}

async fn trigger(stage: &Stage, case: Case, loading: &Loading) -> Vec<Task> {
    let dose = Dose { hold: Nanos::from_secs(600), ..Dose::default() };
    case.trigger(&stage.server, dose, loading.clock()).await.unwrap()
}

/// Waits until some hundred requests that came from now on have been answered.
async fn goes_on(loading: &Loading) {
    let from = loading.now();
    let answered = || ok(&loading.ended_after(0).into_iter().filter(|it| it.at > from).collect::<Vec<_>>());
    let wait = async {
        while answered() < 400 {
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("it does not go on");
}

/// Waits until so many of the load's sessions wait for a lock; says who blocks them, directly.
async fn blocked(watch: &Session, sessions: i64) -> Vec<i32> {
    let waiting =
        "select pid from pg_stat_activity where application_name = 'load' and wait_event_type = 'Lock'";
    let wait = async {
        while watch.client.query(waiting, &[]).await.unwrap().len() < sessions as usize {
            sleep(LOOK).await;
        }
        let blockers = format!(
            "select distinct unnest(pg_blocking_pids(pid)) from ({waiting}) waiting
             except select pid from pg_stat_activity where application_name = 'load'"
        );
        watch.client.query(&blockers, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    timeout(PATIENCE, wait).await.expect("nobody was blocked")
}

async fn tell(watch: &Session, what: &str, pid: i32) -> bool {
    watch.client.query_one(&format!("select {what}($1)"), &[&pid]).await.unwrap().get(0)
}

fn ok(requests: &[Request]) -> usize {
    requests.iter().filter(|request| request.outcome == Outcome::Ok).count()
}

/// All that came was answered, or refused while nobody was.
fn nobody_suffered_otherwise(requests: &[Request]) {
    for request in requests {
        assert!(matches!(request.outcome, Outcome::Ok | Outcome::Refused), "{request:?}");
    }
}

#[tokio::test]
async fn a_long_write_blocks_all_until_it_is_cancelled() {
    let Some(stage) = stage(Case::C6).await else { return };
    let watch = Session::connect(&stage.server.config("watch")).await.unwrap();
    let loading = begin(&stage).await;
    goes_on(&loading).await;
    let [culprit] = trigger(&stage, Case::C6, &loading).await.try_into().ok().unwrap();
    assert_eq!(blocked(&watch, 32).await, [culprit.pid]);
    let stuck = loading.ended_after(0).len();
    sleep(Duration::from_millis(300)).await;
    assert_eq!(ok(&loading.ended_after(stuck)), 0, "all connections are stuck");

    assert!(tell(&watch, "pg_cancel_backend", culprit.pid).await);
    let ending = culprit.ended(PATIENCE).await;
    assert_eq!((ending.name.as_str(), &ending.how), ("reprice", &How::Cancelled));
    goes_on(&loading).await;
    loading.stop();
    let requests = loading.finished().await;
    nobody_suffered_otherwise(&requests);
    assert!(requests.iter().any(|request| request.latency >= Nanos::from_millis(300)), "who waited, waited");
}

#[tokio::test]
async fn one_that_idles_in_its_transaction_has_to_be_terminated() {
    let Some(stage) = stage(Case::C6Idle).await else { return };
    let watch = Session::connect(&stage.server.config("watch")).await.unwrap();
    let loading = begin(&stage).await;
    let [culprit] = trigger(&stage, Case::C6Idle, &loading).await.try_into().ok().unwrap();
    assert_eq!(blocked(&watch, 32).await, [culprit.pid]);
    // It has answered all that it was asked.
    let idles = "select state = 'idle in transaction' from pg_stat_activity where pid = $1";
    while !watch.client.query_one(idles, &[&culprit.pid]).await.unwrap().get::<_, bool>(0) {
        sleep(LOOK).await;
    }
    assert!(tell(&watch, "pg_cancel_backend", culprit.pid).await, "it is done as if it helped");
    sleep(Duration::from_millis(300)).await;
    assert_eq!(blocked(&watch, 32).await, [culprit.pid]);
    assert!(tell(&watch, "pg_terminate_backend", culprit.pid).await);
    assert_eq!(culprit.ended(PATIENCE).await.how, How::Terminated);
    goes_on(&loading).await;
    loading.stop();
    nobody_suffered_otherwise(&loading.finished().await);
}

#[tokio::test]
async fn a_change_behind_a_report_stops_everyone_and_without_it_the_report_goes_on() {
    change_behind_a_report(Case::Alter).await;
}

#[tokio::test]
async fn so_does_one_behind_a_report_that_nobody_reads_any_more() {
    change_behind_a_report(Case::AlterIdle).await;
}

async fn change_behind_a_report(case: Case) {
    let Some(stage) = stage(case).await else { return };
    let watch = Session::connect(&stage.server.config("watch")).await.unwrap();
    let loading = begin(&stage).await;
    let [report, change] = trigger(&stage, case, &loading).await.try_into().ok().unwrap();
    assert_eq!(blocked(&watch, 32).await, [change.pid]);
    let row = watch.client.query_one("select pg_blocking_pids($1)", &[&change.pid]).await.unwrap();
    assert!(row.get::<_, Vec<i32>>(0).contains(&report.pid), "the report is at the root");
    assert!(tell(&watch, "pg_cancel_backend", change.pid).await);
    assert_eq!(change.ended(PATIENCE).await.how, How::Cancelled);
    goes_on(&loading).await;
    loading.stop();
    nobody_suffered_otherwise(&loading.finished().await);
    let ending = report.ended(Duration::ZERO).await;
    assert_eq!((ending.name.as_str(), ending.how), ("report", How::Abandoned));
}

#[tokio::test]
async fn those_who_are_left_alone_finish() {
    let Some(server) = server() else { return };
    let session = Session::connect(&server.config("setup")).await.unwrap();
    fill(&session, Scale { accounts: 1_000, account_bytes: 10, archived: 1_000 }).await.unwrap();
    let clock = Clock::start();
    let dose = Dose { hold: Nanos::from_millis(100), rows: 1_000 };
    for case in Case::ALL {
        for task in case.trigger(&server, dose, clock).await.unwrap() {
            let ending = task.ended(PATIENCE).await;
            assert_eq!(ending.how, How::Finished, "{case}: {}", ending.name);
            assert!(ending.from < ending.to);
        }
    }
    let task = Case::innocent(&server, dose.hold, clock).await.unwrap();
    assert_eq!(task.ended(PATIENCE).await.how, How::Finished);
    let row = session.client.query_one("select count(*), max(delta) from history", &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (1_000, 1));
    assert!(session.run("select nothing").await.unwrap_err().contains("SQLSTATE 42703"));
}

#[tokio::test]
async fn a_load_outlives_restarts_and_a_crash() {
    let Some(mut stage) = stage(Case::C6).await else { return };
    let loading = begin(&stage).await;
    for how in [Shutdown::Fast, Shutdown::Immediate] {
        goes_on(&loading).await;
        stage.server.restart(how).unwrap();
    }
    goes_on(&loading).await;
    loading.stop();
    let requests = loading.finished().await;
    let failed = |request: &&Request| !matches!(request.outcome, Outcome::Ok | Outcome::Refused);
    let failed: Vec<_> = requests.iter().filter(failed).collect();
    assert!(
        failed.len() <= 3 * 2 * 32,
        "a connection loses one request, and one more of each try: {}",
        failed.len()
    );
    for request in &failed {
        let cut = [TERMINATED, *b"57P02", *b"57P03"].map(Outcome::Failed);
        assert!(request.outcome == Outcome::Lost || cut.contains(&request.outcome), "{request:?}");
    }
}

#[tokio::test]
async fn a_server_that_goes_leaves_nothing_behind() {
    // It matters only where root runs this.
    let options = Options { user: "nobody".to_owned(), ..Options::default() };
    let (Some(one), Some(other)) = (server(), server_of(&options)) else { return };
    assert_ne!(one.port(), other.port());
    let (directory, pid, config) = (one.directory().to_owned(), one.pid().unwrap(), one.config("late"));
    assert!(directory.join("data").exists());
    let session = Session::connect(&config).await.unwrap();
    let row = session.client.query_one("select current_setting('track_io_timing')", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "on");
    drop(one);
    assert!(!directory.exists());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(Session::connect(&config).await.is_err());
    Session::connect(&other.config("early")).await.unwrap();
}

#[tokio::test]
async fn a_standby_follows_until_it_is_promoted() {
    let Some(server) = server() else { return };
    let writer = Session::connect(&server.config("writer")).await.unwrap();
    writer.run("create table notes (n int)").await.unwrap();
    let standby = server.standby().unwrap();
    let reader = Session::connect(&standby.config("reader")).await.unwrap();
    writer.run("insert into notes values (1)").await.unwrap();
    let count =
        async || reader.client.query_one("select count(*) from notes", &[]).await.unwrap().get::<_, i64>(0);
    let follows = async {
        while count().await < 1 {
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, follows).await.expect("it does not follow");
    let refused = reader.run("insert into notes values (2)").await.unwrap_err();
    assert!(refused.contains("25006"), "{refused}");
    reader.run("select pg_promote()").await.unwrap();
    reader.run("insert into notes values (2)").await.unwrap();
    assert_eq!(count().await, 2);
}

#[test]
fn a_setting_that_is_wrong_is_told_in_the_servers_words() {
    let options =
        Options { settings: vec![("work_mem".to_owned(), "much".to_owned())], ..Options::default() };
    let error = Server::start(&options).err().unwrap();
    if !there_is_none(&error) {
        assert!(error.contains("did not start") && error.contains("work_mem"), "{error}");
    }
}
