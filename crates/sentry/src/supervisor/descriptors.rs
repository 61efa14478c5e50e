//! File descriptors that outlive an exec: they are open in the new program under the same number, and the
//! numbers travel in the environment. As serde sees it, a list of descriptors is a list of numbers, and [`one`] is one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// As numbers.
///
/// # Errors
/// What the format says.
pub fn serialize<S: Serializer>(list: &[OwnedFd], serializer: S) -> Result<S::Ok, S::Error> {
    list.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>().serialize(serializer)
}

/// Takes over the descriptors of these numbers, which must be open.
///
/// # Errors
/// Where one is not open: then the numbers are not meant for this process.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<OwnedFd>, D::Error> {
    Vec::<RawFd>::deserialize(deserializer)?
        .into_iter()
        .map(|number| take(number).map_err(D::Error::custom))
        .collect()
}

/// A single descriptor.
pub mod one {
    use super::{AsRawFd, Deserialize, Deserializer, Error, OwnedFd, RawFd, Serializer, take};

    /// As a number.
    ///
    /// # Errors
    /// What the format says.
    pub fn serialize<S: Serializer>(fd: &OwnedFd, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i32(fd.as_raw_fd())
    }

    /// Takes over the descriptor of this number, which must be open.
    ///
    /// # Errors
    /// Where it is not.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OwnedFd, D::Error> {
        take(RawFd::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// A descriptor that may be missing.
pub mod optional {
    use super::{AsRawFd, Deserialize, Deserializer, Error, OwnedFd, RawFd, Serialize, Serializer, take};

    /// As a number, or nothing.
    ///
    /// # Errors
    /// What the format says.
    pub fn serialize<S: Serializer>(fd: &Option<OwnedFd>, serializer: S) -> Result<S::Ok, S::Error> {
        fd.as_ref().map(AsRawFd::as_raw_fd).serialize(serializer)
    }

    /// Takes over the descriptor of this number, which must be open.
    ///
    /// # Errors
    /// Where it is not.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<OwnedFd>, D::Error> {
        Option::<RawFd>::deserialize(deserializer)?.map(take).transpose().map_err(D::Error::custom)
    }
}

fn take(number: RawFd) -> Result<OwnedFd, String> {
    if number <= 2 || !Path::new(&format!("/proc/self/fd/{number}")).exists() {
        return Err(format!("descriptor {number} was not handed over"));
    }
    // SAFETY: it is open, and nothing else in this fresh process knows its number: whoever exec'ed us left it open for
    // us.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    set_inherited(owned.as_fd(), false).map_err(|e| e.to_string())?;
    Ok(owned)
}

/// Runs `exec` while these descriptors, and no others, pass to the program that it starts. The caller is the only
/// thread of its process, so that nothing else can be started meanwhile.
///
/// # Errors
/// Where the kernel refuses to change a descriptor.
pub fn inheriting<'fd, T>(
    list: impl Iterator<Item = BorrowedFd<'fd>> + Clone,
    exec: impl FnOnce() -> T,
) -> io::Result<T> {
    for fd in list.clone() {
        set_inherited(fd, true)?;
    }
    let result = exec();
    for fd in list {
        set_inherited(fd, false)?;
    }
    Ok(result)
}

fn set_inherited(fd: BorrowedFd<'_>, inherited: bool) -> io::Result<()> {
    let flags = if inherited { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    fcntl(fd, FcntlArg::F_SETFD(flags))?;
    Ok(())
}
