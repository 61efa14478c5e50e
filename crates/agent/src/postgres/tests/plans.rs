//! Plan estimates, against a real planner.

use plimsoll_cancellation::scene::Task;

use super::*;
use crate::server::Server;
use crate::server::slots;

/// The role that asks for plans, and tables: one that it may read, and one that it may not.
const TABLES: &str = "create role plans login; \
    create table open as select i from generate_series(1, 2000) i; grant select on open to plans; \
    create table closed as select i from generate_series(1, 2000) i; analyze";

/// Some seconds on a processor.
fn long(table: &str) -> String {
    format!("select count(*) from {table} a, {table} b, generate_series(1, 20) c")
}

/// A server that is looked at as if something were wrong with it.
struct Looking {
    server: Server<Postgres>,
    scene: Scene,
    warnings: Vec<String>,
}

impl Looking {
    fn at(database: &Database, role: &str) -> Looking {
        let plans = format!("estimates_dsn = \"{}\"", dsn(database, role));
        let mut server = Server::new(settings(&dsn(database, "watcher"), &plans)).unwrap();
        server.judged(Standing::Suspected, true);
        Looking { server, scene: Scene::default(), warnings: Vec::new() }
    }

    async fn look(&mut self) {
        self.server.look(&mut self.scene).await.unwrap();
        self.warnings.extend(self.server.warnings());
        sleep(LOOK).await;
    }

    /// The task of this process, and the time that it took on a processor.
    fn task(&self, pid: Pid) -> Option<(Task, u64)> {
        let is_it =
            |task: &Task| self.server.account.known(task.id).is_some_and(|known| known.backend.pid == pid);
        let index = self.scene.tasks.iter().position(is_it)?;
        let mut uses = self.scene.uses.iter();
        let cpu = uses.find(|used| used.task as usize == index && used.resource == slots::CPU);
        Some((self.scene.tasks[index], cpu.map_or(0, |cpu| cpu.used)))
    }

    async fn until(&mut self, what: impl Fn(&Looking) -> bool) {
        let until = tokio::time::Instant::now() + PATIENCE;
        while !what(self) {
            assert!(tokio::time::Instant::now() < until, "{:?}: {:?}", self.scene.tasks, self.warnings);
            self.look().await;
        }
    }
}

async fn with_tables() -> Option<Database> {
    let database = with_roles().await?;
    let session = Session::connect(&database.config("setup")).await.unwrap();
    session.run(TABLES).await.unwrap();
    Some(database)
}

/// A session in which this runs until it is dropped.
async fn running(database: &Database, sql: String) -> (Pid, tokio::task::JoinHandle<Result<(), String>>) {
    let session = Session::connect(&database.config("report")).await.unwrap();
    (session.pid.into(), tokio::task::spawn_local(async move { session.run(&sql).await }))
}

/// What the connection for plans did last.
const LAST: &str = "select query from pg_stat_activity where application_name = 'plimsoll agent, plans'";

#[test]
fn how_far_a_query_is_grows_and_is_about_right() {
    on_one_thread(async {
        let Some(database) = with_tables().await else { return };
        let mut looking = Looking::at(&database, "plans");
        // As if it had been watched for long: only then is a task charged with what it takes.
        for _ in 0..60 {
            looking.look().await;
        }
        let (pid, query) = running(&database, long("open")).await;
        looking.until(|looking| looking.task(pid).is_some()).await;
        let (mut seen, mut took_ns) = (Vec::new(), 0);
        while let Some((task, cpu_ns)) = looking.task(pid) {
            took_ns = took_ns.max(cpu_ns);
            if task.total > 0 {
                seen.push((task.done, task.total));
            }
            looking.look().await;
        }
        query.await.unwrap().unwrap();
        assert!(looking.warnings.is_empty(), "{:?}", looking.warnings);
        eprintln!("{} looks; took {took_ns} ns; {:?} .. {:?}", seen.len(), seen.first(), seen.last());
        assert!(seen.len() > 5 && seen.is_sorted(), "{seen:?}");
        let (first, last) = (seen[0], seen[seen.len() - 1]);
        assert!(first.0 < last.0 && first.1 == last.1, "{first:?} {last:?}");
        // Where the kernel tells of no process of the server there is nothing to compare with.
        if looking.server.adapter.as_ref().unwrap().on_host() {
            let off = last.1 as f64 / took_ns as f64;
            assert!((0.2..=5.0).contains(&off), "expected to take {off} times of what it took");
        }
    });
}

