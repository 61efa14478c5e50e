//! Figures 6 to 10 and 14.

use super::study::{
    ACCEPT_FRACTION, ALLOWANCE, BASIC, Cell, MAXQL, MAXQWT, MAXQWT_PER_CLASS, OVERLOAD, Study, UNDERSERVED,
};
use super::tables::with_parameter;
use crate::figures::{Chart, Figure, Line};
use crate::reproduce::findings::{Findings, Row, Tie};
use crate::reproduce::values;

/// The policies of Fig. 6 to 8, by the names that the paper's values have for them.
const PEERS: [(&str, &str); 4] =
    [("bouncer", BASIC), ("maxql", MAXQL), ("maxqwt", MAXQWT), ("accept-fraction", ACCEPT_FRACTION)];
/// Bouncer alone and with its strategies, likewise.
const STRATEGIES: [(&str, &str); 3] =
    [("basic", BASIC), ("allowance", ALLOWANCE), ("underserved", UNDERSERVED)];
/// From here on the queue is what holds requests back, and the plateaus are level.
const PLATEAU: f64 = 1.1;
/// The median objective of all classes.
const OBJECTIVE_MS: f64 = 18.0;

/// A value at every load of the study.
type Sweep = Vec<(f64, f64)>;

/// Median response time of the slow class.
pub fn fig6(study: &Study) -> Findings {
    let paper = &values::bouncer().figures;
    let sweeps = PEERS.map(|(_, policy)| slow_p50_ms(study, policy));
    let [bouncer, maxql, maxqwt, accept_fraction] = sweeps.each_ref();
    let what = "slow rt_p50 on the plateau, ms";
    let mut rows = vec![
        Row::against(format!("maxql, {what}"), &paper.fig6_maxql_slow_p50_ms_plateau, plateau(maxql)),
        Row::against(format!("maxqwt, {what}"), &paper.fig6_maxqwt_slow_p50_ms_plateau, plateau(maxqwt)),
    ];
    for &(load, ours) in bouncer {
        let what = format!("bouncer at {load:.2}, slow rt_p50, ms");
        rows.push(Row::against(what, &paper.fig6_bouncer_slow_p50_ms, ours));
    }
    for &(load, ours) in accept_fraction {
        rows.push(Row::beside(format!("accept-fraction at {load:.2}, slow rt_p50, ms"), None, Some(ours)));
    }
    let chart = chart("slow: median response time", "ms", &PEERS, &sweeps);
    Findings { rows, figures: vec![figure("fig6", vec![with_objective(chart)])] }
}

/// Utilisation.
pub fn fig7(study: &Study) -> Findings {
    let paper = &values::bouncer().figures;
    let sweeps = PEERS.map(|(_, policy)| sweep(study, policy, Cell::utilization_pct));
    let mut rows = Vec::new();
    for ((name, policy), sweep) in PEERS.iter().zip(&sweeps) {
        let target = match *policy {
            ACCEPT_FRACTION => &paper.fig7_accept_fraction_utilization_pct,
            _ => &paper.fig7_utilization_pct_at_1_1_and_above,
        };
        for (load, ours) in sweep.iter().filter(|(load, _)| *load >= PLATEAU) {
            rows.push(Row::against(format!("{name} at {load:.2}, utilisation, %"), target, *ours));
        }
    }
    let chart = chart("utilisation", "%", &PEERS, &sweeps);
    Findings { rows, figures: vec![figure("fig7", vec![chart])] }
}

/// Rejections of all classes together.
pub fn fig8(study: &Study) -> Findings {
    let values::Bouncer { figures: paper, table3, .. } = values::bouncer();
    let sweeps = PEERS.map(|(_, policy)| sweep(study, policy, Cell::rejected_pct));
    let mut rows = Vec::new();
    // MaxQL and MaxQWT both keep every process busy and refuse all classes alike: they reject the same but for a
    // tenth of a point, so for them an order needs a notion of equal. That of Table 3 it is: so near the overall rejections must come.
    let tie = Tie { names: ["maxqwt", "maxql"], within: table3.basic.tolerance.all };
    for (i, &(load, _)) in sweeps[0].iter().enumerate().filter(|(_, (load, _))| *load > 1.0) {
        let measured = PEERS.iter().zip(&sweeps).map(|((name, _), sweep)| (*name, sweep[i].1));
        let measured: Vec<_> = measured.collect();
        rows.push(Row::ordered(
            format!("fewest rejections first, at {load:.2}"),
            &paper.fig8_rejections.value,
            Some(tie.clone()),
            &measured,
        ));
        for (name, ours) in measured {
            rows.push(Row::beside(format!("{name} at {load:.2}, % rejected"), None, Some(ours)));
        }
    }
    let chart = chart("rejected", "% of queries", &PEERS, &sweeps);
    Findings { rows, figures: vec![figure("fig8", vec![chart])] }
}

