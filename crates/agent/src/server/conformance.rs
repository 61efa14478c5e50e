//! What every adapter does for a real server of its kind: [`conformance!`] makes tests of it, for whoever has a [`Ground`]; of databases with
//! [`Tables`] more is asked.

use std::fs;
use std::marker::PhantomData;
use std::path::PathBuf;

use plimsoll_core::config::Database;
use plimsoll_testbed::database::Session;
use plimsoll_testbed::database::task::How;
use plimsoll_testbed::installed::Certificate;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::{sleep, timeout};

use super::*;
use crate::events::Events;
use crate::status::{Board, Status, Watched};
use crate::watch::{Outlets, Promise, Watch};

mod relay;

use relay::Relay;

/// Nothing here takes longer, on however busy a machine.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// From one look at something to the next.
pub const LOOK: Duration = Duration::from_millis(20);
/// Names the directory with the programs of another version, for [`one_of_another_version_in_its_place_is_watched_on`].
const OTHER: &str = "PLIMSOLL_OTHER_BIN";
/// Questions that a look in calm may ask.
const MOST_QUESTIONS: f64 = 2.5;

/// A real server of a kind that an adapter watches.
pub trait Ground: Sized {
    /// Who watches it.
    type Adapter: Adapter;

    /// Starts one; nothing where there is none on this machine.
    async fn raise() -> Option<Self>;
    /// Where it tells who watches: a host and a port, or the path of a socket.
    fn at(&self) -> String;
    /// How it is watched there, or by another way, by this user if it has users.
    fn settings_at(&self, at: &str, user: &str, more: &str) -> Database;
    /// The same, there.
    fn settings(&self, user: &str, more: &str) -> Database {
        self.settings_at(&self.at(), user, more)
    }
    /// Ends it as a crash does.
    fn kill(&mut self);
    /// Starts it again.
    async fn revive(&mut self);
}

/// How a server is to be if not as usual.
#[derive(Default)]
pub struct Kind {
    /// What it shows over TLS.
    pub tls: Option<Certificate>,
    /// Where the programs of its version are.
    pub bin: Option<PathBuf>,
    /// Where it listens, at 127.0.0.1.
    pub port: Option<u16>,
}

/// One with a table `shelf (id, books)` of a hundred rows, which an application owns that is no superuser; a user `watcher` with the
/// rights that the docs ask for and no more; and a user `nobody` with none.
pub trait Tables: Ground {
    /// A session of the application.
    type Session: Session;

    /// The user without rights.
    const NOBODY: &'static str;
    /// What that one is told to ask for.
    const GRANTS: &'static [&'static str];
    /// Begins a transaction that has all rows.
    const HOLD: &'static [&'static str];
    /// Goes on for long, in whatever transaction.
    const WORK: &'static str;
    /// Begins a transaction that has read the table.
    const REPORT: &'static [&'static str];
    /// Goes on for some seconds.
    const REST: &'static str;

    /// Starts one that is so.
    async fn raise_as(kind: Kind) -> Option<Self>;
    /// A session of the application.
    async fn session(&self) -> Self::Session {
        self.try_session().await.unwrap()
    }
    /// The same, where it lets one in.
    async fn try_session(&self) -> Result<Self::Session, String>;
    /// Carries out what an agent has asked for.
    async fn grant(&self, statement: &str);
    /// Statements that its clients have asked so far, where it counts them.
    async fn asked(&self) -> Option<f64> {
        None
    }
}

/// An agent that watches one server.
pub struct Agent<A> {
    status: watch::Receiver<Status>,
    file: PathBuf,
    _dir: tempfile::TempDir,
    kind: PhantomData<A>,
}

