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
    report.finish(value, text, file)
}

/// What is wrong with a file that could be read, as it turned out when it was used: at the value under these keys, or at
/// what comes nearest to it.
pub fn error_at(text: &str, file: &str, keys: &[&str], message: &str) -> Errors {
    let table = DeTable::parse_recoverable(text).0;
    let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
    let span: Span = Node::new("the file", &root).at(keys);
    Errors::one(span, message.to_owned(), text, file)
}

fn read_document<T: Value>(text: &str, report: &mut Report) -> Option<T> {
    if text.len() > MAX_FILE {
        report.error(0..0, format!("the file is {} bytes long; write at most {MAX_FILE}", text.len()));
        return None;
    }
    let (table, mistakes) = DeTable::parse_recoverable(text);
    if !mistakes.is_empty() {
        report_mistakes(text, &mistakes, report);
        return None;
    }
    let span = table.span();
    let root = Spanned::new(span, DeValue::Table(table.into_inner()));
    T::read(Node::new("the file", &root), report)
}

/// Says what the TOML reader said, in the words of this program where they are clearer.
fn report_mistakes(text: &str, mistakes: &[toml::de::Error], report: &mut Report) {
    // Within a table that is there twice, its keys are as well.
    let mut table_end = 0;
    for mistake in mistakes {
        let span = mistake.span().unwrap_or(0..0);
        let message = mistake.message();
        if message != "duplicate key" {
            // How an address or a duration without quotes looks to the reader.
            let unquoted = message.ends_with("expected nothing") || message.starts_with("string values must");
            let hint = if unquoted { "; write text, durations and addresses in quotes" } else { "" };
            report.error(span, format!("not TOML: {message}{hint}"));
            continue;
        }
        if span.start < table_end {
            continue;
        }
        let line_start = text[..span.start].rfind('\n').map_or(0, |newline| newline + 1);
        let line = text[line_start..].lines().next().unwrap_or("").trim();
        if line.starts_with('[') {
            table_end = text[span.end..].find("\n[").map_or(text.len(), |header| span.end + header);
            report.error(
                span,
                format!("the table {line} is there twice; merge the two, or give one another name"),
            );
        } else {
            let name = &text[span.clone()];
            report.error(span, format!("`{name}` is set twice; remove one of them"));
        }
    }
}
