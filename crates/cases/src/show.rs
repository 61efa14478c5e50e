//! A case as people and programs are told it.

use plimsoll_core::config::case::CaseFile;
use plimsoll_simulator::figures::{Chart, Figure, Line};
use serde_json::{Value, json};

use crate::judge::Judged;
use crate::run::{Plan, Remedy};

/// All that there is to say of a case.
pub struct Report<'a> {
    /// The name of its file.
    pub name: &'a str,
    /// The file.
    pub case: &'a CaseFile,
    /// How long its runs were.
    pub plan: &'a Plan,
    /// What the server calls itself.
    pub version: &'a str,
    /// The undisturbed run.
    pub undisturbed: &'a Judged,
    /// The others.
    pub remedies: &'a [Judged],
    /// Remedies that the case does not have.
    pub left_out: &'a [Remedy],
}

impl Report<'_> {
    /// As JSON.
    pub fn json(&self) -> Value {
        let left_out: Vec<&str> = self.left_out.iter().map(|remedy| remedy.as_str()).collect();
        json!({
            "case": self.name, "title": self.case.title, "paper": self.case.paper, "version": self.version,
            "seed": self.plan.seed, "seconds": self.plan.length.as_secs_f64(), "rate_per_s": self.case.load.rate.per_s,
            "slo_ms": self.case.slo.as_millis_f64(), "trigger_s": self.plan.trigger_at.as_secs_f64(),
            "undisturbed": self.undisturbed, "remedies": self.remedies, "not_applicable": left_out,
        })
    }

    /// As text.
    pub fn text(&self) -> String {
        let calm = self.undisturbed;
        let mut text = format!("{}: {}\n", self.name, self.case.title);
        text += &format!(
            "{}, {} requests/s for {}, p99 within {}; undisturbed {:.1}/s, p99 {} ms\n\n",
            self.version,
            self.case.load.rate.per_s,
            self.plan.length,
            self.case.slo,
            calm.throughput_per_s,
            number(calm.p99_ms, 2),
        );
        text += &format!(
            "{:10} {:>10} {:>8} {:>9} {:>8} {:>9} {:>9} {:>9}  ended\n",
            "remedy", "throughput", "p99", "p99 -2 s", "in time", "dropped", "action", "recovery"
        );
        for run in self.remedies {
            let tasks: Vec<String> =
                run.tasks.iter().map(|task| format!("{} {}", task.name, task.how)).collect();
            text += &format!(
                "{:10} {:>10.3} {:>7}x {:>8}x {:>6.1} % {:>7.3} % {:>7} s {:>7} s  {}\n",
                run.remedy,
                run.throughput_norm,
                number(run.p99_norm, 1),
                number(run.p99_norm_without_2s, 2),
                run.slo_pct,
                run.dropped_pct,
                number(run.action_s, 2),
                number(run.recovery_s, 2),
                tasks.join(", "),
            );
        }
        for remedy in self.left_out {
            text += &format!("{:10} has nothing for this case\n", remedy.as_str());
        }
        for cancel in self.remedies.iter().flat_map(|run| &run.cancelled) {
            text +=
                &format!("\nat {:.2} s the agent ended {}: {}\n", cancel.at_s, cancel.task, cancel.reason);
        }
        for run in self.remedies.iter().filter(|run| run.remedy == Remedy::Plimsoll.as_str()) {
            let short = run.falls_short();
            text += &match short.as_slice() {
                [] => "\nAll that must hold does.\n".to_owned(),
                short => format!("\nDoes not hold: {}\n", short.join("; ")),
            };
        }
        text
    }

    /// As charts over time.
    pub fn figure(&self) -> Figure {
        let runs = || std::iter::once(self.undisturbed).chain(self.remedies);
        let line = |run: &Judged, of: fn(&Judged) -> Vec<Option<f64>>| {
            let points = of(run).into_iter().enumerate().filter_map(|(second, y)| Some((second as f64, y?)));
            Line { name: run.remedy.to_owned(), points: points.collect() }
        };
        let lines = |of| runs().map(|run| line(run, of)).collect();
        let answered = lines(|run| run.ok_by_second.iter().map(|&ok| Some(ok as f64)).collect());
        let p99 = lines(|run| run.p99_ms_by_second.clone());
        let title = |what: &str| format!("{}: {what}", self.name);
        let charts = vec![
            Chart::new(title("answered, by arrival"), "s", "requests/s", answered),
            Chart::new(title("p99, by arrival"), "s", "ms", p99)
                .with_level("objective", self.case.slo.as_millis_f64()),
        ];
        Figure { name: self.name.to_owned(), charts }
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}
