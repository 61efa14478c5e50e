//! Draws a terminal into an SVG: the screen of `plimsoll top` on this host (`docs/top.svg` was made so), or a text (`docs/yield.svg`).
//!
//! ```sh
//! cargo run --release -p plimsoll-top --example picture -- SECONDS [PID]... > docs/top.svg
//! cargo run --release -p plimsoll-top --example picture -- text < transcript > docs/yield.svg
//! ```
//!
//! With SECONDS it watches for so many, and shows these processes alone, where there are any. Lines of a text that begin with `$ ` were typed.

use std::fmt::Write as _;

use plimsoll_core::Nanos;
use plimsoll_top::draw::{Palette, Shown, draw};
use plimsoll_top::history::History;
use plimsoll_top::order::Sort;
use plimsoll_top::row::By;
use plimsoll_top::state::State;
use plimsoll_top::watch::Watcher;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

const COLUMNS: u16 = 120;
const LINES: u16 = 20;

fn main() -> Result<(), String> {
    if std::env::args().nth(1).is_some_and(|first| first == "text") {
        let text = std::io::read_to_string(std::io::stdin()).map_err(|error| error.to_string())?;
        print!("{}", svg(&typed(&text)));
        return Ok(());
    }
    let mut numbers =
        std::env::args().skip(1).map(|arg| arg.parse::<u32>().map_err(|_| format!("`{arg}` is no number")));
    let seconds = numbers.next().ok_or("how many seconds?")??;
    let pids = numbers.collect::<Result<Vec<u32>, String>>()?;
    let mut watcher = Watcher::new(plimsoll_herald::Reader::Auto, &pids)?;
    let mut history = History::default();
    for _ in 0..seconds {
        watcher.watch_for(Nanos::from_secs(1));
        history.add(&watcher.scene());
    }
    let scene = watcher.scene();
    let mut state = State::new(By::Process, Sort::Slowdown, pids);
    state.show(&scene);
    let takers = state.row().map(|row| watcher.takers_of(&scene, &row.key)).unwrap_or_default();
    let shown =
        Shown { scene: &scene, history: &history, takers: &takers, note: "", palette: Palette::new(true) };
    let mut terminal = Terminal::new(TestBackend::new(COLUMNS, LINES)).map_err(|error| error.to_string())?;
    terminal.draw(|frame| draw(frame, &mut state, &shown)).map_err(|error| error.to_string())?;
    print!("{}", svg(terminal.backend().buffer()));
    Ok(())
}

/// A text on a terminal that is as wide as it needs, with what was typed in bold.
fn typed(text: &str) -> Buffer {
    let mut buffer = Buffer::with_lines(text.lines());
    for (y, line) in (0..).zip(text.lines()) {
        if line.starts_with("$ ") {
            let width = buffer.area.width;
            buffer.set_style(Rect { x: 0, y, width, height: 1 }, Style::new().add_modifier(Modifier::BOLD));
            buffer.set_style(Rect { x: 0, y, width: 1, height: 1 }, Style::new().fg(Color::Green));
        }
    }
    buffer
}

/// The size of a character.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;

/// A terminal with light text on dark ground.
fn svg(buffer: &Buffer) -> String {
    let (columns, lines) = (buffer.area.width, buffer.area.height);
    let (width, height) = (f64::from(columns) * WIDTH + 20.0, f64::from(lines) * HEIGHT + 20.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1c2128\"/>\n"
    );
    for y in 0..lines {
        let cells: Vec<&Cell> = (0..columns).map(|x| &buffer[(x, y)]).collect();
        let mut x = 0;
        // What looks the same is written at once, and squeezed to its columns whatever the font.
        for run in cells.chunk_by(|a, b| (a.fg, a.modifier) == (b.fg, b.modifier)) {
            write_run(&mut svg, run, x, y);
            x += run.len();
        }
    }
    svg + "</svg>\n"
}

fn write_run(svg: &mut String, run: &[&Cell], x: usize, y: u16) {
    let text: String = run.iter().map(|cell| cell.symbol()).collect();
    let (left, top) = (10.0 + x as f64 * WIDTH, 10.0 + f64::from(y) * HEIGHT);
    let width = run.len() as f64 * WIDTH;
    let inverted = run[0].modifier.contains(Modifier::REVERSED);
    let colour = colour(run[0].fg);
    if inverted {
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{colour}\"/>"
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let fill = if inverted { "#1c2128" } else { colour };
    let weight = if run[0].modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\" fill=\"{fill}\"{weight}>{text}</text>",
        top + 14.0
    );
}

fn colour(colour: Color) -> &'static str {
    match colour {
        Color::Red => "#ff7b72",
        Color::Yellow => "#e3b341",
        Color::Green => "#56d364",
        Color::Cyan => "#76e3ea",
        Color::Blue => "#6cb6ff",
        Color::DarkGray => "#8b949e",
        _ => "#e6edf3",
    }
}
