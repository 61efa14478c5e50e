//! What a worker's threads share, and how a reload replaces it.
//!
//! Everything that the config describes sits in one [`Routing`] that is swapped whole. A pool whose definition is the
//! same before and after is the same object, so that its queue, slots and estimates go on; requests in flight finish
//! on whatever they came in with.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;
use plimsoll_admission::{self as admission, GateSpec, Slots as GateSlots, build};
use plimsoll_core::classify::Classifier;
use plimsoll_core::config::{self, Config, FairShare, Mode, Scheme, Workers};
use plimsoll_core::{ClassId, Nanos, Slo};
use tokio::sync::watch;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};

use crate::balance::Servers;
use crate::decisions::Decisions;
use crate::record::{Gate, Recorder};
use crate::retry::RetryBudget;
use crate::slots::Slots;
use crate::stats::{ClassStats, Stats};
use crate::{clock, tls};

/// Where `workers = "adaptive"` begins, for each server, and what it never exceeds.
const ADAPTIVE_START: u32 = 8;
const ADAPTIVE_MOST: u32 = 1_000;

/// The place where the current [`Routing`] is found.
pub type Swap = ArcSwap<Routing>;

/// What the threads of a worker share.
pub struct Shared {
    routing: Arc<Swap>,
    /// What is counted.
    pub stats: Stats,
    /// Writes down what the gates do, if anybody wants to know.
    recorder: Option<Arc<Recorder>>,
    /// Reloads come one at a time.
    reloading: Mutex<()>,
    draining: watch::Sender<bool>,
    connections: AtomicU32,
    clients: Mutex<HashMap<IpAddr, u32>>,
}

