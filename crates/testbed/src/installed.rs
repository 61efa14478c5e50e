//! What is the same of all servers that this machine may have or not: tests without one, and servers that refuse to run as root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::unistd::User;

/// What a server shows over TLS, in PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Who it is.
    pub cert: String,
    /// Its private key.
    pub key: String,
}

/// Says that a test did nothing for want of a server, and why.
///
/// # Panics
/// Where this variable is 1, which says that there is to be one.
pub(crate) fn is_skipped(required: &str, why: &str) -> bool {
    assert!(std::env::var_os(required).is_none_or(|it| it != "1"), "{why}");
    eprintln!("SKIPPED: {why}");
    true
}

/// Gives a user what this program has made.
pub(crate) fn hand_over(user: &User, path: &Path) -> Result<(), String> {
    std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
        .map_err(|e| format!("cannot give {} to the user `{}`: {e}", path.display(), user.name))
}

/// Writes a file that only this user may read, or whoever runs this program.
pub(crate) fn put(user: Option<&User>, path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o600)))
        .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    user.map_or(Ok(()), |user| hand_over(user, path))
}