/// What the strategies cost the slow class in response time.
pub fn fig9(study: &Study) -> Findings {
    let paper = &values::bouncer().figures;
    let sweeps = STRATEGIES.map(|(_, policy)| slow_p50_ms(study, policy));
    let at_overload = |sweep: &Sweep| {
        let found = sweep.iter().find(|(load, _)| *load == OVERLOAD);
        found.map_or(f64::NAN, |&(_, ours)| ours)
    };
    let measured = STRATEGIES.iter().zip(&sweeps).map(|((name, _), sweep)| (*name, at_overload(sweep)));
    let measured: Vec<_> = measured.collect();
    let order = &paper.fig9_strategies_exceed_slo_p50_at_1_5.value;
    let mut rows =
        vec![Row::ordered(format!("lowest slow rt_p50 first, at {OVERLOAD}"), order, None, &measured)];
    for (name, ours) in measured {
        rows.push(Row::beside(format!("{name} at {OVERLOAD}, slow rt_p50, ms"), None, Some(ours)));
    }
    let chart = chart("slow: median response time", "ms", &STRATEGIES, &sweeps);
    Findings { rows, figures: vec![figure("fig9", vec![with_objective(chart)])] }
}

/// How the strategies' parameters change that.
pub fn fig10(study: &Study) -> Findings {
    let values::Bouncer { table4, table5, .. } = values::bouncer();
    let (mut rows, mut charts) = (Vec::new(), Vec::new());
    for (parameter, arguments) in [("allowance", &table4.allowance), ("underserved", &table5.alpha)] {
        let policies = with_parameter(parameter, arguments);
        let cells: Vec<_> = policies.iter().map(|policy| (policy.as_str(), OVERLOAD)).collect();
        let p50s = study.cells(&cells).into_iter().map(|cell| cell.slow_p50_ms());
        let line: Vec<_> = arguments.iter().copied().zip(p50s).collect();
        for (argument, ours) in &line {
            rows.push(Row::beside(format!("{parameter}={argument}, slow rt_p50, ms"), None, Some(*ours)));
        }
        let (first, last) = (line[0].1, line[line.len() - 1].1);
        let what = format!("{parameter}: growth of slow rt_p50 over the range, % (the paper: less)");
        rows.push(Row::beside(what, Some(10.0), Some(100.0 * (last / first - 1.0))));
        let line = Line { name: parameter.into(), points: line };
        let chart = Chart::new("slow: median response time at 1.5 x full load", parameter, "ms", vec![line]);
        charts.push(with_objective(chart));
    }
    Findings { rows, figures: vec![figure("fig10", charts)] }
}

/// MaxQWT with a limit of its own for every class can do what Bouncer does, once somebody has found the limits.
pub fn fig14(study: &Study) -> Findings {
    let policies = [("bouncer", BASIC), ("maxqwt, a limit a class", MAXQWT_PER_CLASS)];
    let p50s = policies.map(|(_, policy)| sweep(study, policy, Cell::slow_p50_ms));
    let rejections = policies.map(|(_, policy)| sweep(study, policy, Cell::rejected_pct));
    let mut rows = Vec::new();
    for ((name, _), (p50s, rejections)) in policies.iter().zip(p50s.iter().zip(&rejections)) {
        for (&(load, p50), &(_, rejected)) in p50s.iter().zip(rejections) {
            rows.push(Row::beside(format!("{name} at {load:.2}, slow rt_p50, ms"), None, Some(p50)));
            rows.push(Row::beside(format!("{name} at {load:.2}, % rejected"), None, Some(rejected)));
        }
    }
    let charts = vec![
        with_objective(chart("slow: median response time", "ms", &policies, &p50s)),
        chart("rejected", "% of queries", &policies, &rejections),
    ];
    Findings { rows, figures: vec![figure("fig14", charts)] }
}

fn sweep(study: &Study, policy: &str, value: impl Fn(&Cell) -> f64) -> Sweep {
    study.over_loads(policy).iter().map(|(load, cell)| (*load, value(cell))).collect()
}

fn slow_p50_ms(study: &Study, policy: &str) -> Sweep {
    let loads = study.loads();
    let cells: Vec<_> = loads.iter().map(|&load| (policy, load)).collect();
    loads.into_iter().zip(study.slow_p50_ms(&cells)).collect()
}

/// The mean over the plateau.
fn plateau(sweep: &Sweep) -> f64 {
    let level: Vec<f64> = sweep.iter().filter(|(load, _)| *load >= PLATEAU).map(|&(_, ours)| ours).collect();
    level.iter().sum::<f64>() / level.len() as f64
}

fn chart<const N: usize>(title: &str, y: &str, policies: &[(&str, &str); N], sweeps: &[Sweep; N]) -> Chart {
    let line = |((name, _), sweep): (&(&str, &str), &Sweep)| Line {
        name: (*name).to_owned(),
        points: sweep.clone(),
    };
    let lines = policies.iter().zip(sweeps).map(line).collect();
    Chart::new(title, "load, as a multiple of the full load", y, lines)
}

fn with_objective(chart: Chart) -> Chart {
    chart.with_level("objective", OBJECTIVE_MS)
}

fn figure(name: &str, charts: Vec<Chart>) -> Figure {
    Figure { name: name.to_owned(), charts }
}
