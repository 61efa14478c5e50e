//! Colours, or none.

use ratatui::style::{Color, Modifier, Style};

/// From here on somebody is slowed noticeably.
const NOTICEABLE: f64 = 1.5;
/// From here on badly.
const BAD: f64 = 5.0;

/// How things look.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    coloured: bool,
}

impl Palette {
    /// With colours or, as `NO_COLOR` asks, with bold, dim and inverted text alone.
    pub const fn new(coloured: bool) -> Palette {
        Palette { coloured }
    }

    fn fg(self, color: Color) -> Style {
        if self.coloured { Style::new().fg(color) } else { Style::new() }
    }

    /// The name of the program, heads of columns.
    pub fn head(self) -> Style {
        self.fg(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// What is of less interest.
    pub fn faint(self) -> Style {
        self.fg(Color::DarkGray).add_modifier(if self.coloured { Modifier::empty() } else { Modifier::DIM })
    }

    /// The row that is looked at.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A slowdown.
    pub fn slowdown(self, slowdown: f64) -> Style {
        match slowdown {
            s if s >= BAD => self.fg(Color::Red).add_modifier(Modifier::BOLD),
            s if s >= NOTICEABLE => self.fg(Color::Yellow),
            _ => self.fg(Color::Green),
        }
    }

    /// What asks to be read: a recording that has ended, say.
    pub fn warning(self) -> Style {
        self.fg(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// Bars.
    pub fn bar(self) -> Style {
        self.fg(Color::Blue)
    }
}
