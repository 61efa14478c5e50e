//! What the demo shows: a few lines that redraw themselves while the surge lasts, then a table.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use plimsoll_core::Nanos;
use plimsoll_loadgen::{Figures, Progress, Table};

use super::stage::Side;

/// Where there is no terminal to redraw, a line comes this often.
const LINE_EVERY: Nanos = Nanos::from_secs(5);

/// The live view.
pub struct Screen {
    lines: MultiProgress,
    bar: ProgressBar,
    sides: [ProgressBar; 2],
    duration: Nanos,
    terminal: bool,
    next_line: [Nanos; 2],
}

impl Screen {
    pub fn new(duration: Nanos) -> Screen {
        let lines = MultiProgress::new();
        let bar = lines.add(ProgressBar::new(duration.0));
        let style = ProgressStyle::with_template("  {bar:60.cyan/black} {msg}").expect("a fixed template");
        bar.set_style(style);
        let text = |line: ProgressBar| {
            line.set_style(ProgressStyle::with_template("{msg}").expect("a fixed template"));
            line
        };
        let sides = [(); 2].map(|()| text(lines.add(ProgressBar::new(1))));
        let terminal = std::io::stderr().is_terminal();
        Screen { lines, bar, sides, duration, terminal, next_line: [Nanos::ZERO; 2] }
    }

    /// Redraws one side.
    pub fn show(&mut self, side: Side, progress: &Progress<'_>) {
        let text = live(side, &progress.recent(), progress.interval);
        let index = usize::from(side == Side::With);
        if self.terminal {
            self.bar.set_position(progress.elapsed.min(self.duration).0);
            self.bar.set_message(format!("{:.0} s", progress.elapsed.as_secs_f64()));
            self.sides[index].set_message(text);
        } else if progress.elapsed >= self.next_line[index] {
            self.next_line[index] = progress.elapsed + LINE_EVERY;
            eprintln!("{:>4.0} s {text}", progress.elapsed.as_secs_f64());
        }
    }

    pub fn finish(self) {
        // Nothing is left on the screen but what follows.
        let _ = self.lines.clear();
    }
}

fn live(side: Side, table: &Table, interval: Nanos) -> String {
    let Figures { goodput_per_s, p50_ms, p90_ms, rejected, errors, .. } = &table.total;
    let per_s = |count: u64| count as f64 / interval.as_secs_f64().max(1e-3);
    format!(
        "{:<8} in time {goodput_per_s:>5.0}/s   p50 {}   p90 {}   refused {:>5.0}/s   gave up {:>5.0}/s",
        side.as_str(),
        time(*p50_ms),
        time(*p90_ms),
        per_s(*rejected),
        per_s(*errors),
    )
}

/// The figures of one side at the end.
pub fn outcome(side: Side, table: &Table) -> String {
    let mut text = format!(
        "\n{:<18}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
        format!("{} the load line", side.as_str()),
        "in time/s",
        "p50",
        "p90",
        "p99",
        "refused",
        "gave up"
    );
    let rows = table.requests.iter().map(|(name, figures)| (name.as_str(), figures));
    for (name, figures) in rows.chain([("total", &table.total)]) {
        text += &format!(
            "  {name:<16}{:>10.1}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
            figures.goodput_per_s,
            time(figures.p50_ms),
            time(figures.p90_ms),
            time(figures.p99_ms),
            figures.rejected + figures.refused_other,
            figures.errors,
        );
    }
    text
}

fn time(ms: Option<f64>) -> String {
    match ms {
        None => format!("{:>7}", "-"),
        Some(ms) if ms < 1_000.0 => format!("{ms:>5.0}ms"),
        Some(ms) => format!("{:>6.1}s", ms / 1_000.0),
    }
}
