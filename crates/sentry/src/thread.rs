//! What belongs to one of a worker's threads. Nothing in here is shared, so nothing in here locks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::Cache;
use plimsoll_core::rng::{Rng, seeded};
use plimsoll_core::{ClassId, Nanos};

use crate::connections::Connections;
use crate::police::Line;
use crate::pool::Pool;
use crate::state::{ClassRoute, Routing, Shared};
use crate::stats::{ClassShard, ThreadStats};
use crate::timeouts::Timeouts;
use crate::{clock, state};

/// How long a drain leaves idle connections open: time for a client that is about to send a request to do so and
/// be told in the response.
const DRAIN_GRACE: Nanos = Nanos::from_secs(1);

/// One thread.
pub struct Thread {
    /// From 0.
    pub id: usize,
    /// What all threads share.
    pub shared: Arc<Shared>,
    /// What waits for its time to be over.
    pub timeouts: Rc<Timeouts>,
    /// Connections to servers.
    pub connections: Connections,
    rng: RefCell<Rng>,
    routing: RefCell<Cache<Arc<state::Swap>, Arc<Routing>>>,
    view: RefCell<Rc<View>>,
    drain_ends: Cell<Option<Nanos>>,
}

impl Thread {
    /// A thread with nothing to do yet.
    pub fn new(id: usize, shared: Arc<Shared>, seed: u64) -> Rc<Thread> {
        let mut routing = Cache::new(Arc::clone(shared.routing()));
        let view = Rc::new(View::new(id, Arc::clone(&shared), Arc::clone(routing.load()), None));
        Rc::new(Thread {
            id,
            timeouts: Rc::default(),
            connections: Connections::default(),
            rng: RefCell::new(seeded(seed, id as u64)),
            routing: RefCell::new(routing),
            view: RefCell::new(view),
            drain_ends: Cell::new(None),
            shared,
        })
    }

    /// The thread's own counters.
    pub fn stats(&self) -> &ThreadStats {
        &self.shared.stats.threads[self.id]
    }

    /// The config as of now. A request keeps the one that it came in with.
    pub fn view(&self) -> Rc<View> {
        let mut cache = self.routing.borrow_mut();
        let newest = cache.load();
        let mut view = self.view.borrow_mut();
        if !Arc::ptr_eq(newest, &view.routing) {
            let shared = Arc::clone(&self.shared);
            *view = Rc::new(View::new(self.id, shared, Arc::clone(newest), Some(&view)));
        }
        Rc::clone(&view)
    }

    /// Draws from the thread's generator.
    pub fn with_rng<R>(&self, draw: impl FnOnce(&mut Rng) -> R) -> R {
        draw(&mut self.rng.borrow_mut())
    }

    /// When idle connections are closed, if the worker drains.
    pub fn drain_ends(&self) -> Option<Nanos> {
        self.drain_ends.get()
    }

    /// Looks after everything that waits; called every few milliseconds.
    pub fn sweep(&self) {
        // So that an idle thread does not keep an old config, and its pools, for ever.
        drop(self.view());
        if self.drain_ends.get().is_none() && self.shared.is_draining() {
            self.drain_ends.set(Some(clock::now() + DRAIN_GRACE));
        }
        self.timeouts.sweep();
        self.connections.sweep(clock::coarse());
    }
}

/// The config that a request came in with, on its thread.
pub struct View {
    thread: usize,
    shared: Arc<Shared>,
    /// The config.
    pub routing: Arc<Routing>,
    /// Who waits to be policed, by pool; nothing where nobody ever does.
    lines: Vec<Option<Rc<Line>>>,
}

impl View {
    /// A view of this config. Pools that it shares with the one before keep their lines.
    fn new(thread: usize, shared: Arc<Shared>, routing: Arc<Routing>, before: Option<&View>) -> View {
        let line = |pool: &Arc<Pool>| {
            let same = |(old, line): (&Arc<Pool>, &Option<Rc<Line>>)| {
                if Arc::ptr_eq(old, pool) { line.clone() } else { None }
            };
            let kept = before.and_then(|view| view.routing.pools.iter().zip(&view.lines).find_map(same));
            pool.police.as_ref()?;
            Some(kept.unwrap_or_else(|| Line::new(pool, thread)))
        };
        let lines = routing.pools.iter().map(line).collect();
        View { thread, shared, routing, lines }
    }

    /// The line in front of the pool that serves this class, if the pool is policed.
    pub fn line(&self, class: ClassId) -> Option<&Rc<Line>> {
        self.lines[self.class(class).pool].as_ref()
    }

    /// How requests of this class are treated.
    pub fn class(&self, class: ClassId) -> &ClassRoute {
        &self.routing.classes[class.index()]
    }

    /// The pool that serves this class.
    pub fn pool(&self, class: ClassId) -> &Arc<Pool> {
        &self.routing.pools[self.class(class).pool]
    }

    /// The thread's own counters.
    pub fn thread_stats(&self) -> &ThreadStats {
        &self.shared.stats.threads[self.thread]
    }

    /// The thread's counters of this class.
    pub fn stats(&self, class: ClassId) -> &ClassShard {
        self.class(class).stats.shard(self.thread)
    }
}
