//! A few lines that redraw themselves under a bar while a demo lasts; where there is no terminal they are printed now and then.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use plimsoll_core::Nanos;

/// Where there is no terminal to redraw, a line comes this often.
const LINE_EVERY: Nanos = Nanos::from_secs(5);

/// The live lines.
pub struct Screen {
    all: MultiProgress,
    bar: ProgressBar,
    lines: Vec<Line>,
    duration: Nanos,
    terminal: bool,
}

struct Line {
    text: ProgressBar,
    /// When it is to be printed next.
    due: Nanos,
}

impl Screen {
    /// So many lines, for so long.
    pub fn new(duration: Nanos, lines: usize) -> Screen {
        let all = MultiProgress::new();
        let bar = all.add(ProgressBar::new(duration.0));
        let style = ProgressStyle::with_template("  {bar:60.cyan/black} {msg}").expect("a fixed template");
        bar.set_style(style);
        let line = |_| {
            let text = all.add(ProgressBar::new(1));
            text.set_style(ProgressStyle::with_template("{msg}").expect("a fixed template"));
            Line { text, due: Nanos::ZERO }
        };
        let lines = (0..lines).map(line).collect();
        Screen { all, bar, lines, duration, terminal: std::io::stderr().is_terminal() }
    }

    /// Redraws one line, and the bar as of this time since the start.
    pub fn set(&mut self, line: usize, elapsed: Nanos, text: String) {
        let Line { text: shown, due } = &mut self.lines[line];
        if self.terminal {
            self.bar.set_position(elapsed.min(self.duration).0);
            self.bar.set_message(format!("{:.0} s", elapsed.as_secs_f64()));
            shown.set_message(text);
        } else if elapsed >= *due {
            *due = elapsed + LINE_EVERY;
            eprintln!("{:>4.0} s {text}", elapsed.as_secs_f64());
        }
    }

    /// Says something above the lines, which stays.
    pub fn say(&self, text: &str) {
        match self.terminal {
            // It fails where the terminal is gone, and with it whoever would read it.
            true => _ = self.all.println(text),
            false => eprintln!("{text}"),
        }
    }

    /// Nothing is left on the screen but what follows.
    pub fn clear(self) {
        let _ = self.all.clear();
    }
}

/// A time in five columns and its unit.
pub fn time(ms: Option<f64>) -> String {
    match ms {
        None => format!("{:>7}", "-"),
        Some(ms) if ms < 1_000.0 => format!("{ms:>5.0}ms"),
        Some(ms) => format!("{:>6.1}s", ms / 1_000.0),
    }
}
