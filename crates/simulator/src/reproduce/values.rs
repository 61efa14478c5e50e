//! What the papers report and how near we must come: `paper/values.toml`, the one place for both.

use std::sync::LazyLock;

use serde::Deserialize;

/// What the paper on Bouncer reports.
#[derive(Deserialize)]
pub struct Bouncer {
    /// Rejections by class over the load.
    pub table3: Table3,
    /// Rejections over the allowance.
    pub table4: Table4,
    /// Rejections over the help for the underserved.
    pub table5: Table5,
    /// Single figures.
    pub figures: Figures,
}

/// Rejections in per cent, one value a load.
#[derive(Deserialize)]
pub struct Table3 {
    /// As multiples of the full load.
    pub loads: Vec<f64>,
    /// Bouncer alone.
    pub basic: ByLoad,
    /// With an acceptance allowance of 0.1.
    pub allowance: ByLoad,
    /// With help for the underserved, alpha = 1.
    pub underserved: ByLoad,
}

/// One policy of Table 3.
#[derive(Deserialize)]
#[allow(missing_docs)]
pub struct ByLoad {
    pub fast: Vec<f64>,
    pub medium_fast: Vec<f64>,
    pub medium_slow: Vec<f64>,
    pub slow: Vec<f64>,
    pub all: Vec<f64>,
    pub tolerance: TableTolerance,
}

/// Table 4: rejections in per cent at 1.5 times the full load.
#[derive(Deserialize)]
#[allow(missing_docs)]
pub struct Table4 {
    #[serde(rename = "A")]
    pub allowance: Vec<f64>,
    pub medium_slow: Vec<f64>,
    pub slow: Vec<f64>,
    pub all: Vec<f64>,
    pub tolerance: TableTolerance,
}

/// Table 5: rejections in per cent at 1.5 times the full load.
#[derive(Deserialize)]
#[allow(missing_docs)]
pub struct Table5 {
    pub alpha: Vec<f64>,
    pub medium_slow: Vec<f64>,
    pub slow: Vec<f64>,
    pub all: Vec<f64>,
    pub tolerance: TableTolerance,
}

/// How far a cell of a table may be off, in points.
#[derive(Clone, Copy, Deserialize)]
pub struct TableTolerance {
    /// The rejections of all classes together.
    pub all: f64,
    /// Those of one class.
    pub class: f64,
}

/// The figures of the paper that have a value to hold ours against.
#[derive(Deserialize)]
#[allow(missing_docs)]
pub struct Figures {
    pub fig6_maxql_slow_p50_ms_plateau: Target,
    pub fig6_maxqwt_slow_p50_ms_plateau: Target,
    pub fig6_bouncer_slow_p50_ms: Target,
    pub fig7_utilization_pct_at_1_1_and_above: Target,
    pub fig7_accept_fraction_utilization_pct: Target,
    pub fig8_rejections: Order,
    pub fig9_strategies_exceed_slo_p50_at_1_5: Order,
    pub fig11_fewer_rejections_than_peers_pct: Target,
    pub overhead_us: Overhead,
}

/// A value and how ours must stand to it.
#[derive(Clone, Copy, Deserialize)]
pub struct Target {
    /// The paper's.
    pub value: f64,
    /// How they are compared.
    pub kind: Kind,
    /// For [`Kind::Abs`].
    pub tolerance: Option<f64>,
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Ours differs by the tolerance at most.
    Abs,
    /// Ours is the paper's at most.
    Max,
    /// Ours is the paper's at least.
    Min,
}

/// An ordering that must hold, lowest first.
#[derive(Clone, Deserialize)]
pub struct Order {
    /// Names.
    pub value: Vec<String>,
}

/// Times of a decision in microseconds, none of which ours may exceed.
#[derive(Clone, Copy, Deserialize)]
#[allow(missing_docs)]
pub struct Overhead {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
}

/// What the paper on Cataclysm reports.
#[derive(Deserialize)]
#[allow(missing_docs)]
pub struct Cataclysm {
    pub fig4_batch_saturates_requests_per_s: f64,
    pub fig4_threshold_saturates_requests_per_s: f64,
    pub fig3_p95_ms: Target,
    pub fig9_violations_pct_of_intervals: Target,
}

