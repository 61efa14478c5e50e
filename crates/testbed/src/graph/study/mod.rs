//! The paper's study on a real system (Bouncer, section 5.4): the broker's policies side by side from a
//! third of the capacity to 1.67 times it, shards always under AcceptFraction, and the starvation of Fig.
//! 3.
//!
//! Every run has a fresh store, so that no policy inherits what another has learnt or queued, and a load
//! generator in a process of its own. Rates are factors of the capacity that is measured first: it depends
//! on the machine, and on what else runs there.

mod client;
mod load;
mod starvation;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use plimsoll_core::Nanos;
use serde::Serialize;
use serde_json::Value;

use super::Options;
use super::broker::SLO;
use super::cluster::Cluster;
use super::queries::QueryType;
use crate::clock::Clock;
use client::Client;
use load::{Load, Mix};
pub use starvation::{Estimates, Starvation};

/// Far above any capacity that the default costs allow, and no more than a broker refuses in passing.
const SATURATING_RATE_PER_S: f64 = 2_500.0;
/// While capacity is measured: keeps every slot busy, and nothing waits for long.
const SATURATING_POLICY: &str = "maxql,limit=100";

/// How often the capacity is measured, each time for a part of the length of a run.
const CAPACITY_ROUNDS: u32 = 3;

/// A generator that lags more than this (at p99) was kept from its CPU. Alone on two CPUs it lags a tenth.
const DISTURBED_MS: f64 = 2.0;

/// Fewest queries that a percentile is judged by.
pub const FEWEST: u64 = 20;

/// What to run.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    /// The `plimsoll` to run store and load generator with.
    pub program: PathBuf,
    /// The store; its policy is replaced.
    pub store: Options,
    /// The brokers' policies, as NAME[,key=value...].
    pub policies: Vec<String>,
    /// Offered loads as factors of the capacity.
    pub loads: Vec<f64>,
    /// Load before each measurement.
    pub warm_up: Nanos,
    /// Length of a measurement.
    pub measure: Nanos,
    /// How often to measure at most where the machine is disturbed, at least once.
    pub attempts: u32,
    /// Fixes the graph and the arrivals.
    pub seed: u64,
}

impl StudyOptions {
    /// The paper's policies and loads; some twelve minutes.
    pub fn full(program: PathBuf) -> StudyOptions {
        let policies = [
            "bouncer,allowance=0.05",
            "bouncer,underserved=1.0",
            "maxql,limit=800",
            "maxqwt,limit=12ms",
            "accept-fraction,max-util=0.8",
        ];
        StudyOptions {
            program,
            store: Options::default(),
            policies: policies.map(str::to_owned).to_vec(),
            // The paper's 36, 72, 108, 144 and 180 thousand a second; the shards' CPUs are busy from the
            // third on.
            loads: [1.0, 2.0, 3.0, 4.0, 5.0].map(|thirds| thirds / 3.0).to_vec(),
            warm_up: Nanos::from_secs(8),
            measure: Nanos::from_secs(20),
            attempts: 3,
            seed: 1,
        }
    }

