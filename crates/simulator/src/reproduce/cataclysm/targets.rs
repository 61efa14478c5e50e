//! What we want beyond the paper: a flash crowd of ten times the capacity, in which the most important class alone still fits. Every
//! figure comes from a checker of its own.

use plimsoll_core::config::PolicingPolicy;
use plimsoll_core::{Limit, Nanos, Slo, Statistic};

use super::checks::{admitted_pct, earned, inverted_pct, least_promise_pct, optimum, p95s};
use super::classes::longest_over_s;
use super::watch::{Fate, Watch};
use super::{Ran, charts, scenario, setup, setup_with_bouncer};
use crate::figures::Figure;
use crate::parallel;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};
use crate::run::Setup;
use crate::scenario::Scenario;

const WORKLOAD: &str = include_str!("../../../../../paper/cataclysm/crowd.toml");
/// The same with cheap and heavy requests in each class.
const SIZES: &str = include_str!("../../../../../paper/cataclysm/sizes.toml");
/// What gold, silver and bronze are owed where that differs. All are held to what gold is.
const UNLIKE_MS: [u64; 3] = [150, 1_000, 3_000];
/// Seconds of the crowd.
const CROWD: (u64, u64) = (20, 100);
/// Over which promises and the optimum are taken. Longer stretches make the optimum greater.
const LENGTH: Nanos = Nanos::from_secs(10);
/// Seconds with the 95th percentile over the target, in per cent, and how many of them together after a jump.
const OVER_PCT: f64 = 1.0;
const OVER_S: f64 = 5.0;
/// Of the most important class, while it fits, and of every class's minimum, what is let in, in per cent.
const ADMITTED_PCT: f64 = 99.0;
/// Of what the optimum earns, in per cent.
const REVENUE_PCT: f64 = 95.0;
/// Important requests that are refused while a lesser one is in service, in per cent, and how many times fewer than without delays.
const INVERTED_PCT: f64 = 5.0;
const TIMES_FEWER: f64 = 5.0;
/// Runs in the long form, with as many seeds.
const RUNS: u64 = 5;

/// The sentry is too busy for batches for twenty seconds in the middle of the crowd, and then calm. It goes back to batches when the
/// crowd is over.
fn busy(at: Nanos) -> f64 {
    if (40..60).contains(&(at.0 / 1_000_000_000)) { 0.9 } else { 0.3 }
}

/// All of them.
pub fn targets(settings: Settings) -> Result<Findings, String> {
    let scenario = scenario(WORKLOAD, "crowd.toml")?;
    let runs = if settings.quick { 1 } else { RUNS };
    let seeds: Vec<u64> = (0..runs).map(|i| settings.seed.wrapping_add(i)).collect();
    let of = |scenario: &Scenario, policy: PolicingPolicy, setup: fn(u64) -> Setup| -> Vec<Ran> {
        let mut scenario = scenario.clone();
        scenario.policing.policy = policy;
        parallel::map(&seeds, |&seed| Ran::new(scenario.clone(), &setup(seed)))
    };
    let batch = of(&scenario, PolicingPolicy::Batch, setup);
    let mut rows = kept("batch", &batch);
    rows.extend(inversions("batch", &scenario, &batch, &seeds));
    rows.extend(kept("threshold", &of(&scenario, PolicingPolicy::Threshold, setup)));
    let both = of(&scenario, PolicingPolicy::Batch, setup_with_bouncer);
    rows.extend(kept("batch, then bouncer", &both));
    let inverted = worst(&both, |ran| inverted_pct(&ran.requests, &ran.scenario.ranks()), f64::max);
    rows.push(Row::no_more(
        "batch, then bouncer: important refused beside a lesser one, %",
        INVERTED_PCT,
        inverted,
    ));
    let mut unlike = scenario.clone();
    for (slo, owed_ms) in unlike.slos.iter_mut().zip(UNLIKE_MS) {
        *slo = Slo::new([(Statistic::Mean, Nanos::from_millis(owed_ms))])?;
    }
    for (name, policy, setup) in [
        ("batch", PolicingPolicy::Batch, setup as fn(u64) -> Setup),
        ("threshold", PolicingPolicy::Threshold, setup),
        ("batch, then bouncer", PolicingPolicy::Batch, setup_with_bouncer),
    ] {
        rows.extend(kept(&format!("objectives differ, {name}"), &of(&unlike, policy, setup)));
    }
    let sizes = self::scenario(SIZES, "sizes.toml")?;
    for (name, policy) in [("batch", PolicingPolicy::Batch), ("threshold", PolicingPolicy::Threshold)] {
        rows.extend(kept(&format!("cheap and heavy, {name}"), &of(&sizes, policy, setup)));
    }
    rows.extend(change(scenario, settings.seed));
    let target = target(&batch[0].scenario);
    let charts = vec![
        charts::arrivals(&batch[0]),
        charts::admissions(&batch[0]),
        charts::response_times(&batch[0], "response time, p95", target),
    ];
    Ok(Findings { rows, figures: vec![Figure { name: "targets".to_owned(), charts }] })
}

/// What of the runs is the worst.
fn worst(runs: &[Ran], of: impl Fn(&Ran) -> f64, worse: fn(f64, f64) -> f64) -> f64 {
    runs.iter().map(of).reduce(worse).unwrap_or(f64::NAN)
}