impl Shared {
    /// Prepares everything that this config describes, for so many threads. What the gates do goes to the recorder if
    /// there is one.
    ///
    /// # Errors
    /// Where a file that the config names cannot be used.
    pub fn new(config: Config, threads: usize, recorder: Option<Arc<Recorder>>) -> Result<Shared, String> {
        let stats = Stats::new(threads);
        let routing = Routing::new(config, &stats, None, recorder.as_ref())?;
        Ok(Shared {
            routing: Arc::new(ArcSwap::from_pointee(routing)),
            stats,
            recorder,
            reloading: Mutex::new(()),
            draining: watch::Sender::new(false),
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
    pub fn reload(&self, config: Config) -> Result<(), String> {
        let _one = self.reloading.lock();
        let before = self.routing.load();
        let routing = Routing::new(config, &self.stats, Some(&before), self.recorder.as_ref())?;
        self.routing.store(Arc::new(routing));
        Ok(())
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

    /// Tells when draining begins.
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
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
        if let Some(pool) = routing.pools.iter().find(|p| p.config.name == pool)
            && pool.withheld.swap(n, Relaxed) != n
        {
            pool.resize(clock::now());
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
}

impl Routing {
    fn new(
        config: Config,
        stats: &Stats,
        previous: Option<&Routing>,
        recorder: Option<&Arc<Recorder>>,
    ) -> Result<Routing, String> {
        let tls = config.sentry.tls.as_ref().map(tls::server).transpose()?;
        let mut pools = Vec::with_capacity(config.pools.len());
        for (index, pool) in config.pools.iter().enumerate() {
            let definition = Definition::of(&config, index, pool)?;
            let same = previous.and_then(|p| p.pools.iter().find(|pool| pool.definition == definition));
            pools.push(match same {
                Some(pool) => Arc::clone(pool),
                None => Arc::new(Pool::new(definition, recorder)?),
            });
        }
        let class_stats = stats.classes(config.classes.iter().map(|class| &*class.name));
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
            }
        };
        let classes = config.classes.iter().zip(class_stats).map(route).collect();
        Ok(Routing {
            classifier: Classifier::new(&config.classes),
            classes,
            pools,
            tls,
            decisions: Decisions::new(&config, previous.map(|p| &p.decisions)),
            config,
        })
    }
}

/// Everything that makes a pool what it is: if this is unchanged, the pool is.
#[derive(Clone, Debug, PartialEq)]
struct Definition {
    pool: config::Pool,
    /// Name, objective and whether clients share fairly, of each class.
    classes: Vec<(String, Slo, bool)>,
    /// The text of `tls_ca`, whose file may change under the same name.
    tls_ca: Option<Vec<u8>>,
}

impl Definition {
    fn of(config: &Config, index: usize, pool: &config::Pool) -> Result<Definition, String> {
        let of_pool = config.classes.iter().filter(|class| class.pool == index);
        let read = |path: &std::path::PathBuf| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        Ok(Definition {
            pool: pool.clone(),
            classes: of_pool.map(|c| (c.name.clone(), c.slo.clone(), c.fair_share.is_some())).collect(),
            tls_ca: pool.tls_ca.as_ref().map(read).transpose()?,
        })
    }
}

impl Definition {
    /// The gate, which begins now, and how many slots it begins with.
    fn gate(&self, now: Nanos) -> (admission::Gate, u32) {
        let pool = &self.pool;
        let servers = u32::try_from(pool.servers.len()).unwrap_or(u32::MAX);
        let slots = match pool.workers {
            Workers::Fixed(workers) => GateSlots::Fixed(workers.saturating_mul(servers)),
            Workers::Adaptive => GateSlots::Adaptive {
                initial: ADAPTIVE_START.saturating_mul(servers),
                max: ADAPTIVE_MOST.saturating_mul(servers),
            },
        };
        let (GateSlots::Fixed(open) | GateSlots::Adaptive { initial: open, .. }) = slots;
        let mut names: Vec<&str> = self.classes.iter().map(|(name, ..)| &**name).collect();
        let mut slos: Vec<Slo> = self.classes.iter().map(|(_, slo, _)| slo.clone()).collect();
        if names.is_empty() {
            // A pool without classes serves nothing, but it must not stop the others.
            (names, slos) = (vec!["default"], vec![Slo::default()]);
        }
        let fair_share = self.classes.iter().map(|&(.., fair)| fair).collect();
        let spec = GateSpec { slos, fair_share, slots, max_queue: pool.max_queue, start: now };
        (build::gate(spec, &pool.admission.policy, &names), open)
    }
}

/// The gate that a worker makes for a pool of this config, beginning then.
///
/// # Errors
/// Where the config has no such pool.
pub fn gate_of(config: &Config, pool: &str, start: Nanos) -> Result<admission::Gate, String> {
    let found = config.pools.iter().enumerate().find(|(_, p)| p.name == pool);
    let (index, found) = found.ok_or_else(|| format!("the config has no pool {pool}"))?;
    // Its certificates are not the gate's concern, and need not be there when a record is looked at.
    let found = config::Pool { tls_ca: None, ..found.clone() };
    Ok(Definition::of(config, index, &found)?.gate(start).0)
}

/// Servers that do the same work, and the queue in front of them.
pub struct Pool {
    /// As configured.
    pub config: config::Pool,
    /// Who may enter the queue. By the class's index in the pool.
    pub gate: Gate,
    /// Who may go to a server.
    pub slots: Slots,
    /// Where to.
    pub servers: Servers,
    /// Whether once more.
    pub retries: RetryBudget,
    /// How servers that speak TLS are spoken to.
    pub tls: Option<Arc<ClientConfig>>,
    definition: Definition,
    withheld: AtomicU32,
    /// When the gate was last ticked, and whether that panicked.
    ticked: AtomicU64,
    broken: AtomicBool,
}

/// A gate whose ticks are this late no longer judges: what it knows is too old.
const TICKS_LATE: Nanos = Nanos::from_secs(5);

impl Pool {
    fn new(definition: Definition, recorder: Option<&Arc<Recorder>>) -> Result<Pool, String> {
        let now = clock::now();
        let config = definition.pool.clone();
        let (gate, open) = definition.gate(now);
        let speaks_tls = config.servers.iter().any(|server| server.scheme == Scheme::Https);
        let tls = speaks_tls.then(|| tls::client(definition.tls_ca.as_deref())).transpose()?;
        Ok(Pool {
            gate: Gate::new(gate, &config.name, now, recorder),
            slots: Slots::new(open),
            servers: Servers::new(&config.servers),
            retries: RetryBudget::new(config.retries.budget),
            tls,
            withheld: AtomicU32::new(0),
            ticked: AtomicU64::new(now.0),
            broken: AtomicBool::new(false),
            config,
            definition,
        })
    }

    /// Whether the policy acts, only says what it would do, or is not asked.
    pub fn mode(&self) -> Mode {
        self.config.admission.mode
    }

    /// Slots that are left unused because somebody else still holds them.
    pub fn withheld(&self) -> u32 {
        self.withheld.load(Relaxed)
    }

    /// Whether the gate's verdicts are worth asking for. Where they are not, everything is let in.
    pub fn judges(&self, now: Nanos) -> bool {
        !self.broken.load(Relaxed) && now.0 <= self.ticked.load(Relaxed).saturating_add(TICKS_LATE.0)
    }

    /// Lets the gate prepare what its decisions read, and gives the pool the slots that it should have now. Called
    /// from one thread; returns when to call it again.
    pub fn tick(&self, now: Nanos) -> Nanos {
        let ticked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.gate.tick(now)));
        self.broken.store(ticked.is_err(), Relaxed);
        self.ticked.store(now.0, Relaxed);
        self.resize(now);
        ticked.unwrap_or(now + Nanos::from_secs(1))
    }

    /// Opens as many slots as there are workers: those of servers that are up, less those withheld.
    pub fn resize(&self, now: Nanos) {
        let up = self.servers.up(now) as u32;
        let all = self.servers.all().len() as u32;
        let target = match (self.config.workers, self.gate.recommended_slots()) {
            (Workers::Fixed(workers), _) => workers.saturating_mul(up),
            // Found for the servers that were up when it was found; it will adapt to those that are.
            (Workers::Adaptive, Some(slots)) => slots.max(1),
            (Workers::Adaptive, None) => ADAPTIVE_START.saturating_mul(all),
        };
        let target = target.saturating_sub(self.withheld.load(Relaxed));
        if target != self.slots.size() {
            self.slots.resize(target);
            // Nobody waits for ever, even where all slots are withheld for now.
            self.gate.set_slots(target.max(1));
        }
    }
}
