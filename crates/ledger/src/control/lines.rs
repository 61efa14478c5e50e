//! Lines out of what a socket gives, and into it: never longer than 1,024 bytes, whatever comes.

use std::fmt;

/// Most bytes of a line, its end included.
pub const MOST_LINE_BYTES: usize = 1024;

/// A line is longer than [`MOST_LINE_BYTES`]: whoever sends that is no agent and no SDK, and is hung up on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a line of more than {MOST_LINE_BYTES} bytes")
    }
}

impl std::error::Error for TooLong {}

/// What came of a line that has not ended yet.
///
/// ```
/// use plimsoll_ledger::control::Lines;
///
/// let mut lines = Lines::default();
/// lines.take(b"rerun 7\ndro");
/// assert_eq!(lines.next_line()?.as_deref(), Some("rerun 7"));
/// assert_eq!(lines.next_line()?, None);
/// lines.take(b"p 8\n");
/// assert_eq!(lines.next_line()?.as_deref(), Some("drop 8"));
/// # Ok::<(), plimsoll_ledger::control::TooLong>(())
/// ```
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Up to here it was given.
    given: usize,
}

impl Lines {
    /// What was received. Call [`next_line`](Lines::next_line) until there is none before the next.
    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.given);
        self.given = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next line, without its end, that is complete. U+FFFD stands for what is no UTF-8.
    pub fn next_line(&mut self) -> Result<Option<String>, TooLong> {
        let rest = self.bytes.get(self.given..).unwrap_or_default();
        match rest.iter().take(MOST_LINE_BYTES).position(|&b| b == b'\n') {
            Some(end) => {
                let line = String::from_utf8_lossy(&rest[..end]).into_owned();
                self.given += end + 1;
                Ok(Some(line))
            }
            None if rest.len() >= MOST_LINE_BYTES => Err(TooLong),
            None => Ok(None),
        }
    }
}

/// A line: its words, then a text without control characters, cut to what there is room for.
pub(super) fn line(mut words: String, text: &str) -> String {
    if !text.is_empty() {
        words.push(' ');
        words.extend(text.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
    words.truncate(words.floor_char_boundary(MOST_LINE_BYTES - 1));
    words.push('\n');
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_1024_bytes_at_most() {
        let mut lines = Lines::default();
        let mut longest = vec![b'x'; MOST_LINE_BYTES - 1];
        longest.push(b'\n');
        lines.take(&longest);
        assert_eq!(lines.next_line().unwrap().unwrap().len(), MOST_LINE_BYTES - 1);
        lines.take(&[b'x'; MOST_LINE_BYTES - 1]);
        assert_eq!(lines.next_line(), Ok(None));
        lines.take(b"x");
        assert_eq!(lines.next_line(), Err(TooLong));
    }

    #[test]
    fn what_is_written_is_one_line_of_1024_bytes_at_most() {
        let line = line("refused".to_owned(), &format!("a\nb\r{}", "é".repeat(2_000)));
        assert!(line.len() <= MOST_LINE_BYTES && line.starts_with("refused a b é") && line.ends_with("é\n"));
        assert_eq!(line.matches('\n').count(), 1);
    }
}
