//! What holds for everything that is said about a file, whatever the file holds.

use plimsoll_core::config::{Diagnostic, Value, parse};

/// Reads the text; what is found in it must be printable, short and at a line that there is.
pub fn read<T: Value>(text: &str) -> Option<T> {
    match parse::<T>(text, "f") {
        Ok((value, warnings)) => {
            check(text, &warnings);
            Some(value)
        }
        Err(errors) => {
            assert!(!errors.diagnostics.is_empty(), "refused without a reason");
            check(text, &errors.diagnostics);
            None
        }
    }
}

fn check(text: &str, findings: &[Diagnostic]) {
    for finding in findings {
        assert!((1..=text.matches('\n').count() + 1).contains(&finding.line), "{finding}");
        let printed = finding.to_string();
        assert!(!printed.chars().any(|c| c.is_control() && !"\n\t".contains(c)), "{printed:?}");
        assert!(printed.len() < 4_000, "{} bytes", printed.len());
    }
}