impl<A: Adapter> Agent<A> {
    /// Starts it. To be called within a [`LocalSet`].
    pub fn start(settings: Database) -> Agent<A> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("events.jsonl");
        let (events, _) = Events::open(Some(&file)).unwrap();
        let (board, status) = Board::new();
        let promise = Promise {
            app: settings.name.clone(),
            name: settings.name.clone(),
            source: A::SOURCE,
            slo: settings.slo.clone(),
            mode: settings.mode,
            budget: settings.budget.clone(),
            sentry: None,
        };
        let outlets = Outlets { events, board, recorder: None, sentry: None };
        let server = Server::<A>::new(settings).unwrap();
        tokio::task::spawn_local(Watch::new(server, promise, &outlets).run());
        Agent { status, file, _dir: dir, kind: PhantomData }
    }

    /// What it has told.
    pub fn events(&self, what: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.file).unwrap();
        let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        all.filter(|event| what.is_empty() || event["event"] == what).collect()
    }

    /// Waits for an event that fits; the first one.
    pub async fn told(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let wait = async {
            loop {
                if let Some(event) = self.events(what).into_iter().find(&fits) {
                    return event;
                }
                sleep(LOOK).await;
            }
        };
        let told = timeout(PATIENCE, wait).await;
        told.unwrap_or_else(|_| panic!("no {what} in {:#?}; {:?}", self.events(""), self.status.borrow()))
    }

    /// Waits until it looks without trouble, from now on.
    async fn watches_again(&self) {
        let looks = self.sees(|_| true).await.looks;
        self.sees(|watched| watched.trouble.is_none() && watched.looks > looks + 5).await;
    }

    /// Waits until it sees this.
    pub async fn sees(&self, what: impl Fn(&Watched) -> bool) -> Watched {
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

/// Somebody holds up others: he is ended, and it is told that it was he.
async fn hog_is_ended<G: Tables>(agent: &Agent<G::Adapter>, mut hog: G::Session) -> Value {
    let earlier = agent.events("cancel");
    follow(&mut hog, G::HOLD).await.unwrap();
    let how = hog.run(G::WORK).await.unwrap_err();
    assert!(is_ended(&how), "{how:?}");
    let cancel = agent.told("cancel", |event| !earlier.contains(event)).await;
    assert_eq!(cancel["pid"], hog.id(), "{cancel:#}");
    assert_eq!(cancel["task"], G::Adapter::name(hog.id().into()));
    cancel
}

/// Runs a test that has tasks of its own.
pub fn on_one_thread(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, body);
}

/// Sessions of the application that each add a book now and then; none of them may ever be ended.
pub async fn borrowers(ground: &impl Tables) -> Vec<AbortHandle> {
    let mut borrowers = Vec::new();
    for n in 0..16 {
        let mut session = ground.session().await;
        let task = tokio::task::spawn_local(async move {
            loop {
                let add = format!("update shelf set books = books + 1 where id = {}", 1 + n % 4);
                session.run(&add).await.unwrap_or_else(|how| panic!("a victim suffered: {how:?}"));
                sleep(LOOK).await;
            }
        });
        borrowers.push(task.abort_handle());
    }
    borrowers
}

async fn follow(session: &mut impl Session, steps: &[&str]) -> Result<(), How> {
    for step in steps {
        session.run(step).await?;
    }
    Ok(())
}

fn is_ended(how: &How) -> bool {
    matches!(how, How::Cancelled | How::Terminated)
}

/// Nobody is to blame, and nobody is: then somebody is, and is ended, and nobody else.
pub async fn who_holds_up_others_is_ended_and_nobody_else<G: Tables>() {
    let Some(ground) = G::raise().await else { return };
    let _borrowers = borrowers(&ground).await;
    let agent = Agent::<G::Adapter>::start(ground.settings("watcher", "escalate = \"terminate\""));
    agent.sees(|watched| watched.looks > 20 && watched.completed > 200).await;
    assert!(agent.events("").is_empty(), "{:#?}", agent.events(""));
    let cancel = hog_is_ended::<G>(&agent, ground.session().await).await;
    assert!(
        cancel["resource"].as_str().unwrap().contains("rows of")
            && cancel["resource"].as_str().unwrap().contains("shelf")
    );
    assert!(cancel["about"]["holds_up"].as_u64().unwrap() > 0, "{cancel:#}");
    agent.told("released", |_| true).await;
    assert_eq!(agent.events("cancel").len(), 1, "{:#?}", agent.events(""));
}

