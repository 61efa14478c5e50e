//! Has the engine look at what is under way, and tells a range to end when it says so.

use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use plimsoll_cancellation::Scene;
use plimsoll_cancellation::decision::State;
use plimsoll_core::Nanos;
use plimsoll_engine::event::{About, rounded};
use plimsoll_engine::events::Events;
use plimsoll_engine::source::{Sent, Source, Trouble, Words};
use plimsoll_engine::status::Board;
use plimsoll_engine::watch::{Outlets, Promise, Watch};

use super::account::{Account, STORE};
use super::running::{Guard, Now};
use crate::clock;
use crate::pool::Pool;
use crate::state::Shared;
use crate::thread::Thread;

/// How often pools are looked for that nobody watches yet.
const LOOK: Duration = Duration::from_millis(250);
/// From one look at what is under way to the next, while something is wrong and in calm. A look takes microseconds.
const TROUBLE: Duration = Duration::from_millis(20);
const CALM: Duration = Duration::from_millis(50);

/// Watches the etcds of all pools, those of later configs included, for as long as the worker lives. Where a watch fails, its pool goes on
/// without.
pub async fn watch_all(thread: Rc<Thread>) {
    let outlets = Outlets {
        events: events(thread.view().routing.config.sentry.events.as_deref()),
        board: Board::new().0,
        recorder: None,
        sentry: None,
    };
    loop {
        for pool in &thread.view().routing.pools {
            let Some(guard) = &pool.etcd else { continue };
            if guard.is_watched.swap(true, Relaxed) {
                continue;
            }
            let source = Members::new(Arc::clone(&thread.shared), pool, guard);
            let watch = Watch::new(source, promise(guard), &outlets);
            tokio::task::spawn_local(watch.run());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Where events go. One who cannot write them must not keep a worker from serving.
fn events(path: Option<&Path>) -> Events {
    match Events::open(path) {
        Ok((events, _)) => events,
        Err(error) => {
            log::error!(error:%; "events are only logged");
            Events::default()
        }
    }
}

fn promise(guard: &Guard) -> Promise {
    let config = &guard.config;
    Promise {
        app: config.name.clone(),
        name: config.name.clone(),
        source: "etcd",
        slo: config.slo.clone(),
        mode: config.mode,
        budget: config.budget.clone(),
        sentry: None,
    }
}

/// The members of an etcd, as the sentry in front of them sees them.
struct Members {
    shared: Arc<Shared>,
    pool: Weak<Pool>,
    guard: Arc<Guard>,
    account: Account,
    seen: Now,
    calm: bool,
}

impl Members {
    fn new(shared: Arc<Shared>, pool: &Arc<Pool>, guard: &Arc<Guard>) -> Members {
        Members {
            shared,
            pool: Arc::downgrade(pool),
            guard: Arc::clone(guard),
            account: Account::new(guard.config.slo.owed().unwrap_or(Nanos::MAX)),
            seen: Now::default(),
            calm: true,
        }
    }

    /// Whether the config still has its pool.
    fn is_current(&self) -> bool {
        let pools = &self.shared.routing().load().pools;
        pools.iter().any(|pool| std::ptr::eq(Arc::as_ptr(pool), self.pool.as_ptr()))
    }

    fn words_of(&self, task: u64) -> Words {
        let name = format!("range {task}");
        let Some(told) = self.account.words(task) else { return Words { name, ..Words::default() } };
        Words {
            name,
            pid: None,
            about: About {
                what: Some(told.what),
                client: Some(told.running.client.to_string()),
                age_s: Some(rounded(told.age.as_secs_f64())),
                progress_pct: told.progress.map(|progress| rounded(100.0 * progress)),
                // Its client gets the status, and may ask for less.
                again: Some("not re-executable"),
                ..About::default()
            },
        }
    }
}

impl Source for Members {
    async fn look(&mut self, scene: &mut Scene) -> Result<Nanos, Trouble> {
        if !self.is_current() {
            return Err(Trouble { why: "its pool is configured no more".to_owned(), gone: true });
        }
        self.guard.look(&mut self.seen);
        let now = clock::refresh();
        self.account.look(now, &mut self.seen, self.calm, scene);
        Ok(now)
    }

    fn judged(&mut self, state: State, exact: bool) -> Duration {
        self.calm = state == State::Calm && !exact;
        if self.calm { CALM } else { TROUBLE }
    }

    fn warnings(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn resource(&self, index: u32) -> String {
        if index == STORE { "the store".to_owned() } else { format!("resource {index}") }
    }

    async fn words(&mut self, tasks: &[u64]) -> Vec<Words> {
        tasks.iter().map(|&task| self.words_of(task)).collect()
    }

    async fn cancel(&mut self, task: u64, _: u32, _: &str, _: u32) -> Sent {
        let what = self.account.words(task).map_or_else(|| "a range".to_owned(), |told| told.what);
        let why = format!(
            "cancelled: {what}, held up all other requests; ask for fewer keys, without sorting them"
        );
        if self.guard.end(task, &why) { Sent::Told } else { Sent::Gone }
    }

    fn is_silent(&self) -> bool {
        true
    }
}
