//! What a worker's threads share, and how a reload replaces it.
//!
//! Everything that the config describes sits in one [`Routing`] that is swapped whole. A pool whose definition is the
//! same before and after is the same object, so that its queue, slots and estimates go on; requests in flight finish
//! on whatever they came in with.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;
use plimsoll_core::ClassId;
use plimsoll_core::Nanos;
use plimsoll_core::classify::Classifier;
use plimsoll_core::config::{self, Config, FairShare};
use plimsoll_rlqs::client::Health;
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;

use crate::admin::process as process_info;
use crate::busy::{self, Busy};
use crate::config_file::Unusable;
use crate::decisions::Decisions;
use crate::pool::{Definition, Pool};
use crate::put::{Keeper, Put};
use crate::rates::limit::RateLimit;
use crate::record::Recorder;
use crate::stats::{ClassStats, Stats};
use crate::{clock, tls};

/// The place where the current [`Routing`] is found.
pub type Swap = ArcSwap<Routing>;

/// What the threads of a worker share.
pub struct Shared {
    routing: Arc<Swap>,
    /// What is counted.
    pub stats: Stats,
    /// How it goes with the controller that sets rates.
    pub rates: Health,
    /// Writes down what the gates do, if anybody wants to know.
    recorder: Option<Arc<Recorder>>,
    busy: Busy,
    /// What no config says. Whoever changes the routing holds the lock.
    keeper: Mutex<Keeper>,
    draining: watch::Sender<bool>,
    /// When it last had to share with more sentries than before, in ns; zero where it never had to.
    joined: AtomicU64,
    connections: AtomicU32,
    clients: Mutex<HashMap<IpAddr, u32>>,
}

impl Shared {
    /// Prepares everything that this config describes, for so many threads. What the gates do goes to the recorder if
    /// there is one.
    ///
    /// # Errors
    /// Where a file that the config names cannot be used.
    pub fn new(config: Config, threads: usize, recorder: Option<Arc<Recorder>>) -> Result<Shared, Unusable> {
        let stats = Stats::new(threads);
        let routing = Routing::new(config, &stats, None, recorder.as_ref())?;
        Ok(Shared {
            routing: Arc::new(ArcSwap::from_pointee(routing)),
            stats,
            rates: Health::default(),
            recorder,
            busy: Busy::default(),
            keeper: Mutex::default(),
            draining: watch::Sender::new(false),
            joined: AtomicU64::new(0),
            connections: AtomicU32::new(0),
            clients: Mutex::default(),
        })
    }

    /// The same with changes that no config can make.
    #[cfg(test)]
    pub fn altered(config: Config, alter: impl FnOnce(&mut Routing)) -> Arc<Shared> {
        let mut shared = Shared::new(config.clone(), 1, None).unwrap();
        let mut routing = Routing::new(config, &shared.stats, None, None).unwrap();
        alter(&mut routing);
        shared.routing = Arc::new(ArcSwap::from_pointee(routing));
        Arc::new(shared)
    }

    /// Where the current config is found.
    pub fn routing(&self) -> &Arc<Swap> {
        &self.routing
    }

    /// Goes over to another config. New requests see it at once. The number of threads and the addresses stay.
    ///
    /// # Errors
    /// Where a file that the config names cannot be used; then nothing has changed.
    pub fn reload(&self, config: Config) -> Result<(), Unusable> {
        let mut keeper = self.keeper.lock();
        let before = self.routing.load();
        let previous = Some((&**before, &keeper.put));
        let routing = Routing::new(config, &self.stats, previous, self.recorder.as_ref())?;
        keeper.put.forget_replaced(&routing.config);
        keeper.store();
        self.routing.store(Arc::new(routing));
        Ok(())
    }

    /// What no config says.
    pub(crate) fn keeper(&self) -> &Mutex<Keeper> {
        &self.keeper
    }

    /// Begins to drain: no new connections, no further requests on those that are open, and the worker ends when the
    /// last response has, or after `drain_timeout`.
    pub fn begin_drain(&self) {
        self.draining.send_replace(true);
    }

    /// Whether the worker drains.
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// There are more sentries than before, from now on.
    pub(crate) fn others_join(&self, now: Nanos) {
        self.joined.store(now.0, Relaxed);
    }

    /// When there last came to be more sentries than before; zero where that never was.
    pub fn joined(&self) -> Nanos {
        Nanos(self.joined.load(Relaxed))
    }

    /// Tells when draining begins.
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// How much of the CPU time that the worker may have it used over the last second, in 0..1. It may have a core a thread,
    /// or less where it has fewer processors or a control group says so. One load; anybody may ask at any time.
    pub fn busy(&self) -> f64 {
        self.busy.get()
    }

    /// Looks at how much CPU time the worker has used by now. Called once a second.
    pub fn sample_busy(&self) {
        if let Some(used_s) = process_info::cpu_seconds() {
            self.busy.sample(clock::now(), used_s, busy::cores(self.stats.threads.len()));
        }
    }

    /// Requests between their head and the end of their response.
    pub fn in_flight(&self) -> u64 {
        self.stats.in_flight()
    }