/// One in between waits himself: he is a victim, and the chain is told.
pub async fn chains_are_followed_to_their_root<G: Tables>() {
    let Some(ground) = G::raise().await else { return };
    let agent = Agent::<G::Adapter>::start(ground.settings("watcher", "escalate = \"terminate\""));
    let (mut root, mut between) = (ground.session().await, ground.session().await);
    let (root_id, between_id) = (root.id(), between.id());
    follow(&mut root, &["begin", "update shelf set books = 0 where id = 1"]).await.unwrap();
    // He has row 2, and wants row 1.
    let middle = tokio::task::spawn_local(async move {
        follow(&mut between, &["begin", "update shelf set books = 0 where id = 2"]).await.unwrap();
        between.run("update shelf set books = 0 where id = 1").await.unwrap();
        between.run("commit").await.unwrap();
    });
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let mut session = ground.session().await;
        waiting.push(tokio::task::spawn_local(async move {
            sleep(10 * LOOK).await;
            session.run("update shelf set books = books + 1 where id = 2").await
        }));
    }
    let how = root.run(G::WORK).await.unwrap_err();
    assert!(is_ended(&how), "{how:?}");
    middle.await.unwrap();
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), Ok(()));
    }
    let cancel = agent.told("cancel", |_| true).await;
    assert_eq!(cancel["pid"], root_id, "{cancel:#}");
    let chain = cancel["about"]["chain"].as_str().unwrap();
    let end = [between_id, root_id].map(|id| G::Adapter::name(id.into())).join(" -> ");
    assert!(chain.ends_with(&end), "{chain}");
}

/// A change of a table in the queue before everybody is the one to leave; who reads goes on.
pub async fn a_change_in_the_queue_is_cancelled_and_the_report_before_it_goes_on<G: Tables>() {
    let Some(ground) = G::raise().await else { return };
    let _borrowers = borrowers(&ground).await;
    let agent = Agent::<G::Adapter>::start(ground.settings("watcher", ""));
    agent.sees(|watched| watched.completed > 100).await;
    let (mut report, mut change) = (ground.session().await, ground.session().await);
    follow(&mut report, G::REPORT).await.unwrap();
    let (report_goes_on, changed) =
        tokio::join!(report.run(G::REST), change.run("alter table shelf add column x int"));
    assert_eq!(report_goes_on, Ok(()), "it is no culprit: all others could share the table with it");
    assert_eq!(changed, Err(How::Cancelled));
    let cancel = agent.told("cancel", |_| true).await;
    assert_eq!(cancel["pid"], change.id());
    let resource = cancel["resource"].as_str().unwrap();
    assert!(resource.starts_with("the queue for ") && resource.ends_with("shelf"), "{resource}");
    let end = [change.id(), report.id()].map(|id| G::Adapter::name(id.into())).join(" -> ");
    let chain = cancel["about"]["chain"].as_str().unwrap();
    assert!(chain.ends_with(&end), "{chain}");
}

