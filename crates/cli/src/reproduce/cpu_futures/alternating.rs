//! Fig. 6: Apache under a load that is heavy and light by turns; alone, beside a job at nice 19, and beside one that runs only on
//! cycles that nobody wants.
//!
//! All three are run in turn, and more than once, so that what else changes on the machine meets all of them.

use std::time::Duration;

use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};

use super::apache::{Apache, computing};
use super::clients::{self, Seen, Stage};
use super::job::{Held, Job, Text};
use super::wait_for;
use crate::reproduce::machine::Cpus;

/// CPU time of a page, in milliseconds. Large enough for the clients, which share the machine, to use a few per cent of it.
const PAGE_MS: f64 = 4.0;
/// So many keep all CPUs busy by a few times, and are fewer than the workers, so that none waits for one.
const HEAVY: usize = 24;
const WORKERS: u32 = 32;
/// Those of the light phases use about a quarter of two CPUs.
const LIGHT: usize = 4;
const THINK: Duration = Duration::from_millis(30);
/// Of a phase, as in the paper's figure, and how many there are of each kind.
const PHASE: Duration = Duration::from_secs(10);
const PAIRS: usize = 2;
/// How often each setting is run.
const ROUNDS: usize = 2;
/// Before it counts, a light load lets everything start.
const WARM_UP: Duration = Duration::from_secs(2);
/// More than enough to do for the job.
const ENDLESS: usize = 1_000;

/// Limits of ours: per cent of Apache's throughput on average and in the worst phase, and of the idle cycles. The paper: 3 % and 9 %,
/// and 13 % where nobody manages the job.
const MEAN_PCT: f64 = 1.0;
const WORST_PCT: f64 = 3.0;
const OF_IDLE_PCT: f64 = 90.0;

const SETTINGS: [(&str, Option<Held>); 3] = [
    ("alone", None),
    ("beside a job at nice 19", Some(Held::Nice)),
    ("beside plimsoll yield --idle-only", Some(Held::IdleOnly)),
];

/// One run of one setting.
struct Run {
    seen: Seen,
    /// The job's CPU seconds over the time.
    job: Vec<(f64, f64)>,
    cpus: Cpus,
}

impl Run {
    /// Requests answered in each phase.
    fn phases(&self) -> Vec<f64> {
        let phase = PHASE.as_secs_f64();
        (0..2 * PAIRS).map(|i| self.seen.answered(i as f64 * phase, (i + 1) as f64 * phase) as f64).collect()
    }

    fn job_s(&self) -> f64 {
        match (self.job.first(), self.job.last()) {
            (Some((_, before)), Some((_, after))) => after - before,
            _ => 0.0,
        }
    }
}

/// Interference, by phase, and what the job made of idle cycles.
pub fn fig6(settings: Settings) -> Result<Findings, String> {
    let mut runs: [Vec<Run>; 3] = Default::default();
    wait_for(async {
        let text = Text::new(settings.seed)?;
        let apache = Apache::start(WORKERS, None)?;
        for round in 1..=ROUNDS {
            for ((name, held), runs) in SETTINGS.into_iter().zip(&mut runs) {
                eprintln!("fig6: round {round} of {ROUNDS}, {name}");
                runs.push(run(&apache, held, &text).await?);
            }
        }
        Ok(())
    })?;
    Ok(findings(&runs))
}

async fn run(apache: &Apache, held: Option<Held>, text: &Text) -> Result<Run, String> {
    let job = held.map(|held| Job::start(held, text, ENDLESS)).transpose()?;
    let (heavy, light) = (stage(HEAVY, Duration::ZERO), stage(LIGHT, THINK));
    let page = |_, _| computing(PAGE_MS);
    clients::run(apache.addr, &[Stage { lasts: WARM_UP, ..light }], page, |_| ()).await;
    let before = Cpus::now()?;
    let mut used = Vec::new();
    let stages = [light, heavy].repeat(PAIRS);
    let look = |at: plimsoll_core::Nanos| used.push((at.as_secs_f64(), job.as_ref().map_or(0.0, Job::cpu_s)));
    let seen = clients::run(apache.addr, &stages, page, look).await;
    Ok(Run { seen, job: used, cpus: Cpus::now()?.since(before) })
}

fn stage(clients: usize, think: Duration) -> Stage {
    Stage { clients, think, lasts: PHASE }
}

