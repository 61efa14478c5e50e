//! The columns of the table: those for which there is room.

use ratatui::text::{Line, Span};

use super::palette::Palette;
use super::text::{cut, ms_per_s, slowdown, sparkline, squeeze};
use crate::history::{History, SECONDS, height};
use crate::order::Sort;
use crate::row::{By, Key, Row, wants_enough};

/// A column. The name takes all the room that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Pid,
    Tid,
    Name,
    Threads,
    Slowdown,
    Next,
    Worst,
    Actual,
    Desired,
    Waited,
    Predicted,
    Potential,
    Minute,
}

/// Below this a name is not worth showing.
const LEAST_NAME: u16 = 12;

impl Column {
    /// Those that are shown on so many characters, from left to right. The first to be left out is the last in the order of importance.
    pub fn fitting(by: By, width: u16) -> Vec<Column> {
        use Column::*;
        let (shown, by_importance): (&[Column], &[Column]) = match by {
            By::Process => (
                &[
                    Pid, Name, Threads, Slowdown, Next, Worst, Actual, Desired, Waited, Predicted, Potential,
                    Minute,
                ],
                &[Slowdown, Next, Pid, Waited, Actual, Desired, Worst, Threads, Minute, Predicted, Potential],
            ),
            By::Thread => (
                &[Pid, Tid, Name, Slowdown, Next, Actual, Desired, Waited, Predicted, Potential, Minute],
                &[Slowdown, Next, Tid, Waited, Actual, Desired, Pid, Predicted, Minute, Potential],
            ),
            By::Group => (
                &[Name, Threads, Slowdown, Next, Worst, Actual, Desired, Waited, Predicted, Minute],
                &[Slowdown, Next, Waited, Actual, Desired, Worst, Threads, Minute, Predicted],
            ),
        };
        let mut left = width.saturating_sub(LEAST_NAME);
        let mut taken = vec![Name];
        for &column in by_importance {
            if left < column.width() + 1 {
                break;
            }
            left -= column.width() + 1;
            taken.push(column);
        }
        shown.iter().copied().filter(|column| taken.contains(column)).collect()
    }

    /// How many characters it takes; of the name the least.
    pub const fn width(self) -> u16 {
        match self {
            Column::Pid | Column::Tid | Column::Slowdown | Column::Next | Column::Worst => 7,
            Column::Actual | Column::Desired | Column::Waited => 7,
            Column::Name => LEAST_NAME,
            Column::Threads => 5,
            Column::Predicted | Column::Potential => 9,
            Column::Minute => 20,
        }
    }

    /// What it is headed.
    pub const fn title(self) -> &'static str {
        match self {
            Column::Pid => "PID",
            Column::Tid => "TID",
            Column::Name => "NAME",
            Column::Threads => "THR",
            Column::Slowdown => Sort::Slowdown.title(),
            Column::Next => Sort::Next.title(),
            Column::Worst => "WORST",
            Column::Actual => Sort::Actual.title(),
            Column::Desired => Sort::Desired.title(),
            Column::Waited => Sort::Waited.title(),
            Column::Predicted => "PREDICTED",
            Column::Potential => "POTENTIAL",
            Column::Minute => "LAST MINUTE",
        }
    }

    /// Whether rows are sorted by it.
    pub fn sorts(self, by: Sort) -> bool {
        self.title() == by.title()
    }

    /// Whether it stands at the left of its room: text does.
    pub const fn is_text(self) -> bool {
        matches!(self, Column::Name | Column::Minute)
    }

    /// What it says of a row, in so many characters.
    pub fn cell(self, row: &Row, history: &History, palette: Palette, width: u16) -> Line<'static> {
        let of = &row.of;
        let slowed = |by: f64| {
            if !wants_enough(of) {
                return Span::styled("-", palette.faint());
            }
            Span::styled(slowdown(by, of.low_confidence), palette.slowdown(by))
        };
        let number = |ms: f64| Span::raw(ms_per_s(ms));
        let span = match self {
            Column::Pid => Span::styled(numbers(&row.key).0, palette.faint()),
            Column::Tid => Span::styled(numbers(&row.key).1, palette.faint()),
            Column::Name => {
                Span::raw(cut(&format!("{:1$}{2}", "", 2 * row.depth, row.name), usize::from(width)))
            }
            Column::Threads => Span::raw(row.threads.to_string()),
            Column::Slowdown => slowed(of.slowdown()),
            Column::Next => slowed(of.predicted_slowdown()),
            Column::Worst => slowed(row.worst_slowdown),
            Column::Actual => number(of.actual_ms_per_s),
            Column::Desired => number(of.desired_ms_per_s),
            Column::Waited => number(of.waited_ms_per_s),
            Column::Predicted => number(of.predicted_ms_per_s),
            Column::Potential => number(of.potential_ms_per_s),
            Column::Minute => {
                let seconds = squeeze(history.of(&row.key), SECONDS, usize::from(self.width()));
                let greatest = seconds.iter().copied().fold(1.0, f64::max);
                let line = sparkline(seconds.into_iter().map(height));
                Span::styled(format!("{line:>0$}", usize::from(self.width())), palette.slowdown(greatest))
            }
        };
        if self.is_text() { Line::from(span) } else { Line::from(span).right_aligned() }
    }
}

/// The numbers of the process and of the thread, where it has those.
pub fn numbers(key: &Key) -> (String, String) {
    match key {
        Key::Process(pid) => (pid.to_string(), String::new()),
        Key::Thread(id) => (id.pid.to_string(), id.tid.to_string()),
        Key::Group(_) => Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_most_stays_the_longest() {
        use Column::*;
        assert_eq!(Column::fitting(By::Process, 0), [Name]);
        assert_eq!(Column::fitting(By::Process, 28), [Name, Slowdown, Next]);
        assert_eq!(
            Column::fitting(By::Process, 80),
            [Pid, Name, Threads, Slowdown, Next, Worst, Actual, Desired, Waited]
        );
        for by in [By::Process, By::Thread, By::Group] {
            assert_eq!(
                Column::fitting(by, 200).len(),
                match by {
                    By::Process => 12,
                    By::Thread => 11,
                    By::Group => 10,
                }
            );
            for width in 0..200 {
                let columns = Column::fitting(by, width);
                let taken: u16 =
                    columns.iter().map(|column| column.width()).sum::<u16>() + columns.len() as u16 - 1;
                assert!(taken <= width.max(LEAST_NAME), "{by:?} on {width}: {columns:?}");
            }
        }
    }
}