/// Who holds something and asks nothing can only be ended with its connection, which has to be allowed.
pub async fn who_idles_is_ended_only_where_that_is_asked_for<G: Tables>() {
    let Some(ground) = G::raise().await else { return };
    let _borrowers = borrowers(&ground).await;
    let mut idler = ground.session().await;
    let timid = Agent::<G::Adapter>::start(ground.settings("watcher", ""));
    timid.sees(|watched| watched.completed > 100).await;
    follow(&mut idler, G::HOLD).await.unwrap();
    let escalate = timid.told("escalate", |_| true).await;
    assert_eq!(escalate["pid"], idler.id(), "{escalate:#}");
    assert!(escalate["reason"].as_str().unwrap().contains("escalate = \"terminate\""), "{escalate}");
    assert!(timid.events("cancel").is_empty(), "{:#?}", timid.events("cancel"));
    idler.run("rollback").await.unwrap();
    timid.told("released", |_| true).await;

    let bold = Agent::<G::Adapter>::start(ground.settings("watcher", "escalate = \"terminate\""));
    bold.sees(|watched| watched.completed > 100).await;
    follow(&mut idler, G::HOLD).await.unwrap();
    let cancel = bold.told("cancel", |_| true).await;
    assert_eq!((&cancel["pid"], &cancel["outcome"]), (&idler.id().into(), &"terminated".into()));
    assert!(idler.run("commit").await.is_err(), "its connection is gone");
}

/// A user without rights is told which it lacks, each by the statement that grants it; one that is not there is told so.
pub async fn a_right_that_is_missing_is_named<G: Tables>() {
    let Some(ground) = G::raise().await else { return };
    let agent = Agent::<G::Adapter>::start(ground.settings(G::NOBODY, ""));
    for grant in G::GRANTS {
        agent.told("adapter_error", |event| event["reason"].as_str().unwrap().contains(grant)).await;
    }
    agent.sees(|watched| watched.looks > 5).await;
    let missing = Agent::<G::Adapter>::start(ground.settings("stranger", ""));
    missing.told("adapter_error", |event| event["reason"].as_str().unwrap().contains("stranger")).await;
    let able = Agent::<G::Adapter>::start(ground.settings("watcher", ""));
    able.sees(|watched| watched.looks > 20).await;
    assert!(able.events("").is_empty(), "{:#?}", able.events(""));
}

/// A server that is killed is missed, told of once, and watched again when it is back.
pub async fn a_server_that_is_killed_and_comes_back_is_watched_again<G: Ground>() {
    let Some(mut ground) = G::raise().await else { return };
    let agent = Agent::<G::Adapter>::start(ground.settings("watcher", ""));
    agent.sees(|watched| watched.looks > 5).await;
    ground.kill();
    agent.told("adapter_error", |_| true).await;
    let gone = |why: &str| why.contains("refused") || why.contains("No such file");
    agent.told("adapter_error", |event| gone(event["reason"].as_str().unwrap())).await;
    agent.sees(|watched| watched.errors > 2 && watched.trouble.is_some()).await;
    ground.revive().await;
    agent.watches_again().await;
    assert!(agent.events("adapter_error").len() < 10, "told, not repeated: {:#?}", agent.events(""));
}

/// Where one of another version comes up in the place of a server, be it newer or older, it is watched and freed as what it is.
pub async fn one_of_another_version_in_its_place_is_watched_on<G: Tables>() {
    let other = std::env::var_os(OTHER).map(PathBuf::from);
    let other =
        other.unwrap_or_else(|| panic!("{OTHER} names no directory with programs of another version"));
    let Some(mut ground) = G::raise_as(Kind { bin: Some(other.clone()), ..Kind::default() }).await else {
        return;
    };
    let at = ground.at();
    let port = at.rsplit(':').next().and_then(|port| port.parse().ok());
    let agent = Agent::<G::Adapter>::start(ground.settings("watcher", "escalate = \"terminate\""));
    for (bin, ended) in [(None, 1), (Some(other), 2)] {
        agent.sees(|watched| watched.looks > 5).await;
        ground.kill();
        agent.sees(|watched| watched.trouble.is_some()).await;
        drop(ground);
        ground = G::raise_as(Kind { bin, port, tls: None }).await.unwrap();
        agent.watches_again().await;
        let borrowers = borrowers(&ground).await;
        let before = agent.sees(|_| true).await.completed;
        agent.sees(|watched| watched.completed > before + 200).await;
        hog_is_ended::<G>(&agent, ground.session().await).await;
        assert_eq!(agent.events("cancel").len(), ended, "{:#?}", agent.events(""));
        borrowers.iter().for_each(AbortHandle::abort);
    }
}

