//! Which processes were started for which port: one small file each, in a directory a pool, for the next controller to find.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::child::Identity;
use crate::lead::file::make_directory;

/// A process, and how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Which one.
    #[serde(flatten)]
    pub identity: Identity,
    /// Whether it has been ready, and so may have requests.
    pub ready: bool,
}

/// The directory of one pool.
#[derive(Debug)]
pub struct Notes {
    directory: PathBuf,
}

impl Notes {
    /// Of the pool with this directory, which is made where it is missing.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn open(directory: &Path) -> io::Result<Notes> {
        make_directory(directory)?;
        Ok(Notes { directory: directory.to_owned() })
    }

    /// What was noted, by port. What cannot be read is nobody's.
    pub fn read(&self) -> BTreeMap<u16, Note> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let read = |path: PathBuf| {
            let port = path.file_stem()?.to_str()?.parse().ok()?;
            Some((port, serde_json::from_slice(&fs::read(path).ok()?).ok()?))
        };
        entries.filter_map(|entry| read(entry.path())).collect()
    }

    /// Notes a process, in one step: whoever reads finds all of it or nothing.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self, port: u16, note: Note) -> io::Result<()> {
        let unfinished = self.directory.join(format!("{port}.new"));
        fs::write(&unfinished, serde_json::to_vec(&note)?)?;
        fs::rename(unfinished, self.path(port))
    }

    /// Forgets a process.
    pub fn remove(&self, port: u16) {
        // If it stays, the process that it names is found to be gone.
        let _ = fs::remove_file(self.path(port));
    }

    fn path(&self, port: u16) -> PathBuf {
        self.directory.join(format!("{port}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_found_and_nonsense_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::open(&directory.path().join("shop")).unwrap();
        let note: Note = serde_json::from_str("{\"pid\":7,\"started\":9,\"ready\":true}").unwrap();
        notes.write(9101, note).unwrap();
        for (name, text) in
            [("9102.json", "{"), ("9103.new", "{}"), ("x.json", "{\"pid\":1,\"started\":1,\"ready\":true}")]
        {
            fs::write(directory.path().join("shop").join(name), text).unwrap();
        }
        assert_eq!(notes.read(), BTreeMap::from([(9101, note)]));
        notes.remove(9101);
        assert!(notes.read().is_empty());
    }
}
