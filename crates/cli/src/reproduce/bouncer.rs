//! Bouncer's study on a real system, a sharded graph store (section 5.4).

use std::cell::OnceCell;
use std::rc::Rc;

use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::findings::{Findings, Row};
use plimsoll_simulator::reproduce::{Experiment, Settings, values};
use plimsoll_testbed::graph::study::{self, Run, StudyOptions, StudyResult, TypeFigures};

/// How far above an objective the queries that the estimate admits may be, as a factor: the real system's estimate is
/// for the wait of the broker, and its queries wait at the shards as well.
const WITHIN: f64 = 1.1;
/// The type that the paper's figures show: the dearest, and the largest share of the mix.
const SHOWN: &str = "QT11";

/// Fig. 3 and 11 to 13.
pub fn bouncer(settings: Settings) -> Vec<Experiment> {
    let study = Rc::new(Shared { settings, result: OnceCell::new() });
    let of = |id, run: fn(&StudyResult) -> Findings| {
        let study = Rc::clone(&study);
        Experiment { id, run: Box::new(move || study.result().map(run)) }
    };
    vec![
        Experiment { id: "fig3", run: Box::new(move || fig3(settings)) },
        of("fig11", fig11),
        of("fig12", fig12),
        of("fig13", fig13),
    ]
}

/// The runs that Fig. 11 to 13 share.
struct Shared {
    settings: Settings,
    result: OnceCell<Result<StudyResult, String>>,
}

impl Shared {
    fn result(&self) -> Result<&StudyResult, String> {
        // A study that went wrong is not begun again for the next figure.
        let run = || study::run(options(self.settings)?, &say).map_err(|e| e.to_string());
        self.result.get_or_init(run).as_ref().map_err(String::clone)
    }
}

fn options(settings: Settings) -> Result<StudyOptions, String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let options = if settings.quick { StudyOptions::quick } else { StudyOptions::full };
    Ok(StudyOptions { seed: settings.seed, ..options(program) })
}

fn say(what: &str) {
    eprintln!("{what}");
}

fn is_bouncer(policy: &str) -> bool {
    policy.starts_with("bouncer")
}

fn shown(run: &Run) -> Option<&TypeFigures> {
    run.types.iter().find(|of| of.name == SHOWN)
}

fn fig3(settings: Settings) -> Result<Findings, String> {
    let starvation = study::starvation(options(settings)?, &say).map_err(|e| e.to_string())?;
    let line = |name: &str, of: fn(&study::Estimates) -> f64| Line {
        name: name.to_owned(),
        points: starvation.samples.iter().map(|sample| (sample.at_ms, of(sample))).collect(),
    };
    let chart = |title, objective_ms, lines| {
        Chart::new(title, "ms", "expected ms", lines).with_level("objective", objective_ms)
    };
    let charts = vec![
        chart("p50", 18.0, vec![line("fast", |s| s.fast_p50_ms), line("slow", |s| s.slow_p50_ms)]),
        chart("p90", 50.0, vec![line("fast", |s| s.fast_p90_ms), line("slow", |s| s.slow_p90_ms)]),
    ];
    Ok(Findings {
        rows: vec![
            Row::beside("slow queries rejected, %", Some(99.0), Some(starvation.slow_rejected_pct)),
            Row::beside(
                "fast queries rejected, % (paper: less than)",
                Some(10.0),
                Some(starvation.fast_rejected_pct),
            ),
        ],
        figures: vec![Figure { name: "fig3".to_owned(), charts }],
    })
}

