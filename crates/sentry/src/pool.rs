//! A pool: servers that do the same work, who may enter the queue in front of them, and who may leave it for a server.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use plimsoll_admission::{self as admission, GateSpec, Slots as GateSlots, build};
use plimsoll_core::config::{self, Config, Mode, Scheme, Workers};
use plimsoll_core::{Nanos, Slo};
use tokio_rustls::rustls::ClientConfig;

use crate::balance::Servers;
use crate::config_file::Unusable;
use crate::record::{Gate, Recorder};
use crate::retry::RetryBudget;
use crate::slots::Slots;
use crate::{clock, tls};

/// Where `workers = "adaptive"` begins, for each server, and what it never exceeds.
const ADAPTIVE_START: u32 = 8;
const ADAPTIVE_MOST: u32 = 1_000;

/// Everything that makes a pool what it is: if this is unchanged, the pool is.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    pool: config::Pool,
    /// Name, objective and whether clients share fairly, of each class.
    classes: Vec<(String, Slo, bool)>,
    /// The text of `tls_ca`, whose file may change under the same name.
    tls_ca: Option<Vec<u8>>,
}

impl Definition {
    /// Of the config's pool with this index.
    ///
    /// # Errors
    /// Where its certificates cannot be read.
    pub fn of(config: &Config, index: usize, pool: &config::Pool) -> Result<Definition, Unusable> {
        let of_pool = config.classes.iter().filter(|class| class.pool == index);
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|e| unusable_ca(pool, format!("{}: {e}", path.display())))
        };
        Ok(Definition {
            pool: pool.clone(),
            classes: of_pool.map(|c| (c.name.clone(), c.slo.clone(), c.fair_share.is_some())).collect(),
            tls_ca: pool.tls_ca.as_ref().map(read).transpose()?,
        })
    }

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

fn unusable_ca(pool: &config::Pool, why: String) -> Unusable {
    Unusable::new(&["pool", &pool.name, "tls_ca"], why)
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
    /// A pool with an empty queue.
    ///
    /// # Errors
    /// Where its certificates cannot be used.
    pub fn new(definition: Definition, recorder: Option<&Arc<Recorder>>) -> Result<Pool, Unusable> {
        let now = clock::now();
        let config = definition.pool.clone();
        let (gate, open) = definition.gate(now);
        let speaks_tls = config.servers.iter().any(|server| server.scheme == Scheme::Https);
        let tls = speaks_tls.then(|| tls::client(definition.tls_ca.as_deref())).transpose();
        let tls = tls.map_err(|why| unusable_ca(&config, why))?;
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

    /// Whether it is what this would make.
    pub fn is(&self, definition: &Definition) -> bool {
        self.definition == *definition
    }

    /// Whether the policy acts, only says what it would do, or is not asked.
    pub fn mode(&self) -> Mode {
        self.config.admission.mode
    }

    /// Leaves `n` slots unused because somebody else still holds them.
    pub fn withhold(&self, n: u32) {
        if self.withheld.swap(n, Relaxed) != n {
            self.resize(clock::now());
        }
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
