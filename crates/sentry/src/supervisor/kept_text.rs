//! A text that the parent keeps in memory for its workers: what one of them has stored, the next one goes on with.
//!
//! There are two. The last config that a worker accepted, for one that restarts while the file on disk is broken; and what
//! was [put](crate::put) through the admin address.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// Longest text that is kept; both writers' own limits are lower.
const LONGEST: u64 = 16 << 20;

/// A memory file: the text, preceded by its length. The length is written last and zeroed first, so that a
/// writer that dies half-way leaves nothing rather than half a config.
#[derive(Debug)]
pub struct KeptText(File);

impl KeptText {
    /// An empty one: the descriptor by which it is handed on.
    ///
    /// # Errors
    /// Where the kernel has no memory for it.
    pub fn create() -> io::Result<OwnedFd> {
        Ok(memfd_create("plimsoll-text", MFdFlags::MFD_CLOEXEC)?)
    }

    /// The one behind this descriptor.
    pub fn new(file: OwnedFd) -> KeptText {
        KeptText(File::from(file))
    }

    /// Keeps this text instead of what was there.
    ///
    /// # Errors
    /// Where the kernel has no memory for it; then nothing is kept.
    pub fn store(&self, text: &str) -> io::Result<()> {
        self.0.write_all_at(&0_u64.to_ne_bytes(), 0)?;
        self.0.write_all_at(text.as_bytes(), 8)?;
        self.0.write_all_at(&(text.len() as u64).to_ne_bytes(), 0)
    }

    /// What is kept, if anything.
    pub fn load(&self) -> Option<String> {
        let mut length = [0; 8];
        self.0.read_exact_at(&mut length, 0).ok()?;
        let length = u64::from_ne_bytes(length);
        if length == 0 || length > LONGEST {
            return None;
        }
        let mut text = vec![0; length as usize];
        self.0.read_exact_at(&mut text, 8).ok()?;
        String::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_whole_text() {
        let kept = KeptText::new(KeptText::create().unwrap());
        assert_eq!(kept.load(), None);
        kept.store("[sentry]\nlisten = \"a longer text\"").unwrap();
        kept.store("short").unwrap();
        assert_eq!(kept.load().as_deref(), Some("short"));
        kept.0.write_all_at(&0_u64.to_ne_bytes(), 0).unwrap();
        kept.0.write_all_at(b"half of a", 8).unwrap();
        assert_eq!(kept.load(), None, "its writer died half-way");
    }
}
