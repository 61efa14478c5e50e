//! The seat of one host: the lock on a file in the state directory. The kernel lets go of it when its holder dies, however that happens,
//! and the next one takes over.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::revision_after;

/// Held by the one controller of a state directory. Its children do not inherit it.
#[derive(Debug)]
pub struct Lease {
    file: File,
    /// Higher than that of everybody who has held it before: what is said by one of those is known to be out of date.
    pub revision: u64,
}

impl Drop for Lease {
    /// Said, not left to the closing of the file: a child that is just being started holds the same file until it is itself.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Makes the state directory where it is missing. What is in it decides which processes are killed, so it is nobody else's.
///
/// # Errors
/// Where it cannot be made.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The lease of this directory; nothing where another controller has it. `wall_s` is the time of day, in seconds since 1970.
///
/// # Errors
/// Where the directory cannot be written to.
pub fn take(state: &Path, wall_s: u64) -> io::Result<Option<Lease>> {
    let mut file =
        File::options().create(true).truncate(false).read(true).write(true).open(state.join("lease"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            let revision = next_revision(&mut file, wall_s)?;
            Ok(Some(Lease { file, revision }))
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn next_revision(file: &mut File, wall_s: u64) -> io::Result<u64> {
    let mut before = Vec::new();
    file.take(20).read_to_end(&mut before)?;
    let before = String::from_utf8(before).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let revision = revision_after(before, wall_s);
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(revision.to_string().as_bytes())?;
    file.sync_all()?;
    Ok(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_and_the_next_gets_it() {
        let state = tempfile::tempdir().unwrap();
        let first = take(state.path(), 1_000).unwrap();
        assert!(first.is_some() && take(state.path(), 1_000).unwrap().is_none());
        drop(first);
        assert!(take(state.path(), 1_000).unwrap().is_some());
    }

    #[test]
    fn revisions_rise_whatever_the_clock_says_and_whatever_becomes_of_the_file() {
        let state = tempfile::tempdir().unwrap();
        let revision = |wall_s| take(state.path(), wall_s).unwrap().unwrap().revision;
        assert_eq!([1_000, 1_000, 900, 5_000, 17].map(revision), [1_000, 1_001, 1_002, 5_000, 5_001]);
        for spoilt in ["", "18446744073709551616", "\u{fffd}x", "-3"] {
            std::fs::write(state.path().join("lease"), spoilt).unwrap();
            assert_eq!(revision(6_000), 6_000, "{spoilt}");
        }
    }
}
