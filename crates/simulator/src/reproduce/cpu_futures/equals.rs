//! Fig. 2: what a scheduler does to equals. Workers of one server, none of which is anything that the others are not.

use plimsoll_core::Nanos;
use plimsoll_cpufutures::Group;

use super::workload::{CLIENTS, CPUS, DEFAULT_WORKERS, server};
use crate::figures::{Chart, Figure, Line};
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row, percentile};
use crate::scheduler::o1::MOST_BONUS;
use crate::scheduler::{Fair, Machine, O1, Pool, Scheduler};

/// How long throughput is counted.
const RUN: Nanos = Nanos::from_secs(60);
/// The CPU time that the worst tenth of the workers gets, in per cent of the mean: at most where equals are unequal, at least where they are
/// not. CPU time, since how many answers come of it depends on which pages a worker happens to be asked for.
const UNEQUAL_PCT: f64 = 50.0;
const EQUAL_PCT: f64 = 70.0;

/// Throughput of all workers, sorted, with the bonus that the scheduler has given them.
pub fn fig2(settings: Settings) -> Result<Findings, String> {
    let clients = [CLIENTS, CLIENTS];
    let mut o1 = server(O1::new(CPUS), DEFAULT_WORKERS, clients, settings.seed);
    o1.advance(RUN);
    let mut fair = server(Fair::new(CPUS, &[Group::ROOT])?, DEFAULT_WORKERS, clients, settings.seed);
    fair.advance(RUN);
    let by_worker = throughput(&o1);
    let bonuses: Vec<(f64, u64)> =
        by_worker.iter().map(|&(worker, per_s)| (per_s, o1.scheduler.bonus(worker))).collect();
    let most = bonuses.iter().filter(|&&(_, bonus)| bonus == MOST_BONUS).count() as f64;
    let mean = |best: bool| {
        let these = bonuses.iter().filter(|&&(_, bonus)| (bonus == MOST_BONUS) == best);
        let (sum, count) = these.fold((0.0, 0.0), |(sum, count), &(per_s, _)| (sum + per_s, count + 1.0));
        if count > 0.0 { Some(sum / count) } else { None }
    };
    let line = |name: &str, these: Vec<f64>| {
        let points = these.into_iter().enumerate().map(|(at, per_s)| (at as f64, per_s)).collect();
        Line { name: name.to_owned(), points }
    };
    let only = |server: Vec<(usize, f64)>| server.into_iter().map(|(_, per_s)| per_s).collect::<Vec<f64>>();
    let (unequal, equal) = (only(by_worker), only(throughput(&fair)));
    let rows = vec![
        Row::no_more(
            "O(1): nine in ten workers get more CPU time than this, % of the mean",
            UNEQUAL_PCT,
            worst_pct(&o1),
        ),
        Row::no_less("proportional share: the same", EQUAL_PCT, worst_pct(&fair)),
        Row::beside(
            "O(1): workers with the greatest bonus, %",
            None,
            Some(100.0 * most / bonuses.len() as f64),
        ),
        Row::beside("O(1): answers a second of one of those", None, mean(true)),
        Row::beside("O(1): answers a second of another", None, mean(false)),
    ];
    let mean = unequal.iter().sum::<f64>() / unequal.len() as f64;
    let lines = vec![line("O(1)", unequal), line("proportional share", equal)];
    let chart = Chart::new("workers of one server", "worker, worst first", "answers/s", lines);
    let charts = vec![chart.with_level("mean on O(1)", mean)];
    Ok(Findings { rows, figures: vec![Figure { name: "fig2".to_owned(), charts }] })
}

/// The CPU time of the worker at the tenth percentile, in per cent of the mean: the worst may have got nothing.
fn worst_pct<S: Scheduler>(server: &Machine<S, Pool>) -> f64 {
    let workers = server.accounts().filter(|(task, _)| (1..=DEFAULT_WORKERS).contains(task));
    let mut got: Vec<f64> = workers.map(|(_, account)| account.ran.as_secs_f64()).collect();
    let mean = got.iter().sum::<f64>() / got.len() as f64;
    100.0 * percentile(&mut got, 0.1) / mean
}

/// Answers a second, by worker.
fn throughput<S: Scheduler>(server: &Machine<S, Pool>) -> Vec<(usize, f64)> {
    let mut answers = std::collections::BTreeMap::new();
    for answered in server.workload.answered() {
        *answers.entry(answered.worker).or_insert(0.0) += 1.0 / RUN.as_secs_f64();
    }
    // The first task is the master.
    (1..=DEFAULT_WORKERS).map(|worker| (worker, answers.get(&worker).copied().unwrap_or(0.0))).collect()
}
