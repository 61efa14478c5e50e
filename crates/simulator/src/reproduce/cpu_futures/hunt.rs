//! Fig. 5: the search finds the best nice value of a job, of which it knows nothing but how much the job is slowed. A nice value is a quarter
//! more or less, so two neighbours take turns where the one is too little and the other more than is needed.

use std::ops::RangeInclusive;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::Group;
use plimsoll_cpufutures::search::{Search, Verdict};

use super::herald::{PERIOD, each_period};
use super::load::{ran, start};
use crate::figures::{Chart, Figure, Line};
use crate::parallel;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};
use crate::scheduler::programs::Program;
use crate::scheduler::{Fair, Machine, Programs};

/// How much the job may be slowed.
const BOUND: f64 = 5.0;
/// What else there is, and how many of it before and after the load changes.
const SERVICE: Program =
    Program { compute: Nanos::from_millis(10), sleep: Nanos::from_millis(10), spread: 0.5 };
const SERVICES: [usize; 2] = [4, 12];
/// For how long each.
const PHASE: Nanos = Nanos::from_secs(30);
/// For how long a load is left alone before what the search does is judged.
const FOUND_AFTER: Nanos = Nanos::from_secs(5);
/// Over this the bound is held,
const OVER: Nanos = Nanos::from_secs(10);
/// and the job is slowed no less than this part of it.
const LEAST: f64 = 0.8;
/// A setting is right while it slows the job by this part of the bound,
const RIGHT: RangeInclusive<f64> = 0.84..=0.92;
/// and is tried for so long.
const TRIAL: Nanos = Nanos::from_millis(400);

/// The search, twice.
pub fn fig5(settings: Settings) -> Result<Findings, String> {
    let mut machine = Machine::new(Fair::new(1, &[Group::ROOT])?, Programs::new(settings.seed));
    let job = start(&mut machine, Program::HOG, 19);
    // The greater the setting, the more the job gets: nice values with their sign turned.
    let mut search = Search::new(-19..=20, -19);
    let mut set = (Nanos::ZERO, Nanos::ZERO);
    let (mut tried, mut got) = (Vec::new(), Vec::new());
    let mut rows = Vec::new();
    let mut before = 0;
    for services in SERVICES {
        (before..services).for_each(|_| {
            start(&mut machine, SERVICE, 0);
        });
        before = services;
        let begins = machine.now();
        each_period(&mut machine, PHASE, |machine| {
            let now = (machine.now(), ran(machine, job));
            if now.0.since(set.0) >= TRIAL {
                let setting = judged(&mut search, now, set);
                machine.renice(job, -setting as i8);
                set = now;
            }
            tried.push((now.0, -search.value()));
            got.push(now);
        });
        let judged: Vec<i64> =
            tried.iter().filter(|(at, _)| *at > begins + FOUND_AFTER).map(|&(_, nice)| nice).collect();
        let of = |nice: i64| judged.iter().filter(|&&other| other == nice).count();
        let kept = judged.iter().copied().max_by_key(|&nice| of(nice)).unwrap_or_default();
        let truth = truth(services, settings.seed)?;
        let beside = |what: &str, value: i64| {
            Row::beside(format!("{services} services: {what}"), None, Some(value as f64))
        };
        rows.push(beside("the weakest nice value that holds the bound", truth));
        rows.push(beside("found", kept));
        let away = (kept - truth).abs() as f64;
        rows.push(Row::no_more(format!("{services} services: steps of nice between them"), 1.0, away));
        let share = 100.0 * of(kept) as f64 / judged.len() as f64;
        rows.push(Row::beside(format!("{services} services: % of the time it is kept"), None, Some(share)));
        let (least, most) = slowdowns(&got, begins + FOUND_AFTER);
        rows.push(Row::no_more(format!("{services} services: slowdown over any {OVER}"), BOUND, most));
        rows.push(Row::no_less(format!("{services} services: the least of those"), LEAST * BOUND, least));
    }
    let points = tried.iter().map(|&(at, nice)| (at.as_secs_f64(), (20 - nice) as f64)).collect();
    let line = Line { name: "search".to_owned(), points };
    let chart = Chart::new("a job slowed at most 5 times", "s", "20 - nice", vec![line]);
    Ok(Findings { rows, figures: vec![Figure { name: "fig5".to_owned(), charts: vec![chart] }] })
}

/// The least and the greatest slowdown over windows since then.
fn slowdowns(got: &[(Nanos, Nanos)], since: Nanos) -> (f64, f64) {
    let got: Vec<_> = got.iter().filter(|(at, _)| *at > since).collect();
    let windows = got.windows((OVER.0 / PERIOD.0) as usize + 1).filter_map(|window| {
        let ((from, before), (to, after)) = (window.first()?, window.last()?);
        Some(to.since(*from).as_secs_f64() / after.since(*before).as_secs_f64())
    });
    windows.fold((f64::INFINITY, 0.0), |(least, most), slowdown| (slowdown.min(least), slowdown.max(most)))
}

/// The setting that comes after the one that was in force from the one moment to the other; of both it is told what the job had run.
fn judged(search: &mut Search, to: (Nanos, Nanos), from: (Nanos, Nanos)) -> i64 {
    let slowdown = to.0.since(from.0).as_secs_f64() / to.1.since(from.1).as_secs_f64();
    let verdict = match slowdown / BOUND {
        part if part > *RIGHT.end() => Verdict::TooLow,
        part if part < *RIGHT.start() => Verdict::TooHigh,
        _ => Verdict::Right,
    };
    // Of two neighbours the one that is nearer to the bound is better, and none that is above.
    let off = BOUND * RIGHT.end() - slowdown;
    search.measured(to.0, verdict, if off < 0.0 { BOUND - off } else { off })
}

/// The weakest nice value with which the job gets a fifth of the CPU, by trying them all.
fn truth(services: usize, seed: u64) -> Result<i64, String> {
    let scheduler = Fair::new(1, &[Group::ROOT])?;
    let all: Vec<i8> = (-20..=19).rev().collect();
    let slowdowns = parallel::map(&all, |&nice| {
        let mut machine = Machine::new(scheduler.clone(), Programs::new(seed));
        let job = start(&mut machine, Program::HOG, nice);
        (0..services).for_each(|_| {
            start(&mut machine, SERVICE, 0);
        });
        machine.advance(PHASE);
        PHASE.as_secs_f64() / ran(&machine, job).as_secs_f64()
    });
    let holds = all.iter().zip(slowdowns).find(|(_, slowdown)| *slowdown <= BOUND);
    Ok(holds.map_or(-20, |(&nice, _)| i64::from(nice)))
}
