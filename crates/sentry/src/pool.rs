//! A pool: servers that do the same work, who may enter the queue in front of them, and who may leave it for a server.

pub mod ease;
pub mod sheepdog;
mod sizing;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use plimsoll_admission::{self as admission, GateSpec, Slots as GateSlots, build};
use plimsoll_core::config::{self, Config, Mode, PolicingPolicy, Scheme, Workers};
use plimsoll_core::{ClassId, Nanos, Slo, ranks};
use plimsoll_policing::batch::Load;
use plimsoll_policing::inherent::Inherent;
use plimsoll_policing::police::{Choice, ClassSpec, Police};
use plimsoll_policing::switch::Policer;
use tokio_rustls::rustls::ClientConfig;

use self::ease::Ease;
use self::sheepdog::Flock;
use self::sizing::Sizing;
use crate::balance::Servers;
use crate::config_file::Unusable;
use crate::etcd::Guard;
use crate::nucleus;
use crate::record::{self, Gate, Recorder};
use crate::rerun::Reruns;
use crate::retry::RetryBudget;
use crate::slots::Slots;
use crate::solr::Queries;
use crate::{clock, tls};

/// Where `workers = "adaptive"` begins, for each server, and what it never exceeds.
const ADAPTIVE_START: u32 = 8;
const ADAPTIVE_MOST: u32 = 1_000;
/// Kinds of requests that a pool knows by their size: 100 KB of them.
const KINDS: usize = 4_096;
/// How often what is known of them ages.
const AGEING: Nanos = Nanos::from_secs(1);

/// Everything that makes a pool what it is: if this is unchanged, the pool is.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    pool: config::Pool,
    classes: Vec<ClassDefinition>,
    /// The text of `tls_ca`, whose file may change under the same name.
    tls_ca: Option<Vec<u8>>,
    /// Who looks after it, if its servers are an etcd.
    etcd: Option<config::EtcdGuard>,
}

/// What a pool must know of a class.
#[derive(Clone, Debug, PartialEq)]
struct ClassDefinition {
    name: String,
    slo: Slo,
    shares_fairly: bool,
    /// How important it is among the pool's classes, from 0: all that its priority decides.
    rank: u16,
    revenue: f64,
    promised_per_s: f64,
    service_time: Option<Nanos>,
}

impl ClassDefinition {
    fn of(class: &config::Class, rank: u16) -> ClassDefinition {
        ClassDefinition {
            name: class.name.clone(),
            slo: class.slo.clone(),
            shares_fairly: class.fair_share.is_some(),
            rank,
            revenue: class.revenue,
            promised_per_s: class.min_rate.map_or(0.0, |rate| rate.per_s),
            service_time: class.service_time,
        }
    }
}

