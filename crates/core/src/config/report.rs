//! What is wrong with a file, where, and what to write instead.

use std::fmt;
use std::ops::Range;

/// Bytes of the file, from and up to.
pub type Span = Range<usize>;

/// Findings that are printed of one file; the rest is counted.
const MAX_PRINTED: usize = 50;
/// Longest message and longest excerpt of a source line, in characters.
const MAX_MESSAGE: usize = 400;
const MAX_EXCERPT: usize = 120;

/// Collects what is found while a file is read.
#[derive(Debug, Default)]
pub struct Report {
    errors: Vec<(Span, String)>,
    warnings: Vec<(Span, String)>,
}

impl Report {
    /// The file cannot be used: what is wrong at `span`, and what to write instead.
    pub fn error(&mut self, span: Span, message: impl Into<String>) {
        self.errors.push((span, message.into()));
    }

    /// The file can be used, but something in it has no effect or is likely a slip.
    pub fn warn(&mut self, span: Span, message: impl Into<String>) {
        self.warnings.push((span, message.into()));
    }

    /// The messages of the errors alone, for input that has no lines.
    pub(super) fn error_messages(&self) -> impl Iterator<Item = String> {
        self.errors.iter().map(|(_, message)| printable(message, MAX_MESSAGE))
    }

    /// Turns byte spans into lines and columns of `text`: the value with its warnings, or the errors.
    pub(super) fn finish<T>(
        mut self,
        value: Option<T>,
        text: &str,
        file: &str,
    ) -> Result<(T, Vec<Warning>), Errors> {
        if let (Some(value), true) = (value, self.errors.is_empty()) {
            return Ok((value, locate(self.warnings, text, file, "warning: ")));
        }
        if self.errors.is_empty() {
            // Whoever returns no value says why. To forget it is a bug, and none to stop a running gateway for.
            self.error(
                0..0,
                "the file cannot be used, and this program does not say why: please report that",
            );
        }
        let more = self.errors.len().saturating_sub(MAX_PRINTED);
        Err(Errors { diagnostics: locate(self.errors, text, file, ""), more })
    }
}

/// One finding with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The name that the file was given.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong, and what to write instead.
    pub message: String,
    /// The source line and a line with a caret, or nothing where the line holds a secret.
    pub excerpt: String,
}

/// A finding that does not keep the file from being used.
pub type Warning = Diagnostic;

/// `FILE:LINE:COL: what is wrong, and what to write instead`, then the source line and a caret.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diagnostic { file, line, column, message, excerpt } = self;
        write!(f, "{file}:{line}:{column}: {message}{excerpt}")
    }
}

/// Everything that is wrong with a file, in the order of the file; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    /// The first of them.
    pub diagnostics: Vec<Diagnostic>,
    /// How many there are beyond those.
    pub more: usize,
}

