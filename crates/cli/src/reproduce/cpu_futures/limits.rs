//! Fig. 8: a job that may be slowed 2, 5, 10 or 20 times, beside an Apache that all CPUs are too few for.
//!
//! The truth is measured apart from what is judged: how much CPU the job uses when nobody else runs, and how much it got.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};

use super::apache::{Apache, computing};
use super::clients::{self, Stage};
use super::job::{Held, Job, Text};
use super::wait_for;
use plimsoll_herald::clock;

const LIMITS: [f64; 4] = [2.0, 5.0, 10.0, 20.0];
/// As in Fig. 6, heavy.
const PAGE_MS: f64 = 4.0;
const WORKERS: u32 = 32;
const CLIENTS: usize = 24;
/// What the job is to take alone: the shortest for which every limit has ten seconds to be held over.
const ALONE: Duration = Duration::from_secs(6);
/// Over this no limit may be exceeded.
const OVER_S: f64 = 10.0;
/// The least part of its limit that the job must be slowed: otherwise it took from Apache what it need not.
const LEAST: f64 = 0.8;
/// A job that takes so many times longer than it may is given up. It is not only slowed: beside others its caches are cold, and it needs more
/// CPU time for the same.
const PATIENCE: f64 = 2.5;
const ENDLESS: usize = 1_000;
/// For which what the job uses alone is looked at, and from one look to the next.
const LOOKS: u32 = 20;
const LOOK: Duration = Duration::from_millis(100);

/// What came of one limit.
struct Run {
    limit: f64,
    /// Nothing where it did not end.
    took_s: Option<f64>,
    slowdown: f64,
    worst: Worst,
}

/// The ten seconds in which a job was slowed most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    /// How many times slower than alone.
    pub slowdown: f64,
    /// When they ended, in seconds.
    pub ends_s: f64,
}

/// Slowdowns, and when the job was done.
pub fn fig8(settings: Settings) -> Result<Findings, String> {
    let (alone, alone_s, runs) = wait_for(async {
        let text = Text::new(settings.seed)?;
        let apache = Apache::start(WORKERS, None)?;
        let alone = alone_cpus(&text).await?;
        let once_s = to_the_end(&text, 1).await?;
        let times = (ALONE.as_secs_f64() / once_s).ceil() as usize;
        let alone_s = to_the_end(&text, times).await?;
        let mut runs = Vec::new();
        for limit in LIMITS {
            eprintln!("fig8: at most {limit} times slower, {:.0} s", limit * alone_s);
            runs.push(run(&apache, limit, &text, times, alone, alone_s).await?);
        }
        Ok((alone, alone_s, runs))
    })?;
    let mut rows = vec![
        Row::beside("the job alone, CPUs", None, Some(alone)),
        Row::beside("the job alone, s", None, Some(alone_s)),
    ];
    for Run { limit, took_s, slowdown, worst } in &runs {
        let ideal = took_s.map(|took_s| took_s / (limit * alone_s));
        rows.extend([
            Row::no_more(
                format!("limit {limit}: worst slowdown over any {OVER_S} s"),
                *limit,
                worst.slowdown,
            ),
            Row::beside(format!("limit {limit}: when they ended, s"), None, Some(worst.ends_s)),
            Row::no_less(format!("limit {limit}: slowdown over all"), LEAST * limit, *slowdown),
            Row::beside(format!("limit {limit}: completion time over the ideal one"), None, ideal),
        ]);
    }
    let line = |name: &str, of: &dyn Fn(&Run) -> f64| Line {
        name: name.to_owned(),
        points: runs.iter().map(|run| (run.limit, of(run))).collect(),
    };
    let lines = vec![
        line("ideal", &|run| run.limit * alone_s),
        line("plimsoll yield", &|run| run.took_s.unwrap_or(f64::NAN)),
    ];
    let slowdowns = vec![
        line("limit", &|run| run.limit),
        line("over all", &|run| run.slowdown),
        line("worst 10 s", &|run| run.worst.slowdown),
    ];
    let charts = vec![
        Chart::new("Completion", "slowdown limit", "s", lines),
        Chart::new("Slowdown of the job", "slowdown limit", "times", slowdowns),
    ];
    Ok(Findings { rows, figures: vec![Figure { name: "fig8".to_owned(), charts }] })
}