/// Per cent that each phase lost beside what it was alone, all rounds together.
fn interference(alone: &[Run], beside: &[Run]) -> Vec<f64> {
    let sum = |runs: &[Run]| {
        let mut sums = vec![0.0; 2 * PAIRS];
        runs.iter().for_each(|run| sums.iter_mut().zip(run.phases()).for_each(|(sum, n)| *sum += n));
        sums
    };
    sum(alone).iter().zip(sum(beside)).map(|(alone, beside)| 100.0 * (1.0 - beside / alone)).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn findings(runs: &[Vec<Run>; 3]) -> Findings {
    let [alone, nice, idle_only] = runs;
    let idle_s: f64 = alone.iter().map(|run| run.cpus.idle_s).sum();
    let of_idle = |runs: &[Run]| 100.0 * runs.iter().map(Run::job_s).sum::<f64>() / idle_s;
    let worst = |lost: &[f64]| lost.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let failed: usize = runs.iter().flatten().map(|run| run.seen.failed()).sum();
    let stolen: f64 = runs.iter().flatten().map(|run| run.cpus.stolen_s).sum();
    let (unmanaged, managed) = (interference(alone, nice), interference(alone, idle_only));
    let of = |phases: &[f64], heavy: bool| {
        let phases: Vec<f64> = phases.iter().skip(usize::from(heavy)).step_by(2).copied().collect();
        Some(mean(&phases))
    };
    let mut rows = vec![
        Row::no_more("yield: throughput lost, mean of the phases, % (paper 3)", MEAN_PCT, mean(&managed)),
        Row::no_more("yield: throughput lost, worst phase, % (paper 9)", WORST_PCT, worst(&managed)),
        Row::no_less("yield: job's CPU time, % of what was idle without it", OF_IDLE_PCT, of_idle(idle_only)),
        Row::beside("nice 19: throughput lost, mean of the phases, %", Some(13.0), Some(mean(&unmanaged))),
        Row::beside("nice 19: throughput lost, worst phase, %", Some(25.0), Some(worst(&unmanaged))),
        Row::beside("nice 19: job's CPU time, % of what was idle without it", None, Some(of_idle(nice))),
        Row::beside("yield: lost in light phases, %", None, of(&managed, false)),
        Row::beside("yield: lost in heavy phases, %", None, of(&managed, true)),
        Row::beside("nice 19: lost in light phases, %", Some(25.0), of(&unmanaged, false)),
        Row::beside("nice 19: lost in heavy phases, %", Some(11.0), of(&unmanaged, true)),
        Row::beside("idle without the job, CPU s", None, Some(idle_s)),
        Row::beside("stolen by a hypervisor, CPU s of all runs", None, Some(stolen)),
        Row::no_more("requests that failed", 0.0, failed as f64),
    ];
    // How far the machine agrees with itself: the same setting, one round against the next.
    if let [first, second, ..] = &alone[..] {
        let apart = interference(std::slice::from_ref(first), std::slice::from_ref(second));
        let apart = apart.iter().map(|pct| pct.abs()).fold(0.0, f64::max);
        rows.push(Row::beside("alone: one round differs from the next, worst phase, %", None, Some(apart)));
    }
    Findings { rows, figures: vec![figure(runs)] }
}

/// The last round.
fn figure(runs: &[Vec<Run>; 3]) -> Figure {
    let seconds = 2 * PAIRS * PHASE.as_secs() as usize;
    let last = || SETTINGS.into_iter().zip(runs).filter_map(|((name, _), runs)| Some((name, runs.last()?)));
    let throughput = last()
        .map(|(name, run)| Line { name: name.to_owned(), points: run.seen.by_second(seconds) })
        .collect();
    let cpu =
        last().skip(1).map(|(name, run)| Line { name: name.to_owned(), points: rate(&run.job) }).collect();
    let charts = vec![
        Chart::new("Apache", "s", "requests/s", throughput),
        Chart::new("The job", "s", "CPU ms/s", cpu),
    ];
    Figure { name: "fig6".to_owned(), charts }
}

/// What grew by how much a second, in thousandths, over each second or so.
pub fn rate(total: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let of = |pair: &[(f64, f64)]| {
        let [(from, before), .., (to, after)] = pair else { return None };
        Some(((from + to) / 2.0, 1e3 * (after - before) / (to - from)))
    };
    total.windows(5).step_by(4).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_over_a_second_of_looks() {
        let total: Vec<(f64, f64)> = (0..9).map(|i| (0.25 * f64::from(i), 0.125 * f64::from(i))).collect();
        assert_eq!(rate(&total), [(0.5, 500.0), (1.5, 500.0)]);
        assert!(rate(&total[..4]).is_empty());
    }
}