    /// The highest load alone, one Bouncer and its peers; some 25 seconds.
    pub fn quick(program: PathBuf) -> StudyOptions {
        let mut options = StudyOptions::full(program);
        options.policies.remove(1);
        StudyOptions {
            loads: vec![5.0 / 3.0],
            warm_up: Nanos::from_millis(1_500),
            measure: Nanos::from_millis(3_000),
            attempts: 1,
            ..options
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct StudyResult {
    /// Queries of the mix that the store serves a second when it has no idle slot.
    pub capacity_per_s: f64,
    /// In the order of the loads, and of the policies within one.
    pub runs: Vec<Run>,
}

/// One policy at one load.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The broker's policy.
    pub policy: String,
    /// Offered load as a factor of the capacity.
    pub load: f64,
    /// The same in queries a second.
    pub rate_per_s: f64,
    /// Queries sent while it was measured.
    pub sent: u64,
    /// Of those, refused by broker or shards, in per cent.
    pub rejected_pct: f64,
    /// Of those, refused by shards, in per cent.
    pub rejected_by_shards_pct: f64,
    /// Of those, neither answered nor refused.
    pub errors: u64,
    /// How far the load generator itself lagged.
    pub late_ms_p99: f64,
    /// How often it was measured until the generator did not lag, or the attempts were used up.
    pub attempts: u32,
    /// How long the broker's gate took for a decision, two clock readings included.
    pub decision_us: Decision,
    /// QT1 first.
    pub types: Vec<TypeFigures>,
}

/// Times of decisions in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Decision {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// One query type within a run. A time that nothing was measured for is `None`.
#[derive(Clone, Debug, Serialize)]
pub struct TypeFigures {
    /// `QT1` to `QT11`.
    pub name: String,
    /// Queries sent.
    pub sent: u64,
    /// Of those, refused, in per cent.
    pub rejected_pct: f64,
    /// Served because the estimate said yes.
    pub by_estimate: u64,
    /// Served although it said no: allowance, help for the underserved, probes.
    pub overridden: u64,
    /// Response times of all that were served, as the client saw them.
    pub response_ms: Times,
    /// Response times of those that were admitted by the estimate, as the broker saw them: what claims
    /// about objectives are made for.
    pub response_estimate_ms: Times,
    /// Processing times at the broker, shards included.
    pub processing_ms: Times,
}

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
}

impl StudyResult {
    /// The run of a policy at a load.
    pub fn run(&self, policy: &str, load: f64) -> Option<&Run> {
        self.runs.iter().find(|run| run.policy == policy && run.load == load)
    }
}

impl Run {
    /// The largest factor by which any type's p50 or p90, of those admitted by the estimate, exceeds its
    /// objective; at most 1 where all objectives are met. Types that were served less than [`FEWEST`] times so
    /// are left out: of a dozen queries, two in one hiccup of the machine are the p90.
    pub fn worst_factor_of_objective(&self) -> f64 {
        let [p50, p90] = SLO.map(|(_, limit)| limit.as_millis_f64());
        let enough = self.types.iter().filter(|of| of.by_estimate >= FEWEST);
        let factors = enough.flat_map(|of| {
            let times = of.response_estimate_ms;
            [times.p50.map(|ms| ms / p50), times.p90.map(|ms| ms / p90)]
        });
        factors.flatten().fold(0.0, f64::max)
    }
}

/// Runs the study; `progress` is told what comes next.
///
/// # Errors
/// Where the store or the load generator does not start, or the store cannot be saturated.
pub fn run(options: StudyOptions, progress: &dyn Fn(&str)) -> io::Result<StudyResult> {
    let study = Study { client: Client::new()?, options };
    progress("graph store: measuring the capacity");
    let capacity_per_s = study.capacity_per_s(&Mix::paper())?;
    let mut runs = Vec::new();
    // Policies that are compared run one after the other: whatever else the machine does then is nearly the same.
    for &load in &study.options.loads {
        for policy in &study.options.policies {
            progress(&format!("graph store: {policy} at {load:.2} of {capacity_per_s:.0}/s"));
            runs.push(study.measure_undisturbed(policy, load, capacity_per_s)?);
        }
    }
    Ok(StudyResult { capacity_per_s, runs })
}

/// Shows the starvation of Fig. 3; of the options it needs neither policies nor loads.
///
/// # Errors
/// As [`run`].
pub fn starvation(options: StudyOptions, progress: &dyn Fn(&str)) -> io::Result<Starvation> {
    progress("graph store: starvation");
    starvation::show(&Study { client: Client::new()?, options })
}

struct Study {
    options: StudyOptions,
    client: Client,
}

/// A load that is being measured, and what went before it and may still wait for answers.
struct WarmLoad {
    warming: Load,
    measured: Load,
}

impl WarmLoad {
    /// The report on what was measured.
    fn finish(self) -> io::Result<Value> {
        self.warming.finish()?;
        self.measured.finish()
    }
}

impl Study {
    /// A fresh store with this policy at its broker.
    fn store(&self, policy: &str) -> io::Result<Cluster> {
        let mut store = self.options.store.clone();
        store.broker.policy = policy.to_owned();
        store.graph.seed = self.options.seed;
        Cluster::start(&self.options.program, &store, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Loads the store for as long as the warm-up takes and returns when the measurement has begun. The load goes on
    /// without a gap, in which queues would drain.
    fn load(&self, store: &Cluster, mix: &Mix, rate_per_s: f64) -> io::Result<WarmLoad> {
        let StudyOptions { warm_up, measure, .. } = self.options;
        self.load_for(store, mix, rate_per_s, [warm_up, measure])
    }

    fn load_for(
        &self,
        store: &Cluster,
        mix: &Mix,
        rate_per_s: f64,
        [warm_up, measure]: [Nanos; 2],
    ) -> io::Result<WarmLoad> {
        let StudyOptions { program, seed, .. } = &self.options;
        let start = |duration, seed| Load::start(program, store.broker(), mix, rate_per_s, duration, seed);
        let clock = Clock::start();
        // Other arrivals than those that are measured.
        let warming = start(warm_up, seed.wrapping_add(1_000))?;
        clock.sleep_until(warm_up);
        let measured = start(measure, *seed)?;
        self.client.delete(store.broker(), "/stats")?;
        Ok(WarmLoad { warming, measured })
    }

    /// Answers a second of a store that has more to do than it can. Whatever else the machine does can only lower that, and then
    /// no load of the study would be one; so the highest of a few measurements counts.
    fn capacity_per_s(&self, mix: &Mix) -> io::Result<f64> {
        let found = (0..CAPACITY_ROUNDS).map(|_| self.saturated_per_s(mix));
        found.collect::<io::Result<Vec<f64>>>().map(|found| found.into_iter().fold(0.0, f64::max))
    }

    fn saturated_per_s(&self, mix: &Mix) -> io::Result<f64> {
        let store = self.store(SATURATING_POLICY)?;
        let lengths = [self.options.warm_up, self.options.measure].map(|length| Nanos(length.0 / 2));
        let report = self.load_for(&store, mix, SATURATING_RATE_PER_S, lengths)?.finish()?;
        let total = &report["total"];
        if count(&total["rejected"]) < count(&total["sent"]) / 10 {
            let message =
                format!("{SATURATING_RATE_PER_S}/s do not saturate this store; make its queries dearer");
            return Err(io::Error::other(message));
        }
        Ok(total["goodput_per_s"].as_f64().unwrap_or_default())
    }

    /// Measures again while the generator lags, as it does when others want the CPU: that disturbs broker and shards,
    /// too. Of the attempts, the one with the least lag counts, whatever came of it.
    fn measure_undisturbed(&self, policy: &str, load: f64, capacity_per_s: f64) -> io::Result<Run> {
        let mut best = self.measure(policy, load, capacity_per_s)?;
        for attempt in 2..=self.options.attempts {
            if best.late_ms_p99 <= DISTURBED_MS {
                break;
            }
            let again = self.measure(policy, load, capacity_per_s)?;
            if again.late_ms_p99 < best.late_ms_p99 {
                best = again;
            }
            best.attempts = attempt;
        }
        Ok(best)
    }

    fn measure(&self, policy: &str, load: f64, capacity_per_s: f64) -> io::Result<Run> {
        let (mix, rate_per_s) = (Mix::paper(), load * capacity_per_s);
        let store = self.store(policy)?;
        let report = self.load(&store, &mix, rate_per_s)?.finish()?;
        let stats = self.client.get(store.broker(), "/stats")?;
        let (total, decision) = (&report["total"], &stats["decision_us"]);
        let figure = |value: &Value| value.as_f64().unwrap_or_default();
        let types: Vec<TypeFigures> =
            QueryType::ALL.map(|of| TypeFigures::new(of.to_string(), &report, &stats)).to_vec();
        let by_shards = QueryType::ALL.map(|of| count(&stats["types"][of.to_string()]["refused_by_shard"]));
        let sent = count(&total["sent"]);
        Ok(Run {
            policy: policy.to_owned(),
            load,
            rate_per_s,
            sent,
            rejected_pct: percent(count(&total["rejected"]), sent),
            rejected_by_shards_pct: percent(by_shards.iter().sum(), sent),
            errors: count(&total["errors"]) + count(&total["refused_other"]),
            late_ms_p99: figure(&total["late_ms_p99"]),
            attempts: 1,
            decision_us: Decision {
                mean: figure(&decision["mean"]),
                p50: figure(&decision["p50"]),
                p99: figure(&decision["p99"]),
            },
            types,
        })
    }
}

impl TypeFigures {
    /// From the load generator's report and the broker's own figures.
    fn new(name: String, report: &Value, stats: &Value) -> TypeFigures {
        let (client, broker) = (&report["requests"][&name], &stats["types"][&name]);
        let (served, granted) = (count(&broker["served"]), count(&broker["served_by_grant"]["estimate"]));
        let times = |of: &Value, count: u64| match count {
            0 => Times { p50: None, p90: None },
            _ => Times { p50: of["p50"].as_f64(), p90: of["p90"].as_f64() },
        };
        TypeFigures {
            sent: count(&client["sent"]),
            rejected_pct: percent(count(&client["rejected"]), count(&client["sent"])),
            by_estimate: granted,
            overridden: served - granted,
            response_ms: Times { p50: client["p50_ms"].as_f64(), p90: client["p90_ms"].as_f64() },
            response_estimate_ms: times(&broker["response_estimate_ms"], granted),
            processing_ms: times(&broker["processing_ms"], served),
            name,
        }
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figures(served: u64, p50: f64, p90: f64) -> TypeFigures {
        let client =
            json!({ "sent": 2 * served, "rejected": served, "p50_ms": p50 + 1.0, "p90_ms": p90 + 1.0 });
        let times = json!({ "p50": p50, "p90": p90 });
        let broker = json!({
            "served": served, "served_by_grant": { "estimate": served - 1, "allowance": 1 },
            "response_estimate_ms": times, "processing_ms": times,
        });
        let report = json!({ "requests": { "QT1": client } });
        TypeFigures::new("QT1".to_owned(), &report, &json!({ "types": { "QT1": broker } }))
    }

    fn run(types: Vec<TypeFigures>) -> Run {
        Run {
            policy: "bouncer".to_owned(),
            load: 1.0,
            rate_per_s: 1.0,
            sent: 1,
            rejected_pct: 0.0,
            rejected_by_shards_pct: 0.0,
            errors: 0,
            late_ms_p99: 0.0,
            attempts: 1,
            decision_us: Decision { mean: 1.0, p50: 1.0, p99: 1.0 },
            types,
        }
    }

    #[test]
    fn figures_come_from_both_sides() {
        let of = figures(100, 9.0, 20.0);
        assert_eq!((of.sent, of.rejected_pct, of.by_estimate, of.overridden), (200, 50.0, 99, 1));
        assert_eq!((of.response_ms.p50, of.response_estimate_ms.p50), (Some(10.0), Some(9.0)));
        assert_eq!(
            figures(1, 9.0, 20.0).response_estimate_ms.p50,
            None,
            "the one that was served was overridden"
        );
    }

    #[test]
    fn the_worst_type_counts_if_there_is_enough_of_it() {
        let near = |run: Run, factor: f64| (run.worst_factor_of_objective() - factor).abs() < 1e-9;
        assert!(near(run(vec![figures(100, 9.0, 20.0), figures(100, 4.5, 60.0)]), 1.2), "by p90");
        assert!(near(run(vec![figures(100, 19.8, 20.0), figures(100, 4.5, 10.0)]), 1.1), "by p50");
        assert!(near(run(vec![figures(100, 9.0, 20.0), figures(FEWEST, 90.0, 100.0)]), 0.5), "too few");
        assert!(near(run(vec![figures(FEWEST + 1, 90.0, 100.0)]), 5.0), "just enough");
    }
}