/// What the paper on ATROPOS reports.
#[derive(Deserialize)]
#[allow(missing_docs)]
pub struct Atropos {
    pub throughput: Target,
    pub p99_ratio: Target,
    pub drop_pct: Target,
    pub slo20_cases_kept: Target,
    pub protego: Protego,
    pub pbox: Throughput,
    pub darc: Throughput,
    pub parties: Throughput,
    pub multi_objective_beats_single_resource_in_cases: Target,
    pub future_gain_beats_current_use_in_cases: Target,
}

/// What the paper on CPU Futures reports.
#[derive(Deserialize)]
#[allow(missing_docs)]
pub struct CpuFutures {
    pub sheepdog_starved_requests: Starved,
    pub sheepdog_longest_s: Target,
    pub optimal_pool_range: Range,
}

/// Requests that took longer than ten seconds, a run of five minutes.
#[derive(Clone, Copy, Deserialize)]
#[allow(missing_docs)]
pub struct Starved {
    pub sheepdog: f64,
    pub default: f64,
}

/// What the paper on TopFull reports.
#[derive(Deserialize)]
#[allow(missing_docs)]
pub struct Topfull {
    pub goodput_over_dagor: Target,
    pub goodput_over_breakwater: Target,
    pub with_priorities_over_dagor: Target,
    pub convergence_s: Convergence,
    pub ablation_loss_pct: Ablations,
    pub with_autoscaler_over_autoscaler: ByApplication,
    pub over_topfull_bw: ByApplication,
    pub fewer_vcpus_pct: ByApplication,
    pub transfer_gain_pct: Range,
    pub startup_delay_gain: Target,
}

/// Seconds until the most that can be had is (Table 2): TopFull's, and DAGOR's with two steps.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Convergence {
    pub topfull: f64,
    pub dagor_0_05: f64,
    pub dagor_0_1: f64,
}

/// What goodput is lost where a part of TopFull is left out (Fig. 10).
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Ablations {
    pub trace_demo: Ablation,
    pub train_ticket: Ablation,
    pub online_boutique: Ablation,
}

/// In per cent.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Ablation {
    pub mimd: f64,
    pub no_clusters: f64,
}

/// A figure of each of two applications, which ours has to reach.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct ByApplication {
    pub train_ticket: f64,
    pub online_boutique: f64,
}

/// From where to where.
#[derive(Clone, Copy, Deserialize)]
#[allow(missing_docs)]
pub struct Range {
    pub low: f64,
    pub high: f64,
}

/// Protego, as the paper on ATROPOS measured it.
#[derive(Clone, Copy, Deserialize)]
#[allow(missing_docs)]
pub struct Protego {
    pub throughput: f64,
    pub p99_ratio: f64,
    pub drop_pct: f64,
}

/// A baseline of which the paper on ATROPOS gives the throughput alone.
#[derive(Clone, Copy, Deserialize)]
#[allow(missing_docs)]
pub struct Throughput {
    pub throughput: f64,
}

#[derive(Deserialize)]
struct Papers {
    atropos: Atropos,
    bouncer: Bouncer,
    cataclysm: Cataclysm,
    #[serde(rename = "cpu-futures")]
    cpu_futures: CpuFutures,
    topfull: Topfull,
}

static PAPERS: LazyLock<Papers> = LazyLock::new(|| {
    // A test reads it, so what is shipped can be read.
    toml::from_str(include_str!("../../../../paper/values.toml")).expect("paper/values.toml has every value")
});

/// What the paper on Bouncer reports.
pub fn bouncer() -> &'static Bouncer {
    &PAPERS.bouncer
}

/// What the paper on ATROPOS reports.
pub fn atropos() -> &'static Atropos {
    &PAPERS.atropos
}

/// What the paper on Cataclysm reports.
pub fn cataclysm() -> &'static Cataclysm {
    &PAPERS.cataclysm
}

/// What the paper on CPU Futures reports.
pub fn cpu_futures() -> &'static CpuFutures {
    &PAPERS.cpu_futures
}

/// What the paper on TopFull reports.
pub fn topfull() -> &'static Topfull {
    &PAPERS.topfull
}
