//! The pane below: who takes the CPU from the row that is looked at.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use super::columns::numbers;
use super::palette::Palette;
use super::text::{cut, ms_per_s, slowdown, sparkline};
use super::{Shown, name_of};
use crate::history::{History, SECONDS, height};
use crate::row::{Key, Row, wants_enough};
use crate::state::State;
use crate::takers::Taker;

/// From this width on the figures of the row stand beside who takes from it.
const WITH_FIGURES: u16 = 120;
const BAR: usize = 16;

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, state: &State, shown: &Shown<'_>, area: Rect) {
    let (Some(row), false) = (state.row(), area.height == 0) else { return };
    let palette = shown.palette;
    let name = match &row.key {
        Key::Group(path) => path.clone(),
        key => format!("{} ({})", row.name, name_of(key)),
    };
    let title =
        format!(" who takes the CPU from {} ", cut(&name, usize::from(area.width).saturating_sub(28)));
    let block = Block::new().borders(Borders::TOP).title(Span::styled(title, palette.head()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let figures = if area.width >= WITH_FIGURES { SECONDS as u16 + 2 } else { 0 };
    let [takers, figures] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(figures)]).areas(inner);
    let lines = usize::from(inner.height);
    frame.render_widget(Paragraph::new(taken_by(row, shown.takers, lines, palette)), takers);
    frame.render_widget(Paragraph::new(figures_of(row, shown.history, palette)), figures);
}

/// One line each, those that do not fit in the last.
fn taken_by(row: &Row, takers: &[Taker], lines: usize, palette: Palette) -> Vec<Line<'static>> {
    let waited = row.of.waited_ms_per_s;
    if takers.is_empty() {
        let why =
            if waited < 0.05 { "nobody: it does not wait" } else { "not known: it waits too little to tell" };
        return vec![Line::styled(why, palette.faint())];
    }
    let total: f64 = takers.iter().map(|taker| taker.took_ms_per_s).sum();
    let shown = if takers.len() > lines { lines.saturating_sub(1) } else { takers.len() };
    let line = |taker: &Taker| {
        let share = taker.took_ms_per_s / total;
        let (pid, tid) = numbers(&taker.key);
        let name = if taker.own { "its own threads".to_owned() } else { cut(&taker.name, 15) };
        let number = if tid.is_empty() { pid } else { tid };
        Line::from(vec![
            Span::raw(format!("{:>7} ms/s ", ms_per_s(taker.took_ms_per_s))),
            Span::styled("█".repeat((share * BAR as f64).round() as usize), palette.bar()),
            Span::raw(format!(" {:.0} % {name} ", 100.0 * share)),
            Span::styled(number, palette.faint()),
        ])
    };
    let mut lines: Vec<Line> = takers[..shown].iter().map(line).collect();
    let rest = &takers[shown..];
    if !rest.is_empty() {
        let sum: f64 = rest.iter().map(|taker| taker.took_ms_per_s).sum();
        lines.push(Line::from(format!("{:>7} ms/s  {} others", ms_per_s(sum), rest.len())));
    }
    lines
}

/// The four allocations and the last minute.
fn figures_of(row: &Row, history: &History, palette: Palette) -> Vec<Line<'static>> {
    let of = &row.of;
    let slowed = |by: f64| {
        if wants_enough(of) {
            Span::styled(slowdown(by, of.low_confidence), palette.slowdown(by))
        } else {
            Span::styled("-", palette.faint())
        }
    };
    let pair = |a: &str, a_ms: f64, b: &str, b_ms: f64| {
        Line::from(format!("{a:<9} {:>7} ms/s   {b:<9} {:>7} ms/s", ms_per_s(a_ms), ms_per_s(b_ms)))
    };
    let seconds = history.of(&row.key);
    let minute = sparkline(seconds.map(height));
    vec![
        pair("desired", of.desired_ms_per_s, "actual", of.actual_ms_per_s),
        pair("potential", of.potential_ms_per_s, "predicted", of.predicted_ms_per_s),
        Line::from(vec![
            Span::raw("slower now "),
            slowed(of.slowdown()),
            Span::raw("  next second "),
            slowed(of.predicted_slowdown()),
        ]),
        Line::styled(format!("{minute:>0$}", SECONDS), palette.bar()),
        Line::styled(format!("{:>1$}", "60 s ago to now; from 1x to 32x and more", SECONDS), palette.faint()),
    ]
}
