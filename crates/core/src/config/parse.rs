//! From the text of a file to a value, or to everything that is wrong with it.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::{Errors, Report, Span, Warning};
use super::value::{Node, Value};

/// Longest file that is read, in bytes.
pub const MAX_FILE: usize = 1 << 20;

/// Reads a whole file. `file` is what messages call it.
///
/// # Errors
/// All that is wrong, in the order of the file. Mistakes of TOML itself come first and alone, then those of single
/// keys, then contradictions between them: each kind would make the next one noise.
pub fn parse<T: Value>(text: &str, file: &str) -> Result<(T, Vec<Warning>), Errors> {
    let mut report = Report::default();
    let value = read_document(text, &mut report);
    let warnings = report.finish(text, file)?;
    // Whoever returns no value has said why, so this is reached with one.
    value.map(|value| (value, warnings)).ok_or_else(|| Errors { diagnostics: Vec::new(), more: 0 })
}

fn read_document<T: Value>(text: &str, report: &mut Report) -> Option<T> {
    if text.len() > MAX_FILE {
        report.error(0..0, format!("the file is {} bytes long; write at most {MAX_FILE}", text.len()));
        return None;
    }
    let (table, mistakes) = DeTable::parse_recoverable(text);
    for mistake in &mistakes {
        let span = mistake.span().unwrap_or(0..0);
        report.error(span.clone(), syntax_message(text, &span, mistake.message()));
    }
    if !mistakes.is_empty() {
        return None;
    }
    let span = table.span();
    let root = Spanned::new(span, DeValue::Table(table.into_inner()));
    T::read(Node { key: "the file", value: &root, example: "" }, report)
}

/// What the TOML reader says, in the words of this program where they are clearer.
fn syntax_message(text: &str, span: &Span, message: &str) -> String {
    if message != "duplicate key" {
        return format!("not TOML: {message}");
    }
    let name = &text[span.clone()];
    let line_start = text[..span.start].rfind('\n').map_or(0, |i| i + 1);
    if !text[line_start..].trim_start().starts_with('[') {
        return format!("`{name}` is set twice; remove one of them");
    }
    let header = text[line_start..].lines().next().unwrap_or("").trim();
    format!("the table {header} is there twice; merge the two or give one another name")
}