/// CPUs that the job uses when nobody else runs. Somebody else may for a moment, so that it waits for a CPU: that time counts, too.
pub async fn alone_cpus(text: &Text) -> Result<f64, String> {
    let job = Job::start(Held::Alone, text, ENDLESS)?;
    // Not its start.
    tokio::time::sleep(10 * LOOK).await;
    let (from, before) = (clock::now(), job.wanted_s());
    tokio::time::sleep(LOOKS * LOOK).await;
    Ok((job.wanted_s() - before) / clock::now().since(from).as_secs_f64())
}

/// How long the job takes when nobody else runs, in seconds.
async fn to_the_end(text: &Text, times: usize) -> Result<f64, String> {
    let from = clock::now();
    let mut job = Job::start(Held::Alone, text, times)?;
    while !job.has_ended() {
        tokio::time::sleep(LOOK / 10).await;
    }
    Ok(clock::now().since(from).as_secs_f64())
}

async fn run(
    apache: &Apache,
    limit: f64,
    text: &Text,
    times: usize,
    alone: f64,
    alone_s: f64,
) -> Result<Run, String> {
    let most = Duration::from_secs_f64(PATIENCE * limit * alone_s);
    let load = Stage { clients: CLIENTS, think: Duration::ZERO, lasts: most + Duration::from_secs(5) };
    let stages = [load];
    let load = clients::run(apache.addr, &stages, |_, _| computing(PAGE_MS), |_| ());
    let mut used = Vec::new();
    let watch = async {
        // The load is there before the job.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let from = clock::now();
        let since = || clock::now().since(from);
        let mut job = Job::start(Held::MaxSlowdown(limit), text, times)?;
        while !job.has_ended() {
            tokio::time::sleep(LOOK).await;
            let cpu_s = job.cpu_s();
            // One that has just ended has none.
            if cpu_s > 0.0 {
                used.push((since().as_secs_f64(), cpu_s));
            }
            if since() > Nanos::from(most) {
                return Ok(None);
            }
        }
        Ok::<_, String>(Some(since().as_secs_f64()))
    };
    let took_s: Option<f64> = tokio::select! {
        _ = load => None,
        watched = watch => watched?,
    };
    let slowdown = match (used.first(), used.last()) {
        (Some((from, before)), Some((to, after))) => alone * (to - from) / (after - before),
        _ => f64::NAN,
    };
    Ok(Run { limit, took_s, slowdown, worst: worst_slowdown(alone, used) })
}

/// How many times slower than alone a job was over the worst ten seconds, from its CPU seconds over the time; over all where there
/// were no ten.
pub fn worst_slowdown(alone_cpus: f64, used: impl IntoIterator<Item = (f64, f64)>) -> Worst {
    let mut window: VecDeque<(f64, f64)> = VecDeque::new();
    let mut all = Worst { slowdown: f64::NAN, ends_s: f64::NAN };
    let mut worst: Option<Worst> = None;
    for (at_s, cpu_s) in used {
        window.push_back((at_s, cpu_s));
        // The last one that is ten seconds old stays.
        while window.get(1).is_some_and(|(next_s, _)| at_s - next_s >= OVER_S) {
            window.pop_front();
        }
        let Some(&(from_s, before_s)) = window.front() else { continue };
        all = Worst { slowdown: alone_cpus * (at_s - from_s) / (cpu_s - before_s), ends_s: at_s };
        if at_s - from_s >= OVER_S && worst.is_none_or(|worst| all.slowdown > worst.slowdown) {
            worst = Some(all);
        }
    }
    worst.unwrap_or(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_ten_seconds_count() {
        let steady =
            |from: u32, to: u32, per_s: f64| (from..=to).map(move |s| (f64::from(s), per_s * f64::from(s)));
        let worst = |used: Vec<(f64, f64)>| worst_slowdown(2.0, used);
        assert_eq!(worst(steady(0, 30, 0.5).collect()), Worst { slowdown: 4.0, ends_s: 10.0 });
        let short = worst(steady(0, 5, 0.5).collect());
        assert_eq!(short, Worst { slowdown: 4.0, ends_s: 5.0 }, "all, where there are no ten");
        // Five seconds without anything, within ten.
        let pause = steady(0, 20, 0.5).chain((21..=25).map(|s| (f64::from(s), 10.0)));
        let pause = pause.chain((26..=40).map(|s| (f64::from(s), 0.5 * f64::from(s - 5))));
        assert_eq!(worst(pause.collect()), Worst { slowdown: 8.0, ends_s: 25.0 });
        assert!(worst(Vec::new()).slowdown.is_nan());
    }
}