/// A server that answers no more, with all connections open, is told of; nobody is blamed for it, and it is watched again when it goes on.
pub async fn a_server_that_hangs_is_told_of_and_watched_again<G: Ground>() {
    let Some(ground) = G::raise().await else { return };
    let relay = Relay::to(ground.at()).await;
    let agent = Agent::<G::Adapter>::start(ground.settings_at(&relay.at, "watcher", ""));
    agent.sees(|watched| watched.looks > 5).await;
    relay.freeze(true);
    agent.told("adapter_error", |event| event["reason"].as_str().unwrap().contains("not answer")).await;
    agent.sees(|watched| watched.errors > 1 && watched.trouble.is_some()).await;
    relay.freeze(false);
    agent.watches_again().await;
    assert_eq!(agent.events("").len(), agent.events("adapter_error").len(), "{:#?}", agent.events(""));
    assert!(agent.events("").len() < 10, "told, not repeated: {:#?}", agent.events(""));
}

/// Who loses the connection, and gets no other, goes on with the one in reserve: it sees, and it ends who is to blame.
pub async fn the_connection_in_reserve_is_used_where_no_other_is_to_be_had<G: Tables>() {
    let Some(ground) = G::raise().await else { return };
    let _borrowers = borrowers(&ground).await;
    let relay = Relay::to(ground.at()).await;
    let settings = ground.settings_at(&relay.at, "watcher", "escalate = \"terminate\"");
    let agent = Agent::<G::Adapter>::start(settings);
    // It is not there yet when the way to it is.
    let begun = agent.sees(|_| relay.connections() == 2).await.looks;
    agent.sees(|watched| watched.looks > begun + 100).await;
    relay.refuse();
    relay.cut_first();
    agent.told("adapter_error", |_| true).await;
    agent.watches_again().await;
    hog_is_ended::<G>(&agent, ground.session().await).await;
}

/// A server whose connections are all taken is watched on, and whoever gets none is told what would help.
pub async fn a_full_server_is_watched_on<G: Tables>() {
    let Some(ground) = G::raise().await else { return };
    let _borrowers = borrowers(&ground).await;
    let agent = Agent::<G::Adapter>::start(ground.settings("watcher", "escalate = \"terminate\""));
    agent.sees(|watched| watched.looks > 20).await;
    let hog = ground.session().await;
    let mut others = Vec::new();
    while let Ok(session) = ground.try_session().await {
        others.push(session);
    }
    // Some servers keep one more for those with such rights.
    let first = Agent::<G::Adapter>::start(ground.settings("watcher", ""));
    first.sees(|watched| watched.looks + watched.errors > 0).await;
    let late = Agent::<G::Adapter>::start(ground.settings("watcher", ""));
    late.told("adapter_error", |event| event["reason"].as_str().unwrap().contains("`max_connections`")).await;
    hog_is_ended::<G>(&agent, hog).await;
    assert_eq!(agent.sees(|_| true).await.errors, 0);
    drop(others);
    late.sees(|watched| watched.trouble.is_none() && watched.looks > 5).await;
}

/// A right that was missing and is granted is no longer missed once the agent has connected anew.
pub async fn a_right_that_is_granted_is_no_longer_missed<G: Tables>() {
    let Some(ground) = G::raise().await else { return };
    let relay = Relay::to(ground.at()).await;
    let agent = Agent::<G::Adapter>::start(ground.settings_at(&relay.at, G::NOBODY, ""));
    agent.sees(|watched| watched.warnings.len() >= G::GRANTS.len() && relay.connections() == 2).await;
    for grant in G::GRANTS {
        ground.grant(grant).await;
    }
    relay.cut_all();
    agent.sees(|watched| watched.warnings.is_empty() && watched.trouble.is_none()).await;
}

