//! Records: who decides can write down what it went by and what it decided, one JSON object a line, and `plimsoll verify` puts the same to fresh
//! ones that are to decide the same.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes after which recording stops.
const MOST_BYTES: u64 = 1 << 30;
/// Longest line that is read: a scene of 100,000 tasks.
const LONGEST: u64 = 256 << 20;

/// Writes a record, until that is as long as it may get or cannot be written.
pub struct Tape {
    out: BufWriter<File>,
    left: u64,
}

impl Tape {
    /// A record in a new file.
    ///
    /// # Errors
    /// Where it cannot be written, or is there already: the record of before stays whole.
    pub fn create(path: &Path) -> Result<Tape, String> {
        let file = File::create_new(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Tape { out: BufWriter::new(file), left: MOST_BYTES })
    }

    /// Adds a line.
    pub fn write(&mut self, line: &impl Serialize) {
        if self.left == 0 {
            return;
        }
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        self.left = self.left.saturating_sub(text.len() as u64);
        if let Err(error) = self.out.write_all(&text) {
            log::error!(error:%; "recording stops");
            self.left = 0;
        } else if self.left == 0 {
            log::warn!("the record is as long as it may get: recording stops");
        }
    }
}

/// Whether a file is a record in whose first line these words are.
pub fn begins_with(path: &Path, words: &str) -> bool {
    let mut start = [0; 128];
    let read = File::open(path).and_then(|file| file.take(start.len() as u64).read(&mut start)).unwrap_or(0);
    String::from_utf8_lossy(&start[..read]).lines().next().is_some_and(|first| first.contains(words))
}

/// Reads a record and hands over each line.
///
/// # Errors
/// Where it cannot be read, or what is said to be wrong with a line: its number and that.
pub fn read<Line: DeserializeOwned>(
    path: &Path,
    mut take: impl FnMut(Line) -> Result<(), String>,
) -> Result<(), String> {
    let at = |line: usize, what: String| format!("{}:{line}: {what}", path.display());
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (mut reader, mut text) = (BufReader::new(file), String::new());
    for line in 1.. {
        text.clear();
        let read = reader.by_ref().take(LONGEST).read_line(&mut text);
        read.map_err(|error| at(line, error.to_string()))?;
        // A line without an end is one in which whoever wrote it was killed.
        if !text.ends_with('\n') {
            break;
        }
        let parsed =
            serde_json::from_str(&text).map_err(|error| at(line, format!("not a record's: {error}")))?;
        take(parsed).map_err(|what| at(line, what))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again_to_the_last_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        let lines = [vec![Some(0.1 + 0.2), None], vec![Some(1.0 / 3.0)]];
        let mut tape = Tape::create(&path).unwrap();
        lines.iter().for_each(|line| tape.write(line));
        drop(tape);
        assert!(Tape::create(&path).is_err(), "a record is never overwritten");
        assert!(begins_with(&path, "null") && !begins_with(&path, "0.3333"));
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("[0.");
        std::fs::write(&path, text).unwrap();
        let mut found: Vec<Vec<Option<f64>>> = Vec::new();
        read(&path, |line| {
            found.push(line);
            Ok(())
        })
        .unwrap();
        assert_eq!(found, lines, "to the last bit");
        let error = read(&path, |_: Vec<Option<f64>>| Err("is not so".to_owned())).unwrap_err();
        assert!(error.ends_with("record:1: is not so"), "{error}");
        std::fs::write(&path, "[1.0]\n7\n").unwrap();
        let error = read(&path, |_: Vec<f64>| Ok(())).unwrap_err();
        assert!(error.contains("record:2: not a record's: "), "{error}");
    }
}
