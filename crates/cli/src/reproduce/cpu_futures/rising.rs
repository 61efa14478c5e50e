//! Fig. 7: the load on Apache rises step by step, beside a job that may be slowed at most five times, and beside the same at
//! nice 19.

use std::time::Duration;

use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};

use super::alternating::rate;
use super::apache::{Apache, computing};
use super::clients::{self, Seen, Stage};
use super::job::{Held, Job, Text};
use super::limits::{alone_cpus, worst_slowdown};
use super::wait_for;

const LIMIT: f64 = 5.0;
/// As in Fig. 6.
const PAGE_MS: f64 = 4.0;
const WORKERS: u32 = 32;
const THINK: Duration = Duration::from_millis(30);
/// Clients that each step adds: six per cent of two CPUs each, from an idle machine to one that twice as many would fill.
const MORE: usize = 4;
const STEPS: usize = 8;
/// Less than the paper's 30 s: the controller settles within two.
const STEP: Duration = Duration::from_secs(10);
const ENDLESS: usize = 1_000;

/// One run.
struct Run {
    seen: Seen,
    /// The job's CPU seconds over the time.
    job: Vec<(f64, f64)>,
}

/// The job's allocation, and its goal.
pub fn fig7(settings: Settings) -> Result<Findings, String> {
    let (alone, managed, nice) = wait_for(async {
        let text = Text::new(settings.seed)?;
        let apache = Apache::start(WORKERS, None)?;
        let alone = alone_cpus(&text).await?;
        let mut runs = Vec::new();
        for held in [Held::MaxSlowdown(LIMIT), Held::Nice] {
            eprintln!("fig7: {held:?}");
            runs.push(run(&apache, held, &text).await?);
        }
        let nice = runs.pop().ok_or("no run")?;
        Ok((alone, runs.pop().ok_or("no run")?, nice))
    })?;
    let last_step = |run: &Run| {
        let from_s = (STEPS - 1) as f64 * STEP.as_secs_f64();
        worst_slowdown(alone, run.job.iter().copied().filter(|(at_s, _)| *at_s >= from_s)).slowdown
    };
    let failed = (managed.seen.failed() + nice.seen.failed()) as f64;
    let rows = vec![
        Row::no_more(
            "yield --max-slowdown 5: worst slowdown over any 10 s",
            LIMIT,
            worst_slowdown(alone, managed.job.iter().copied()).slowdown,
        ),
        Row::beside("yield --max-slowdown 5: slowdown in the last step", None, Some(last_step(&managed))),
        Row::beside("nice 19: slowdown in the last step (paper: 328)", Some(328.0), Some(last_step(&nice))),
        Row::beside("the job alone, CPUs", None, Some(alone)),
        Row::no_more("requests that failed", 0.0, failed),
    ];
    let seconds = STEPS * STEP.as_secs() as usize;
    let runs = [("yield --max-slowdown 5", &managed), ("nice 19", &nice)];
    let lines = |of: &dyn Fn(&Run) -> Vec<(f64, f64)>| -> Vec<Line> {
        runs.iter().map(|(name, run)| Line { name: (*name).to_owned(), points: of(run) }).collect()
    };
    let charts = vec![
        Chart::new("The job", "s", "CPU ms/s", lines(&|run| rate(&run.job)))
            .with_level("goal", 1e3 * alone / LIMIT),
        Chart::new("Apache", "s", "requests/s", lines(&|run| run.seen.by_second(seconds))),
    ];
    Ok(Findings { rows, figures: vec![Figure { name: "fig7".to_owned(), charts }] })
}

async fn run(apache: &Apache, held: Held, text: &Text) -> Result<Run, String> {
    let job = Job::start(held, text, ENDLESS)?;
    let step = |i| Stage { clients: MORE * i, think: THINK, lasts: STEP };
    let stages: Vec<Stage> = (0..STEPS).map(step).collect();
    let mut used = Vec::new();
    let look = |at: plimsoll_core::Nanos| used.push((at.as_secs_f64(), job.cpu_s()));
    let seen = clients::run(apache.addr, &stages, |_, _| computing(PAGE_MS), look).await;
    Ok(Run { seen, job: used })
}
