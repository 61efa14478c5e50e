//! The screen.

mod columns;
mod detail;
mod palette;
#[cfg(test)]
mod tests;
pub mod text;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row as TableRow, Table, TableState};

use crate::history::History;
use crate::row::{By, Key};
use crate::scene::Scene;
use crate::state::State;
use crate::takers::Taker;
use columns::Column;
pub use palette::Palette;

/// A terminal that is smaller than this cannot show a single row.
const LEAST: (u16, u16) = (24, 4);
/// From this height on there is room for the pane below.
const WITH_DETAIL: u16 = 14;
/// The height of that pane, its title included.
const DETAIL: u16 = 8;

/// All that is on the screen beside [`State`].
pub struct Shown<'a> {
    /// The host.
    pub scene: &'a Scene,
    /// The slowdowns of the last minute.
    pub history: &'a History,
    /// Who takes the CPU from the row that is looked at.
    pub takers: &'a [Taker],
    /// What the user should know: that a recording goes on, or has ended.
    pub note: &'a str,
    /// How it looks.
    pub palette: Palette,
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &mut State, shown: &Shown<'_>) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let (width, height) = LEAST;
        frame.render_widget(Paragraph::new(format!("too small: {width}x{height} at least")), area);
        return;
    }
    let detail = if area.height >= WITH_DETAIL { DETAIL } else { 0 };
    let [host, status, table, detail, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(detail),
        Constraint::Length(u16::from(area.height > 5)),
    ])
    .areas(area);
    frame.render_widget(host_line(shown), host);
    frame.render_widget(status_line(state, shown), status);
    draw_table(frame, state, shown, table);
    detail::draw(frame, state, shown, detail);
    let keys = "q quit  p t g view  s sort  / filter  Enter Esc in and out  space pause  ? help";
    frame.render_widget(Span::styled(keys, shown.palette.faint()), foot);
    if state.help {
        draw_help(frame, shown.palette, area);
    }
}

/// CPUs, how busy they are, and what looking at them costs.
fn host_line<'a>(shown: &Shown<'_>) -> Line<'a> {
    let (scene, palette) = (shown.scene, shown.palette);
    let plural = if scene.cpus == 1 { "" } else { "s" };
    let host = format!(
        "  {} CPU{plural}, {:.2} busy  {:.1} waiting  {} threads",
        scene.cpus,
        scene.busy_cpus(),
        scene.waiting(),
        scene.tasks.len()
    );
    let reader = &scene.reader;
    let cost = format!("  {} {:.0}/s {:.2} % CPU", reader.name, reader.readings_per_s, reader.cost_pct);
    Line::from(vec![
        Span::styled("plimsoll top", palette.head()),
        Span::raw(host),
        Span::styled(cost, palette.faint()),
    ])
}

/// What of the host is shown, and how.
fn status_line<'a>(state: &State, shown: &Shown<'_>) -> Line<'a> {
    let palette = shown.palette;
    if state.typing {
        return Line::from(format!("filter: {}_", text::cut(&state.filter, 60)));
    }
    let what = match state.by {
        By::Process => "processes",
        By::Thread => "threads",
        By::Group => "cgroups",
    };
    let mut told = format!("{} {what}", state.rows.len());
    if let Some((within, _)) = state.within.last() {
        told += &format!(" of {}", name_of(within));
    }
    if !state.pids.is_empty() {
        let plural = if state.pids.len() == 1 { "" } else { "es" };
        told += &format!(" of {} chosen process{plural}", state.pids.len());
    }
    if !state.filter.is_empty() {
        told += &format!(" with \"{}\"", text::cut(&state.filter, 60));
    }
    let mut spans = vec![Span::raw(told), Span::styled("  ms/s, over the last second", palette.faint())];
    if state.paused {
        spans.push(Span::styled("  PAUSED", palette.warning()));
    }
    if !shown.note.is_empty() {
        spans.push(Span::styled(format!("  {}", text::cut(shown.note, 80)), palette.warning()));
    }
    Line::from(spans)
}

/// What a row is called where there is no table around it.
fn name_of(key: &Key) -> String {
    match key {
        Key::Process(pid) => format!("process {pid}"),
        Key::Thread(id) => format!("thread {}", id.tid),
        Key::Group(path) => path.clone(),
    }
}

fn draw_table(frame: &mut Frame<'_>, state: &mut State, shown: &Shown<'_>, area: Rect) {
    let palette = shown.palette;
    let page = usize::from(area.height.saturating_sub(1));
    state.fit(page);
    let columns = Column::fitting(state.by, area.width);
    let fixed = columns.iter().filter(|&&column| column != Column::Name);
    let fixed: u16 = fixed.map(|column| column.width() + 1).sum();
    let name = area.width.saturating_sub(fixed);
    let head = columns.iter().map(|column| {
        let mark = if column.sorts(state.sort) { "▼" } else { "" };
        let title = Line::styled(format!("{}{mark}", column.title()), palette.head());
        Cell::from(if column.is_text() { title } else { title.right_aligned() })
    });
    let rows = state.rows.iter().skip(state.offset).take(page).map(|row| {
        TableRow::new(columns.iter().map(|column| Cell::from(column.cell(row, shown.history, palette, name))))
    });
    let widths = columns.iter().map(|&column| match column {
        Column::Name => Constraint::Length(name),
        column => Constraint::Length(column.width()),
    });
    let table = Table::new(rows, widths).header(TableRow::new(head)).row_highlight_style(palette.selected());
    let on_screen = state.selected().and_then(|at| at.checked_sub(state.offset));
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(on_screen));
}

const HELP: &str = "\
p  t  g       by process, thread, cgroup
Enter / Esc   into a cgroup or process / back
s  or  1..5   sort by slowdown now, next, actual, desired, waited
/             show names, numbers, paths that hold this; Esc: all
space         hold the picture
up down, j k  choose; Home: whoever comes first
q             quit

SLOWER   how many times slower than on an idle machine
NEXT     the same over the next second
WORST    that of the thread that is slowed the most
ACTUAL   the CPU time it got; DESIRED: wanted
WAITED   ready to run without running
PREDICTED  what it will get; POTENTIAL: could at most
~        little is known of what it wants
-        wants under a thousandth of a CPU";

fn draw_help(frame: &mut Frame<'_>, palette: Palette, area: Rect) {
    let help = Text::from(HELP);
    let (width, height) = (help.width() as u16 + 4, help.height() as u16 + 2);
    let (width, height) = (width.min(area.width), height.min(area.height));
    let at = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, at);
    let block = Block::bordered().title(Span::styled(" any key goes back ", palette.head()));
    frame.render_widget(Paragraph::new(help).block(block), at);
}
