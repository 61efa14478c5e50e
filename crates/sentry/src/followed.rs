//! A config file that may come to say something else while it is in use.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::config_file::{self, LoadError, Loaded};

/// What a file looks like from the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

/// A config file, and what of it is known.
#[derive(Debug)]
pub struct Followed {
    path: PathBuf,
    /// The text that was last carried out or found wrong: it need not be looked at again.
    seen: String,
    /// The file as it was when its text was last read, and as it was at the last look.
    read: Option<Stamp>,
    looked: Option<Stamp>,
}

impl Followed {
    /// With the text that stands there, or did when it was good.
    pub fn new(path: PathBuf, text: String) -> Followed {
        Followed { path, seen: text, read: None, looked: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says, because the operator wants it read.
    ///
    /// # Errors
    /// As [`config_file::load`].
    pub fn load(&mut self) -> Result<Loaded, LoadError> {
        let text = config_file::text(&self.path)?;
        self.parse(text)
    }

    /// What it says if that is another text than before. To be called once a second: a file that has just changed is left alone until
    /// the next look finds it the same, so that one that is being written is not read half-way.
    pub fn look(&mut self) -> Option<Result<Loaded, LoadError>> {
        let stamp = std::fs::metadata(&self.path).ok().map(|meta| Stamp {
            inode: meta.ino(),
            length: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        });
        let settled = stamp == self.looked;
        self.looked = stamp;
        if !settled || stamp.is_none() || stamp == self.read {
            return None;
        }
        self.read = stamp;
        match config_file::text(&self.path) {
            Ok(text) if text == self.seen => None,
            Ok(text) => Some(self.parse(text)),
            Err(error) => Some(Err(error)),
        }
    }

    fn parse(&mut self, text: String) -> Result<Loaded, LoadError> {
        self.seen.clone_from(&text);
        let (config, warnings) = config_file::parse(&text, &self.path)?;
        Ok(Loaded { config, text, warnings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_when_it_has_settled_and_each_text_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plimsoll.toml");
        let text = |interval: &str| format!("[herald]\nperiod = \"{interval}\"\n");
        std::fs::write(&path, text("50ms")).unwrap();
        let mut file = Followed::new(path.clone(), text("50ms"));
        assert!((0..3).all(|_| file.look().is_none()), "nothing else is there");

        std::fs::write(&path, text("200ms")).unwrap();
        assert!(file.look().is_none(), "it may be half-written");
        let loaded = file.look().unwrap().unwrap();
        assert_eq!(loaded.config.herald.period.as_millis_f64(), 200.0);
        assert!((0..3).all(|_| file.look().is_none()));

        std::fs::write(&path, "herald = 7").unwrap();
        file.look();
        assert!(file.look().unwrap().is_err());
        assert!((0..3).all(|_| file.look().is_none()), "what is wrong is said once");
        assert!(file.load().is_err(), "and again if somebody asks");

        std::fs::remove_file(&path).unwrap();
        assert!((0..3).all(|_| file.look().is_none()), "perhaps it is being replaced");
    }
}