#[test]
fn a_table_that_may_not_be_read_is_named_once() {
    on_one_thread(async {
        let Some(database) = with_tables().await else { return };
        let mut looking = Looking::at(&database, "plans");
        let mut reports = Vec::new();
        for _ in 0..2 {
            reports.push(running(&database, long("closed")).await);
        }
        looking.until(|looking| !looking.warnings.is_empty()).await;
        for _ in 0..20 {
            looking.look().await;
            assert!(looking.scene.tasks.iter().all(|task| task.total == 0));
        }
        let [warning] = looking.warnings.as_slice() else { panic!("{:?}", looking.warnings) };
        assert!(warning.contains("permission denied for table closed"), "{warning}");
        assert!(warning.contains("GRANT SELECT on it TO plans"), "{warning}");
    });
}

#[test]
fn a_table_that_is_locked_keeps_no_look_waiting() {
    on_one_thread(async {
        let Some(database) = with_tables().await else { return };
        let mut looking = Looking::at(&database, "plans");
        let session = Session::connect(&database.config("report")).await.unwrap();
        session.run("begin; lock table open in access exclusive mode").await.unwrap();
        let pid = session.pid.into();
        tokio::task::spawn_local(async move { session.run(&long("open")).await });
        let watch = Session::connect(&database.config("watch")).await.unwrap();
        let mut tried = false;
        let until = tokio::time::Instant::now() + PATIENCE;
        while !tried {
            assert!(tokio::time::Instant::now() < until, "{:?}", looking.scene.tasks);
            looking.look().await;
            let last = watch.client.query_opt(LAST, &[]).await.unwrap();
            tried = last.is_some_and(|row| row.get::<_, &str>(0) == "ROLLBACK");
        }
        for _ in 0..10 {
            looking.look().await;
        }
        assert_eq!(looking.task(pid).unwrap().0.total, 0, "its tables could not be planned with");
        assert!(looking.warnings.is_empty(), "{:?}", looking.warnings);
    });
}

#[test]
fn a_role_that_may_do_more_than_read_is_turned_down() {
    on_one_thread(async {
        let Some(database) = with_tables().await else { return };
        for role in ["watcher", "postgres", "stranger"] {
            let mut looking = Looking::at(&database, role);
            looking.until(|looking| !looking.warnings.is_empty()).await;
            let what = if role == "stranger" {
                "\"stranger\" does not exist"
            } else {
                "may do more than read tables"
            };
            let [warning] = looking.warnings.as_slice() else { panic!("{:?}", looking.warnings) };
            assert!(warning.starts_with("no plan estimates") && warning.contains(what), "{warning}");
        }
    });
}

#[test]
fn several_statements_that_come_as_one_are_not_planned() {
    on_one_thread(async {
        let Some(database) = with_tables().await else { return };
        let mut looking = Looking::at(&database, "plans");
        let (pid, report) = running(&database, format!("{}; create table gone ()", long("open"))).await;
        let (other, _) = running(&database, long("open")).await;
        // The younger one is asked about second.
        looking.until(|looking| looking.task(other).is_some_and(|(task, _)| task.total > 0)).await;
        assert!(looking.task(pid).is_none_or(|(task, _)| task.total == 0));
        assert!(looking.warnings.is_empty(), "{:?}", looking.warnings);
        report.abort();
    });
}
