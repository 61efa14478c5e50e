//! What every adapter does for a real server of its kind: [`conformance!`] makes tests of it, for whoever has a [`Ground`] with [`Work`] to do; of
//! databases with [`Tables`] more is asked.

use std::fs;
use std::marker::PhantomData;
use std::path::PathBuf;

use plimsoll_core::config::Database;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use super::*;
use crate::events::Events;
use crate::status::{Board, Status, Watched};
use crate::watch::{Outlets, Promise, Watch};

mod relay;
mod tables;
mod work;

use relay::Relay;
pub use tables::*;
pub use work::*;

/// Nothing here takes longer, on however busy a machine.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// From one look at something to the next.
pub const LOOK: Duration = Duration::from_millis(20);

/// A real server of a kind that an adapter watches.
pub trait Ground: Sized {
    /// Who watches it.
    type Adapter: Adapter;

    /// How many questions a look in calm may ask.
    const QUESTIONS: f64 = 2.5;

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

/// Runs a test that has tasks of its own.
pub fn on_one_thread(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, body);
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

/// In calm a look asks next to nothing.
pub async fn a_look_in_calm_asks_little<G: Ground>() {
    let Some(ground) = G::raise().await else { return };
    let relay = Relay::to(ground.at()).await;
    let agent = Agent::<G::Adapter>::start(ground.settings_at(&relay.at, "watcher", ""));
    let before = agent.sees(|watched| watched.looks > 10).await.looks;
    let asked = relay.asked();
    let after = agent.sees(|watched| watched.looks > before + 30).await.looks;
    let asked = relay.asked() - asked;
    // The status is told twice a second, so some looks more may have been taken.
    let most = G::QUESTIONS * (after - before + 10) as f64;
    assert!(asked as f64 <= most, "{asked} questions in {} looks", after - before);
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
                $(#[$how])? who_holds_up_others_is_ended_and_nobody_else,
                $(#[$how])? in_shadow_who_holds_up_others_is_named_and_goes_on,
                $(#[$how])? of_requests_that_are_alike_none_is_ended,
                $(#[$how])? a_server_that_is_killed_and_comes_back_is_watched_again,
                $(#[$how])? a_server_that_hangs_is_told_of_and_watched_again,
                $(#[$how])? a_look_in_calm_asks_little
            }
        }
    };
    ($ground:ident) => {
        $crate::server::conformance::conformance! {
            $ground: who_holds_up_others_is_ended_and_nobody_else,
            in_shadow_who_holds_up_others_is_named_and_goes_on, of_requests_that_are_alike_none_is_ended, chains_are_followed_to_their_root,
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