impl Definition {
    /// Of the config's pool with this index.
    ///
    /// # Errors
    /// Where its certificates cannot be read.
    pub fn of(config: &Config, index: usize, pool: &config::Pool) -> Result<Definition, Unusable> {
        let of_pool = config.classes.iter().filter(|class| class.pool == index);
        let ranks = ranks(of_pool.clone().map(|class| (class.priority, class.revenue)));
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|e| unusable_ca(pool, format!("{}: {e}", path.display())))
        };
        Ok(Definition {
            pool: pool.clone(),
            classes: of_pool.zip(ranks).map(|(class, rank)| ClassDefinition::of(class, rank)).collect(),
            tls_ca: pool.tls_ca.as_ref().map(read).transpose()?,
            etcd: config.etcds.iter().find(|etcd| etcd.pool == index).cloned(),
        })
    }

    /// The police, where there is something for it to do.
    fn police(&self, now: Nanos) -> Option<Police> {
        let choice = match self.pool.policing.policy {
            PolicingPolicy::Off => Choice::Never,
            PolicingPolicy::Auto => Choice::Auto,
            PolicingPolicy::Batch => Choice::Always(Policer::Batch),
            PolicingPolicy::Threshold => Choice::Always(Policer::Threshold),
        };
        let promises = self.classes.iter().any(|class| class.promised_per_s > 0.0);
        // A promise is to pass whoever judges, so without any judge there is nothing to it.
        let judged = self.pool.admission.mode != Mode::Off;
        if self.pool.policing.mode == Mode::Off || (choice == Choice::Never && !(promises && judged)) {
            return None;
        }
        let class = |class: &ClassDefinition| ClassSpec {
            priority: class.rank.into(),
            revenue: class.revenue,
            promised_per_s: class.promised_per_s,
            target: class.slo.owed().unwrap_or(Nanos::MAX),
        };
        let classes: Vec<ClassSpec> = self.classes.iter().map(class).collect();
        Some(Police::new(&classes, self.pool.ladder.clone(), choice, now))
    }

    /// The gate, which begins now, and how many slots it begins with.
    fn gate(&self, now: Nanos) -> (admission::Gate, u32) {
        let pool = &self.pool;
        let servers = u32::try_from(pool.servers.len()).unwrap_or(u32::MAX).max(1);
        let slots = match pool.workers {
            Workers::Fixed(workers) => GateSlots::Fixed(workers.saturating_mul(servers)),
            Workers::Adaptive => GateSlots::Adaptive {
                initial: ADAPTIVE_START.saturating_mul(servers),
                max: ADAPTIVE_MOST.saturating_mul(servers),
            },
        };
        let (GateSlots::Fixed(open) | GateSlots::Adaptive { initial: open, .. }) = slots;
        let mut names: Vec<&str> = self.classes.iter().map(|class| &*class.name).collect();
        let mut slos: Vec<Slo> = self.classes.iter().map(|class| class.slo.clone()).collect();
        let ranks = self.classes.iter().map(|class| class.rank).collect();
        if names.is_empty() {
            // A pool without classes serves nothing, but it must not stop the others.
            (names, slos) = (vec!["default"], vec![Slo::default()]);
        }
        let fair_share = self.classes.iter().map(|class| class.shares_fairly).collect();
        let spec = GateSpec { slos, ranks, fair_share, slots, max_queue: pool.max_queue, start: now };
        let policy = match pool.admission.mode {
            // What policing lets in is asked nothing more.
            Mode::Off => &config::Policy::None,
            _ => &pool.admission.policy,
        };
        (build::gate(spec, policy, &names), open)
    }
}

