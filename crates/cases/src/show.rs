//! A case as whoever has run it is told of it: as text, and as charts over time.

use std::collections::BTreeMap;

use plimsoll_simulator::figures::{Chart, Figure, Line};
use serde_json::{Value, json};

use crate::judge::Judged;
use crate::report::Report;
use crate::run::Remedy;

/// Of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Spread {
    /// Of what is there; nothing where nothing is.
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().flatten().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (&low, &high) = (values.first()?, values.last()?);
        let [below, above] = [(values.len() - 1) / 2, values.len() / 2].map(|at| values[at]);
        Some(Spread { median: f64::midpoint(below, above), low, high })
    }
}

/// What came of all runs with a remedy.
pub struct Row<'a> {
    /// The remedy.
    pub remedy: &'a str,
    /// As [`Judged::goodput_norm`], and so on.
    pub goodput: Option<Spread>,
    /// See there.
    pub throughput: Option<Spread>,
    /// See there.
    pub p99: Option<Spread>,
    /// See there.
    pub p99_without_2s: Option<Spread>,
    /// See there.
    pub in_time_pct: Option<Spread>,
    /// See there.
    pub dropped_pct: Option<Spread>,
    /// See there.
    pub acted_s: Option<Spread>,
    /// See there.
    pub action_s: Option<Spread>,
    /// See there.
    pub recovery_s: Option<Spread>,
    /// How the tasks ended, in words.
    pub ended: String,
}

/// A row for each remedy.
pub fn rows(report: &Report) -> Vec<Row<'_>> {
    let row = |remedy| {
        let of = |value: fn(&Judged) -> Option<f64>| Spread::of(report.runs_with(remedy).map(value));
        Row {
            remedy,
            goodput: of(|run| Some(run.goodput_norm)),
            throughput: of(|run| Some(run.throughput_norm)),
            p99: of(|run| run.p99_norm),
            p99_without_2s: of(|run| run.p99_norm_without_2s),
            in_time_pct: of(|run| Some(run.slo_pct)),
            dropped_pct: of(|run| Some(run.dropped_pct)),
            acted_s: of(|run| run.acted_s),
            action_s: of(|run| run.action_s),
            recovery_s: of(|run| run.recovery_s),
            ended: ended(report.runs_with(remedy)),
        }
    };
    report.remedies().map(row).collect()
}

