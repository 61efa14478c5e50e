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

    /// Turns byte spans into lines and columns of `text`: the warnings, or the errors where there are any.
    pub(super) fn finish(self, text: &str, file: &str) -> Result<Vec<Diagnostic>, Errors> {
        if self.errors.is_empty() {
            return Ok(locate(self.warnings, text, file, "warning: "));
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
    // The excerpt ends in terminals and logs, where a token must never be.
    if source.contains("admin_token") {
        return String::new();
    }
    let start = source.floor_char_boundary(start);
    let end = source.floor_char_boundary(end).max(start);
    let (before, marked) = (&source[..start], &source[start..end]);
    // Of a long line, the part around the mark.
    let skipped = before.chars().count().saturating_sub(MAX_EXCERPT / 2);
    let shown: String = source.chars().skip(skipped).take(MAX_EXCERPT).map(visible).collect();
    // Tabs stay tabs, so that the caret stands under its mark whatever their width.
    let indent: String = before.chars().skip(skipped).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let room = MAX_EXCERPT - indent.chars().count();
    let carets = "^".repeat(marked.chars().count().clamp(1, room.max(1)));
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