/// Over TLS it has to prove who it is, and is turned down where it cannot.
pub async fn over_tls_a_server_has_to_prove_who_it_is<G: Tables>() {
    let [own, other] =
        [(); 2].map(|()| rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap());
    let tls = Certificate { cert: own.cert.pem(), key: own.signing_key.serialize_pem() };
    let Some(ground) = G::raise_as(Kind { tls: Some(tls), ..Kind::default() }).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let held_to = |name: &str, pem: String| {
        let file = dir.path().join(name);
        fs::write(&file, pem).unwrap();
        ground.settings("watcher", &format!("tls_ca = \"{}\"", file.display()))
    };
    let agent = Agent::<G::Adapter>::start(held_to("own.pem", own.cert.pem()));
    agent.sees(|watched| watched.looks > 20).await;
    assert!(agent.events("").is_empty(), "{:#?}", agent.events(""));
    let deceived = Agent::<G::Adapter>::start(held_to("other.pem", other.cert.pem()));
    deceived.told("adapter_error", |event| event["reason"].as_str().unwrap().contains("certificate")).await;
    deceived.sees(|watched| watched.errors > 2 && watched.looks == 0).await;
}

/// In calm a look asks next to nothing.
pub async fn a_look_in_calm_asks_little<G: Tables>() {
    let Some(ground) = G::raise().await else { return };
    let agent = Agent::<G::Adapter>::start(ground.settings("watcher", ""));
    let before = agent.sees(|watched| watched.looks > 10).await.looks;
    let Some(asked) = ground.asked().await else { return };
    let after = agent.sees(|watched| watched.looks > before + 30).await.looks;
    let asked = ground.asked().await.unwrap() - asked;
    // The status is told twice a second, so some looks more may have been taken.
    let most = MOST_QUESTIONS * (after - before + 10) as f64;
    assert!(asked <= most, "{asked} questions in {} looks", after - before);
}

/// Makes a test of each of these; of all that there are for a ground with tables; or of those for grounds of any kind, in a module of their
/// own, which may be left for whoever asks for them.
macro_rules! conformance {
    ($ground:ident: $($(#[$how:meta])? $test:ident),*) => {
        mod conforms {
            $(#[test]
            $(#[$how])?
            fn $test() {
                $crate::server::conformance::on_one_thread(
                    $crate::server::conformance::$test::<super::$ground>(),
                );
            })*
        }
    };
    (mod $name:ident: $ground:ident $(#[$how:meta])?) => {
        mod $name {
            use super::$ground;

            $crate::server::conformance::conformance! {
                $ground:
                $(#[$how])? a_server_that_is_killed_and_comes_back_is_watched_again,
                $(#[$how])? a_server_that_hangs_is_told_of_and_watched_again
            }
        }
    };
    ($ground:ident) => {
        $crate::server::conformance::conformance! {
            $ground: who_holds_up_others_is_ended_and_nobody_else, chains_are_followed_to_their_root,
            a_change_in_the_queue_is_cancelled_and_the_report_before_it_goes_on,
            who_idles_is_ended_only_where_that_is_asked_for, a_right_that_is_missing_is_named,
            a_right_that_is_granted_is_no_longer_missed, a_server_that_is_killed_and_comes_back_is_watched_again,
            a_server_that_hangs_is_told_of_and_watched_again, a_full_server_is_watched_on,
            the_connection_in_reserve_is_used_where_no_other_is_to_be_had,
            over_tls_a_server_has_to_prove_who_it_is, a_look_in_calm_asks_little,
            #[ignore = "needs programs of two versions: ci/newer.sh"]
            one_of_another_version_in_its_place_is_watched_on
        }
    };
}
pub(crate) use conformance;