fn fig11(result: &StudyResult) -> Findings {
    let mut rows = vec![Row::beside("capacity of this store, queries/s", None, Some(result.capacity_per_s))];
    for Run { policy, load, rejected_pct, errors, late_ms_p99, .. } in &result.runs {
        rows.push(Row::beside(format!("{policy} at {load:.2}: rejected, %"), None, Some(*rejected_pct)));
        rows.push(Row::at_most(format!("{policy} at {load:.2}: errors"), 0.0, *errors as f64));
        rows.push(Row::beside(
            format!("{policy} at {load:.2}: generator late, p99 ms"),
            None,
            Some(*late_ms_p99),
        ));
    }
    let target = values::bouncer().figures.fig11_fewer_rejections_than_peers_pct;
    for ours in overloaded(result).filter(|run| is_bouncer(&run.policy)) {
        for peer in overloaded(result).filter(|run| !is_bouncer(&run.policy) && run.load == ours.load) {
            let fewer = 100.0 * (1.0 - ours.rejected_pct / peer.rejected_pct);
            let what =
                format!("{} at {:.2}: fewer rejections than {}, %", ours.policy, ours.load, peer.policy);
            rows.push(Row::against(what, &target, fewer));
        }
    }
    let chart = chart_over_load("Overall rejections", "%", result, |_| true, |run| Some(run.rejected_pct));
    Findings { rows, figures: vec![Figure { name: "fig11".to_owned(), charts: vec![chart] }] }
}

fn fig12(result: &StudyResult) -> Findings {
    let mut rows = Vec::new();
    for run in &result.runs {
        let times = shown(run).map(|of| of.response_ms);
        let what = format!("{} at {:.2}: {SHOWN}", run.policy, run.load);
        rows.push(Row::beside(format!("{what} p50, ms"), None, times.and_then(|t| t.p50)));
        rows.push(Row::beside(format!("{what} p90, ms"), None, times.and_then(|t| t.p90)));
    }
    for run in overloaded(result).filter(|run| is_bouncer(&run.policy)) {
        let what = format!("{} at {:.2}: worst type's p50 or p90 over its objective", run.policy, run.load);
        rows.push(Row::at_most(what, WITHIN, run.worst_factor_of_objective()));
    }
    let chart = |title: &str, of: fn(&TypeFigures) -> Option<f64>, level: f64| {
        let chart = chart_over_load(title, "ms", result, |_| true, move |run| shown(run).and_then(of));
        chart.with_level("objective", level)
    };
    let charts = vec![
        chart("QT11, median", |of| of.response_ms.p50, 18.0),
        chart("QT11, 90th percentile", |of| of.response_ms.p90, 50.0),
    ];
    Findings { rows, figures: vec![Figure { name: "fig12".to_owned(), charts }] }
}

fn fig13(result: &StudyResult) -> Findings {
    let compared = |policy: &str| is_bouncer(policy) || policy.starts_with("maxqwt");
    let mut rows = Vec::new();
    for run in result.runs.iter().filter(|run| compared(&run.policy)) {
        let what = format!("{} at {:.2}: {SHOWN} median", run.policy, run.load);
        let of = shown(run);
        rows.push(Row::beside(
            format!("{what} processing, ms"),
            None,
            of.and_then(|of| of.processing_ms.p50),
        ));
        rows.push(Row::beside(format!("{what} response, ms"), None, of.and_then(|of| of.response_ms.p50)));
    }
    let chart = |title: &str, of: fn(&TypeFigures) -> Option<f64>| {
        chart_over_load(title, "ms", result, compared, move |run| shown(run).and_then(of))
    };
    let charts = vec![
        chart("QT11, median processing time", |of| of.processing_ms.p50),
        chart("QT11, median response time", |of| of.response_ms.p50),
    ];
    Findings { rows, figures: vec![Figure { name: "fig13".to_owned(), charts }] }
}

/// The runs above the capacity.
fn overloaded(result: &StudyResult) -> impl Iterator<Item = &Run> {
    result.runs.iter().filter(|run| run.load > 1.0)
}

fn chart_over_load(
    title: &str,
    unit: &str,
    result: &StudyResult,
    drawn: impl Fn(&str) -> bool,
    of: impl Fn(&Run) -> Option<f64>,
) -> Chart {
    let mut lines: Vec<Line> = Vec::new();
    for run in result.runs.iter().filter(|run| drawn(&run.policy)) {
        let Some(value) = of(run) else { continue };
        match lines.iter_mut().find(|line| line.name == run.policy) {
            Some(line) => line.points.push((run.load, value)),
            None => lines.push(Line { name: run.policy.clone(), points: vec![(run.load, value)] }),
        }
    }
    Chart::new(title, "offered load over capacity", unit, lines)
}
