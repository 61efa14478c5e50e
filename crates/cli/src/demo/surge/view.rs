//! What the surge shows: a line a side that redraws itself while it lasts, then a table.

use plimsoll_core::Nanos;
use plimsoll_loadgen::{Figures, Progress, Table};
use plimsoll_simulator::figures::{Chart, Figure, Line};

use super::super::Side;
use super::super::screen::{Screen, time};
use super::stage::P90_MS;

/// The live view.
pub struct View {
    screen: Screen,
    duration: Nanos,
    history: [Vec<Moment>; 2],
}

/// What one side did in a moment of the surge.
#[derive(Clone, Copy)]
struct Moment {
    at_s: f64,
    in_time_per_s: f64,
    p90_ms: Option<f64>,
}

impl View {
    pub fn new(duration: Nanos) -> View {
        View { screen: Screen::new(duration, 2), duration, history: Default::default() }
    }

    /// Redraws one side.
    pub fn show(&mut self, side: Side, progress: &Progress<'_>) {
        if progress.interval == Nanos::ZERO {
            return;
        }
        let index = usize::from(side == Side::With);
        let recent = progress.recent();
        self.history[index].push(Moment {
            at_s: progress.elapsed.as_secs_f64(),
            in_time_per_s: recent.total.goodput_per_s,
            p90_ms: recent.total.p90_ms,
        });
        self.screen.set(index, progress.elapsed, live(side, &recent, progress.interval));
    }

    /// Clears the lines and gives the surge as a picture.
    pub fn finish(self) -> Figure {
        self.screen.clear();
        let line = |side: Side, of: fn(&Moment) -> Option<f64>| Line {
            name: format!("{} the load line", side.as_str()),
            points: seconds(&self.history[usize::from(side == Side::With)], self.duration, of),
        };
        let chart = |title, y, of| {
            Chart::new(title, "seconds", y, vec![line(Side::With, of), line(Side::Without, of)])
        };
        Figure {
            name: "surge".to_owned(),
            charts: vec![
                chart("Answered within the promise", "requests/s", |m| Some(m.in_time_per_s)),
                chart("Nine of ten answers took at most", "ms", |m| m.p90_ms)
                    .with_level("promised", P90_MS as f64),
            ],
        }
    }
}

/// The mean over each second of the surge; what happens after it is of no interest.
fn seconds(moments: &[Moment], duration: Nanos, of: fn(&Moment) -> Option<f64>) -> Vec<(f64, f64)> {
    let surge = |m: &&Moment| m.at_s <= duration.as_secs_f64();
    let points: Vec<(u64, f64)> =
        moments.iter().filter(surge).filter_map(|m| Some((m.at_s as u64, of(m)?))).collect();
    let second = |same: &[(u64, f64)]| {
        let mean = same.iter().map(|&(_, value)| value).sum::<f64>() / same.len() as f64;
        (same[0].0 as f64 + 0.5, mean)
    };
    points.chunk_by(|a, b| a.0 == b.0).map(second).collect()
}

fn live(side: Side, table: &Table, interval: Nanos) -> String {
    let Figures { goodput_per_s, p50_ms, p90_ms, rejected, errors, .. } = &table.total;
    let per_s = |count: u64| count as f64 / interval.as_secs_f64();
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