impl Errors {
    /// A single one.
    pub(super) fn one(span: Span, message: String, text: &str, file: &str) -> Errors {
        Errors { diagnostics: locate(vec![(span, message)], text, file, ""), more: 0 }
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.diagnostics.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{diagnostic}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Errors {}

fn locate(mut findings: Vec<(Span, String)>, text: &str, file: &str, severity: &str) -> Vec<Diagnostic> {
    findings.sort_by_key(|(span, _)| span.start);
    let line_starts: Vec<usize> =
        std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
    let place = |(span, message): (Span, String)| {
        let start = text.floor_char_boundary(span.start);
        let line = line_starts.partition_point(|&s| s <= start);
        let line_start = line_starts[line - 1];
        let source = text[line_start..].lines().next().unwrap_or("");
        let before = &text[line_start..start];
        Diagnostic {
            file: file.to_owned(),
            line,
            column: before.chars().count() + 1,
            message: format!("{severity}{}", printable(&message, MAX_MESSAGE)),
            excerpt: excerpt(source, start - line_start, span.end.saturating_sub(line_start)),
        }
    };
    findings.into_iter().take(MAX_PRINTED).map(place).collect()
}

/// The source line with a caret line below: `start..end` are bytes of the line, the end perhaps beyond it.
fn excerpt(source: &str, start: usize, end: usize) -> String {
    // The excerpt ends in terminals and logs, where `admin_token` and the password in a `dsn` must never be, under no misspelt name
    // either.
    let secret = ["admin_", "tok", "dsn", "passw", "postgres", "mariadb", "mysql"]
        .iter()
        .any(|word| source.contains(word));
    let url = source.contains("://") && source.contains('@');
    let header = source.trim_start().starts_with('[');
    if (secret || url) && !header || source.trim().is_empty() {
        return String::new();
    }
    let start = source.floor_char_boundary(start);
    let end = source.floor_char_boundary(end).max(start);
    let (before, marked) = (&source[..start], &source[start..end]);
    // Of a long line, the part around the mark.
    let column = before.chars().count();
    let skipped =
        if source.chars().count() > MAX_EXCERPT { column.saturating_sub(MAX_EXCERPT / 2) } else { 0 };
    let shown: String = source.chars().skip(skipped).take(MAX_EXCERPT).map(visible).collect();
    // Tabs stay tabs, so that the caret stands under its mark whatever their width.
    let indent: String = before.chars().skip(skipped).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let room = MAX_EXCERPT.saturating_sub(column - skipped);
    let carets = "^".repeat(marked.chars().count().min(room).max(1));
    format!("\n  {shown}\n  {indent}{carets}")
}

/// A message may quote the file, which may hold anything: no control character reaches a terminal.
fn printable(message: &str, max: usize) -> String {
    let mut text: String = message.chars().take(max).map(visible).collect();
    if message.chars().nth(max).is_some() {
        text.push('…');
    }
    text
}

fn visible(c: char) -> char {
    if c.is_control() && c != '\t' { '\u{fffd}' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str, mark: &str) -> String {
        let start = text.find(mark).unwrap();
        let mut report = Report::default();
        report.error(start..start + mark.len(), "wrong");
        report.finish(None::<()>, text, "f.toml").unwrap_err().to_string()
    }

    #[test]
    fn the_caret_stands_under_the_mark() {
        assert_eq!(printed("a = 1\nb = 22\n", "22"), "f.toml:2:5: wrong\n  b = 22\n      ^^");
        assert_eq!(printed("\té = x\r\n", "x"), "f.toml:1:6: wrong\n  \té = x\n  \t    ^");
        assert_eq!(printed("a = [\n1,\n]", "[\n1,\n]"), "f.toml:1:5: wrong\n  a = [\n      ^");
        assert_eq!(printed("a = \u{1b}[31m", "a"), "f.toml:1:1: wrong\n  a = \u{fffd}[31m\n  ^");
    }

    #[test]
    fn a_long_line_is_shown_around_the_mark() {
        let text = format!("{}x = HERE{}", " ".repeat(1_000), "y".repeat(1_000));
        let printed = printed(&text, "HERE");
        let [head, source, carets] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
        assert_eq!(head, "f.toml:1:1005: wrong");
        assert_eq!(source.find("HERE"), carets.find("^^^^"));
        assert!(source.len() <= MAX_EXCERPT + 2);
    }

    #[test]
    fn what_is_beyond_the_limits_is_counted() {
        let mut report = Report::default();
        for _ in 0..MAX_PRINTED + 7 {
            report.error(0..1, "w".repeat(10_000));
        }
        let errors = report.finish(None::<()>, "text", "f.toml").unwrap_err();
        assert_eq!((errors.diagnostics.len(), errors.more), (MAX_PRINTED, 7));
        assert!(errors.to_string().ends_with("\nand 7 more"));
        assert_eq!(errors.diagnostics[0].message.chars().count(), MAX_MESSAGE + 1);
    }
}
