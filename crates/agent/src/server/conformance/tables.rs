//! What more is asked of who watches a database: that it finds who holds up the others by their locks, with the rights it has and the
//! connections it gets.

use plimsoll_testbed::database::Session;
use plimsoll_testbed::database::task::How;
use plimsoll_testbed::installed::Certificate;

use super::*;

/// Names the directory with the programs of another version, for [`one_of_another_version_in_its_place_is_watched_on`].
const OTHER: &str = "PLIMSOLL_OTHER_BIN";

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
    /// Has one row for some 30 ms.
    const USUAL: &'static str;
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
}

/// Begins a transaction that has all rows.
const HOLD: &[&str] = &["begin", "update shelf set books = 0"];

impl<G: Tables> Work for G {
    type Client = G::Session;

    const SETTINGS: &'static str = "escalate = \"terminate\"";
    const HOLD: &'static [&'static str] = HOLD;

    async fn client(&self, _: &str) -> Result<G::Session, String> {
        self.try_session().await
    }

    /// Adds a book, to one of few rows.
    fn quick(n: usize) -> String {
        format!("update shelf set books = books + 1 where id = {}", 1 + n % 4)
    }

    fn usual() -> String {
        G::USUAL.to_owned()
    }

    fn endless() -> String {
        G::WORK.to_owned()
    }

    fn names(told: &Value, culprit: i32) -> bool {
        let resource = told["resource"].as_str().unwrap_or_default();
        let holds_up = told["about"]["holds_up"].as_u64();
        told["pid"] == culprit
            && resource.contains("rows of")
            && resource.contains("shelf")
            && holds_up > Some(0)
    }
}

/// Somebody holds up others: he is ended, and it is told that it was he.
async fn hog_is_ended<G: Tables>(agent: &Agent<G::Adapter>, mut hog: G::Session) -> Value {
    let earlier = agent.events("cancel");
    follow(&mut hog, HOLD).await.unwrap();
    let how = hog.run(G::WORK).await.unwrap_err();
    assert!(is_ended(&how), "{how:?}");
    let cancel = agent.told("cancel", |event| !earlier.contains(event)).await;
    assert_eq!(cancel["pid"], hog.id(), "{cancel:#}");
    assert_eq!(cancel["task"], G::Adapter::name(hog.id().into()));
    cancel
}

fn is_ended(how: &How) -> bool {
    matches!(how, How::Cancelled | How::Terminated)
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
    let _clients = Clients::of(&ground).await;
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
    let _clients = Clients::of(&ground).await;
    let mut idler = ground.session().await;
    let timid = Agent::<G::Adapter>::start(ground.settings("watcher", ""));
    timid.sees(|watched| watched.completed > 100).await;
    follow(&mut idler, HOLD).await.unwrap();
    let escalate = timid.told("escalate", |_| true).await;
    assert_eq!(escalate["pid"], idler.id(), "{escalate:#}");
    assert!(escalate["reason"].as_str().unwrap().contains("escalate = \"terminate\""), "{escalate}");
    assert!(timid.events("cancel").is_empty(), "{:#?}", timid.events("cancel"));
    idler.run("rollback").await.unwrap();
    timid.told("released", |_| true).await;

    let bold = Agent::<G::Adapter>::start(ground.settings("watcher", "escalate = \"terminate\""));
    bold.sees(|watched| watched.completed > 100).await;
    follow(&mut idler, HOLD).await.unwrap();
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
        let clients = Clients::of(&ground).await;
        let before = agent.sees(|_| true).await.completed;
        agent.sees(|watched| watched.completed > before + 200).await;
        hog_is_ended::<G>(&agent, ground.session().await).await;
        assert_eq!(agent.events("cancel").len(), ended, "{:#?}", agent.events(""));
        drop(clients);
    }
}

/// Who loses the connection, and gets no other, goes on with the one in reserve: it sees, and it ends who is to blame.
pub async fn the_connection_in_reserve_is_used_where_no_other_is_to_be_had<G: Tables>() {
    let Some(ground) = G::raise().await else { return };
    let _clients = Clients::of(&ground).await;
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
    let _clients = Clients::of(&ground).await;
    let agent = Agent::<G::Adapter>::start(ground.settings("watcher", "escalate = \"terminate\""));
    agent.sees(|watched| watched.looks > 20).await;
    let hog = ground.session().await;
    let mut sessions = Vec::new();
    while let Ok(session) = ground.try_session().await {
        sessions.push(session);
    }
    // Some servers keep one more for those with such rights, and one of these may get it.
    let others = [(); 2].map(|()| Agent::<G::Adapter>::start(ground.settings("watcher", "")));
    let full = |event: &Value| event["reason"].as_str().unwrap().contains("`max_connections`");
    let [first, late] = &others;
    tokio::select! {
        _ = first.told("adapter_error", full) => (),
        _ = late.told("adapter_error", full) => (),
    }
    hog_is_ended::<G>(&agent, hog).await;
    assert_eq!(agent.sees(|_| true).await.errors, 0);
    drop(sessions);
    for other in others {
        other.sees(|watched| watched.trouble.is_none() && watched.looks > 5).await;
    }
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