fn target(scenario: &Scenario) -> Nanos {
    scenario.slos[0].owed().unwrap_or(Nanos::MAX)
}

/// What a class's answer is worth, and its mean size.
fn classes(scenario: &Scenario) -> Vec<(f64, Nanos)> {
    let sizes = scenario.services.iter().map(|service| Nanos(service.mean_ns() as u64));
    scenario.worth.iter().map(|worth| worth.revenue).zip(sizes).collect()
}

/// The targets that every policer has.
fn kept(name: &str, runs: &[Ran]) -> Vec<Row> {
    let over_pct = |ran: &Ran| {
        let seconds = p95s(&ran.requests, Nanos::from_secs(1));
        let over = seconds.iter().filter(|&&(_, time)| time > target(&ran.scenario)).count();
        100.0 * over as f64 / seconds.len().max(1) as f64
    };
    let promise = |ran: &Ran| {
        let promised: Vec<f64> = ran.scenario.worth.iter().map(|worth| worth.promised_per_s).collect();
        least_promise_pct(&ran.requests, &promised, LENGTH)
    };
    let revenue_pct = |ran: &Ran| {
        let (scenario, classes) = (&ran.scenario, classes(&ran.scenario));
        let best = optimum(&ran.requests, &classes, scenario.engine.processes, LENGTH);
        100.0 * earned(&ran.requests, &classes, target(scenario)) / best
    };
    let over_s = |ran: &Ran| longest_over_s(&ran.requests, target(&ran.scenario));
    let gold_pct = |ran: &Ran| {
        let ranks = ran.scenario.ranks();
        let gold = ran.within(CROWD.0, CROWD.1).iter().filter(|seen| ranks[seen.arrival.class.index()] == 0);
        admitted_pct(gold).unwrap_or(f64::NAN)
    };
    let row = |what: &str| format!("{name}: {what}");
    vec![
        Row::no_more(row("seconds with p95 over the target, %"), OVER_PCT, worst(runs, over_pct, f64::max)),
        Row::no_more(row("longest time over the target, s"), OVER_S, worst(runs, over_s, f64::max)),
        Row::no_less(row("gold admitted in the crowd, %"), ADMITTED_PCT, worst(runs, gold_pct, f64::min)),
        Row::no_less(row("least of a promised minimum, %"), ADMITTED_PCT, worst(runs, promise, f64::min)),
        Row::no_less(row("revenue, % of the optimum"), REVENUE_PCT, worst(runs, revenue_pct, f64::min)),
    ]
}

/// Important requests refused while a lesser one is in service, beside the same with all delays zero.
fn inversions(name: &str, scenario: &Scenario, runs: &[Ran], seeds: &[u64]) -> Vec<Row> {
    let mut undelayed = scenario.clone();
    undelayed.policing.delays = Some(vec![Nanos::ZERO]);
    let undelayed = parallel::map(seeds, |&seed| Ran::new(undelayed.clone(), &setup(seed)));
    let inverted = |ran: &Ran| inverted_pct(&ran.requests, &ran.scenario.ranks());
    let fewer = runs.iter().zip(&undelayed).map(|(ran, undelayed)| inverted(undelayed) / inverted(ran));
    let fewer = fewer.reduce(f64::min).unwrap_or(f64::NAN);
    let row = |what: &str| format!("{name}: {what}");
    vec![
        Row::no_more(
            row("important refused beside a lesser one, %"),
            INVERTED_PCT,
            worst(runs, inverted, f64::max),
        ),
        Row::beside(row("the same with all delays 0"), None, Some(worst(&undelayed, inverted, f64::min))),
        // None at all is infinitely fewer.
        Row::no_less(row("times fewer than with all delays 0"), TIMES_FEWER, fewer.min(1e6)),
    ]
}

/// From batches to the threshold and back in the middle of the crowd.
fn change(mut scenario: Scenario, seed: u64) -> Vec<Row> {
    scenario.policing.policy = PolicingPolicy::Auto;
    let mut watch = Watch::new(scenario.ranks());
    setup(seed).observe_busy(&scenario, busy, &mut watch);
    let ran = Ran { scenario, requests: watch.requests };
    let by = |limit, from, to| {
        let refused = |fate| matches!(fate, Fate::Refused { limit: by, .. } if by == limit);
        ran.within(from, to).iter().filter(|seen| refused(seen.fate)).count() as f64
    };
    let undone = |fate| matches!(fate, Fate::Undecided | Fate::Admitted(_));
    let lost = ran.requests.iter().filter(|seen| undone(seen.fate)).count() as f64;
    let (threshold, batch) = (Limit::Fraction, Limit::Mean);
    let row = |what: &str| format!("to the threshold and back: {what}");
    let mut rows = vec![
        Row::no_more(row("requests lost"), 0.0, lost),
        Row::no_more(row("refused by the threshold before the sentry is busy"), 0.0, by(threshold, 0, 40)),
        Row::no_less(row("refused by the threshold while it is"), 1.0, by(threshold, 40, 60)),
        Row::no_more(row("refused by the threshold in the second crowd"), 0.0, by(threshold, 140, 180)),
        Row::no_less(row("refused by the batch policer in the second crowd"), 1.0, by(batch, 140, 180)),
    ];
    rows.extend(kept("to the threshold and back", std::slice::from_ref(&ran)));
    rows
}
