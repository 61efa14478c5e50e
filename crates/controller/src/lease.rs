//! Who is the controller: whoever holds the lock on a file in the state directory. The kernel lets go of it when its holder dies,
//! however that happens, and the next one takes over.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// Held by the one controller of a state directory. Its children do not inherit it.
#[derive(Debug)]
pub struct Lease {
    _file: File,
}

/// Makes the state directory where it is missing. What is in it decides which processes are killed, so it is nobody else's.
///
/// # Errors
/// Where it cannot be made.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The lease of this directory; nothing where another controller has it.
///
/// # Errors
/// Where the directory cannot be written to.
pub fn take(state: &Path) -> io::Result<Option<Lease>> {
    let file = File::options().create(true).truncate(false).write(true).open(state.join("lease"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lease { _file: file })),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_and_the_next_gets_it() {
        let state = tempfile::tempdir().unwrap();
        let first = take(state.path()).unwrap();
        assert!(first.is_some() && take(state.path()).unwrap().is_none());
        drop(first);
        assert!(take(state.path()).unwrap().is_some());
    }
}