/// Who ended how, and how often where that is more than once.
fn ended<'a>(runs: impl Iterator<Item = &'a Judged>) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for task in runs.flat_map(|run| &run.tasks) {
        *counts.entry(format!("{} {}", task.name, task.how)).or_default() += 1;
    }
    let words = counts.into_iter().map(|(what, times)| match times {
        1 => what,
        times => format!("{times} x {what}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// As JSON: the report, and of each remedy the figures of [`Judged`] themselves, of several repetitions the medians.
pub fn json(report: &Report) -> Value {
    let remedies = report.remedies().map(|remedy| {
        let runs: Vec<Value> = report.runs_with(remedy).map(|run| json!(run)).collect();
        let figures = runs[0].as_object().into_iter().flatten().filter(|(_, value)| !value.is_array());
        let median = |(name, first): (&String, &Value)| {
            let spread = || Spread::of(runs.iter().map(|run| run[name].as_f64()));
            let value = match first {
                Value::Bool(_) => json!(runs.iter().all(|run| run[name] == true)),
                Value::String(_) => first.clone(),
                _ => json!(spread().map(|spread| spread.median)),
            };
            (name.clone(), value)
        };
        Value::Object(figures.map(median).collect())
    });
    let remedies: Vec<Value> = remedies.collect();
    let mut json = json!(report);
    json["remedies"] = json!(remedies);
    json
}

/// As text: of several repetitions, the medians.
pub fn text(report: &Report) -> String {
    let calm = |value: fn(&Judged) -> Option<f64>| {
        Spread::of(report.repetitions.iter().map(|repetition| value(&repetition.undisturbed)))
    };
    let mut text = format!("{}: {}\n", report.case, report.title);
    if let Some(version) = &report.version {
        text += &format!(
            "{version}, {} requests/s for {} s, p99 within {} ms; undisturbed {}/s, p99 {} ms\n\n",
            report.rate_per_s,
            report.seconds,
            report.slo_ms,
            number(calm(|run| Some(run.throughput_per_s)), 1),
            number(calm(|run| run.p99_ms), 2),
        );
        text += &format!(
            "{:10} {:>8} {:>10} {:>8} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9}  who\n",
            "remedy",
            "goodput",
            "throughput",
            "p99",
            "p99 -2 s",
            "in time",
            "dropped",
            "acted",
            "ended",
            "recovery"
        );
    }
    for row in rows(report) {
        text += &format!(
            "{:10} {:>8} {:>10} {:>7}x {:>8}x {:>6} % {:>7} % {:>7} s {:>7} s {:>7} s  {}\n",
            row.remedy,
            number(row.goodput, 3),
            number(row.throughput, 3),
            number(row.p99, 1),
            number(row.p99_without_2s, 2),
            number(row.in_time_pct, 1),
            number(row.dropped_pct, 3),
            number(row.acted_s, 2),
            number(row.action_s, 2),
            number(row.recovery_s, 2),
            row.ended,
        );
    }
    for remedy in &report.not_applicable {
        text += &format!("{remedy:10} has nothing for this case\n");
    }
    for repetition in &report.repetitions {
        for run in repetition.remedies.iter().filter(|run| run.remedy == Remedy::Plimsoll.as_str()) {
            for cancel in &run.cancelled {
                let (at_s, task) = (cancel.at_s, &cancel.task);
                text += &format!("\nat {at_s:.2} s the agent ended {task}: {}\n", cancel.reason);
            }
            text += &match run.falls_short(report.culprit.as_deref()).as_slice() {
                [] => "\nAll that must hold does.\n".to_owned(),
                short => format!("\nDoes not hold: {}\n", short.join("; ")),
            };
        }
    }
    if let Some(why) = &report.failed {
        text += &format!("\n{}: {why}\n", report.case);
    }
    text
}

/// Over time, the first repetition.
pub fn figure(report: &Report) -> Figure {
    let runs = || {
        let first = report.repetitions.first().into_iter();
        first.flat_map(|first| std::iter::once(&first.undisturbed).chain(&first.remedies))
    };
    let line = |run: &Judged, of: fn(&Judged) -> Vec<Option<f64>>| {
        let points = of(run).into_iter().enumerate().filter_map(|(second, y)| Some((second as f64, y?)));
        Line { name: run.remedy.clone(), points: points.collect() }
    };
    let lines = |of| runs().map(|run| line(run, of)).collect();
    let in_time = lines(|run| run.in_time_by_second.iter().map(|&count| Some(count as f64)).collect());
    let p99 = lines(|run| run.p99_ms_by_second.clone());
    let title = |what: &str| format!("{}: {what}", report.case);
    let charts = vec![
        Chart::new(title("answered in time, by arrival"), "s", "requests/s", in_time),
        Chart::new(title("p99, by arrival"), "s", "ms", p99).with_level("objective", report.slo_ms),
    ];
    Figure { name: report.case.clone(), charts }
}

fn number(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".to_owned(), |Spread { median, .. }| format!("{median:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::report;

    #[test]
    fn scripts_find_what_came_of_each_remedy() {
        let mut three = report("c9", [0.99, 0.90, 0.97], 0.5);
        three.repetitions[1].remedies[1].right = false;
        three.repetitions[2].remedies[1].action_s = None;
        let told = json(&three);
        assert_eq!((&told["case"], told["remedies"].as_array().unwrap().len()), (&json!("c9"), 3));
        let ours = &told["remedies"][1];
        assert_eq!((&ours["remedy"], &ours["throughput_norm"]), (&json!("plimsoll"), &json!(0.97)));
        for (name, value) in
            [("p99_norm", json!(3.0)), ("dropped_pct", json!(0.0)), ("recovery_s", Value::Null)]
        {
            assert_eq!(ours.get(name), Some(&value), "{name}");
        }
        assert_eq!((&ours["action_s"], &ours["right"]), (&json!(0.2), &json!(false)));
        // What is kept is read again as it was.
        let again: Report = serde_json::from_value(told).unwrap();
        assert_eq!(json!(again), json!(three));
    }

    #[test]
    fn a_spread_is_of_what_is_there() {
        assert_eq!(Spread::of([None, None]), None);
        let spread = Spread::of([Some(3.0), None, Some(1.0), Some(8.0)]);
        assert_eq!(spread, Some(Spread { median: 3.0, low: 1.0, high: 8.0 }));
        assert_eq!(Spread::of([Some(1.0), Some(2.0)]).unwrap().median, 1.5);
    }
}
