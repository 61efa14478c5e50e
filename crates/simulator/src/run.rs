//! One run: a policy, a load, a seed; and what came of it.

use plimsoll_admission::{Gate, GateSpec, Slots, build};
use plimsoll_core::config::Policy;
use plimsoll_core::rng::seeded;
use plimsoll_core::{Grant, Mechanism, Nanos, Slo, Statistic};

use crate::engine::{self, Arrival, Deciders, Observer, Server, Stall};
use crate::replay::Log;
use crate::scenario::Scenario;
use crate::stats::{ClassStats, Histogram, Stats};
use crate::traffic::{self, Traffic};

/// How often a run says how far it is, in requests.
const PROGRESS_EVERY: u64 = 1 << 16;
/// A simulated sentry has all the time of the world.
const IDLE_SENTRY: fn(Nanos) -> f64 = |_| 0.0;

/// What distinguishes one run of a scenario from another.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Decides.
    pub policy: Policy,
    /// As a multiple of the full load; of a log, how much faster than recorded. Above zero.
    pub load: f64,
    /// Of everything random.
    pub seed: u64,
    /// Requests that count, at most.
    pub queries: u64,
    /// Requests before them.
    pub warmup: u64,
    /// When the server stands still.
    pub stalls: Vec<Stall>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Requests that counted.
    pub queries: u64,
    /// The share of the processes that was at work, in per cent.
    pub utilization_pct: f64,
    /// From the first request that counted to the last.
    pub span: Nanos,
    /// Whether there was policing.
    pub policed: bool,
    /// By class, in the order of the scenario.
    pub classes: Vec<ClassOutcome>,
}

/// What came of one class.
#[derive(Clone, Debug)]
pub struct ClassOutcome {
    /// What one answer is worth.
    pub revenue: f64,
    /// Requests that came.
    pub received: u64,
    /// Requests turned away or dropped, by mechanism; those that refused none are left out.
    pub refused: Vec<(Mechanism, u64)>,
    /// Requests let in, by what let them in; what let none in is left out.
    pub granted: Vec<(Grant, u64)>,
    /// Of all that was served.
    pub served: Percentiles,
    /// Likewise, at each percentile of its objective.
    pub at_objectives: Vec<Option<Nanos>>,
    /// Of what was let in because it was expected to meet its objectives.
    pub by_estimate: Percentiles,
    /// Whether that met them; nothing where there was none, or no objective.
    pub slo_met: Option<bool>,
}

/// Percentiles of response times; nothing where none were measured.
#[derive(Clone, Copy, Debug)]
pub struct Percentiles {
    /// How many response times.
    pub count: u64,
    /// The median.
    pub p50: Option<Nanos>,
    /// The 90th percentile.
    pub p90: Option<Nanos>,
    /// The 99th percentile.
    pub p99: Option<Nanos>,
}

impl Outcome {
    /// The share of all requests that was turned away or dropped, in per cent.
    pub fn rejected_pct(&self) -> f64 {
        percent(self.classes.iter().map(ClassOutcome::rejected).sum(), self.queries)
    }

    /// What the answers were worth, a second of the span; nothing without policing.
    pub fn revenue_per_s(&self) -> Option<f64> {
        let worth: f64 = self.classes.iter().map(|class| class.revenue * class.served.count as f64).sum();
        (self.policed && self.span > Nanos::ZERO).then(|| worth / self.span.as_secs_f64())
    }
}

impl ClassOutcome {
    /// Requests turned away or dropped.
    pub fn rejected(&self) -> u64 {
        self.refused.iter().map(|&(_, n)| n).sum()
    }

    /// Their share, in per cent.
    pub fn rejected_pct(&self) -> f64 {
        percent(self.rejected(), self.received)
    }

    /// Requests let in against the estimate.
    pub fn overridden(&self) -> u64 {
        self.granted.iter().filter(|&&(grant, _)| grant != Grant::Estimate).map(|&(_, n)| n).sum()
    }

    /// Requests let in on the promise of the class.
    pub fn promised(&self) -> u64 {
        self.granted.iter().filter(|&&(grant, _)| grant == Grant::Promise).map(|&(_, n)| n).sum()
    }

