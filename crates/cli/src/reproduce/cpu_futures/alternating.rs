//! Fig. 6: Apache under a load that is heavy and light by turns; alone, beside a job at nice 19, and beside one that runs only on
//! cycles that nobody wants.
//!
//! All three are run in turn, and some times over; each run is compared with that beside it in which Apache was alone. A machine that others
//! share changes more from one minute to the next than a job that gives way may cost. Where all CPUs are busy the throughput follows it, and
//! is told for a machine as fast as in the run alone; where clients think most of the time it does not.

use std::time::Duration;

use plimsoll_herald::clock;
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};

use super::apache::{Apache, computing};
use super::clients::{self, Seen, Stage};
use super::job::{Held, Job, Text};
use super::turns::{mean, middle_half, spread};
use super::wait_for;
use crate::reproduce::machine::Cpus;
use crate::reproduce::speed::Probe;

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
const ROUNDS: usize = 5;
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
    /// What the small task took in each phase: the longer, the slower the machine.
    task_ns: Vec<f64>,
    /// The job's CPU seconds over the time.
    job: Vec<(f64, f64)>,
    cpus: Cpus,
}

impl Run {
    /// Per cent of the throughput that each phase lost beside a run alone.
    fn lost(&self, alone: &Run) -> Vec<f64> {
        let phase = PHASE.as_secs_f64();
        let lost = |i: usize| {
            let answered = |run: &Run| run.seen.answered(i as f64 * phase, (i + 1) as f64 * phase) as f64;
            let slower = if is_heavy(i) { self.task_ns[i] / alone.task_ns[i] } else { 1.0 };
            100.0 * (1.0 - slower * answered(self) / answered(alone))
        };
        (0..2 * PAIRS).map(lost).collect()
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
    let (before, probe, began) = (Cpus::now()?, Probe::start()?, clock::now());
    let mut used = Vec::new();
    let stages = [light, heavy].repeat(PAIRS);
    let look = |at: plimsoll_core::Nanos| used.push((at.as_secs_f64(), job.as_ref().map_or(0.0, Job::cpu_s)));
    let seen = clients::run(apache.addr, &stages, page, look).await;
    let (speed, cpus) = (probe.end(), Cpus::now()?.since(before));
    let task_ns =
        |phase: u32| speed.task_ns(began + (PHASE * phase).into(), began + (PHASE * (phase + 1)).into());
    Ok(Run { seen, task_ns: (0..2 * PAIRS as u32).map(task_ns).collect(), job: used, cpus })
}

/// Whether a phase is a heavy one.
fn is_heavy(phase: usize) -> bool {
    phase % 2 == 1
}

fn stage(clients: usize, think: Duration) -> Stage {
    Stage { clients, think, lasts: PHASE }
}

/// Per cent that each phase lost beside what it was alone, in each round.
fn interference(alone: &[Run], beside: &[Run]) -> Vec<Vec<f64>> {
    let rounds: Vec<Vec<f64>> = alone.iter().zip(beside).map(|(alone, beside)| beside.lost(alone)).collect();
    (0..2 * PAIRS).map(|phase| rounds.iter().map(|lost| lost[phase]).collect()).collect()
}

fn findings(runs: &[Vec<Run>; 3]) -> Findings {
    let [alone, nice, idle_only] = runs;
    let idle_s: f64 = alone.iter().map(|run| run.cpus.idle_s).sum();
    let of_idle = |runs: &[Run]| 100.0 * runs.iter().map(Run::job_s).sum::<f64>() / idle_s;
    let worst = |lost: &[f64]| lost.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let failed: usize = runs.iter().flatten().map(|run| run.seen.failed()).sum();
    let stolen: f64 = runs.iter().flatten().map(|run| run.cpus.stolen_s).sum();
    let by_phase =
        |beside| -> Vec<f64> { interference(alone, beside).into_iter().map(middle_half).collect() };
    let (unmanaged, managed) = (by_phase(nice), by_phase(idle_only));
    let of = |phases: &[f64], heavy: bool| {
        let phases = phases.iter().enumerate().filter(|(phase, _)| is_heavy(*phase) == heavy);
        let lost: Vec<f64> = phases.map(|(_, lost)| *lost).collect();
        Some(mean(&lost))
    };
    // How far the machine agrees with itself: alone, one round against the next.
    let apart: Vec<f64> = interference(&alone[1..], alone).into_iter().map(spread).collect();
    let rows = vec![
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
        Row::beside("alone: half of the rounds differ by, worst phase, %", None, Some(worst(&apart))),
    ];
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
