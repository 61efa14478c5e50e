//! A hot standby: what clients can do there can hold up others there, too, and so can what it replays.

use super::*;

const READ: &str = "begin; select pg_advisory_xact_lock_shared(7); select count(*) from shelf; commit";

async fn readers(standby: &Database) -> Clients {
    Clients::that_ask(standby, 16, |_| READ.to_owned(), LOOK).await
}

#[test]
fn a_standby_is_watched_and_goes_on_being_watched_when_it_is_promoted() {
    on_one_thread(async {
        let Some(primary) = with_roles().await else { return };
        let standby = primary.standby().unwrap();
        let readers = readers(&standby).await;
        let agent = Agent::start(settings(&dsn(&standby, "watcher"), ""));
        agent.sees(|watched| watched.looks > 10 && watched.completed > 100).await;
        assert!(agent.events("").is_empty(), "{:?}", agent.events(""));

        let hog = Session::connect(&as_role(&standby, "app")).await.unwrap();
        let hold = "begin; select pg_advisory_xact_lock(7); select pg_sleep(600)";
        let error = hog.client.batch_execute(hold).await.unwrap_err();
        assert_eq!(error.code().map(|code| code.code()), Some("57014"), "{error}");
        let cancel = agent.told("cancel", |_| true).await;
        assert_eq!((&cancel["pid"], &cancel["resource"]), (&hog.pid.into(), &"advisory lock 7".into()));
        agent.told("released", |_| true).await;

        drop(readers);
        let boss = Session::connect(&standby.config("boss")).await.unwrap();
        boss.run("select pg_promote()").await.unwrap();
        let _clients = Clients::of(&standby).await;
        let looks = agent.sees(|_| true).await.looks;
        agent.sees(|watched| watched.looks > looks + 20 && watched.state == "calm").await;
        let error =
            hog.client.batch_execute("rollback; begin; update shelf set books = 0; select pg_sleep(600)");
        let error = error.await.unwrap_err();
        assert_eq!(error.code().map(|code| code.code()), Some("57014"), "{error}");
        assert!(agent.events("adapter_error").is_empty(), "{:#?}", agent.events(""));
    });
}

#[test]
fn what_a_standby_replays_is_named_and_who_keeps_it_from_that_is_cancelled() {
    on_one_thread(async {
        let Some(primary) = with_roles().await else { return };
        let standby = primary.standby().unwrap();
        let _readers = readers(&standby).await;
        let agent = Agent::start(settings(&dsn(&standby, "watcher"), ""));
        agent.sees(|watched| watched.looks > 10 && watched.completed > 100).await;

        // The lock of a transaction over there is held here, too.
        let session = Session::connect(&primary.config("boss")).await.unwrap();
        session.run("begin; lock table shelf in access exclusive mode").await.unwrap();
        // It arrives with what is committed next.
        let nudge = Session::connect(&primary.config("nudge")).await.unwrap();
        nudge.run("create table nudge ()").await.unwrap();
        let escalate = agent.told("escalate", |_| true).await;
        assert!(escalate["reason"].as_str().unwrap().contains("of the primary"), "{escalate}");
        assert_eq!(escalate["about"]["kind"], "startup");
        session.run("rollback").await.unwrap();
        agent.sees(|watched| watched.state == "calm").await;
        assert!(agent.events("cancel").is_empty(), "{:#?}", agent.events("cancel"));

        // A report keeps an ALTER TABLE from being replayed, and all who come later wait behind that.
        let report = Session::connect(&as_role(&standby, "app")).await.unwrap();
        let long = report.client.batch_execute("begin; select count(*) from shelf; select pg_sleep(600)");
        let alter = async {
            let watch = Session::connect(&standby.config("watch")).await.unwrap();
            let sleeps = "select wait_event = 'PgSleep' from pg_stat_activity where pid = $1";
            while watch.client.query_one(sleeps, &[&report.pid]).await.unwrap().get::<_, Option<bool>>(0)
                != Some(true)
            {
                sleep(LOOK).await;
            }
            nudge.run("alter table shelf add column x int").await.unwrap();
        };
        let (error, ()) = tokio::join!(long, alter);
        let error = error.unwrap_err();
        // The server itself would have cancelled it after half a minute, and called it a conflict.
        assert_eq!(error.code().map(|code| code.code()), Some("57014"), "{error}");
        assert_eq!(agent.told("cancel", |_| true).await["pid"], report.pid);
    });
}