    fn new(stats: &ClassStats, slo: &Slo, revenue: f64) -> ClassOutcome {
        let counted = |&n: &u64| n > 0;
        let refused = Mechanism::ALL.iter().copied().zip(stats.refused).filter(|(_, n)| counted(n));
        let granted = Grant::ALL.into_iter().zip(stats.granted).filter(|(_, n)| counted(n));
        let served = stats.response_times();
        let at = |&(statistic, _): &(Statistic, Nanos)| served.value(statistic);
        ClassOutcome {
            revenue,
            received: stats.received,
            refused: refused.collect(),
            granted: granted.collect(),
            served: Percentiles::of(&served),
            at_objectives: slo.targets().iter().map(at).collect(),
            by_estimate: Percentiles::of(&stats.by_estimate),
            slo_met: stats.by_estimate.meets(slo),
        }
    }
}

impl Percentiles {
    fn of(histogram: &Histogram) -> Percentiles {
        Percentiles {
            count: histogram.total(),
            p50: histogram.quantile(0.5),
            p90: histogram.quantile(0.9),
            p99: histogram.quantile(0.99),
        }
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

impl Setup {
    /// Runs synthetic traffic. `progress` is told every so often how many more requests have come.
    pub fn run(&self, scenario: &Scenario, progress: &dyn Fn(u64)) -> Outcome {
        let mut stats = Stats::new(scenario.names.len(), self.warmup);
        self.observe(scenario, progress, &mut stats);
        self.outcome(scenario, &stats)
    }

    /// Runs synthetic traffic before the eyes of `observer`.
    pub fn observe(&self, scenario: &Scenario, progress: &dyn Fn(u64), observer: &mut impl Observer) {
        self.drive(scenario, self.traffic(scenario), IDLE_SENTRY, progress, observer);
    }

    /// The same behind a sentry that is so busy at a time, in 0..1.
    pub fn observe_busy(
        &self,
        scenario: &Scenario,
        sentry_busy: fn(Nanos) -> f64,
        observer: &mut impl Observer,
    ) {
        self.drive(scenario, self.traffic(scenario), sentry_busy, &|_| {}, observer);
    }

    /// Its synthetic traffic, without an end.
    pub fn traffic<'a>(&self, scenario: &'a Scenario) -> Traffic<'a> {
        let Scenario { arrivals, shares, services, schedules, .. } = scenario;
        let per_s = self.load * scenario.full_load_per_s();
        Traffic::new(arrivals, per_s, shares, schedules, services, self.seed)
    }

    /// Runs the requests of a log.
    pub fn replay(&self, scenario: &Scenario, log: &Log, progress: &dyn Fn(u64)) -> Outcome {
        let mut stats = Stats::new(scenario.names.len(), self.warmup);
        self.drive(scenario, log.at_speed(self.load), IDLE_SENTRY, progress, &mut stats);
        self.outcome(scenario, &stats)
    }

    fn drive(
        &self,
        scenario: &Scenario,
        traffic: impl Iterator<Item = Arrival>,
        sentry_busy: fn(Nanos) -> f64,
        progress: &dyn Fn(u64),
        observer: &mut impl Observer,
    ) {
        let engine = &scenario.engine;
        let gate = self.gate(scenario);
        let server = Server { processes: engine.processes, stalls: self.stalls.clone() };
        let mut came = 0u64;
        let counted = traffic.take((self.warmup + self.queries) as usize).inspect(|_| {
            came += 1;
            if came.is_multiple_of(PROGRESS_EVERY) {
                progress(PROGRESS_EVERY);
            }
        });
        let police = scenario.police();
        let deciders = Deciders { police: police.as_ref(), gate: &gate, sentry_busy };
        engine::run(deciders, &server, counted, seeded(self.seed, traffic::POLICY), observer);
        progress(came % PROGRESS_EVERY);
    }

    /// The gate of a run.
    pub fn gate(&self, scenario: &Scenario) -> Gate {
        let Scenario { engine, names, slos, .. } = scenario;
        let spec = GateSpec {
            slos: slos.clone(),
            ranks: scenario.ranks(),
            fair_share: Vec::new(),
            slots: Slots::Fixed(engine.processes),
            max_queue: engine.max_queue,
            start: Nanos::ZERO,
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        build::gate(spec, &self.policy, &names)
    }

    fn outcome(&self, scenario: &Scenario, stats: &Stats) -> Outcome {
        let classes = stats.classes().iter().zip(&scenario.slos).zip(&scenario.worth);
        let classes = classes.map(|((class, slo), worth)| ClassOutcome::new(class, slo, worth.revenue));
        Outcome {
            queries: stats.classes().iter().map(|class| class.received).sum(),
            utilization_pct: 100.0 * stats.utilization(scenario.engine.processes),
            span: stats.span(),
            policed: scenario.police().is_some(),
            classes: classes.collect(),
        }
    }
}