    /// Client connections that are open.
    pub fn connections(&self) -> u32 {
        self.connections.load(Relaxed)
    }

    /// Leaves `n` slots of a pool unused, because somebody else still holds them. Zero gives them back. Pools that do
    /// not exist (any more) have none to leave.
    pub fn withhold_slots(&self, pool: &str, n: u32) {
        let routing = self.routing.load();
        if let Some(pool) = routing.pools.iter().find(|p| p.config.name == pool) {
            pool.withhold(n);
        }
    }

    /// Takes a place for a client's connection.
    ///
    /// # Errors
    /// The number that are open and the limit that says no.
    pub fn connect(self: &Arc<Self>, client: IpAddr, limits: &config::Sentry) -> Result<Place, (u32, u32)> {
        let open = self.connections.fetch_add(1, Relaxed);
        let mut place = Place { shared: Arc::clone(self), client: None };
        if open >= limits.max_connections {
            return Err((open, limits.max_connections));
        }
        if let Some(limit) = limits.max_connections_per_client {
            let mut clients = self.clients.lock();
            let open = clients.entry(client).or_insert(0);
            if *open >= limit {
                return Err((*open, limit));
            }
            *open += 1;
            place.client = Some(client);
        }
        Ok(place)
    }
}

/// A client connection among those that are counted, until this is dropped.
pub struct Place {
    shared: Arc<Shared>,
    /// Where the connections of each client are counted too.
    client: Option<IpAddr>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.connections.fetch_sub(1, Relaxed);
        let Some(client) = self.client else { return };
        let mut clients = self.shared.clients.lock();
        if let Some(open) = clients.get_mut(&client) {
            *open -= 1;
            if *open == 0 {
                clients.remove(&client);
            }
        }
    }
}

/// A config, ready for use.
pub struct Routing {
    /// The config itself.
    pub config: Config,
    /// From a request to its class.
    pub classifier: Classifier,
    /// By [`ClassId`].
    pub classes: Vec<ClassRoute>,
    /// In the order of the config.
    pub pools: Vec<Arc<Pool>>,
    /// What clients that speak TLS are answered with, if they may.
    pub tls: Option<Arc<ServerConfig>>,
    /// The log of single decisions.
    pub decisions: Decisions,
}

/// How requests of one class are treated.
pub struct ClassRoute {
    /// Index into [`Routing::pools`].
    pub pool: usize,
    /// Which of the pool's classes it is.
    pub in_pool: ClassId,
    /// What the server is told.
    pub priority: HeaderValue,
    /// By what its clients are told apart, if they are.
    pub fair_share: Option<FairShare>,
    /// What is counted of it.
    pub stats: Arc<ClassStats>,
    /// How much of it may enter.
    pub limit: Arc<RateLimit>,
}

impl Routing {
    fn new(
        config: Config,
        stats: &Stats,
        previous: Option<(&Routing, &Put)>,
        recorder: Option<&Arc<Recorder>>,
    ) -> Result<Routing, Unusable> {
        if config.pools.is_empty() {
            let why = "there is no pool to forward to; add [pool.NAME] with servers = [\"127.0.0.1:9001\"]";
            return Err(Unusable::new(&[], why.to_owned()));
        }
        let tls = config.sentry.tls.as_ref().map(tls::server).transpose()?;
        let mut pools = Vec::with_capacity(config.pools.len());
        for (index, pool) in config.pools.iter().enumerate() {
            let definition = Definition::of(&config, index, pool)?;
            let same = previous.and_then(|(p, _)| p.pools.iter().find(|pool| pool.is(&definition)));
            pools.push(match same {
                Some(pool) => Arc::clone(pool),
                None => {
                    let fresh = Pool::new(definition, recorder)?;
                    if let Some((_, put)) = previous {
                        fresh.begin_with_share(put.share());
                        fresh.set_servers(&put.servers(&fresh.config))?;
                    }
                    Arc::new(fresh)
                }
            });
        }
        let class_stats = stats.classes(config.classes.iter().map(|class| &*class.name));
        // What the controller said of a class holds, whatever changes around it.
        let kept_limit = |name: &str| {
            let before =
                previous.and_then(|(p, _)| Some((p.config.classes.iter().position(|c| c.name == name)?, p)));
            before.map_or_else(Arc::default, |(i, p)| Arc::clone(&p.classes[i].limit))
        };
        let mut seen = vec![0; pools.len()];
        let route = |(class, stats): (&config::Class, Arc<ClassStats>)| {
            let in_pool = ClassId(seen[class.pool]);
            seen[class.pool] += 1;
            ClassRoute {
                pool: class.pool,
                in_pool,
                priority: HeaderValue::from(class.priority),
                fair_share: class.fair_share.clone(),
                stats,
                limit: kept_limit(&class.name),
            }
        };
        let classes = config.classes.iter().zip(class_stats).map(route).collect();
        Ok(Routing {
            classifier: Classifier::new(&config.classes),
            classes,
            pools,
            tls,
            decisions: Decisions::new(&config, previous.map(|(p, _)| &p.decisions)),
            config,
        })
    }
}
