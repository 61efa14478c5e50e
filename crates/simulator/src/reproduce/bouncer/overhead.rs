//! How long a decision takes (section 5.4), on this machine and now.

use plimsoll_admission::{Ask, GateSpec, Outcome, Slots, build};
use plimsoll_core::config::{Override, Policy};
use plimsoll_core::rng::seeded;
use plimsoll_core::{ClassId, Nanos, Percentile, Slo};

use crate::clock::monotonic;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values;

const CLASSES: u16 = 11;
const WARM_UP: u64 = 10_000;
const DECISIONS: usize = 200_000;

/// Times single decisions of a gate that is warm and whose queue is about as long as it lets it be. Two readings of the clock
/// are in every figure, and are most of it.
pub fn overhead() -> Findings {
    let slo =
        Slo::new([(Percentile::P50, Nanos::from_millis(18)), (Percentile::P90, Nanos::from_millis(50))]);
    let spec = GateSpec {
        slos: vec![slo.expect("rising objectives"); usize::from(CLASSES)],
        ranks: Vec::new(),
        fair_share: Vec::new(),
        slots: Slots::Fixed(100),
        max_queue: 800,
        start: Nanos::ZERO,
    };
    let names: Vec<String> = (1..=CLASSES).map(|i| format!("QT{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let gate = build::gate(spec, &Policy::Bouncer(Override::Never), &names);
    let mut rng = seeded(1, 0);
    let class = |i: u64| ClassId((i % u64::from(CLASSES)) as u16);
    for i in 0..WARM_UP {
        // QT1 to QT11 take 1 to 11 ms.
        gate.finish(class(i), Nanos::ZERO, Nanos::from_millis(1 + i % u64::from(CLASSES)), Outcome::Measured);
    }
    let mut now = Nanos::from_secs(1);
    gate.tick(now);
    let mut queue = std::collections::VecDeque::new();
    let mut times: Vec<f64> = Vec::with_capacity(DECISIONS);
    for i in 0..DECISIONS as u64 {
        now += Nanos(50_000);
        let ask = Ask::of(class(i.wrapping_mul(7)));
        let began = monotonic();
        let verdict = gate.offer(&ask, now, &mut rng);
        times.push((monotonic() - began).0 as f64 / 1e3);
        if verdict.is_admit() {
            queue.push_back(ask.class);
        } else if let Some(served) = queue.pop_front() {
            gate.start(served, Nanos::ZERO, now);
            gate.finish(served, Nanos::ZERO, Nanos::from_millis(1), Outcome::Unmeasured);
        }
    }
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    times.sort_unstable_by(f64::total_cmp);
    let quantile = |q: f64| times[(q * (times.len() - 1) as f64) as usize];
    let paper = values::bouncer().figures.overhead_us;
    let rows = [
        ("a decision, mean, us", paper.mean, mean),
        ("a decision, p50, us", paper.p50, quantile(0.5)),
        ("a decision, p99, us", paper.p99, quantile(0.99)),
    ];
    let row = |(what, paper, ours)| Row::at_most(what, paper, ours);
    Findings { rows: rows.into_iter().map(row).collect(), figures: Vec::new() }
}
