//! What is asked of who watches a server of any kind that has work to do: that it ends who has what all others need, and nobody else, and where
//! it may only tell, tells and does no more; and that nobody is to blame where too many ask for the same.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_testbed::database::Session;
use plimsoll_testbed::database::task::How;
use tokio::task::{AbortHandle, JoinHandle, spawn_local};

use super::*;

/// Clients that ask for what is quick, now and then.
const QUICK: usize = 16;
/// Clients that ask for what is usual, one after the other: so few that all is well, and far too many.
const FEW: usize = 2;
const CROWD: usize = 24;
/// Whose name culprits have, where servers are told names.
pub const CULPRIT: &str = "culprit";

/// A server with something that all its clients need.
pub trait Work: Ground {
    /// One of them.
    type Client: Session;

    /// What lets who watches end whoever has it.
    const SETTINGS: &'static str = "";
    /// What a culprit asks first.
    const HOLD: &'static [&'static str] = &[];
    /// How many culprits it takes to have all of it.
    const CULPRITS: usize = 1;

    /// Lets one in, by this name where it takes one.
    async fn client(&self, name: &str) -> Result<Self::Client, String>;
    /// What needs it for a few milliseconds at most, as the nth client asks it.
    fn quick(n: usize) -> String;
    /// What needs some 30 ms of it.
    fn usual() -> String;
    /// What needs it for a minute and more, as a culprit asks it.
    fn endless() -> String;
    /// Whether that is what is told of a culprit with this [`Session::id`], and of what it has.
    fn names(told: &Value, culprit: i32) -> bool;
}

/// Clients that ask the same again and again, until this is dropped. None of them may ever be ended.
pub struct Clients {
    tasks: Vec<AbortHandle>,
    answered: Rc<Cell<u64>>,
    suffered: Rc<RefCell<Option<How>>>,
}

impl Clients {
    /// Those that ask for what is quick.
    pub async fn of<G: Work>(ground: &G) -> Clients {
        Self::that_ask(ground, QUICK, G::quick, LOOK).await
    }

    /// So many, each with a pause between an answer and what it asks next.
    pub async fn that_ask<G: Work>(
        ground: &G,
        count: usize,
        what: impl Fn(usize) -> String,
        pause: Duration,
    ) -> Clients {
        let mut clients = Clients { tasks: Vec::new(), answered: Rc::default(), suffered: Rc::default() };
        for n in 0..count {
            let (mut client, what) = (ground.client("client").await.unwrap(), what(n));
            let (answered, suffered) = (Rc::clone(&clients.answered), Rc::clone(&clients.suffered));
            let task = spawn_local(async move {
                let how = loop {
                    match client.run(&what).await {
                        Ok(()) => answered.set(answered.get() + 1),
                        Err(how) => break how,
                    }
                    sleep(pause).await;
                };
                suffered.replace(Some(how));
            });
            clients.tasks.push(task.abort_handle());
        }
        clients
    }

    /// Waits until they have been answered so many times more.
    pub async fn go_on(&self, times: u64) {
        let before = self.answered.get();
        let wait = async {
            while self.answered.get() < before + times {
                sleep(LOOK).await;
            }
        };
        let gone_on = timeout(PATIENCE, wait).await;
        gone_on.unwrap_or_else(|_| {
            panic!("answered {} times, {:?}", self.answered.get() - before, self.suffered)
        });
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        if !std::thread::panicking() {
            assert_eq!(*self.suffered.borrow(), None, "a victim suffered");
        }
    }
}

/// Those who have what all others need.
struct Culprits {
    ids: Vec<i32>,
    asked: Vec<JoinHandle<Result<(), How>>>,
}

impl Culprits {
    async fn of<G: Work>(ground: &G) -> Culprits {
        let mut culprits = Culprits { ids: Vec::new(), asked: Vec::new() };
        for _ in 0..G::CULPRITS {
            let mut client = ground.client(CULPRIT).await.unwrap();
            culprits.ids.push(client.id());
            culprits.asked.push(spawn_local(async move {
                follow(&mut client, G::HOLD).await?;
                client.run(&G::endless()).await
            }));
        }
        culprits
    }

    /// How many have an answer, or an end.
    fn done(&self) -> usize {
        self.asked.iter().filter(|asked| asked.is_finished()).count()
    }

    /// Holds what is told to be of them.
    fn are_named<G: Work>(&self, told: &[Value]) {
        for told in told {
            assert!(self.ids.iter().any(|&id| G::names(told, id)), "{:?}: {told:#}", self.ids);
        }
    }
}

/// Asks these, one after the other.
pub async fn follow(client: &mut impl Session, steps: &[&str]) -> Result<(), How> {
    for step in steps {
        client.run(step).await?;
    }
    Ok(())
}

/// Nobody is to blame, and nobody is: then somebody is, and is ended, and nobody else.
pub async fn who_holds_up_others_is_ended_and_nobody_else<G: Work>() {
    let Some(ground) = G::raise().await else { return };
    let clients = Clients::of(&ground).await;
    let agent = Agent::<G::Adapter>::start(ground.settings("watcher", G::SETTINGS));
    agent.sees(|watched| watched.looks > 20 && watched.completed > 200).await;
    assert!(agent.events("").is_empty(), "{:#?}", agent.events(""));
    let culprits = Culprits::of(&ground).await;
    agent.told("cancel", |_| true).await;
    agent.told("released", |_| true).await;
    clients.go_on(100).await;
    agent.sees(|_| culprits.done() == agent.events("cancel").len()).await;
    culprits.are_named::<G>(&agent.events("cancel"));
    for asked in culprits.asked.into_iter().filter(JoinHandle::is_finished) {
        let how = asked.await.unwrap();
        assert!(matches!(how, Err(How::Cancelled | How::Terminated)), "{how:?}");
    }
}

/// Where it may only tell, it tells who would be ended; and all goes on as it did.
pub async fn in_shadow_who_holds_up_others_is_named_and_goes_on<G: Work>() {
    let Some(ground) = G::raise().await else { return };
    let _clients = Clients::of(&ground).await;
    let shadow = format!("mode = \"shadow\"\n{}", G::SETTINGS);
    let agent = Agent::<G::Adapter>::start(ground.settings("watcher", &shadow));
    agent.sees(|watched| watched.looks > 20 && watched.completed > 200).await;
    let culprits = Culprits::of(&ground).await;
    agent.told("would_cancel", |_| true).await;
    let looks = agent.sees(|_| true).await.looks;
    agent.sees(|watched| watched.looks > looks + 20).await;
    culprits.are_named::<G>(&agent.events("would_cancel"));
    assert!(agent.events("cancel").is_empty(), "{:#?}", agent.events(""));
    assert_eq!(culprits.done(), 0);
    assert!(agent.events("").len() < 20, "told, not repeated: {:#?}", agent.events(""));
}

/// Where far too many ask for the same, none of them is worse than the others.
pub async fn of_requests_that_are_alike_none_is_ended<G: Work>() {
    let Some(ground) = G::raise().await else { return };
    let usual = |_| G::usual();
    let _few = Clients::that_ask(&ground, FEW, usual, Duration::ZERO).await;
    let agent = Agent::<G::Adapter>::start(ground.settings("watcher", G::SETTINGS));
    agent.sees(|watched| watched.completed > 100).await;
    let crowd = Clients::that_ask(&ground, CROWD, usual, Duration::ZERO).await;
    agent.told("regular_overload", |_| true).await;
    // For as long where more are served at a time.
    crowd.go_on(300 * G::CULPRITS as u64).await;
    assert!(agent.events("cancel").is_empty(), "{:#?}", agent.events("cancel"));
}
