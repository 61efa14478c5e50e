//! Our own target: how near desired and predicted come to the truth, among up to 16 hogs, nice values, groups, on one and two CPUs. Here
//! on virtual time; `accuracy-live` is the same with real processes.

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Group, Policy};

use super::herald::{Herald, PERIOD, each_period};
use super::load::ran;
use crate::parallel;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row, percentile};
use crate::scheduler::programs::Program;
use crate::scheduler::{Attributes, Fair, Machine, Programs, Task};

/// The worst error of desired against the same task alone; of predicted against the second that came, half and 95 in 100. In per cent.
const DESIRED_PCT: f64 = 5.0;
const MEDIAN_PCT: f64 = 5.0;
const P95_PCT: f64 = 15.0;
/// How long a case is watched, after so much that is not judged.
const WATCHED: Nanos = Nanos::from_secs(20);
const BEFORE: Nanos = Nanos::from_secs(5);

/// A task, and what is beside it.
#[derive(Clone, Debug)]
struct Case {
    target: Program,
    target_nice: i8,
    hogs: usize,
    hog_nice: i8,
    hog_policy: Policy,
    /// Weight of a group of its own for the hogs, 0 for none.
    group: u32,
    cpus: usize,
}

/// How far off it was in some cases.
#[derive(Clone, Debug, Default)]
pub struct Errors {
    /// Of what was said to be desired against what the same task gets alone, one a case, in per cent of that.
    pub desired_pct: Vec<f64>,
    /// Of what was predicted against what came in the second after, in per cent of that.
    pub predicted_pct: Vec<f64>,
}

impl Errors {
    /// Held to the target.
    pub fn rows(mut self, name: &str) -> [Row; 3] {
        let cases = self.desired_pct.len();
        let worst = self.desired_pct.into_iter().fold(if cases > 0 { 0.0 } else { f64::NAN }, f64::max);
        let mut predicted = |share| percentile(&mut self.predicted_pct, share);
        [
            Row::no_more(
                format!("{name}: desired, error in the worst of {cases} cases, %"),
                DESIRED_PCT,
                worst,
            ),
            Row::no_more(format!("{name}: predicted, median error, %"), MEDIAN_PCT, predicted(0.5)),
            Row::no_more(format!("{name}: predicted, error of 95 in 100, %"), P95_PCT, predicted(0.95)),
        ]
    }
}

/// All cases, by what is special about them.
fn cases() -> Vec<(&'static str, Vec<Case>)> {
    let targets = [
        Program::HOG,
        Program::cycle(Nanos::from_millis(4), Nanos::from_millis(6)),
        Program { compute: Nanos::from_millis(20), sleep: Nanos::from_millis(30), spread: 0.3 },
    ];
    let plain = |target, hogs| Case {
        target,
        target_nice: 0,
        hogs,
        hog_nice: 0,
        hog_policy: Policy::Normal,
        group: 0,
        cpus: 1,
    };
    let each = |vary: &dyn Fn(Case) -> Vec<Case>, hogs: &[usize]| {
        let all = targets.iter().flat_map(|&target| hogs.iter().map(move |&hogs| plain(target, hogs)));
        all.flat_map(vary).collect::<Vec<Case>>()
    };
    let nice = |case: Case| {
        [(0, 10), (0, 5), (5, 0), (-5, 0)]
            .map(|(target_nice, hog_nice)| Case { target_nice, hog_nice, ..case.clone() })
            .to_vec()
    };
    let groups = |case: Case| [100, 1_024, 4_096].map(|group| Case { group, ..case.clone() }).to_vec();
    vec![
        ("hogs", each(&|case| vec![case], &[0, 1, 2, 4, 8, 16])),
        ("nice values", each(&nice, &[1, 4])),
        ("SCHED_IDLE", each(&|case| vec![Case { hog_policy: Policy::Idle, ..case }], &[1, 4])),
        ("groups", each(&groups, &[1, 4])),
        ("two CPUs", each(&|case| vec![Case { cpus: 2, ..case }], &[1, 3, 7, 15])),
    ]
}

fn errors(case: &Case, seed: u64) -> Result<Errors, String> {
    let groups = match case.group {
        0 => vec![Group::ROOT],
        weight => vec![Group::ROOT, Group { weight, ..Group::ROOT }],
    };
    let mut machine = Machine::new(Fair::new(case.cpus, &groups)?, Programs::new(seed));
    let mut herald = Herald::new(case.cpus, &groups);
    let mut start = |program, nice, policy, group| -> Task {
        machine.workload.push(program);
        machine.spawn(Attributes { nice, policy, group }, None)
    };
    let target = start(case.target, case.target_nice, Policy::Normal, 0);
    for _ in 0..case.hogs {
        start(Program::HOG, case.hog_nice, case.hog_policy, u32::from(case.group != 0));
    }
    let mut seen = Vec::new();
    each_period(&mut machine, BEFORE + WATCHED, |machine| {
        herald.sample(machine);
        seen.push((herald.of(target), ran(machine, target)));
    });
    let first = (BEFORE.0 / PERIOD.0) as usize;
    let second = (Nanos::from_secs(1).0 / PERIOD.0) as usize;
    let judged = &seen[first..];
    let truth = case.target.desired_ms_per_s();
    let desired = judged.iter().map(|(found, _)| found.desired_ms_per_s).sum::<f64>() / judged.len() as f64;
    let predicted_pct = judged.windows(second + 1).map(|pair| {
        let came = pair[second].1.since(pair[0].1).as_millis_f64();
        100.0 * (pair[0].0.predicted_ms_per_s / came - 1.0).abs()
    });
    let desired_pct = vec![100.0 * (desired / truth - 1.0).abs()];
    Ok(Errors { desired_pct, predicted_pct: predicted_pct.collect() })
}

/// All of them.
pub fn accuracy(settings: Settings) -> Result<Findings, String> {
    let mut rows = Vec::new();
    for (name, cases) in cases() {
        let found = parallel::map(&cases, |case| errors(case, settings.seed));
        let mut all = Errors::default();
        for errors in found {
            let errors = errors?;
            all.desired_pct.extend(errors.desired_pct);
            all.predicted_pct.extend(errors.predicted_pct);
        }
        rows.extend(all.rows(name));
    }
    Ok(Findings { rows, figures: Vec::new() })
}
