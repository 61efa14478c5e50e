//! Fig. 1 and 4: one process, and ever more beside it.

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Allocations, Group};

use super::herald::{Herald, PERIOD, each_period};
use crate::figures::{Chart, Figure, Line};
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row, percentile};
use crate::scheduler::programs::Program;
use crate::scheduler::{Attributes, Fair, Machine, O1, Programs, Scheduler, Task};

/// Fig. 1: so many low-priority processes come, one a second.
const COMPETITORS: u64 = 20;
/// Their nice value; that of the one they come to is 0.
const LOW: i8 = 10;
/// What they do: a quarter of the time they compute.
const LIGHT: Program = Program { compute: Nanos::from_millis(5), sleep: Nanos::from_millis(15), spread: 0.5 };
/// What the one loses at least until the last has come, in points: "a wide range of allocations".
const WIDE: f64 = 20.0;

/// A CPU-bound process among ever more that are not.
pub fn fig1(settings: Settings) -> Result<Findings, String> {
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for (name, points) in [
        ("O(1)", squeezed(O1::new(1), settings.seed)),
        ("proportional share", squeezed(Fair::new(1, &[Group::ROOT])?, settings.seed)),
    ] {
        let share = |at: usize| points[at].1;
        let last = points.len() - 1;
        rows.push(Row::beside(format!("{name}: alone, % of a CPU"), None, Some(share(0))));
        rows.push(Row::beside(format!("{name}: among {COMPETITORS}"), None, Some(share(last))));
        let what = format!("{name}: lost by the last second, points");
        rows.push(Row::no_less(what, WIDE, share(0) - share(last)));
        lines.push(Line { name: name.to_owned(), points });
    }
    let chart =
        Chart::new("a CPU-bound process, nice 0", "s; a process of nice 10 more each", "% of a CPU", lines);
    Ok(Findings { rows, figures: vec![Figure { name: "fig1".to_owned(), charts: vec![chart] }] })
}

/// What the process got in every second, in per cent.
fn squeezed<S: Scheduler>(scheduler: S, seed: u64) -> Vec<(f64, f64)> {
    let mut machine = Machine::new(scheduler, Programs::new(seed));
    let hog = start(&mut machine, Program::HOG, 0);
    let mut before = Nanos::ZERO;
    (0..=COMPETITORS)
        .map(|second| {
            if second > 0 {
                start(&mut machine, LIGHT, LOW);
            }
            machine.advance(Nanos::from_secs(second + 1));
            let ran = ran(&machine, hog);
            let got = ran.since(before).as_secs_f64();
            before = ran;
            (second as f64, 100.0 * got)
        })
        .collect()
}

/// Starts a program.
pub fn start<S: Scheduler>(machine: &mut Machine<S, Programs>, program: Program, nice: i8) -> Task {
    machine.workload.push(program);
    machine.spawn(Attributes { nice, ..Attributes::default() }, None)
}

/// For how long a task has run.
pub fn ran<S: Scheduler>(machine: &Machine<S, Programs>, task: Task) -> Nanos {
    machine.accounts().find(|&(other, _)| other == task).map_or(Nanos::ZERO, |(_, account)| account.ran)
}

/// Fig. 4: what every process does, which desires 400 ms a second.
const ALIKE: Program = Program::cycle(Nanos::from_millis(4), Nanos::from_millis(6));
/// How many of them there are in the end, and when the next comes.
const MOST: u64 = 10;
const EVERY: Nanos = Nanos::from_secs(30);
/// How far desired may be from the truth, and predicted from what came, in per cent: half of them and 95 in 100. After a step what was
/// before it counts for this long.
const DESIRED_PCT: f64 = 5.0;
const MEDIAN_PCT: f64 = 5.0;
const P95_PCT: f64 = 15.0;
const STEP_PCT: f64 = 10.0;
const SETTLES: Nanos = Nanos::from_millis(300);

/// The figure of that, by when each was found.
pub fn four_metrics(name: &str, found: impl Iterator<Item = (Nanos, Allocations)> + Clone) -> Figure {
    let line = |name: &str, of: fn(&Allocations) -> f64| {
        let points = found.clone().map(|(at, found)| (at.as_secs_f64(), of(&found))).collect();
        Line { name: name.to_owned(), points }
    };
    let lines = vec![
        line("potential", |found| found.potential_ms_per_s),
        line("desired", |found| found.desired_ms_per_s),
        line("predicted", |found| found.predicted_ms_per_s),
        line("actual", |found| found.actual_ms_per_s),
    ];
    let chart = Chart::new("one of ever more processes", "s", "ms/s", lines);
    Figure { name: name.to_owned(), charts: vec![chart] }
}

/// The four metrics of a process as others like it come.
pub fn fig4(settings: Settings) -> Result<Findings, String> {
    let mut machine = Machine::new(Fair::new(1, &[Group::ROOT])?, Programs::new(settings.seed));
    let mut herald = Herald::new(1, &[Group::ROOT]);
    let target = start(&mut machine, ALIKE, 0);
    // Alone, before the others come: the truth.
    let mut seen = Vec::new();
    for others in 0..MOST {
        if others > 0 {
            start(&mut machine, ALIKE, 0);
        }
        each_period(&mut machine, EVERY, |machine| {
            herald.sample(machine);
            seen.push((machine.now(), herald.of(target), ran(machine, target)));
        });
    }
    let truth = ALIKE.desired_ms_per_s();
    let second = (Nanos::from_secs(1).0 / PERIOD.0) as usize;
    let since_step = |at: Nanos| Nanos(at.0 % EVERY.0);
    // Once a second of it has been seen.
    let desired = seen.iter().filter(|(at, ..)| *at >= Nanos::from_secs(1));
    let off =
        desired.map(|(_, found, _)| 100.0 * (found.desired_ms_per_s / truth - 1.0).abs()).fold(0.0, f64::max);
    let (mut steady, mut after_step) = (Vec::new(), Vec::new());
    for pair in seen.windows(second + 1) {
        let ((at, found, ran), (_, _, later)) = (pair[0], pair[second]);
        let came = later.since(ran).as_millis_f64();
        let error = 100.0 * (found.predicted_ms_per_s / came - 1.0).abs();
        let (from, until) = (since_step(at), since_step(at) + Nanos::from_secs(1));
        if until > EVERY || at < Nanos::from_secs(1) {
            continue; // The load changes in the second that is predicted, or nothing is known yet.
        }
        if from >= Nanos::from_secs(1) {
            steady.push(error);
        } else if from >= SETTLES && at > EVERY {
            after_step.push(error);
        }
    }
    let first = seen[second].1;
    let metrics = seen.iter().step_by(second).map(|(at, found, _)| (*at, *found));
    let rows = vec![
        Row::no_more("desired: worst error against the process alone, %", DESIRED_PCT, off),
        Row::no_more("predicted: median error, %", MEDIAN_PCT, percentile(&mut steady, 0.5)),
        Row::no_more("predicted: error of 95 in 100, %", P95_PCT, percentile(&mut steady, 0.95)),
        Row::no_more(
            "predicted: median error from 0.3 to 1 s after a step, %",
            STEP_PCT,
            percentile(&mut after_step, 0.5),
        ),
        Row::no_less("alone: potential over desired", 2.0, first.potential_ms_per_s / first.desired_ms_per_s),
    ];
    Ok(Findings { rows, figures: vec![four_metrics("fig4", metrics)] })
}