/// The gate that a worker makes for a pool of this config, beginning then, and its police.
///
/// # Errors
/// Where the config has no such pool.
pub fn gate_of(
    config: &Config,
    pool: &str,
    start: Nanos,
) -> Result<(admission::Gate, Option<Police>), String> {
    let found = config.pools.iter().enumerate().find(|(_, p)| p.name == pool);
    let (index, found) = found.ok_or_else(|| format!("the config has no pool {pool}"))?;
    // Its certificates are not the gate's concern, and need not be there when a record is looked at.
    let found = config::Pool { tls_ca: None, ..found.clone() };
    let definition = Definition::of(config, index, &found)?;
    Ok((definition.gate(start).0, definition.police(start)))
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
    /// Who may ask the gate, and who passes it untested; nothing where everyone may and nobody does.
    pub police: Option<record::Police>,
    /// Who may go to a server.
    pub slots: Slots,
    /// Where to.
    pub servers: Servers,
    /// Whether once more.
    pub retries: RetryBudget,
    /// Which of those that a server cancelled, too.
    pub reruns: Reruns,
    /// How many of the slots are in use while the servers are said to be late.
    pub ease: Ease,
    /// How the servers' workers fare.
    pub flock: Flock,
    /// What requests of a kind need.
    pub inherent: Inherent,
    /// By how much they take longer than that.
    pub stretch: nucleus::stretch::Stretch,
    /// What its servers report.
    pub reports: nucleus::Counts,
    /// What is under way, if they are an etcd.
    pub etcd: Option<Arc<Guard>>,
    /// Likewise, if they are Solrs.
    pub solr: Option<Arc<Queries>>,
    /// How servers that speak TLS are spoken to, once there is one.
    tls: OnceLock<Arc<ClientConfig>>,
    definition: Definition,
    withheld: AtomicU32,
    /// Slots that requests on servers that have left still hold.
    leaving: AtomicU32,
    sizing: Mutex<Sizing>,
    /// When the gate was last ticked, and whether that panicked.
    ticked: AtomicU64,
    broken: AtomicBool,
    /// How long requests wait at the servers, as of the last tick.
    delay_at_servers: AtomicU64,
    /// When what is known of requests last aged.
    aged: AtomicU64,
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
        let gate = Gate::new(gate, &config.name, now, recorder);
        let police = definition.police(now).map(|police| record::Police::new(police, gate.recorded()));
        let workers = match config.workers {
            Workers::Fixed(workers) => Some(workers),
            Workers::Adaptive => None,
        };
        let pool = Pool {
            gate,
            police,
            slots: Slots::new(open),
            servers: Servers::new(&[], workers),
            retries: RetryBudget::new(config.retries.budget),
            reruns: Reruns::new(config.reruns),
            ease: Ease::default(),
            flock: Flock::new(config.max_slowdown),
            inherent: Inherent::new(KINDS),
            stretch: nucleus::stretch::Stretch::default(),
            reports: nucleus::Counts::default(),
            etcd: definition.etcd.clone().map(|etcd| Arc::new(Guard::new(etcd))),
            solr: config.solr.clone().map(|solr| Arc::new(Queries::new(solr))),
            tls: OnceLock::new(),
            withheld: AtomicU32::new(0),
            leaving: AtomicU32::new(0),
            sizing: Mutex::new(Sizing::new(config.servers.len())),
            ticked: AtomicU64::new(now.0),
            broken: AtomicBool::new(false),
            delay_at_servers: AtomicU64::new(0),
            aged: AtomicU64::new(now.0),
            config,
            definition,
        };
        pool.set_servers(&pool.config.servers)?;
        Ok(pool)
    }

    /// Puts other servers in the place of those that it has, from the next request on. Those that stay go on as they are,
    /// those that leave finish what they have.
    ///
    /// # Errors
    /// Where they want certificates that cannot be used; then nothing has changed.
    pub fn set_servers(&self, servers: &[config::Server]) -> Result<(), Unusable> {
        if servers.iter().any(|server| server.scheme == Scheme::Https) && self.tls.get().is_none() {
            let tls = tls::client(self.definition.tls_ca.as_deref());
            // Another thread may have been quicker, with the same.
            let _ = self.tls.set(tls.map_err(|why| unusable_ca(&self.config, why))?);
        }
        self.servers.replace(servers);
        self.resize(clock::now());
        Ok(())
    }

    /// How servers that speak TLS are spoken to, once there is one.
    pub fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.get()
    }

    /// Whether it is what this would make.
    pub fn is(&self, definition: &Definition) -> bool {
        self.definition == *definition
    }

    /// Whether the policy acts, only says what it would do, or is not asked.
    pub fn mode(&self) -> Mode {
        match self.config.admission.mode {
            // Policing needs the queue that tells it how busy the servers are; nobody else judges then.
            Mode::Off if self.police.is_some() => self.config.policing.mode,
            mode => mode,
        }
    }

    /// Which policer is at work; nothing where requests are not policed. A police may be there for the promised rates alone.
    pub fn policer(&self) -> Option<Policer> {
        let polices = self.config.policing.policy != PolicingPolicy::Off;
        self.police.as_ref().filter(|_| polices).map(record::Police::policer)
    }

    /// Classes, as many ranks as there may be.
    pub fn ranks(&self) -> usize {
        self.definition.classes.len()
    }

    /// How busy the servers are, as policing sees it: every slot is a server that takes up one request after the other.
    pub fn load(&self) -> Load {
        Load {
            queue_delay: self.gate.expected_wait() + Nanos(self.delay_at_servers.load(Relaxed)),
            in_service: 0.0,
            servers: self.slots.size(),
            idle: self.slots.is_idle(),
        }
    }

    /// What a request of this kind is expected to take; of a kind that was never seen, what its class does.
    pub fn size_of(&self, kind: u64, in_pool: ClassId) -> Nanos {
        // A size that is known is never zero, which is not known.
        let known = |inherent| self.stretch.of(inherent).max(Nanos(1));
        self.inherent.of(kind).map_or_else(|| self.mean_of(in_pool), known)
    }

    /// What a request of this class is expected to take: what such requests took, or else what the user says.
    fn mean_of(&self, in_pool: ClassId) -> Nanos {
        match self.gate.mean(in_pool) {
            Nanos::ZERO => self.definition.classes[in_pool.index()].service_time.unwrap_or(Nanos::ZERO),
            mean => mean,
        }
    }

    /// Whether the gate's verdicts are worth asking for. Where they are not, everything is let in.
    pub fn judges(&self, now: Nanos) -> bool {
        !self.broken.load(Relaxed) && now.0 <= self.ticked.load(Relaxed).saturating_add(TICKS_LATE.0)
    }

    /// Lets the gate and the police prepare what their decisions read, with the sentry itself this busy (in 0..1), and gives the pool the slots that it should have now. Called
    /// from one thread; returns when to call it again.
    pub fn tick(&self, busy: f64, now: Nanos) -> Nanos {
        self.settle(now);
        self.herd(now);
        let ticked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let next = self.gate.tick(now);
            let Some(police) = &self.police else { return next };
            self.delay_at_servers.store(self.queue_delay_at_servers(now).0, Relaxed);
            next.min(police.tick(self.load(), busy, now))
        }));
        self.broken.store(ticked.is_err(), Relaxed);
        self.ticked.store(now.0, Relaxed);
        if now.since(Nanos(self.aged.load(Relaxed))) >= AGEING {
            self.aged.store(now.0, Relaxed);
            self.inherent.tick();
            self.stretch.tick();
        }
        self.ease.tick(now);
        self.resize(now);
        ticked.unwrap_or(now + Nanos::from_secs(1))
    }

    /// How long a request waits at a server before the server begins with it: the mean of what servers have said lately, zero where
    /// none has (Q of Cataclysm's Eq. 3).
    pub fn queue_delay_at_servers(&self, now: Nanos) -> Nanos {
        let (sum_s, count) = self.servers.fold((0.0, 0), |(sum, n), server| {
            let said = server.load.queue_delay_s.get(now);
            said.map_or((sum, n), |(delay, counts)| (sum + delay * counts, n + 1))
        });
        if count == 0 { Nanos::ZERO } else { Nanos::from_secs_f64(sum_s / f64::from(count)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nucleus::Report;

    fn pool() -> Pool {
        let text = "[sentry]\n[pool.p]\nservers = [\"a:1\", \"a:2\", \"a:3\"]\n[class.default]\n";
        let config = config::parse::<Config>(text, "test").unwrap().0;
        Pool::new(Definition::of(&config, 0, &config.pools[0]).unwrap(), None).unwrap()
    }

    #[test]
    fn what_servers_said_of_their_queues_counts_until_it_is_old() {
        let pool = pool();
        let at = Nanos::from_secs;
        let ms = |now| pool.queue_delay_at_servers(now).as_millis_f64().round();
        assert_eq!(ms(at(100)), 0.0);
        let report = Report { queue_delay: Some(Nanos::from_millis(40)), ..Report::default() };
        pool.servers.all()[0].load.note(&report, at(100));
        assert_eq!(ms(at(100)), 40.0, "only one has a delay to tell");
        assert_eq!((ms(at(105)), ms(at(110))), (20.0, 0.0));
    }

    #[test]
    fn what_is_known_of_requests_ages_once_a_second() {
        let pool = pool();
        let start = Nanos(pool.aged.load(Relaxed));
        // Requests that are all data, of which each second costs half of one.
        pool.inherent.fit(Nanos::from_millis(10), Nanos::ZERO, Nanos::from_millis(20));
        pool.tick(0.0, start + Nanos::from_millis(900));
        assert_eq!(pool.inherent.alpha(), 1.0);
        pool.tick(0.0, start + Nanos::from_millis(1_100));
        assert_eq!(pool.inherent.alpha(), 0.5);
    }
}
